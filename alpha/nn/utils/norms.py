"""weight_norm and spectral_norm under their older names: what trains is `weight_g` and `weight_v`, or `weight_orig`.

They compute what those of `parametrizations` do, and state dicts have the names that PyTorch's older functions give, so
that weights of programs which use them can be loaded.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

from alpha.autograd.grad_mode import no_grad
from alpha.autograd.versions import array_of
from alpha.core.numerics import precision
from alpha.core.tensor import Tensor
from alpha.module.module import Module, Parameter
from alpha.nn.utils.parametrizations import WeightNorm, axis_of, largest, matrix_of, order_of, unit, vectors
from alpha.ops.kernel.options import integer, real

M = TypeVar("M", bound=Module)


class _Norm:
    """Rule by which a parameter of a layer is computed.

    Attributes:
        parts: what the names of the parameters end in, from which it is computed.
        buffers: what those of the buffers end in.
    """

    parts: tuple[str, ...]
    buffers: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        self.name = name

    def value(self, module: Module) -> Tensor:
        raise NotImplementedError

    def _of(self, module: Module) -> list[Any]:
        return [getattr(module, self.name + ending) for ending in (*self.parts, *self.buffers)]


class _WeightNorm(_Norm):
    parts = ("_g", "_v")

    def __init__(self, name: str, axis: int | None) -> None:
        super().__init__(name)
        self.norm = WeightNorm(axis)

    def value(self, module: Module) -> Tensor:
        g, v = self._of(module)
        made: Tensor = self.norm(g, v)
        return made


class _SpectralNorm(_Norm):
    parts, buffers = ("_orig",), ("_u", "_v")

    def __init__(self, name: str, order: tuple[int, ...], n_power_iterations: int, eps: float) -> None:
        super().__init__(name)
        self.order, self.n_power_iterations, self.eps = order, n_power_iterations, eps

    def value(self, module: Module) -> Tensor:
        weight, u, v = self._of(module)
        matrix = matrix_of(weight, self.order)
        if module.training:
            with no_grad(), precision("float32"):
                fixed = matrix.detach()
                turned, left = fixed.transpose(0, 1), u.reshape(-1, 1)
                for _ in range(self.n_power_iterations):
                    right = unit(turned @ left, self.eps)
                    left = unit(fixed @ right, self.eps)
                u.copy_(left.reshape(-1))
                v.copy_(right.reshape(-1))
        result: Tensor = weight / largest(matrix, u, v)
        return result


@functools.cache
def _class(kind: type[Any], names: tuple[str, ...]) -> Any:
    """The class of a layer some of whose parameters are computed."""

    def read(self: Any, name: str) -> Any:
        return vars(self)["_norms"][name].value(self)

    def reduce(self: Any, protocol: Any) -> Any:
        return _made, (kind, names), vars(self)

    properties = {name: property(functools.partial(read, name=name)) for name in names}
    return type(kind.__name__, (kind,), {**properties, "__reduce_ex__": reduce, "_unnormed": kind})


def _made(kind: Any, names: tuple[str, ...]) -> Module:
    found = _class(kind, names)
    result: Module = found.__new__(found)
    return result


def _norms(module: Module) -> dict[str, _Norm]:
    found: dict[str, _Norm] = vars(module).get("_norms", {})
    return found


def _compute(module: Any, norms: dict[str, _Norm]) -> None:
    """Let the layer compute the parameters of these names, and no others."""
    plain: Any = getattr(module, "_unnormed", type(module))
    module.__class__ = _class(plain, tuple(norms)) if norms else plain
    module._norms = norms
    filters = [name for name in plain._filters if name not in norms]
    module._filters = (*filters, *(n + end for n in plain._filters if n in norms for end in norms[n].parts))


def _plain(operator: str, module: Module, name: str) -> Parameter:
    """The parameter of the name, which has no norm yet."""
    if name in _norms(module):
        raise ValueError(f"{operator}: {name} has a norm already; remove that one first")
    return module.get_parameter(name)


def _put(module: Module, name: str, norm: _Norm, values: dict[str, Tensor]) -> None:
    """Values in place of the parameter of the name, and the norm that computes it from them."""
    weight = module.get_parameter(name)
    delattr(module, name)
    for ending, value in values.items():
        if ending in norm.parts and value is not weight:
            made = Parameter(value.numpy(), weight.requires_grad)
            made.array = weight.device.upload(value.numpy())
            value = made
        setattr(module, name + ending, value)
    _compute(module, {**_norms(module), name: norm})


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Let a layer have a weight whose norm and direction are parameters, and return the layer (Salimans & Kingma 2016).

    weight = g v / norm(v), g being the parameter `weight_g` and v `weight_v`. `parametrizations.weight_norm` is the
    newer one.

    Args:
        name: of the parameter.
        dim: each slice along this axis has a norm of its own, counted in PyTorch's layout of the weight; None or -1:
            there is one norm for all.

    Raises:
        AttributeError: the layer has no such parameter.
        ValueError: it has a norm already.
    """
    weight = _plain("weight_norm", module, name)
    norm = _WeightNorm(name, None if dim in (None, -1) else axis_of("weight_norm", module, name, weight, dim or 0))
    g, v = norm.norm.right_inverse(weight)
    _put(module, name, norm, {"_g": g, "_v": v})
    return module


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> M:
    """Let a layer divide its weight by its largest singular value, and return the layer (Miyato et al. 2018).

    The weight before is the parameter `weight_orig`, and the buffers `weight_u` and `weight_v` are the vectors of the
    power iterations. `parametrizations.spectral_norm` is the newer one.

    Args:
        name: of the parameter.
        n_power_iterations: of each forward in training.
        eps: the least norm by which a vector is divided.
        dim: the axis of the weight that is that of the rows of the matrix, counted in PyTorch's layout; by default 0,
            and 1 of a transposed convolution.

    Raises:
        AttributeError: the layer has no such parameter.
        ValueError: it has a norm already.
    """
    weight = _plain("spectral_norm", module, name)
    count = integer("spectral_norm", "n_power_iterations", n_power_iterations, 1)
    order = order_of("spectral_norm", module, name, dim)
    norm = _SpectralNorm(name, order, count, real("spectral_norm", "eps", eps))
    u, v = vectors(matrix_of(weight.detach(), order), norm.eps)
    _put(module, name, norm, {"_orig": weight, "_u": u, "_v": v})
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Make a weight of `weight_norm` an ordinary parameter again, of its value, and return the layer."""
    return _removed("remove_weight_norm", module, name, _WeightNorm)


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Make a weight of `spectral_norm` an ordinary parameter again, of its value, and return the layer."""
    return _removed("remove_spectral_norm", module, name, _SpectralNorm)


def _removed(operator: str, module: M, name: str, kind: type[_Norm]) -> M:
    norm = _norms(module).get(name)
    if not isinstance(norm, kind):
        raise ValueError(f"{operator}: {type(module).__name__} has no such norm of {name!r}")
    trained, training = norm._of(module)[0].requires_grad, module.training
    with no_grad():
        module.training = False  # no more iterations
        value = norm.value(module)
        module.training = training
    kept = Parameter(value.numpy(), trained)
    kept.array = value.device.copy(array_of(value))
    for ending in (*norm.parts, *norm.buffers):
        delattr(module, name + ending)
    _compute(module, {other: found for other, found in _norms(module).items() if other != name})
    setattr(module, name, kept)
    return module
