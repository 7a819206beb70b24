"""Local response normalisation over neighbouring channels (Krizhevsky et al. 2012)."""

from __future__ import annotations

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Module
from alpha.ops.array.padding import pad
from alpha.ops.kernel.arguments import check_arguments, unchecked
from alpha.ops.kernel.options import integer, real
from alpha.ops.pooling.avg_pool import avg_pool1d

__all__ = ["LocalResponseNorm", "local_response_norm"]


@check_arguments
def local_response_norm(x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Y = X / (k + alpha mean of X^2 over `size` neighbouring channels)^beta   x (N, .., C) -> (N, .., C)

    The neighbours of channel c are c - size // 2 to c + (size - 1) // 2; those that there are not count as 0.

    Raises:
        ShapeError: x has less than three axes.
        ValueError: size is below 1, or a number is not finite.
    """
    name = "local_response_norm"
    size = integer(name, "size", size, least=1)
    numbers = {"alpha": real(name, "alpha", alpha), "beta": real(name, "beta", beta), "k": real(name, "k", k)}
    if x.ndim < 3:
        raise ShapeError(f"{name}: x (N, .., C) is needed  (x {x.shape})")
    if not x.size:
        return x
    C = x.shape[-1]
    squares = unchecked(pad)((x * x).reshape(x.size // C, C, 1), (0, 0, size // 2, (size - 1) // 2))
    mean = unchecked(avg_pool1d)(squares, size, 1).reshape(*x.shape)
    return x / (mean * numbers["alpha"] + numbers["k"]) ** numbers["beta"]


class LocalResponseNorm(Module):
    """Normalisation by the squares of neighbouring channels   (N, .., C) -> the same

    Args:
        size: how many channels count.
        alpha, beta, k: Y = X / (k + alpha mean of X^2)^beta.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        layer = type(self).__name__
        self.size = integer(layer, "size", size, least=1)
        self.alpha, self.beta, self.k = real(layer, "alpha", alpha), real(layer, "beta", beta), real(layer, "k", k)

    def forward(self, x: Tensor) -> Tensor:
        return local_response_norm(x, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
