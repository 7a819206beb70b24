"""The precision of convolutions and matrix products on tensor cores, one switch, and the dtype bfloat16.

    alpha.set_precision("tf32")            # from here on, in this thread
    with alpha.precision("float32"): ...   # inside only

"float32" (the default) is at least as accurate as float32 arithmetic; "tf32" keeps 11 bits of each operand and
sums in float32. "bf16" on cuda gives bfloat16 activations, 8 bits: convolutions and linear layers take and give them,
and what follows keeps them; every sum, all parameters, their gradients, batch statistics and losses stay float32, so
there is no loss to scale. An operator of a float32 and a bfloat16 tensor gives float32, as in PyTorch; only products
(convolutions, linear layers, matmul) give bfloat16. The backward pass of an operator has the precision of its forward
pass, whatever has been set since.

An operator computes more accurately than asked if that is all there is: the cpu computes in float32 in every precision
(in float64 on float64 arrays), and so do GPUs older than sm_80, which with "bf16" have bfloat16 arrays nonetheless.
`tests/ops/all/numbers/test_math_mode.py` shows what ran.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from alpha.runtime.settings import Setting, Within

PRECISIONS = ("float32", "tf32", "bf16")
FLOAT32: np.dtype[Any] = np.dtype(np.float32)
BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)  # a user type to numpy, whose kind is "V"


def is_floating(dtype: np.dtype[Any]) -> bool:
    """True if numbers of that dtype have gradients."""
    return dtype.kind == "f" or dtype == BFLOAT16


_setting = Setting("precision", PRECISIONS)


def get_precision() -> str:
    """The precision in force in this thread."""
    return _setting.name


def set_precision(name: str) -> None:
    """Set the precision for this thread; `ValueError` for a name that is none of "float32", "tf32", "bf16"."""
    _setting.name = _setting.checked(name)


class precision(Within):
    """`with alpha.precision("tf32"): ...`, or as a decorator.

    Examples:
        >>> import alpha
        >>> with alpha.precision("tf32"):
        ...     alpha.get_precision()
        ...
        'tf32'
        >>> alpha.get_precision()
        'float32'
    """

    def __init__(self, name: str) -> None:
        super().__init__(_setting, name)


def computed_precision(device_name: str, asked: str) -> str:
    """The precision in which a device computes if `asked` is in force: the cpu computes everything in float32."""
    return "float32" if device_name == "cpu" else asked
