"""Layers that are a function with arguments, which a layer declares once, as the fields of its class.

    @function_layer(leaky_relu)
    class LeakyReLU(FunctionLayer):
        negative_slope: float = 0.01
        inplace: bool = False

has the methods

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None: self._keep(negative_slope, inplace)
    def forward(self, x: Tensor) -> Tensor: return function(x, negative_slope=self.negative_slope, inplace=self.inplace)

of which the first one checks each argument by its type and makes it an attribute. `function` is `leaky_relu`. The repr
shows the arguments. Type checkers and editors read such a class as they read a dataclass.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from alpha.core.tensor import Tensor
from alpha.module.module import Buffer, Module
from alpha.module.parameter import with_place
from alpha.ops.kernel.options import integer, lengths_as_given, only_offered, real

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**options: Any) -> Any:
        """Do nothing; only type checkers need this decorator, which `typing` has from Python 3.11 on."""
        return lambda function: function


Check = Callable[[str, str, Any], Any]  # (layer, argument, value) -> the attribute, or an error if the value is wrong
Layer = TypeVar("Layer", bound="FunctionLayer")
REQUIRED = inspect.Parameter.empty  # the default of an argument that has none


CHECKS: dict[str, Check] = {  # by the annotation of a field
    "float": real,
    "int": integer,
    "int | None": lambda layer, name, value: None if value is None else integer(layer, name, value),
    "Pair": functools.partial(lengths_as_given, rank=2, least=1),
    "Tensor | None": lambda layer, name, value: None if value is None else Buffer(value),
    "None": lambda layer, name, value: only_offered(layer, **{name: (value, None)}),  # what only PyTorch has
}


def as_given(layer: str, name: str, value: Any) -> Any:
    """Returns the value, which is then checked by the function alone: the check of any other annotation."""
    return value


class Argument(NamedTuple):
    """A field: an argument of `__init__`, and unless its annotation is None an attribute that the function is given."""

    annotation: str
    default: Any
    check: Check


class FunctionLayer(Module):
    """Base of the classes that `function_layer` decorates.

    A subclass such as `LossLayer` may have `_checks` of arguments that its layers share, by name.
    """

    _checks: ClassVar[Mapping[str, Check]] = {}
    _arguments: ClassVar[Mapping[str, Argument]] = {}

    if TYPE_CHECKING:  # `function_layer` makes it

        def forward(self, *inputs: Any, **named: Any) -> Tensor: ...

    def _keep(self, *values: Any) -> None:
        """Checks the arguments of `__init__`, in their order, and makes them attributes."""
        for (name, argument), given in zip(self._arguments.items(), values, strict=True):
            value = argument.check(type(self).__name__, name, given)
            if argument.annotation != "None":
                setattr(self, name, value)
            if argument.annotation == "Tensor | None" and value is None:
                self._await(name, persistent=True)

    def extra_repr(self) -> str:
        """Returns the arguments, but no switch such as `inplace` that has its default."""
        shown = []
        for name, argument in self._arguments.items():
            if hasattr(self, name):  # which an `__init__` of a subclass may not have kept
                value = getattr(self, name)
                if not (isinstance(argument.default, bool) and bool(value) is argument.default):
                    shown.append(f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}")
        return ", ".join(shown)


@dataclass_transform(eq_default=False)
def function_layer(
    function: Callable[..., Tensor], *, kw_only: bool = False, **checks: Check
) -> Callable[[type[Layer]], type[Layer]]:
    """Makes a class with annotated fields a layer that calls a function with the values of the fields.

    The inputs of the layer are those arguments of the function that have no default and are no fields. A function with
    an argument `training` is given that of the layer. A class may define its forward by itself.

    Args:
        function: takes the inputs by position, and the fields by name.
        kw_only: True if `__init__` takes its arguments by name alone.
        checks: checks of arguments by name, in place of those that `CHECKS` has for their annotations.
    """

    def decorate(kind: type[Layer]) -> type[Layer]:
        def check_of(name: str, annotation: str) -> Check:
            return checks.get(name) or kind._checks.get(name) or CHECKS.get(annotation, as_given)

        kind._arguments = arguments = {
            name: Argument(annotation, vars(kind).get(name, REQUIRED), check_of(name, annotation))
            for name, annotation in inspect.get_annotations(kind).items()
        }
        for name in arguments.keys() & vars(kind).keys():
            delattr(kind, name)  # a default, which is an attribute of the layers and not of the class
        if arguments:
            kind.__init__ = with_place(_init_of(kind, kw_only))  # type: ignore[method-assign]
        if "forward" not in vars(kind):
            kind.forward = _forward_of(kind, function)  # type: ignore[method-assign]
        return kind

    return decorate


def _init_of(kind: type[FunctionLayer], kw_only: bool) -> FunctionType:
    arguments = kind._arguments
    names = ", ".join(arguments)
    init = _written(kind, f"__init__(self, {'*, ' if kw_only else ''}{names})", f"self._keep({names})")
    defaults = {name: argument.default for name, argument in arguments.items() if argument.default is not REQUIRED}
    if kw_only:
        init.__kwdefaults__ = defaults
    else:
        init.__defaults__ = tuple(defaults.values())
    init.__annotations__ = {name: argument.annotation for name, argument in arguments.items()} | {"return": "None"}
    return init


def _forward_of(kind: type[FunctionLayer], function: Callable[..., Tensor]) -> FunctionType:
    signature = inspect.signature(function)
    others = {name: parameter for name, parameter in signature.parameters.items() if name not in kind._arguments}
    inputs = {name: parameter.annotation for name, parameter in others.items() if parameter.default is REQUIRED}
    passed = [name for name, argument in kind._arguments.items() if argument.annotation != "None"]
    passed += ["training"] if "training" in others else []
    given = ", ".join([*inputs, *(f"{name}=self.{name}" for name in passed)])
    forward = _written(kind, f"forward(self, {', '.join(inputs)})", f"return function({given})", function=function)
    forward.__annotations__ = {**inputs, "return": signature.return_annotation}
    return forward


def _written(kind: type[FunctionLayer], head: str, body: str, **scope: Any) -> FunctionType:
    """Returns a method of a class, made from its text.

    It has the signature, the speed and the errors of a wrong call of a method that is written by hand, and its code
    names the attributes that it reads, which is where a captured step looks for them.
    """
    scope["__name__"] = kind.__module__
    exec(_compiled(f"def {head}: {body}"), scope)
    method: FunctionType = scope[head.partition("(")[0]]
    method.__qualname__ = f"{kind.__qualname__}.{method.__name__}"
    return method


@functools.cache
def _compiled(text: str) -> CodeType:
    """Returns the code of a text, which layers of the same arguments share."""
    return compile(text, f"{__file__}:text", "exec")  # a place in this package, so that it counts as Alpha's own code
