"""State dicts: weights by name, as `Module.state_dict` returns them, which know their layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from alpha.core.host_values import torch_tensor
from alpha.core.origins import layout_of
from alpha.core.tensor import Tensor
from alpha.module.parameter import Uninitialized

__all__ = ["StateDict"]


class StateDict(dict[str, Any]):
    """Tensors, or arrays of the host, by dotted name, and the layout of the filters among them.

    Attributes:
        layout: "NHWC" (filters (OC, FH, FW, IC), as Alpha has them), "NCHW" (filters (OC, IC, FH, FW), as PyTorch has
            them), or None if it is not known. It is that of the values with which the dict was made; one that is put
            in later has the layout that it would have in any other dict, as `Module.load_state_dict` says.
    """

    def __init__(self, values: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), layout: str | None = None) -> None:
        super().__init__(values)
        self.layout = layout
        self._first = dict(self)

    def layout_of(self, name: str) -> str | None:
        """The layout of the dict, if the value of this name is the one with which it was made; else None."""
        return self.layout if self._first.get(name, ...) is self[name] else None

    def copy(self) -> StateDict:
        result = StateDict(self, self.layout)
        result._first = self._first.copy()
        return result

    def numpy(self) -> StateDict:
        """Copies of the values on the host as arrays, which later steps do not change; a shared tensor is one array."""
        arrays = {id(value): value.numpy() for value in self.values() if _has_values(value)}
        return self._with({name: arrays.get(id(value), value) for name, value in self.items()})

    def torch(self) -> dict[str, Any]:
        """Copies of the values on the host as tensors of PyTorch, for `torch_model.load_state_dict`.

        A shared tensor is one tensor. The layout stays as it is: `model.state_dict(layout="NCHW").torch()` has that of
        PyTorch.

        Raises:
            ImportError: PyTorch is not installed.
        """
        made: dict[int, Any] = {}
        arrays = self.numpy()
        return {
            name: made[id(value)] if id(value) in made else made.setdefault(id(value), torch_tensor(value))
            for name, value in arrays.items()
            if not isinstance(value, Tensor)
        }

    def filter(self, keep: Callable[[str], bool]) -> StateDict:
        """The entries for whose name `keep(name)` is true, in the same layout; a plain dict would not know it."""
        return self._with({name: value for name, value in self.items() if keep(name)})

    def _with(self, values: Mapping[str, Any]) -> StateDict:
        """Other values in place of some, or all, of its own."""
        result = StateDict(values, self.layout)
        known = [name for name in values if layout_in(self, name) == self.layout]
        result._first = {name: values[name] for name in known}
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (dict(self), self.layout, [name for name in self if self.layout_of(name)])


def _restored(values: dict[str, Any], layout: str | None, first: list[str]) -> StateDict:
    result = StateDict(values, layout)
    result._first = {name: values[name] for name in first}
    return result


def _has_values(value: Any) -> bool:
    return isinstance(value, Tensor) and not isinstance(value, Uninitialized)


def layout_in(state: Mapping[str, Any], name: str) -> str | None:
    """The layout of a value, which the dict knows or the value itself; None if neither does."""
    return (isinstance(state, StateDict) and state.layout_of(name)) or _own_layout(state[name])


def common_layout(state: Mapping[str, Any]) -> str | None:
    """The layout of a state dict, if all of its values have it; else None."""
    layout = state.layout if isinstance(state, StateDict) else None
    return layout if all(layout_in(state, name) == layout for name in state) else None


def _own_layout(value: Any) -> str | None:
    return layout_of(value) if isinstance(value, Tensor) else None
