"""PyTorch's names of mixed precision: `autocast`, a precision inside of a `with` statement, and `GradScaler`."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from alpha.core.names.missing_names import tell_instead
from alpha.core.numerics import BFLOAT16, FLOAT32, get_precision, precision
from alpha.runtime import Device

__all__ = ["GradScaler", "autocast"]

T = TypeVar("T")


class autocast(precision):
    """`with alpha.autocast("cuda", dtype=alpha.bfloat16): ...`, or as a decorator: `alpha.precision("bf16")`.

    Parameters and their gradients stay float32, and so do sums and losses. Therefore there is no loss to scale.
    Call `backward` inside or outside: an operator's gradient has the precision of the operator.

    Args:
        device_type: "cuda", or "cpu", which changes nothing: the cpu computes in the dtype of its arrays.
        dtype: bfloat16 (the default), or float32, which changes nothing.
        enabled: False computes in float32 if bfloat16 was in force.
        cache_enabled: taken for PyTorch's sake: an optimizer keeps the weights in bfloat16 that it updates.

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


class GradScaler:
    """Calls the optimizer and scales nothing: gradients are float32, or bfloat16 with the range of float32.

        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    This is PyTorch's scaler with `enabled=False`: an update with infinite or NaN gradients is done, not skipped.
    `nn.utils.clip_grad_norm_(.., error_if_nonfinite=True)` finds such gradients.

    Args:
        device: "cuda" or "cpu".
        init_scale, growth_factor, backoff_factor, growth_interval, enabled: taken for PyTorch's sake.
    """

    def __init__(
        self,
        device: str | Device = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self.device = str(device)

    def __repr__(self) -> str:
        return f"GradScaler(device={self.device!r}, scale 1)"

    def scale(self, outputs: T) -> T:
        """The outputs themselves."""
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Does nothing: gradients are not scaled."""

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Call `optimizer.step` and return its result."""
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Does nothing."""

    def get_scale(self) -> float:
        """1.0, by which every loss is scaled."""
        return 1.0

    def is_enabled(self) -> bool:
        """False: nothing is scaled."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """An empty dict, as that of a scaler of PyTorch that is not enabled."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the state of any scaler, and has no use for it."""


tell_instead(__name__)
