"""The arguments of a step: what decides which graph a call replays, and its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from alpha.core.nested import map_tensors
from alpha.core.tensor import Tensor
from alpha.runtime.cuda.array import DeviceArray
from alpha.step.sources.dependence import entry
from alpha.step.sources.kinds import is_constant

LARGE_ON_HOST = 4096  # bytes of an array on the host whose values may decide which graph a call replays
_SLICE = ("start", "stop", "step")


class Arguments:
    """The arguments of one call.

    Attributes:
        args, kwargs: as they were given.
        key: equal for calls that may replay the same graph.
        tensors: those on the cuda device, in their order.
        objects: what is neither a tensor nor a plain value, by its place; a graph depends on its content.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs
        self.tensors: list[Tensor] = []
        self.objects: dict[str, Any] = {}
        self.key = self._key("argument", (args, dict(kwargs)))
        self.refresh()

    def refresh(self) -> None:
        """Read tensors again that are copies of a part of other memory."""
        for tensor in self.tensors:
            tensor._version.refresh()

    def replaced(self, tensors: list[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with other tensors in the place of `tensors`."""
        left = iter(tensors)

        def other(tensor: Tensor) -> Tensor:
            return next(left) if isinstance(tensor.array, DeviceArray) else tensor

        args, kwargs = map_tensors((self.args, dict(self.kwargs)), other)
        return args, kwargs

    def _key(self, place: str, value: Any) -> Any:
        if isinstance(value, Tensor) and isinstance(value.array, DeviceArray):
            self.tensors.append(value)
            return value.array.shape, value.array.dtype, value._requires_grad
        if is_constant(value):
            return type(value), repr(value) if isinstance(value, (float, complex, np.generic, Decimal)) else value
        if type(value) is slice:
            parts = value.start, value.stop, value.step
            return slice, *(self._key(f"{place}.{name}", part) for name, part in zip(_SLICE, parts, strict=True))
        if isinstance(value, tuple) or type(value) is list:
            if type(value) not in (tuple, list):
                self.objects[f"the class of {place}"] = type(value)
            return type(value), *(self._key(f"{place}[{i}]", item) for i, item in enumerate(value))
        if type(value) is dict:
            return dict, *((key, self._key(entry(place, key), item)) for key, item in value.items())
        self.objects[place] = value
        array = value.array if isinstance(value, Tensor) else value
        if isinstance(array, np.ndarray) and array.dtype.kind in "biu" and array.nbytes <= LARGE_ON_HOST:
            return type(value), array.dtype, array.shape, array.tobytes()  # as lengths, which the host reads
        return type(value), id(value)


def memories_of(tensors: Iterable[Tensor]) -> Iterator[int]:
    """The ids of the versions of the tensors, and of the memory of which one of them is a copy of a part."""
    for tensor in tensors:
        version = tensor._version
        yield id(version)
        if version.unaware is not None:
            yield id(version.base())
