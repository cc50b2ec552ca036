"""The entry point `mtcli`: runs the command line and reports its errors."""

import errno
import os
import re
import signal
import sys
from typing import NoReturn

from mtcli.cli import process
from mtcli.cli.commands import app
from mtcli.errors import MtcliError

MAX_MESSAGE = 4000
"""Maximum number of characters in a message."""

_OUT_OF_MEMORY = "out of memory|can't allocate memory|Resource temporarily unavailable|can't start new thread"
"""Messages of libraries that lack memory; the last two come from threads without room for their stack."""

_NO_DESCRIPTOR = os.strerror(errno.EMFILE)


def main() -> None:
    """Run the command line. Only this function turns an error into a line on stderr and an exit code."""
    from mtcli.runtime.progress import show_log

    try:
        process.open_streams()
        process.ignore_unusable_widths()
        try:
            show_log()
            process.check_current_folder()
            app(prog_name="mtcli")  # also for `python -m mtcli`
        finally:
            sys.stdout.flush()  # so that a full disk is reported below
    except MtcliError as error:
        _fail(str(error), error.exit_code, error)
    except KeyboardInterrupt as error:
        from mtcli.runtime.signals import stopped

        _fail(stopped(signal.SIGINT), 128 + signal.SIGINT, error)
    except OSError as error:
        code = 2 if error.errno == errno.ENAMETOOLONG else 5
        _fail(f"{error.filename or 'output'}: {error.strerror or error}", code, error)
    except SystemExit:
        raise
    except BaseException as error:  # a panic in a native library is not an Exception
        _fail_unexpectedly(error)


def _fail_unexpectedly(error: BaseException) -> NoReturn:
    if isinstance(error, MemoryError) or re.search(_OUT_OF_MEMORY, str(error)):
        _fail(f"out of memory; try {_memory_remedy()}", 5, error)
    if _NO_DESCRIPTOR in str(error):
        _fail(str(error), 5, error)
    code = 1 if isinstance(error, Exception) else 4
    _fail(f"unexpected {type(error).__name__}: {error}; MTCLI_DEBUG=1 shows where; please report it", code, error)


def _memory_remedy() -> str:
    """Return what the command that runs can do to need less memory."""
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if command == "train":
        return "a smaller model or a smaller --set train.batch_tokens"
    if command in ("translate", "eval", "explain", "augment"):
        return "a smaller --beam-size or shorter lines"
    return "shorter lines or smaller files"


def _fail(message: str, code: int, error: BaseException) -> NoReturn:
    """Print one line on standard error and exit; with MTCLI_DEBUG=1, raise the error instead."""
    if os.environ.get("MTCLI_DEBUG") == "1":
        raise error
    if _NO_DESCRIPTOR in message and "ulimit" not in message:  # any function that opens a file can raise this
        message = f"{message}; raise the limit of open files (ulimit -n) and run the same command again"
        code = 5
    if len(message) > MAX_MESSAGE:
        half = MAX_MESSAGE // 2
        message = f"{message[:half]} … {message[-half:]}"
    from mtcli.runtime.wording import printable

    print(f"mtcli: {printable(message)}", file=sys.stderr)
    sys.exit(code)
