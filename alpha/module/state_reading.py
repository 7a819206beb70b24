"""How `Module.load_state_dict` reads weights: which value goes where, in which layout, and what does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from alpha.core.host_values import host_array, is_torch
from alpha.core.numerics import is_floating
from alpha.core.origins import LAYOUTS
from alpha.core.tensor import Tensor
from alpha.errors import CheckpointError, type_name
from alpha.module.flattened import FlattenedMaps
from alpha.module.module_tree import ModuleTree
from alpha.module.parameter import Buffer
from alpha.module.state_dict import StateDict, layout_in
from alpha.module.uninitialized import Uninitialized

Values = npt.NDArray[Any]
Shape = tuple[int, ...]
Form = tuple[int | None, ...]  # a shape, with None for a length that is not known yet


class IncompatibleKeys(NamedTuple):
    """What `Module.load_state_dict` returns: names that the weights lack, and names that the module does not have."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Reading(NamedTuple):
    """Values that a module's tensors take, in the module's layout, by name, and what does not fit, a line each."""

    values: dict[str, Values]
    problems: list[str]
    keys: IncompatibleKeys


class Target(NamedTuple):
    """What a tensor of a module takes.

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
        """Whether it takes the shape as it is and with the second axis last, and these are not the same."""
        return self.takes(value.shape) and self.takes(_channels_last(value).shape) and max(value.shape[1:]) > 1

    def has_channels(self, value: Values) -> bool:
        """Whether the second axis of PyTorch's value is the channels, which Alpha has last.

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


def targets_of(root: ModuleTree, own: Mapping[str, Tensor]) -> dict[str, Target]:
    """What each tensor of a module takes, by its dotted name in `own`."""
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
    problems += [*unread.values(), *_shape_problems(targets, given, turned, layouts)]
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
) -> list[str]:
    """Values that are not numbers, or that have another shape than the module's."""
    problems = []
    for name, value in given.items():
        target = targets[name]
        in_nchw = turned.get(name, value).shape
        is_nchw = layouts[name] == "NCHW"
        shape, other, advice = (in_nchw, value.shape, "NHWC") if is_nchw else (value.shape, in_nchw, "NCHW")
        if value.dtype.kind not in "iub" and not is_floating(value.dtype):
            problems.append(f"dtype       {name}: {value.dtype} is not a number")
        elif not target.takes(shape):
            hint = f"; they fit with layout={advice!r}" if target.takes(other) else ""
            problems.append(f"shape       {name}: the weights have {value.shape}, the model {target}{hint}")
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
    """Whether some filters fit only as Alpha has them and none only as PyTorch has them, which tells it of all."""
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
    """Whether it is PyTorch's count of a batch norm's batches, which Alpha's does not need."""
    if not isinstance(name, str):
        return False
    prefix, _, last = name.rpartition("num_batches_tracked")
    return not last and f"{prefix}running_mean" in own


def advice_of_namesake(root: ModuleTree, state: Mapping[str, Any]) -> str:
    """What to do if these are the weights of another network of the same name; empty if they are not."""
    start, advice = root._namesake
    return advice if start and any(str(name).startswith(start) for name in state) else ""


def of_pytorch(state: Mapping[str, Any], layout: str | None) -> set[str]:
    """The names of the values that are PyTorch's."""
    return {
        name
        for name, value in state.items()
        if (layout or layout_in(state, name) or ("NCHW" if is_torch(value) else "")) == "NCHW"
    }
