"""Tensors of Alpha in `einops.rearrange`, `reduce`, `repeat`, `pack` and `einsum`.

einops asks every subclass of its `AbstractBackend` whether a tensor is its own. `import alpha` makes this one known if
einops is installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from alpha.core.numerics import is_floating
from alpha.core.tensor import Tensor
from alpha.nn import functional as F
from alpha.ops.array.creation import arange, from_numpy
from alpha.ops.matmul.einsum import einsum

try:
    BASE: Any = importlib.import_module("einops._backends").AbstractBackend
except (ImportError, AttributeError):  # einops is not installed, or has backends of another form
    BASE = object


class AlphaBackend(BASE):  # type: ignore[misc]
    """Backend of einops for tensors of Alpha; see `einops._backends.AbstractBackend`."""

    framework_name = "alpha"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Any) -> Tensor:
        return from_numpy(x)

    def to_numpy(self, x: Tensor) -> Any:
        return x.detach().numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        return arange(start, stop)

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        return x.permute(*axes)

    def reduce(self, x: Tensor, operation: str, reduced_axes: Sequence[int]) -> Tensor:
        """x over axes: `min` and `max` of PyTorch's form take one axis, and give indices, too"""
        name = {"min": "amin", "max": "amax"}.get(operation, operation)
        if name in ("any", "all", "prod"):
            for axis in sorted(reduced_axes, reverse=True):
                x = getattr(x, name)(dim=axis)
            return x
        result: Tensor = getattr(x, name)(dim=tuple(reduced_axes))
        return result

    def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Tensor:
        return F.stack(tensors)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        return x.unsqueeze(new_position)

    def add_axes(self, x: Tensor, n_axes: int, pos2len: dict[int, int]) -> Tensor:
        repeats = [-1] * n_axes
        for position, length in pos2len.items():
            x = x.unsqueeze(position)
            repeats[position] = length
        return x.expand(*repeats)

    def tile(self, x: Tensor, repeats: Sequence[int]) -> Tensor:
        return x.repeat(*repeats)

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        return F.cat(list(tensors), axis)

    def is_float_type(self, x: Tensor) -> bool:
        return is_floating(x.dtype)

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        return einsum(pattern, *x)
