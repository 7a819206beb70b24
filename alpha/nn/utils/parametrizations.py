"""Weights of a norm of their own: weight_norm and spectral_norm, as torch.nn.utils.parametrizations has them.

State dicts have PyTorch's names, and `load_state_dict` takes PyTorch's with layout="NCHW", as for any filter.
"""

from __future__ import annotations

from alpha.autograd.grad_mode import no_grad
from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.core.numerics import precision
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Buffer, Module
from alpha.nn.utils.parametrize import register_parametrization
from alpha.ops.array.random_tensors import randn
from alpha.ops.kernel.options import integer, real

__all__ = ["spectral_norm", "weight_norm"]


class WeightNorm(Module):
    """weight = g v / norm(v), the norm that of each slice along an axis, or of all if there is none."""

    def __init__(self, axis: int | None) -> None:
        self.axis = axis

    def _norm(self, v: Tensor) -> Tensor:
        if self.axis is None:
            return v.norm()
        others = [axis for axis in range(v.ndim) if axis != self.axis]
        return v.norm(2, others, keepdim=True) if others else v.abs()

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        return v * (g / self._norm(v))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The norm and the direction that give this weight."""
        with no_grad():
            return self._norm(weight), weight.clone()


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Let a layer have a weight whose norm and direction are parameters, and return the layer (Salimans & Kingma 2016).

    weight = g v / norm(v); in a state dict `parametrizations.weight.original0` is g, and `original1` is v.

    Args:
        name: of the parameter.
        dim: each slice along this axis has a norm of its own, counted in PyTorch's layout of the weight; None or -1:
            there is one norm for all.
    """
    weight = module.get_parameter(name)
    axis = None if dim is None or dim == -1 else axis_of("weight_norm", module, name, weight, dim)
    return register_parametrization(module, name, WeightNorm(axis))


class SpectralNorm(Module):
    """weight / sigma, sigma the largest singular value of the weight as a matrix, found by power iterations.

    Each forward in training makes some more of them; their vectors are the buffers `_u` and `_v`.
    """

    def __init__(self, weight: Tensor, order: tuple[int, ...], n_power_iterations: int, eps: float) -> None:
        self.order, self.n_power_iterations, self.eps = order, n_power_iterations, eps
        if weight.ndim > 1:
            with no_grad():
                self._u, self._v = vectors(matrix_of(weight, order), eps)
            self._iterate(weight, 15)

    def _iterate(self, weight: Tensor, times: int) -> None:
        with no_grad(), precision("float32"):
            matrix = matrix_of(weight.detach(), self.order)
            turned = matrix.transpose(0, 1)
            u, v = self._u.reshape(-1, 1), self._v.reshape(-1, 1)
            for _ in range(times):
                u = unit(matrix @ v, self.eps)
                v = unit(turned @ u, self.eps)
            self._u.copy_(u.reshape(-1))
            self._v.copy_(v.reshape(-1))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return weight / weight.norm().clamp(self.eps)
        if self.training:
            self._iterate(weight, self.n_power_iterations)
        return weight / largest(matrix_of(weight, self.order), self._u, self._v)


def matrix_of(weight: Tensor, order: tuple[int, ...]) -> Tensor:
    """The weight with its axes in that order, the first ones against all others, as a matrix."""
    if order != tuple(range(weight.ndim)):
        weight = weight.permute(order)
    return weight.flatten(1) if weight.ndim > 1 else weight.reshape(-1, 1)


def unit(x: Tensor, eps: float) -> Tensor:
    """The vector divided by its norm, which counts as at least eps   x (N,) -> (N,)"""
    return x / x.norm().clamp(eps)


def vectors(matrix: Tensor, eps: float) -> tuple[Buffer, Buffer]:
    """Random vectors of norm 1, with which power iterations begin   matrix (R, C) -> (R,), (C,)"""
    with no_grad():
        u, v = (unit(randn(length, dtype=matrix.dtype, device=matrix.device), eps) for length in matrix.shape)
    return Buffer._of(u), Buffer._of(v)


def largest(matrix: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """The largest singular value by its vectors, which have no gradient and which the next forward may write."""
    u, v = u.detach().clone(), v.detach().clone()
    with precision("float32"):
        return (u * (matrix @ v.reshape(-1, 1)).reshape(-1)).sum()


def order_of(operator: str, module: Module, name: str, dim: int | None) -> tuple[int, ...]:
    """The axes of a weight in PyTorch's order, but `dim` first; by default 0, and 1 of a transposed convolution."""
    weight = module.get_parameter(name)
    if dim is None:
        dim = int("ConvTranspose" in type(module).__name__)
    first = axis_of(operator, module, name, weight, dim) if weight.ndim else 0
    axes = [0, weight.ndim - 1, *range(1, weight.ndim - 1)] if name in module._filters else range(weight.ndim)
    return (first, *[axis for axis in axes if axis != first])


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Let a layer divide its weight by its largest singular value, and return the layer (Miyato et al. 2018).

    In a state dict `parametrizations.weight.original` is the weight before, and `parametrizations.weight.0._u` and
    `_v` are the vectors of the power iterations.

    Args:
        name: of the parameter.
        n_power_iterations: of each forward in training; there are 15 at the beginning.
        eps: the least norm by which a vector is divided.
        dim: the axis of the weight that is that of the rows of the matrix, counted in PyTorch's layout; by default 0,
            and 1 of a transposed convolution.
    """
    weight = module.get_parameter(name)
    count = integer("spectral_norm", "n_power_iterations", n_power_iterations, 1)
    order = order_of("spectral_norm", module, name, dim)
    made = SpectralNorm(weight.detach(), order, count, real("spectral_norm", "eps", eps))
    return register_parametrization(module, name, made)


def axis_of(operator: str, module: Module, name: str, weight: Tensor, dim: int) -> int:
    """The axis of a weight that PyTorch counts as `dim`."""
    rank, axis = weight.ndim, integer(operator, "dim", dim)
    if not -rank <= axis < rank:
        raise ShapeError(f"{operator}: {axis} is not an axis of {name} {weight.shape}")
    axis %= rank
    if name not in module._filters or axis == 0:
        return axis
    return rank - 1 if axis == 1 else axis - 1


_tell_instead(__name__)
