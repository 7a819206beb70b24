"""PyTorch's layout of a module's tensors, and of what belongs to them, such as moments of an optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from alpha.core.origins import mark
from alpha.core.tensor import Tensor, tensor
from alpha.module.flattened import FlattenedMaps, Names
from alpha.module.parameter import Buffer, Uninitialized, state_of
from alpha.module.state_dict import StateDict

if TYPE_CHECKING:
    from alpha.module.module import Module

Values = npt.NDArray[Any]
Shape = tuple[int, ...]
Form = tuple[int | None, ...]  # a shape, with None for a length that is not known yet


class Target(NamedTuple):
    """Requirements of a tensor of a module on the values that are loaded into it.

    Attributes:
        form: its shape; None if nothing is known of it.
        is_filter: whether it is the filters of a convolution, which are read in a layout.
        is_buffer: whether it is a Buffer.
    """

    form: Form | None
    is_filter: bool
    is_buffer: bool

    def takes(self, shape: Shape) -> bool:
        return self.form is None or (
            len(shape) == len(self.form) and all(n in (None, m) for n, m in zip(self.form, shape, strict=True))
        )

    def takes_both(self, value: Values) -> bool:
        """True if the shape fits as it is and with the second axis last, and these are not the same."""
        return self.takes(value.shape) and self.takes(channels_last(value).shape) and max(value.shape[1:]) > 1

    def has_channels(self, value: Values) -> bool:
        """True if the second axis of PyTorch's value is the channels, which Alpha has last.

        That is so for a filter, and for any other value of four axes, which may be the filter of a layer of one's own;
        but not for one that fits as it is and would not fit otherwise, such as a mask (1, 1, T, T).
        """
        if value.ndim < 3 or (self.form is not None and len(self.form) != value.ndim):
            return False
        only_as_it_is = self.takes(value.shape) and not self.takes(channels_last(value).shape)
        return self.is_filter or (value.ndim == 4 and not only_as_it_is)

    def __str__(self) -> str:
        if self.form is None or None not in self.form:
            return "of any shape" if self.form is None else str(self.form)
        return str(tuple("any" if n is None else n for n in self.form)).replace("'", "")


def _targets_of(root: Module, own: Mapping[str, Tensor]) -> dict[str, Target]:
    """Requirements of each tensor of a module on its values, by its dotted name in `own`."""
    modules = dict(root.named_modules(remove_duplicate=False))
    found = {}
    for name, value in own.items():
        path, _, last = name.rpartition(".")
        module = modules[path]
        form = module._form_of(last) if isinstance(value, Uninitialized) else value.shape
        found[name] = Target(form, last in module._filters, isinstance(value, Buffer))
    return found


class TorchLayout:
    """Turns values of a module's tensors to PyTorch's layout, and back.

    Args:
        root: the module.
        flattened, unflattened: see `Module.load_state_dict`.

    Attributes:
        own: the tensors by name; a shared one has several names.
        targets: what each of them takes.
        maps: which of them count features of a flattened map.
    """

    def __init__(self, root: Module, flattened: Names | None = None, unflattened: Names | None = None) -> None:
        self.own = root._state()
        self.targets = _targets_of(root, self.own)
        self.maps = FlattenedMaps(flattened, unflattened, root, self.own)
        modules = dict(root.named_modules(remove_duplicate=False))
        self._as_they_are = {
            full
            for full in self.own
            if (place := full.rpartition("."))[2] in modules[place[0]]._unturned  # PyTorch's values were so, too
        }

    def state(self, prefix: str = "") -> StateDict:
        """The values of the module on the host, in PyTorch's layout; a shared tensor comes as one."""
        made: dict[int, Any] = {}
        found = {}
        for name, value in self.own.items():
            if id(value) not in made:
                lazy = isinstance(value, Uninitialized)
                made[id(value)] = state_of(value) if lazy else mark(tensor(self.outward(name, value.numpy())), "NCHW")
            found[prefix + name] = made[id(value)]
        return StateDict(found, "NCHW")

    def turns_channels(self, name: str, shape: Shape) -> bool:
        """True if the last axis of a value of Alpha is the channels, which PyTorch has second.

        That is so for filters and other values of four axes, but for one (.., 1, T, T), which is a mask.
        """
        target = self.targets[name]
        if target.is_filter:
            return len(shape) > 2
        is_mask = len(shape) == 4 and shape[1] == 1 and shape[2] == shape[3] > 1
        return len(shape) == 4 and not is_mask and name not in self._as_they_are

    def outward(self, name: str, value: Values) -> Values:
        """A value in PyTorch's layout, of a tensor's shape in the module's; the value itself if both have it alike."""
        moved = self.maps.outward(name, value)
        if moved is not value or not self.turns_channels(name, value.shape):
            return moved
        return np.moveaxis(value, -1, 1)

    def inward(self, name: str, value: Values) -> Values:
        """A value of PyTorch in the module's layout; the value itself if both have it alike."""
        moved = self.maps.inward(name, value)
        target = self.targets[name]
        if moved is not value or not target.has_channels(value) or name in self._as_they_are:
            return moved
        return channels_last(value)


def channels_last(value: Values) -> Values:
    """(OC, IC, FH, FW) -> (OC, FH, FW, IC), a view, with any number of axes of the filter"""
    return np.moveaxis(value, 1, -1)
