"""The C++ part of the simulated device: compiled once for each version of PyTorch, kept in the user's cache folder."""

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

SOURCE = Path(__file__).with_name("device.cpp")
COMPILERS = ("c++", "g++", "clang++")


def unavailable() -> str:
    """Return the reason why the device cannot be built here, or an empty string. PyTorch is not imported."""
    if sys.platform != "linux":
        return "the simulated CUDA device is for Linux"
    if _compiler() is None:
        return f"no C++ compiler ({', '.join(COMPILERS)}) to build the simulated CUDA device"
    if not (_torch_folder() / "include" / "ATen" / "detail" / "CUDAHooksInterface.h").exists():
        return "this PyTorch has no C++ headers to build the simulated CUDA device"
    if (_torch_folder() / "lib" / "libtorch_cuda.so").exists():
        return "this PyTorch has CUDA of its own: use -m gpu"
    return ""


def load() -> None:
    """Load the library, after compiling it if this version was not compiled before. Call it before importing torch."""
    ctypes.CDLL(str(_built()), mode=ctypes.RTLD_GLOBAL)


def _compiler() -> str | None:
    return next((path for name in COMPILERS if (path := shutil.which(name))), None)


def _torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _built() -> Path:
    """Return the path of the compiled library. Several processes may ask at the same time."""
    torch = _torch_folder()
    version = (torch / "version.py").read_bytes()
    digest = hashlib.sha256(SOURCE.read_bytes() + version + str(torch).encode()).hexdigest()[:16]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    library = caches / "mtcli-tests" / f"simulated-cuda-{digest}.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(library.with_suffix(".lock")):
        if not library.exists():
            _compile(torch, library)
    return library


def _compile(torch: Path, library: Path) -> None:
    compiler = _compiler()
    assert compiler is not None
    unfinished = library.with_suffix(".unfinished")
    command = [
        compiler, "-std=c++20", "-O0", "-shared", "-fPIC", "-D_GLIBCXX_USE_CXX11_ABI=1", str(SOURCE),
        f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include",
        f"-L{torch}/lib", f"-Wl,-rpath,{torch}/lib", "-lc10", "-ltorch_cpu", "-o", str(unfinished),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the simulated CUDA device does not compile:\n{done.stderr[-4000:]}")
    unfinished.rename(library)
