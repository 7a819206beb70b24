"""State dicts: weights by name, as `Module.state_dict` returns and `Module.load_state_dict` reads them.

Reading finds which value goes where and in which layout, and says what does not fit. `TorchLayout` turns values of a
module's tensors, and what belongs to them, such as moments of an optimizer, to PyTorch's layout and back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from alpha.core.host_values import host_array, is_torch, torch_tensor
from alpha.core.numerics import is_floating
from alpha.core.origins import LAYOUTS, layout_of, mark
from alpha.core.tensor import Tensor, tensor
from alpha.errors import CheckpointError, type_name
from alpha.module.flattened import FlattenedMaps, Names
from alpha.module.parameter import Buffer, Uninitialized, state_of

if TYPE_CHECKING:
    from alpha.module.module import Module

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


Values = npt.NDArray[Any]
Shape = tuple[int, ...]
Form = tuple[int | None, ...]  # a shape, with None for a length that is not known yet


class IncompatibleKeys(NamedTuple):
    """Result of `Module.load_state_dict`: names that the weights lack, and names that the module does not have."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Reading(NamedTuple):
    """Values that a module's tensors take, in the module's layout, by name, and what does not fit, a line each."""

    values: dict[str, Values]
    problems: list[str]
    keys: IncompatibleKeys


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
        return self.takes(value.shape) and self.takes(_channels_last(value).shape) and max(value.shape[1:]) > 1

    def has_channels(self, value: Values) -> bool:
        """True if the second axis of PyTorch's value is the channels, which Alpha has last.

        That is so for a filter, and for any other value of four axes, which may be the filter of a layer of one's own;
        but not for one that fits as it is and would not fit otherwise, such as a mask (1, 1, T, T).
        """
        if value.ndim < 3 or (self.form is not None and len(self.form) != value.ndim):
            return False
        only_as_it_is = self.takes(value.shape) and not self.takes(_channels_last(value).shape)
        return self.is_filter or (value.ndim == 4 and not only_as_it_is)

    def __str__(self) -> str:
        if self.form is None or None not in self.form:
            return "of any shape" if self.form is None else str(self.form)
        return str(tuple("any" if n is None else n for n in self.form)).replace("'", "")


def targets_of(root: Module, own: Mapping[str, Tensor]) -> dict[str, Target]:
    """Requirements of each tensor of a module on its values, by its dotted name in `own`."""
    modules = dict(root.named_modules(remove_duplicate=False))
    found = {}
    for name, value in own.items():
        path, _, last = name.rpartition(".")
        module = modules[path]
        form = module._form_of(last) if isinstance(value, Uninitialized) else value.shape
        found[name] = Target(form, last in module._filters, isinstance(value, Buffer))
    return found


def read_state(
    own: Mapping[str, Tensor],
    targets: Mapping[str, Target],
    state: Mapping[str, Any],
    layout: str | None,
    strict: bool,
    maps: FlattenedMaps,
) -> Reading:
    """Read the weights of a module.

    Args:
        own: the module's tensors by name; a shared one has several names.
        targets: what each of them takes; the filters of convolutions are read in a layout, as all tensors of four axes.
        state, layout, strict: see `Module.load_state_dict`.
        maps: which weights of PyTorch count the features of a flattened map.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"load_state_dict: the state is a {type_name(state)}, not a dict of arrays or tensors by name")
    if layout is not None and layout not in LAYOUTS:
        raise ValueError(f"load_state_dict: layout={layout!r} is not one of 'NHWC', 'NCHW'")
    known = state.layout if isinstance(state, StateDict) else None
    if None not in (layout, known) and layout != known:
        raise CheckpointError(
            f"load_state_dict: layout={layout!r} was given, but the weights have the layout {known!r}"
        )
    empty = {name for name in own if isinstance(state.get(name), Uninitialized)}
    given, unread = _host_arrays({name: state[name] for name in own if name in state and name not in empty})
    turned = {name: _channels_last(value) for name, value in given.items() if targets[name].has_channels(value)}
    layouts = {name: layout or layout_in(state, name) for name in given}
    in_nchw = {name for name, found in layouts.items() if found == "NCHW"}
    ordered, problems = maps.turn({name: given[name] for name in in_nchw})
    turned.update(ordered)
    problems += [*unread.values(), *_shape_problems(targets, given, turned, layouts, known is not None)]
    problems += [
        f"values      {name}: the weights are of a lazy layer before its first forward, the model has {targets[name]}"
        for name in sorted(empty)
        if not isinstance(own[name], Uninitialized)
    ]
    both = {name for name in turned if name not in ordered and targets[name].takes_both(given[name])}
    problems += [
        f"layout      {name}: a Buffer {given[name].shape} may have channels or not; leave it out with strict=False, "
        "and assign it"
        for name in given
        if name in in_nchw & both and not targets[name].is_filter and targets[name].is_buffer
        if not np.array_equal(given[name], turned[name])
    ]
    open_ = {name: given[name] for name in given if layouts[name] is None}
    told = _others_tell(targets, open_, turned)
    problems += _unclear(
        [name for name in turned if name in open_ and (is_torch(state[name]) or (not told and name in both))]
    )
    if layout == "NCHW" and known is None:
        problems += [
            f"layout      {name}: is a tensor that Alpha has made, so its filters are NHWC, but layout='NCHW' was "
            "given; leave layout= out, or give alpha.nn.StateDict(values, 'NCHW') if they are not"
            for name in given
            if name in both and layout_in(state, name) == "NHWC" and not np.array_equal(given[name], turned[name])
        ]
    values = {name: turned.get(name, value) if name in in_nchw else value for name, value in given.items()}
    if not problems:
        problems = _alias_problems(own, values)
    there = {id(own[name]) for name in (*given, *unread, *empty)}
    missing = [name for name, tensor in own.items() if id(tensor) not in there]
    unexpected = [name for name in state if name not in own and not _is_counter(name, own)]
    if strict:
        problems += [f"missing     {name} {targets[name]}" for name in missing]
        problems += [f"unexpected  {name}" for name in unexpected]
    return Reading(values, problems, IncompatibleKeys(missing, unexpected))


def _host_arrays(values: Mapping[str, Any]) -> tuple[dict[str, Values], dict[str, str]]:
    """The values as arrays, by name, and a line for each that numpy cannot read."""
    arrays, unread = {}, {}
    for name, value in values.items():
        try:
            arrays[name] = host_array(value)
        except (TypeError, ValueError) as error:
            unread[name] = f"values      {name}: {str(error).removeprefix('tensor: ')}"
    return arrays, unread


def _shape_problems(
    targets: Mapping[str, Target],
    given: Mapping[str, Values],
    turned: Mapping[str, Values],
    layouts: Mapping[str, str | None],
    fixed: bool,
) -> list[str]:
    """Values that are not numbers, or that have another shape than the module's.

    Args:
        fixed: the state dict knows its layout, so the argument layout= cannot be another one.
    """
    problems = []
    for name, value in given.items():
        target = targets[name]
        in_nchw = turned.get(name, value).shape
        is_nchw = layouts[name] == "NCHW"
        shape, other, advice = (in_nchw, value.shape, "NHWC") if is_nchw else (value.shape, in_nchw, "NCHW")
        if value.dtype.kind not in "iub" and not is_floating(value.dtype):
            problems.append(f"dtype       {name}: {value.dtype} is not a number")
        elif not target.takes(shape):
            turned_to = (
                f"; taken for PyTorch's, in NCHW, they are {shape} here" if is_nchw and shape != value.shape else ""
            )
            how = f"alpha.nn.StateDict(weights, {advice!r})" if fixed else f"layout={advice!r}"
            hint = f"; they fit with {how}" if target.takes(other) else ""
            problems.append(f"shape       {name}: the weights have {value.shape}, the model {target}{hint}{turned_to}")
    return problems


def _alias_problems(own: Mapping[str, Tensor], values: Mapping[str, Values]) -> list[str]:
    """Names of one tensor whose values are not the same."""
    first: dict[int, str] = {}
    problems = []
    for name, value in values.items():
        other = first.setdefault(id(own[name]), name)
        if value is not values[other]:
            one, two = (np.asarray(v, own[name].dtype, order="C").tobytes() for v in (values[other], value))
            if one != two:
                problems.append(f"values      {name}: not those of {other}, which is the same tensor in the model")
    return problems


def _others_tell(targets: Mapping[str, Target], given: Mapping[str, Values], turned: Mapping[str, Values]) -> bool:
    """True if some filters fit only in Alpha's layout and none only in PyTorch's: then all of them are in Alpha's."""
    filters = [name for name in given if name in turned and targets[name].is_filter]
    kinds = {(targets[name].takes(given[name].shape), targets[name].takes(turned[name].shape)) for name in filters}
    return (True, False) in kinds and (False, True) not in kinds


def _unclear(found: Sequence[str]) -> list[str]:
    """One line about the weights whose layout cannot be told."""
    if not found:
        return []
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return [
        f"layout      {found[0]}{more}: NHWC or NCHW cannot be told from the shape; "
        "pass layout='NCHW' for PyTorch's weights, layout='NHWC' for Alpha's"
    ]


def _channels_last(value: Values) -> Values:
    """(OC, IC, FH, FW) -> (OC, FH, FW, IC), a view, with any number of axes of the filter"""
    return np.moveaxis(value, 1, -1)


def _is_counter(name: object, own: Mapping[str, Tensor]) -> bool:
    """True if the name is PyTorch's count of a batch norm's batches, which Alpha's batch norm does not need."""
    if not isinstance(name, str):
        return False
    prefix, _, last = name.rpartition("num_batches_tracked")
    return not last and f"{prefix}running_mean" in own


def advice_of_namesake(root: Module, state: Mapping[str, Any]) -> str:
    """Advice for weights of another network of the same name; empty if they are none."""
    start, advice = root._namesake
    return advice if start and any(str(name).startswith(start) for name in state) else ""


def of_pytorch(state: Mapping[str, Any], layout: str | None) -> set[str]:
    """The names of the values that are PyTorch's."""
    return {
        name
        for name, value in state.items()
        if (layout or layout_in(state, name) or ("NCHW" if is_torch(value) else "")) == "NCHW"
    }


# -- PyTorch's layout --------------------------------------------------------------------------------------------------


def unturned(state: Mapping[str, Any], values: Mapping[str, Values], foreign: set[str]) -> set[str]:
    """The tensors of four axes whose values of PyTorch were read as they are."""
    shapes = {name: values[name].shape for name in foreign & values.keys()}
    return {
        name
        for name, shape in shapes.items()
        if len(shape) == 4 and np.shape(state[name]) == shape and len(set(shape[1:])) > 1
    }


class TorchLayout:
    """Turns values of a module's tensors to PyTorch's layout, and back.

    Args:
        root: the module.
        flattened, unflattened: see `Module.load_state_dict`.

    Attributes:
        maps: which of them count features of a flattened map.
    """

    def __init__(self, root: Module, flattened: Names | None = None, unflattened: Names | None = None) -> None:
        self._own = root._state()
        self._targets = targets_of(root, self._own)
        self.maps = FlattenedMaps(flattened, unflattened, root, self._own)
        modules = dict(root.named_modules(remove_duplicate=False))
        self._as_they_are = {
            full
            for full in self._own
            if (place := full.rpartition("."))[2] in modules[place[0]]._unturned  # PyTorch's values were so, too
        }

    def state(self, prefix: str = "") -> StateDict:
        """The values of the module on the host, in PyTorch's layout; a shared tensor comes as one."""
        made: dict[int, Any] = {}
        found = {}
        for name, value in self._own.items():
            if id(value) not in made:
                lazy = isinstance(value, Uninitialized)
                made[id(value)] = state_of(value) if lazy else mark(tensor(self.outward(name, value.numpy())), "NCHW")
            found[prefix + name] = made[id(value)]
        return StateDict(found, "NCHW")

    def turns_channels(self, name: str, shape: Shape) -> bool:
        """True if the last axis of a value of Alpha is the channels, which PyTorch has second.

        That is so for filters and other values of four axes, but for one (.., 1, T, T), which is a mask.
        """
        target = self._targets[name]
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
        target = self._targets[name]
        if moved is not value or not target.has_channels(value) or name in self._as_they_are:
            return moved
        return _channels_last(value)


# -- whole checkpoints -------------------------------------------------------------------------------------------------


def weights_of(state: Mapping[str, Any], own: Mapping[str, Any]) -> Mapping[str, Any]:
    """The weights in a checkpoint that may hold more than them, under the names of a module's tensors.

    A dict without any of these names is a whole checkpoint if one of its values is a dict that has some: that one is
    taken, whatever its key ("state_dict", "model", "net"). What stands before all names of the weights, such as
    "module." of PyTorch's DataParallel or "_orig_mod." of torch.compile, is left out if no name fits with it and some
    fit without it.

    Args:
        state: weights, or a dict that has them.
        own: the module's tensors by name.

    Raises:
        CheckpointError: several dicts in it have names of the module.
    """
    if not isinstance(state, Mapping) or any(name in own for name in state):
        return state
    if (bare := _without_prefix(state, own)) is not None:
        return bare
    inner: dict[Any, Mapping[str, Any]] = {}
    for key, part in state.items():
        if isinstance(part, Mapping):
            fitting = part if any(name in own for name in part) else _without_prefix(part, own)
            if fitting is not None:
                inner[key] = fitting
    if len(inner) > 1:
        keys = ", ".join(map(repr, inner))
        raise CheckpointError(
            f"load_state_dict: the checkpoint has weights of this model under {keys}; give one of them, as "
            f"checkpoint[{next(iter(inner))!r}]"
        )
    return next(iter(inner.values()), state)


def _without_prefix(state: Mapping[str, Any], own: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The weights without what stands before all of their names; None if that does not make them fit."""
    names = list(state)
    if not names or not all(isinstance(name, str) for name in names):
        return None
    first = names[0].split(".")
    for count in range(1, len(first)):
        prefix = ".".join(first[:count]) + "."
        if not all(name.startswith(prefix) for name in names):
            return None
        if any(name.removeprefix(prefix) in own for name in names):
            bare = StateDict({name.removeprefix(prefix): value for name, value in state.items()})
            if isinstance(state, StateDict):
                bare.layout = state.layout
                bare._first = {
                    name.removeprefix(prefix): state[name] for name in names if state.layout_of(name) is not None
                }
            return bare
    return None
