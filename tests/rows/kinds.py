"""Kinds of rows, and what each says."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from argument_table import Row, changes

import alpha.nn.functional as F
from alpha import Tensor, nn
from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from rows.arrays import IMAGE

Settings = dict[str, Any]


def each(function: Callable[[Any], Any], value: Any) -> Any:
    """The value of `function` for an array, or for each array of a list; anything else as it is."""
    if isinstance(value, list) and value and all(isinstance(part, np.ndarray) for part in value):
        return [function(part) for part in value]
    return function(value) if isinstance(value, np.ndarray) else value


def joined(result: Any) -> Tensor:
    """A result as one tensor: of several but None, number i times i plus its number of axes, one after the other."""
    if isinstance(result, Tensor):
        return result
    parts = [part for value in result for part in (value if isinstance(value, tuple) else (value,))]
    parts = [part for part in parts if part is not None]
    return F.cat([part.astype("float32").reshape(part.size) * (i + 1) + part.ndim for i, part in enumerate(parts)])


Shapes = Sequence[tuple[Settings, tuple[int, ...]]]


class NotedStatistics(ChannelStatistics):
    """Channel statistics that note whether an operator has asked for them or filled them."""

    noted = False

    def describe(self, y: Tensor) -> None:
        self.noted = True
        super().describe(y)

    def describes(self, y: Tensor) -> bool:
        self.noted = True
        return super().describes(y)


@dataclass(frozen=True)
class FunctionRow:
    """A function of alpha.nn.functional.

    Attributes:
        usual: the arguments of a call; an array stands for a tensor, also in a list.
        arguments: for each argument another value, and what it changes.
        any_number: the function takes numbers that are not finite, as PyTorch's does.
        own: why PyTorch has none of this name, if so.
        constants: tensors that have no gradient.
    """

    function: Callable[..., Any]
    usual: Mapping[str, Any]
    arguments: Mapping[str, Row]
    any_number: bool = False
    own: str = ""
    constants: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        """An array for each argument that is a tensor, in the order of the arguments."""
        given = {name: row.value for name, row in self.arguments.items()} | dict(self.usual)
        annotations = {name: p.annotation for name, p in inspect.signature(self.function).parameters.items()}
        return {
            name: given[name]
            for name, annotation in annotations.items()
            if "Tensor" in str(annotation) and isinstance(given.get(name), np.ndarray)
        }

    @property
    def lists(self) -> dict[str, list[np.ndarray]]:
        """The arguments that are lists of arrays."""
        return {name: value for name, value in self.usual.items() if isinstance(value, list)}


@dataclass(frozen=True)
class LayerRow:
    """A layer of alpha.nn.

    Attributes:
        inputs: what it is called with; an array stands for a tensor.
        usual: the arguments that it is made with.
        arguments: for each argument another value, and what it changes.
        shapes: arguments, and the shape that the result has with them.
        own: why PyTorch has none of this name, if so.
        constants: the places of inputs that have no gradient.
    """

    layer: type[nn.Module]
    inputs: Sequence[np.ndarray]
    usual: Mapping[str, Any]
    arguments: Mapping[str, Row]
    shapes: Shapes
    own: str = ""
    constants: Sequence[int] = ()

    @property
    def name(self) -> str:
        return self.layer.__name__


@dataclass(frozen=True)
class ActivationRow:
    """An activation: a function of one tensor, and a layer with the same arguments.

    Attributes:
        arguments: for each argument but the tensor another value, and what it changes.
        settings: arguments with which it is compared with PyTorch, and its gradient with the central difference.
        special: arguments with which infinities, NaN and tiny numbers are compared with PyTorch.
        limits: the results for -1e4 and 1e4.
        coarse: dtypes in which PyTorch rounds its numbers or its intermediate results more than the result needs.
        any_number, own: as of a FunctionRow.
    """

    function: Callable[..., Tensor]
    layer: type[nn.Module]
    arguments: Mapping[str, Row]
    settings: Sequence[Settings] = ({},)
    special: Sequence[Settings] = ()
    limits: tuple[float, float] | None = None
    coarse: tuple[str, ...] = ()
    any_number: bool = False
    own: str = ""

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def in_place(self) -> list[Settings]:
        """The settings with `inplace`, if that is offered."""
        row = self.arguments.get("inplace")
        return [] if row is None or row.refused else [{**settings, "inplace": True} for settings in self.settings]

    def of_function(self) -> FunctionRow:
        known = inspect.signature(self.function).parameters
        own = {name: row for name, row in self.arguments.items() if name in known}
        arguments = {"x": changes(IMAGE + 1), **own}
        return FunctionRow(self.function, {"x": IMAGE}, arguments, self.any_number, self.own)

    def of_layer(self) -> LayerRow:
        return LayerRow(self.layer, [IMAGE], {}, self.arguments, [({}, IMAGE.shape)], self.own)


@dataclass(frozen=True)
class LossRow:
    """A loss: a function of tensors, such as x and target, and a layer with the other arguments, or some of them.

    Attributes:
        inputs: the tensors, which are the first arguments.
        arguments: for each other argument another value, and what it changes.
        settings: arguments with which it is compared with PyTorch, and its gradient with the central difference; an
            array stands for a tensor.
        constants: tensors that have no gradient.
        own: as of a FunctionRow.
    """

    function: Callable[..., Tensor]
    layer: type[nn.Module]
    inputs: tuple[np.ndarray, ...]
    arguments: Mapping[str, Row]
    settings: Sequence[Settings] = ({},)
    constants: tuple[str, ...] = ()
    own: str = ""

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def named_inputs(self) -> dict[str, np.ndarray]:
        return dict(zip(inspect.signature(self.function).parameters, self.inputs, strict=False))

    def of_function(self) -> FunctionRow:
        others = {name: changes(np.roll(value, 1, axis=0)) for name, value in self.named_inputs.items()}
        return FunctionRow(
            self.function, self.named_inputs, {**others, **self.arguments}, own=self.own, constants=self.constants
        )

    def of_layer(self) -> LayerRow:
        known = inspect.signature(self.layer).parameters
        arguments = {name: row for name, row in self.arguments.items() if name in known}
        constants = [place for place, name in enumerate(self.named_inputs) if name in self.constants]
        return LayerRow(self.layer, self.inputs, {}, arguments, [({}, ())], self.own, constants)
