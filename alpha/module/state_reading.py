"""Reading of weights for a module: which value goes where, in which layout, and what does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from alpha.core.host_values import host_array, is_torch
from alpha.core.numerics import is_floating
from alpha.core.origins import LAYOUTS
from alpha.core.tensor import Tensor
from alpha.errors import CheckpointError, first_few, type_name
from alpha.module.parameter import Uninitialized
from alpha.module.pytorch_layout import Target, TorchLayout, channels_last
from alpha.module.state_dict import StateDict, layout_in

if TYPE_CHECKING:
    from alpha.module.module import Module

Values = npt.NDArray[Any]


class IncompatibleKeys(NamedTuple):
    """Result of `Module.load_state_dict`: names that the weights lack, and names that the module does not have."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Reading(NamedTuple):
    """Values that a module's tensors take, in the module's layout, by name, and what does not fit, a line each."""

    values: dict[str, Values]
    problems: list[str]
    keys: IncompatibleKeys


def read_state(turning: TorchLayout, state: Mapping[str, Any], layout: str | None, strict: bool) -> Reading:
    """Read the weights of a module.

    Args:
        turning: PyTorch's layout of the module.
        state, layout, strict: see `Module.load_state_dict`.
    """
    own, targets = turning.own, turning.targets
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
    turned = {name: channels_last(value) for name, value in given.items() if targets[name].has_channels(value)}
    layouts = {name: layout or layout_in(state, name) for name in given}
    in_nchw = {name for name, found in layouts.items() if found == "NCHW"}
    ordered, problems = turning.maps.turn({name: given[name] for name in in_nchw})
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
    return [
        f"layout      {first_few(found, 1)}: NHWC or NCHW cannot be told from the shape; "
        "pass layout='NCHW' for PyTorch's weights, layout='NHWC' for Alpha's"
    ]


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


def unturned(state: Mapping[str, Any], values: Mapping[str, Values], foreign: set[str]) -> set[str]:
    """The tensors of four axes whose values of PyTorch were read as they are."""
    shapes = {name: values[name].shape for name in foreign & values.keys()}
    return {
        name
        for name, shape in shapes.items()
        if len(shape) == 4 and np.shape(state[name]) == shape and len(set(shape[1:])) > 1
    }


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
