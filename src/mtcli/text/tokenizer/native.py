"""Calls into the native `tokenizers` library."""

from collections.abc import Callable, Iterable
from typing import Any

from mtcli.errors import DataError, ModelError


def call_native(call: Callable[[], Any], texts: Iterable[str] = ()) -> Any:
    """Call the native library, and turn its errors into a ModelError.

    Args:
        call: Calls the library. A panic in it raises a BaseException that is not an Exception.
        texts: What the call encodes.

    Raises:
        DataError: The call failed, and one of `texts` contains a lone surrogate.
        ModelError: The call failed for another reason.
    """
    try:
        return call()
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as error:
        for text in texts:
            if isinstance(text, str) and any("\ud800" <= c <= "\udfff" for c in text):
                raise DataError(f"text that is not valid Unicode: {text[:60]!r}") from None
        raise ModelError(f"the tokenizers library refuses it ({error})") from None
