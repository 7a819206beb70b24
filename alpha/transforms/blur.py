"""Images blurred."""

from __future__ import annotations

from alpha.core.numerics import precision
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.nn import functional as F
from alpha.ops.array.creation import arange
from alpha.ops.kernel.options import Pair, pair
from alpha.transforms.images import Interval, Transform, drawn, interval, number_type, numbers_as_text

__all__ = ["GaussianBlur"]


class GaussianBlur(Transform):
    """Each image is blurred by a Gaussian of its own width   (N, H, W, C) -> the same

    An image is mirrored at the middle of its outermost pixels. In evaluation mode it stays as it is.

    Args:
        kernel_size: how many pixels have a part in one: (along x, along y), as torchvision has them, or one number for
            both. They are odd, and less than twice the width and the height of the images.
        sigma: (low, high) of the standard deviation in pixels, or one number.

    Raises:
        ShapeError: (in a call) an image is too small for kernel_size.
        ValueError: a kernel_size is even or below 1, or sigma is not above 0.
    """

    def __init__(self, kernel_size: Pair, sigma: float | Interval = (0.1, 2.0)) -> None:
        name = type(self).__name__
        self.kernel_size = pair(name, "kernel_size", kernel_size, least=1)
        if not all(size % 2 for size in self.kernel_size):
            raise ValueError(f"{name}: kernel_size={kernel_size!r} must be odd")
        self.sigma = interval(name, "sigma", sigma if isinstance(sigma, (tuple, list)) else (sigma, sigma), 0.0)
        if self.sigma[0] == 0:
            raise ValueError(f"{name}: sigma={sigma!r} must be above 0")

    def apply_to(self, x: Tensor) -> Tensor:
        N, H, W, C = x.shape
        across, down = (size // 2 for size in self.kernel_size)
        if x.size and (across >= W or down >= H):
            raise ShapeError(f"GaussianBlur: kernel_size={self.kernel_size} is too large for the images  (x {x.shape})")
        sigma = drawn(x, *self.sigma).reshape(N, 1, 1)
        y = x.astype(number_type(x))
        rows = mixing_matrix(sigma, H, down)
        columns = rows if (H, down) == (W, across) else mixing_matrix(sigma, W, across)
        with precision("float32"):  # a weight of bfloat16 would move a level of 255
            y = F.bmm(rows, y.reshape(N, H, W * C)).reshape(N, H, W, C)
            y = F.bmm(columns, y.transpose(1, 2).reshape(N, W, H * C))
        return y.reshape(N, W, H, C).transpose(1, 2).astype(x.dtype)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, sigma={numbers_as_text(self.sigma)}"


def mixing_matrix(sigma: Tensor, length: int, reach: int) -> Tensor:
    """The share of pixel j in blurred pixel i of an axis, for each image   sigma (N, 1, 1) -> (N, length, length)

    Pixel j is also seen where it is mirrored, at -j and at 2 (length - 1) - j, unless it is the mirror itself.
    """
    numbers = arange(length, dtype=sigma.dtype, device=sigma.device)
    i, j = numbers.reshape(1, length, 1), numbers.reshape(1, 1, length)
    last = length - 1

    def weight(distance: Tensor, seen: Tensor) -> Tensor:
        return (distance * distance / (sigma * sigma * -2)).exp().where(F.logical_and(distance <= reach, seen), 0.0)

    direct = weight((i - j).abs(), j >= 0)
    matrix = direct + weight(i + j, j > 0) + weight(2 * last - i - j, j < last)
    return matrix / matrix.sum(2, keepdim=True)
