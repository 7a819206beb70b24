"""The shape of a pooling operator: its windows, and how many of them an axis has.

The kernels pool two axes. `pooling` says which of these pools an operator of one, two or three axes is made of: a pool
of three axes is one over height and width, and then one over the depth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.hooks import is_plain
from alpha.module.module import Module
from alpha.ops.kernel.arguments import NoImages
from alpha.ops.kernel.casts import BLOCK, CUDA_TYPES, stream_grid
from alpha.ops.kernel.options import FORMS, Lengths, lengths
from alpha.ops.kernel.plan import Buffer, KernelLaunch
from alpha.runtime import workers

PARTS = 4  # of the images, for each worker of the cpu
LARGEST_CELL = 16  # pixels of which a thread of a GPU makes the gradients together


class Axis(NamedTuple):
    """One axis of a pool: the lengths of input, output and window, stride, padding and dilation."""

    I: int
    O: int
    F: int = 1
    s: int = 1
    p: int = 0
    d: int = 1


ONE = Axis(1, 1)


@dataclass(frozen=True)
class PoolShape:
    """X (N, IH, IW, C) -> Y (N, OH, OW, C); windows (FH, FW), stride (sh, sw), padding (ph, pw), dilation (dh, dw).

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
    dh: int = 1  # the distance between the taps of a maximum
    dw: int = 1

    @classmethod
    def of(cls, N: int, C: int, h: Axis, w: Axis, **more: Any) -> PoolShape:
        """The pool over two axes; `more` are the last fields."""
        return cls(N, h.I, w.I, C, h.F, w.F, h.s, w.s, h.p, w.p, h.O, w.O, dh=h.d, dw=w.d, **more)

    def window(self, oh: int, ow: int) -> tuple[int, int, int, int, int]:
        """(ih_s, ih_e, iw_s, iw_e, divisor) of one output without dilation."""
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

    @property
    def tap_dtype(self) -> np.dtype[Any]:
        """The dtype that holds the number of a tap: a byte if no window has more than 256."""
        rows, columns = self.FH, self.FW
        if self.adaptive:
            rows, columns = -(-self.IH // self.OH) + 1, -(-self.IW // self.OW) + 1
        return np.dtype(np.uint8 if rows * columns <= 256 else np.int32)

    def first_taps(self) -> Array:
        """The first tap that meets the input, of each output   -> (OH, OW) of `tap_dtype`"""
        rows = -np.minimum(np.arange(self.OH) * self.sh - self.ph, 0) + self.dh - 1
        columns = -np.minimum(np.arange(self.OW) * self.sw - self.pw, 0) + self.dw - 1
        return (rows[:, None] // self.dh * self.FW + columns // self.dw).astype(self.tap_dtype)

    @property
    def cells(self) -> int | None:
        """Number of cells, the sh x sw pixels of each window and of what is behind it; None if windows share pixels."""
        apart = not self.adaptive and self.sh >= self.FH and self.sw >= self.FW and self.dh == self.dw == 1
        if not apart or self.sh * self.sw > LARGEST_CELL:
            return None
        return self.N * -(-(self.IH + self.ph) // self.sh) * -(-(self.IW + self.pw) // self.sw)

    def macros(self) -> dict[str, int]:
        """Macros with which the kernels are compiled."""
        return {
            "FH": self.FH,
            "FW": self.FW,
            "SH": self.sh,
            "SW": self.sw,
            "PH": self.ph,
            "PW": self.pw,
            "ADAPTIVE": int(self.adaptive),
        }


class Pooling(NamedTuple):
    """A pooling operator: the pools of two axes that it is made of, one after the other, and its result's shape."""

    shapes: tuple[PoolShape, ...]
    result: tuple[int, ...]

    def run(self, x: Tensor, *pools: Callable[[Tensor, PoolShape], Tensor]) -> Tensor:
        """The result of the pools, each of which gets its tensor (N, IH, IW, C) and its shape."""
        if 0 in self.result:
            return NoImages.apply(x, shape=self.result)
        for pool, s in zip(pools if len(pools) > 1 else pools * len(self.shapes), self.shapes, strict=True):
            x = pool(shaped(x, (s.N, s.IH, s.IW, s.C)), s)
        return shaped(x, self.result)


def shaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """x with another shape; x itself if it has it."""
    return x if x.shape == shape else x.reshape(shape)


class Windows(NamedTuple):
    """The arguments of a pooling operator; stride None is kernel_size."""

    kernel_size: Lengths
    stride: Lengths | None
    padding: Lengths
    dilation: Lengths
    ceil_mode: bool


# of a layer that is a maximum pool of two axes: its forward, whose windows are its attribute `windows`
LAYERS: dict[type[Module], Callable[..., Any]] = {}


def windows_of(pool: Callable[[Tensor], Tensor] | None) -> Windows | None:
    """The windows of a layer that does nothing but a maximum pool of two axes; None for anything else.

    A layer that returns indices, one with hooks, and one whose `forward` was assigned do something else.

    Raises:
        TypeError: the pool is neither None nor a function.
    """
    if pool is not None and not callable(pool):
        raise TypeError(f"pool={pool!r} is no layer and no function of a tensor")
    if not isinstance(pool, Module) or LAYERS.get(type(pool)) is not type(pool).forward or not is_plain(pool):
        return None
    layer: Any = pool
    return None if layer.return_indices else layer.windows


def image_sizes(operator: str, rank: int, x: Tensor) -> tuple[int, tuple[int, ...], int]:
    """(N, the lengths of the `rank` axes, C) of x, which may be one image without N.

    Raises:
        ShapeError: x has another number of axes.
    """
    if x.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"{operator}: x {FORMS[rank]} is needed  (x {x.shape})")
    N = x.shape[0] if x.ndim == rank + 2 else 1
    return N, x.shape[-1 - rank : -1], x.shape[-1]


def pooling(operator: str, rank: int, x: Tensor, windows: Windows, **more: Any) -> Pooling:
    """Check the arguments of a pooling operator of `rank` axes and say what it is made of.

    `more` are fields of `PoolShape`.

    Raises:
        ShapeError: x has not the axes, the padding is above half the window, or the output would be empty.
        TypeError: a size is not an integer.
    """
    F = lengths(operator, "kernel_size", windows.kernel_size, rank)
    s = F if windows.stride is None else lengths(operator, "stride", windows.stride, rank)
    p = lengths(operator, "padding", windows.padding, rank)
    d = lengths(operator, "dilation", windows.dilation, rank, least=1)
    N, I, C = image_sizes(operator, rank, x)
    if min(*F, *s) < 1 or not all(0 <= 2 * pad <= f for pad, f in zip(p, F, strict=True)):
        raise ShapeError(
            f"{operator}: kernel_size {F} and stride {s} must be >= 1, padding {p} at most half the kernel"
        )
    axes = [
        Axis(i, outputs(i, gap * (f - 1) + 1, step, pad, windows.ceil_mode), f, step, pad, gap)
        for i, f, step, pad, gap in zip(I, F, s, p, d, strict=True)
    ]
    result = (N, *(axis.O for axis in axes), C)
    if min(result[1:]) < 1:  # a batch of 0 images is taken
        raise ShapeError(
            f"{operator}: the output would be {result}, which is empty  (x {x.shape}, kernel_size {F}, stride {s}, "
            f"padding {p}, dilation {d})"
        )
    return decomposed(x, axes, **more)


def decomposed(x: Tensor, axes: Sequence[Axis], **more: Any) -> Pooling:
    """The pools of two axes of an operator on x (N, *I, C) or (*I, C); `more` are fields of `PoolShape`."""
    rank, C = len(axes), x.shape[-1]
    N = math.prod(x.shape[: -1 - rank])
    result = (*x.shape[: -1 - rank], *(axis.O for axis in axes), C)
    if rank < 3:
        h, w = (*axes, ONE)[:2]
        return Pooling((PoolShape.of(N, C, h, w, **more),), result)
    d, h, w = axes
    plane = PoolShape.of(N * d.I, C, h, w, **more)
    if plane.divisor:
        more["divisor"] = 1
    return Pooling((plane, PoolShape.of(N, h.O * w.O * C, d, ONE, **more)), result)


def outputs(I: int, F: int, s: int, p: int, ceil_mode: bool) -> int:
    """Number of windows of an axis; with ceil_mode the last one may reach over the border."""
    if not ceil_mode:
        return (I + 2 * p - F) // s + 1
    O = -(-(I + 2 * p - F) // s) + 1
    return O - 1 if (O - 1) * s >= I + p else O  # a window begins inside of the image or of the padding before it


# -- running ------------------------------------------------------------------------------------------


def over_images(N: int, body: Any) -> None:
    """body(start, stop) for parts of N images, on the threads of the cpu."""
    workers.parallel_for(N, max(1, -(-N // (PARTS * workers.count()))), body)


def pool_launch(
    kind: str,
    way: str,
    s: PoolShape,
    operands: Sequence[Any],
    result: Buffer,
    macros: Mapping[str, Any],
    places: int | None = None,
) -> KernelLaunch:
    """The launch that makes a result, Y "forward" or dX "backward".

    A thread makes VECTOR channels of a place, PACKS times; `places`: how many there are, if not those of the result.
    """
    channels = result.size if places is None else places * s.C
    return KernelLaunch(
        f"pool2d/{kind}.cu",
        f"{kind}_{way}",
        -(-channels // (BLOCK * macros["VECTOR"] * macros.get("PACKS", 1))),
        BLOCK,
        (*operands, s.N, s.IH, s.IW, s.C, s.OH, s.OW),
        {
            "TYPE": CUDA_TYPES[result.dtype],
            "INDEX": stream_grid(result.size, macros["VECTOR"])[1]["INDEX"],
            **s.macros(),
            **macros,
        },
    )
