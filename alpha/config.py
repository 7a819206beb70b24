"""Every ALPHA_* environment variable: name, default, meaning. Read when asked for, never at import."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from alpha.errors import ConfigError


@dataclass(frozen=True)
class Variable:
    """One environment variable; `get()` reads it, the empty string counts as unset."""

    name: str
    default: str
    meaning: str

    def get(self) -> str:
        return os.environ.get(self.name) or self.default

    def flag(self) -> bool:
        return self.get() not in ("", "0")

    def integer(self) -> int:
        text = self.get()
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{self.name}={text!r} is not a whole number") from None


DEBUG = Variable("ALPHA_DEBUG", "0", "1: print each convolution variant once as it is chosen")
CONV_VARIANT = Variable("ALPHA_CONV_VARIANT", "", "force this row of the convolution variant table")
TUNE = Variable("ALPHA_TUNE", "0", "1: time the convolution variants of each shape once, and take the fastest")
CUDA_DRIVER = Variable("ALPHA_CUDA_DRIVER", "pycuda", "pycuda: the GPU; emulated: the same kernels run by the CPU")
ISOLATE = Variable("ALPHA_ISOLATE", "0", "1: each GPU array is an allocation of its own, for compute-sanitizer")
CACHE_DIR = Variable("ALPHA_CACHE_DIR", "", "where compiled kernels are kept (default ~/.cache/alpha)")
COMPILER = Variable("ALPHA_COMPILER", "", "nvcc or nvrtc; default: nvcc where it is found")
ARCH = Variable("ALPHA_ARCH", "", "compile for this architecture, e.g. sm_80 (default: the GPU's)")
EMULATED_SEED = Variable("ALPHA_EMULATED_SEED", "0", "emulated driver: order of blocks and threads; 0 is ascending")
EMULATED_SANITIZE = Variable(
    "ALPHA_EMULATED_SANITIZE", "", "emulated driver: build kernels with e.g. address,undefined"
)
EMULATED_OPTIMIZE = Variable(
    "ALPHA_EMULATED_OPTIMIZE", "3", "emulated driver: -O of the C++ compiler; with 1 a kernel compiles in half the time"
)
EMULATED_DEBUG = Variable("ALPHA_EMULATED_DEBUG", "0", "1: emulated driver: build kernels for a debugger")
CPU_THREADS = Variable("ALPHA_CPU_THREADS", "0", "workers of the cpu operators; 0: one a core")
DATA_DIR = Variable("ALPHA_DATA_DIR", "", "where datasets are kept (default: datasets/)")

VARIABLES = tuple(value for value in list(globals().values()) if isinstance(value, Variable))


def cache_dir() -> Path:
    """The folder of compiled kernels."""
    text = CACHE_DIR.get()
    return Path(text) if text else Path.home() / ".cache" / "alpha"


def table() -> str:
    """The variables as text, one a line; `python -m alpha.doctor` prints it."""
    return "\n".join(f"{v.name:24} {v.get() or '-':12} {v.meaning}" for v in VARIABLES)
