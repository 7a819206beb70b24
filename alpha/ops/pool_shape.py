"""The shape of a pooling operator: its windows, and how many of them an axis has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from alpha.errors import ShapeError
from alpha.ops.options import Pair, pair
from alpha.primitive import Array
from alpha.tensor import Tensor


@dataclass(frozen=True)
class PoolShape:
    """X (N, IH, IW, C) -> Y (N, OH, OW, C); windows (FH, FW), stride (sh, sw), padding (ph, pw).

    Adaptive: windows of output (oh, ow) are [oh IH // OH, ceil((oh + 1) IH / OH)), columns likewise.
    """

    N: int
    IH: int
    IW: int
    C: int
    FH: int
    FW: int
    sh: int
    sw: int
    ph: int
    pw: int
    OH: int
    OW: int
    adaptive: bool = False
    count_padding: bool = True
    divisor: int = 0  # of an average, whatever its window is; 0 means the window's size

    def window(self, oh: int, ow: int) -> tuple[int, int, int, int, int]:
        """(ih_s, ih_e, iw_s, iw_e, divisor) of one output."""
        *span, size = self._window(oh, ow)
        return span[0], span[1], span[2], span[3], self.divisor or size

    def _window(self, oh: int, ow: int) -> tuple[int, int, int, int, int]:
        if self.adaptive:
            h_s, h_e = oh * self.IH // self.OH, -(-(oh + 1) * self.IH // self.OH)
            w_s, w_e = ow * self.IW // self.OW, -(-(ow + 1) * self.IW // self.OW)
            return h_s, h_e, w_s, w_e, (h_e - h_s) * (w_e - w_s)
        top, left = oh * self.sh - self.ph, ow * self.sw - self.pw
        h_s, h_e = max(top, 0), min(top + self.FH, self.IH)
        w_s, w_e = max(left, 0), min(left + self.FW, self.IW)
        if not self.count_padding:
            return h_s, h_e, w_s, w_e, (h_e - h_s) * (w_e - w_s)
        # padding counts, what the window reaches beyond it does not (as in PyTorch)
        rows = min(top + self.FH, self.IH + self.ph) - top
        columns = min(left + self.FW, self.IW + self.pw) - left
        return h_s, h_e, w_s, w_e, rows * columns

    def first_taps(self) -> Array:
        """The first tap that meets the input, of each output   -> (OH, OW) uint8"""
        rows = np.maximum(self.ph - np.arange(self.OH) * self.sh, 0)
        columns = np.maximum(self.pw - np.arange(self.OW) * self.sw, 0)
        return (rows[:, None] * self.FW + columns).astype(np.uint8)

    def macros(self) -> dict[str, int]:
        """What the kernels are compiled for."""
        return {
            "FH": self.FH,
            "FW": self.FW,
            "SH": self.sh,
            "SW": self.sw,
            "PH": self.ph,
            "PW": self.pw,
            "ADAPTIVE": int(self.adaptive),
            "COUNT_PADDING": int(self.count_padding),
            "DIVISOR": self.divisor,
        }


def pool_shape(
    operator: str, x: Tensor, kernel_size: Pair, stride: Pair | None, padding: Pair, ceil_mode: bool, **more: Any
) -> PoolShape:
    """Check the arguments of a pooling operator and make its `PoolShape`.

    Raises:
        ShapeError: x has not four axes, the padding is above half the window, or the output would be empty.
        TypeError: x is not a Tensor of floating numbers, or a size is not an integer.
    """
    FH, FW = pair(operator, "kernel_size", kernel_size)
    sh, sw = (FH, FW) if stride is None else pair(operator, "stride", stride)
    ph, pw = pair(operator, "padding", padding)
    if x.ndim != 4:
        raise ShapeError(f"{operator}: x (N, H, W, C) is needed  (x {x.shape})")
    N, IH, IW, C = x.shape
    if min(FH, FW, sh, sw) < 1 or not (0 <= 2 * ph <= FH and 0 <= 2 * pw <= FW):
        raise ShapeError(
            f"{operator}: kernel_size ({FH}, {FW}) and stride ({sh}, {sw}) must be >= 1, "
            f"padding ({ph}, {pw}) at most half the kernel"
        )
    OH, OW = _outputs(IH, FH, sh, ph, ceil_mode), _outputs(IW, FW, sw, pw, ceil_mode)
    if min(N, C, OH, OW) < 1:
        raise ShapeError(
            f"{operator}: the output would be ({N}, {OH}, {OW}, {C}), which is empty  (x {x.shape}, "
            f"kernel_size ({FH}, {FW}), stride ({sh}, {sw}), padding ({ph}, {pw}))"
        )
    return PoolShape(N, IH, IW, C, FH, FW, sh, sw, ph, pw, OH, OW, **more)


def _outputs(I: int, F: int, s: int, p: int, ceil_mode: bool) -> int:
    """How many windows an axis has; with ceil_mode the last one may reach over the border."""
    if not ceil_mode:
        return (I + 2 * p - F) // s + 1
    O = -(-(I + 2 * p - F) // s) + 1
    return O - 1 if (O - 1) * s >= I + p else O  # a window begins inside of the image or of the padding before it
