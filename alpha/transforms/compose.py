"""Transforms in a row."""

from __future__ import annotations

from collections.abc import Sequence

from alpha.module import Module
from alpha.nn.containers import Sequential

__all__ = ["Compose"]


class Compose(Sequential):
    """Transforms called one after the other: `Sequential` of a list, as torchvision writes it   (N, H, W, C) -> same"""

    def __init__(self, transforms: Sequence[Module]) -> None:
        super().__init__(*transforms)
