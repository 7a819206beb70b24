"""Parameters that modules compute from others, such as `layer.weight` from `layer.parametrizations.weight.original`."""

from __future__ import annotations

import functools
from typing import Any

from alpha.autograd.versions import array_of
from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.core.tensor import Tensor
from alpha.module.module import Module, Parameter
from alpha.nn.containers import ModuleList

__all__ = ["ParametrizationList", "is_parametrized", "register_parametrization", "remove_parametrizations"]


class ParametrizationList(ModuleList):
    """The modules that compute a parameter, one after the other, and the parameters from which they do.

    Attributes:
        original: the parameter that the first module takes; if that takes several, `original0`, `original1`, ..
    """

    def __init__(self, first: Module, value: Parameter, is_filter: bool) -> None:
        super().__init__([first])
        inverse = getattr(first, "right_inverse", None)
        made = value if inverse is None else inverse(value)
        if isinstance(made, Tensor):
            self._names: tuple[str, ...] = ("original",)
            self.original = _parameter(made, value)
        else:
            self._names = tuple(f"original{number}" for number in range(len(made)))
            for name, part in zip(self._names, made, strict=True):
                setattr(self, name, _parameter(part, value))
        if is_filter:
            self._filters = self._names  # type: ignore[misc]  # as that of the layer, by which PyTorch's weights load

    def forward(self) -> Tensor:
        first, *others = (module for _, module in self._named_parts())
        value = first(*[getattr(self, name) for name in self._names])
        for module in others:
            value = module(value)
        if not isinstance(value, Tensor):
            raise TypeError(f"parametrization: {type(first).__name__} returned a {type(value).__name__}, not a Tensor")
        return value


def _parameter(value: Tensor, like: Parameter) -> Parameter:
    """A parameter that shares nothing with the one that it replaces, unless it is that one."""
    if value is like:
        return like
    result = Parameter(value.numpy(), like.requires_grad)
    result.array = like.device.upload(value.numpy())
    return result


class Parametrizations(Module):
    """The `ParametrizationList` of each parameter, an attribute and an item: `parametrizations["weight"]`."""

    def __getitem__(self, name: str) -> ParametrizationList:
        found = vars(self).get(name)
        if not isinstance(found, ParametrizationList):
            raise KeyError(name)
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and isinstance(vars(self).get(name), ParametrizationList)


@functools.cache
def _class(kind: Any, names: tuple[str, ...]) -> Any:
    """The class of a layer some of whose parameters are computed."""

    def read(self: Any, name: str) -> Any:
        return getattr(self.parametrizations, name)()

    def reduce(self: Any, protocol: Any) -> Any:
        return _made, (kind, names), vars(self)

    properties = {name: property(functools.partial(read, name=name)) for name in names}
    return type(f"Parametrized{kind.__name__}", (kind,), {**properties, "__reduce_ex__": reduce, "_plain": kind})


def _made(kind: Any, names: tuple[str, ...]) -> Module:
    found = _class(kind, names)
    result: Module = found.__new__(found)
    return result


def _held(module: Module) -> Any:
    return vars(module)["parametrizations"]


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """True if some parameter of the module is computed, or the one of the given name."""
    found = vars(module).get("parametrizations")
    if not isinstance(found, Parametrizations):
        return False
    return tensor_name is None or tensor_name in vars(found)


def register_parametrization(module: Module, tensor_name: str, parametrization: Module) -> Module:
    """Let a module compute a parameter of a layer from then on, and return the layer.

    `layer.weight` is `parametrization(original)` each time it is read, and the optimizer trains `original`. In a state
    dict it is `parametrizations.weight.original`. If `parametrization.right_inverse(weight)` is there, what it returns
    for the weight becomes the original; several tensors become `original0`, `original1`, ..

    Raises:
        KeyError: the layer has no such parameter.
        ValueError: it is computed already, and the new parametrization has a `right_inverse`.
    """
    kind: Any = type(module)
    if is_parametrized(module, tensor_name):
        if hasattr(parametrization, "right_inverse"):
            raise ValueError(
                f"register_parametrization: {tensor_name} is computed already, so that a further parametrization has "
                "no right_inverse"
            )
        getattr(_held(module), tensor_name).append(parametrization)
        return module
    value = vars(module).get(tensor_name)
    if not isinstance(value, Parameter):
        raise KeyError(f"register_parametrization: {kind.__name__} has no parameter {tensor_name!r}")
    computed = ParametrizationList(parametrization, value, tensor_name in module._filters)
    if is_parametrized(module):
        kind = kind._plain
    else:
        object.__setattr__(module, "parametrizations", Parametrizations())
    setattr(_held(module), tensor_name, computed)
    delattr(module, tensor_name)
    module.__class__ = _class(kind, _computed(module))
    return module


def _computed(module: Module) -> tuple[str, ...]:
    return tuple(name for name, _ in _held(module)._named_parts())


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make a computed parameter an ordinary one again and return the layer.

    Args:
        leave_parametrized: the parameter has the value that was computed last; False: that of its original, of which
            there must be one.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"remove_parametrizations: {type(module).__name__} computes no parameter {tensor_name!r}")
    held = getattr(_held(module), tensor_name)
    originals = [getattr(held, name) for name in held._names]
    if not leave_parametrized and len(originals) > 1:
        raise ValueError(
            f"remove_parametrizations: {tensor_name} has {len(originals)} originals; use leave_parametrized=True"
        )
    value = getattr(module, tensor_name) if leave_parametrized else originals[0]
    kept = Parameter(value.numpy(), any(original.requires_grad for original in originals))
    kept.array = value.device.copy(array_of(value))
    delattr(_held(module), tensor_name)
    kind: Any = type(module)
    names, plain = _computed(module), kind._plain
    module.__class__ = _class(plain, names) if names else plain
    if not names:
        delattr(module, "parametrizations")
    setattr(module, tensor_name, kept)
    return module


_tell_instead(__name__)
