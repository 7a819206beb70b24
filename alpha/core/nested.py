"""Tensors within tuples, lists and dicts: the arguments and the result of a step, of a model, of a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from alpha.core.tensor import Tensor


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors of a value: itself, or those within tuples, lists and mappings, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list, Mapping)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(part)


def map_tensors(value: Any, change: Callable[[Any], Any], kinds: Any = Tensor) -> Any:
    """`value` with `change(x)` in the place of each x of `kinds` in it, within tuples, lists and dicts."""
    if isinstance(value, kinds):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        make: Any = type(value)
        return make._make(map_tensors(item, change, kinds) for item in value)  # without checks of its `__new__`
    if type(value) in (tuple, list):
        return type(value)(map_tensors(item, change, kinds) for item in value)
    if type(value) is dict:
        return {key: map_tensors(item, change, kinds) for key, item in value.items()}
    return value
