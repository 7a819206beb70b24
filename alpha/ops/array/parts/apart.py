"""Copies that PyTorch would make, where a tensor must not be a part of another one any more."""

from __future__ import annotations

import sys
from typing import Any

from alpha.core.tensor import Tensor
from alpha.ops.array.parts.clone import clone
from alpha.ops.array.parts.copied_parts import PartVersion
from alpha.ops.kernel.views import Shape, View


def apart(x: Tensor, shape: Shape | None, unnamed: bool) -> Tensor:
    """A tensor that PyTorch would have copied here: x is that copy if nothing else refers to it, else it is copied.

    Args:
        shape: that of the result of a reshape. x itself is returned if strides can give it, so that it is a view.
        unnamed: whether the caller alone refers to x.
    """
    version = x._version
    if not isinstance(version, PartVersion) or version.link is None or not version.is_linked():
        return x
    box = version.link.box
    if shape is not None and (x.size != box.size or _strides_give(box, shape)):
        return x
    if unnamed and sys.getrefcount(version) <= _OF_ONE_TENSOR:
        version.link = x._part = None
        return x
    return clone(x)


_OF_ONE_TENSOR = 3  # references to a version: of the tensor, of a variable, of the call that counts them


def _strides_give(box: View, shape: Shape) -> bool:
    """True if the elements of a box in the order of memory have some strides under another shape."""
    if not box.size:
        return True
    runs: list[tuple[int, int]] = []  # lengths and strides of axes, joined where they are one run of memory
    for length, stride in zip(box.shape, box.strides, strict=True):
        if length == 1:
            continue
        if runs and runs[-1][1] == length * stride:
            runs[-1] = runs[-1][0] * length, stride
        else:
            runs.append((length, stride))
    lengths = iter([n for n in shape if n != 1])
    for count, _ in runs:
        while count > 1:
            n = next(lengths, 0)
            if not n or count % n:
                return False
            count //= n
    return True


class _Probe:
    def references(self, *shape: Any) -> int:
        return sys.getrefcount(self)


def _references() -> tuple[int, int]:
    probe = _Probe()
    return _Probe().references(1), probe.references(1)


# what a method counts of an object that nothing else refers to; 0 if this Python does not tell it, as from 3.14 on
_WITHOUT_NAME, _WITH_NAME = _references() if hasattr(sys, "getrefcount") else (0, 0)
UNNAMED = _WITHOUT_NAME if _WITHOUT_NAME < _WITH_NAME else 0
