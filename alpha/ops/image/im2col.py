"""Windows of images as rows of a matrix, and back: im2col and col2im, channels last."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

from alpha.autograd.function import Function
from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.pad import pad
from alpha.ops.kernel.arguments import check_arguments, unchecked
from alpha.ops.kernel.elementwise import add
from alpha.ops.kernel.function_layer import FunctionLayer, function_layer
from alpha.ops.kernel.options import Pair, lengths_as_given, pair
from alpha.ops.kernel.views import View, read_view, write_view
from alpha.ops.pooling.pool_shape import outputs

__all__ = ["Fold", "Unfold", "fold", "unfold"]


class Patches(NamedTuple):
    """Windows (FH, FW) of images (N, H, W, C), which have their padding: stride (sh, sw), dilation (dh, dw)."""

    N: int
    H: int
    W: int
    C: int
    OH: int
    OW: int
    FH: int
    FW: int
    sh: int
    sw: int
    dh: int
    dw: int

    @property
    def rows(self) -> tuple[int, int, int]:
        """The shape of the windows as rows: (N, OH OW, C FH FW)."""
        return self.N, self.OH * self.OW, self.C * self.FH * self.FW

    def all_taps(self) -> View:
        """View of the images that has the elements (N, OH, OW, C, FH, FW) of the rows."""
        column, row = self.C, self.W * self.C
        strides = (self.H * row, self.sh * row, self.sw * column, 1, self.dh * row, self.dw * column)
        return View((self.N, self.OH, self.OW, self.C, self.FH, self.FW), strides)

    def tap(self, fh: int, fw: int) -> tuple[View, View]:
        """Views of one tap (N, OH, OW, C) of all windows: in the images, and in the rows."""
        whole, D = self.all_taps(), self.rows[2]
        offset = fh * whole.strides[4] + fw * whole.strides[5]
        strides = (self.OH * self.OW * D, self.OW * D, D, self.FH * self.FW)
        return View(whole.shape[:4], whole.strides[:4], offset), View(whole.shape[:4], strides, fh * self.FW + fw)

    def gather(self, X: Array) -> Array:
        """The windows of the images   X (N, H, W, C) -> Y rows"""
        return read_view(X, self.all_taps()).reshape(self.rows)

    def scatter(self, Y: Array) -> Array:
        """The sum of the windows that hold a pixel, tap by tap   Y rows -> X (N, H, W, C)"""
        X = device_of(Y).zeros(self[:4], Y.dtype)
        for fh in range(self.FH):
            for fw in range(self.FW):
                box, part = self.tap(fh, fw)
                write_view(X, box, add(read_view(X, box), read_view(Y, part)), View.whole(box.shape))
        return X


class UnfoldImages(Function):
    """Y = windows of X as rows   X (N, H, W, C) -> Y (N, OH OW, C FH FW)"""

    def forward(self, X: Array, *, patches: Patches) -> Array:
        self.patches = patches
        return patches.gather(X)

    def backward(self, dY: Array) -> Any:
        return self.patches.scatter(dY)


class FoldImages(Function):
    """Y = sums of windows   X (N, OH OW, C FH FW) -> Y (N, H, W, C)"""

    def forward(self, X: Array, *, patches: Patches) -> Array:
        self.patches = patches
        return patches.scatter(X)

    def backward(self, dY: Array) -> Any:
        return self.patches.gather(dY)


class Sizes(NamedTuple):
    """Checked kernel_size, dilation, padding and stride, as pairs."""

    F: tuple[int, int]
    d: tuple[int, int]
    p: tuple[int, int]
    s: tuple[int, int]

    @classmethod
    def of(cls, operator: str, kernel_size: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Sizes:
        return cls(
            pair(operator, "kernel_size", kernel_size, least=1),
            pair(operator, "dilation", dilation, least=1),
            pair(operator, "padding", padding, least=0),
            pair(operator, "stride", stride, least=1),
        )

    def patches(self, operator: str, N: int, I: tuple[int, int], C: int) -> Patches:
        """The windows of N images of I pixels without padding; `ShapeError` if there are none."""
        H, W = (i + 2 * p for i, p in zip(I, self.p, strict=True))
        (FH, FW), (dh, dw), _, (sh, sw) = self
        OH, OW = outputs(H, dh * (FH - 1) + 1, sh, 0, False), outputs(W, dw * (FW - 1) + 1, sw, 0, False)
        if min(OH, OW, C) < 1:
            raise ShapeError(
                f"{operator}: there is no window of {self.F} in images {I} of {C} channels  (dilation {self.d}, "
                f"padding {self.p}, stride {self.s})"
            )
        return Patches(N, H, W, C, OH, OW, FH, FW, sh, sw, dh, dw)


@check_arguments
def unfold(x: Tensor, kernel_size: Pair, dilation: Pair = 1, padding: Pair = 0, stride: Pair = 1) -> Tensor:
    """The windows of images as rows (im2col)   x (N, H, W, C), or one image without N -> (N, OH OW, C FH FW)

    Column c FH FW + fh FW + fw of a row is tap (fh, fw) of channel c, as PyTorch orders its rows.

    Args:
        kernel_size, dilation, padding, stride: (height, width), or one number for both; the padding is zeros.

    Raises:
        ShapeError: x has other axes, or there is no window.
        ValueError: a size is too small.
    """
    sizes = Sizes.of("unfold", kernel_size, dilation, padding, stride)
    if x.ndim not in (3, 4):
        raise ShapeError(f"unfold: x (N, H, W, C) is needed  (x {x.shape})")
    images = x if x.ndim == 4 else x.reshape(1, *x.shape)
    N, H, W, C = images.shape
    patches = sizes.patches("unfold", N, (H, W), C)
    (ph, pw) = sizes.p
    if ph or pw:
        images = unchecked(pad)(images, (0, 0, pw, pw, ph, ph))
    rows = UnfoldImages.apply(images, patches=patches)
    return rows if x.ndim == 4 else rows.reshape(rows.shape[1:])


@check_arguments
def fold(
    x: Tensor, output_size: Pair, kernel_size: Pair, dilation: Pair = 1, padding: Pair = 0, stride: Pair = 1
) -> Tensor:
    """Images from rows of windows, which are added where they overlap (col2im): the gradient of `unfold`.

    x (N, OH OW, C FH FW), or (OH OW, C FH FW) of one image -> (N, H, W, C)

    Args:
        output_size: (H, W), or one number for both.
        kernel_size, dilation, padding, stride: those of `unfold`.

    Raises:
        ShapeError: x has not the rows and columns of such windows.
        ValueError: a size is too small.
    """
    sizes = Sizes.of("fold", kernel_size, dilation, padding, stride)
    I = pair("fold", "output_size", output_size, least=1)
    taps = math.prod(sizes.F)
    if x.ndim not in (2, 3) or x.shape[-1] % taps:
        raise ShapeError(f"fold: x (N, rows, C {sizes.F[0]} {sizes.F[1]}) is needed  (x {x.shape})")
    N = x.shape[0] if x.ndim == 3 else 1
    patches = sizes.patches("fold", N, I, x.shape[-1] // taps)
    if x.shape[-2] != patches.rows[1]:
        raise ShapeError(f"fold: {patches.OH} x {patches.OW} windows need as many rows, x has {x.shape[-2]}")
    images = FoldImages.apply(x.reshape(*patches.rows), patches=patches)
    ph, pw = sizes.p
    if ph or pw:
        images = images[:, ph : ph + I[0], pw : pw + I[1]]
    return images if x.ndim == 3 else images.reshape(images.shape[1:])


_pair_from_0 = partial(lengths_as_given, rank=2, least=0)


@function_layer(unfold, padding=_pair_from_0)
class Unfold(FunctionLayer):
    """The windows of images as rows   (N, H, W, C) -> (N, OH OW, C FH FW); arguments are those of `unfold`"""

    kernel_size: Pair
    dilation: Pair = 1
    padding: Pair = 0
    stride: Pair = 1


@function_layer(fold, padding=_pair_from_0)
class Fold(FunctionLayer):
    """Images from rows of windows   (N, OH OW, C FH FW) -> (N, H, W, C); arguments are those of `fold`"""

    output_size: Pair
    kernel_size: Pair
    dilation: Pair = 1
    padding: Pair = 0
    stride: Pair = 1
