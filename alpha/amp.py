"""`autocast`, PyTorch's name for a precision that holds inside of a `with` statement."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.numerics import BFLOAT16, FLOAT32, get_precision, precision
from alpha.runtime import Device

__all__ = ["autocast"]


class autocast(precision):
    """`with alpha.autocast("cuda", dtype=alpha.bfloat16): ...`, or as a decorator: `alpha.precision("bf16")`.

    Parameters and their gradients stay float32, and so do sums and losses. Therefore there is no loss to scale, and no
    GradScaler. Call `backward` inside or outside: an operator's gradient has the precision of the operator.

    Args:
        device_type: "cuda", or "cpu", which changes nothing: the cpu computes in the dtype of its arrays.
        dtype: bfloat16 (the default), or float32, which changes nothing.
        enabled: False computes in float32 if bfloat16 was in force.
        cache_enabled: taken for PyTorch's sake: no weight is kept in bfloat16.

    Raises `ValueError` for another dtype, as float16, whose range is too small for gradients that are not scaled.
    """

    def __init__(
        self, device_type: str | Device, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        device = str(device_type).partition(":")[0]
        if device not in ("cpu", "cuda"):
            raise ValueError(f"autocast: device_type {device_type!r} is not one of cpu, cuda")
        kind = BFLOAT16 if dtype is None else np.dtype(dtype)
        if kind not in (BFLOAT16, FLOAT32):
            raise ValueError(f"autocast: dtype {kind} is not one of bfloat16, float32")
        super().__init__("bf16" if enabled and kind == BFLOAT16 else "float32")
        self._changes = device == "cuda" and (self.name == "bf16" or not enabled)

    def _inside(self) -> str:
        now = get_precision()
        return self.name if self._changes and "bf16" in (now, self.name) else now  # else "tf32" stays
