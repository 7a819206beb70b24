"""Transforms in a row, and one of a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from alpha.core.tensor import Tensor
from alpha.errors import type_name
from alpha.module.module import Module
from alpha.nn.containers import Sequential
from alpha.transforms.images import FixedTransform

__all__ = ["Compose", "Lambda"]


class Compose(Sequential):
    """Transforms called one after the other: `Sequential` of a list, as torchvision writes it   (N, H, W, C) -> same"""

    def __init__(self, transforms: Sequence[Module]) -> None:
        super().__init__(*transforms)


class Lambda(FixedTransform):
    """A function of the images as a transform, in both modes   (N, H, W, C) -> what it returns

    Raises:
        TypeError: `lambd` cannot be called.
    """

    def __init__(self, lambd: Callable[[Tensor], Tensor]) -> None:
        if not callable(lambd):
            raise TypeError(f"Lambda: a function is needed, not a {type_name(lambd)}")
        self.lambd = lambd

    def apply_to(self, x: Tensor) -> Tensor:
        return self.lambd(x)
