"""States of optimizers in checkpoints: what a loaded one must be, and its arrays on the host and on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.core.host_values import is_integer
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor, tensor
from alpha.errors import CheckpointError, type_name


def on_host(array: Array) -> NDArray[Any]:
    """A copy in host memory."""
    copy: NDArray[Any] = array.copy() if isinstance(array, np.ndarray) else array.device.download(array)
    return copy


def uploaded(parameter: Tensor, value: NDArray[Any]) -> Array:
    """A copy on the device and in the dtype of a parameter."""
    # np.ascontiguousarray would make () into (1,)
    return parameter.device.upload(np.asarray(value, parameter.dtype, order="C"))


def check_form(name: str, state: Mapping[str, Any]) -> None:
    """TypeError if an optimizer's state is no dict, CheckpointError if a part of it has a wrong type."""
    if not isinstance(state, Mapping):
        raise TypeError(f"{name}: the state is a {type_name(state)}, not a dict; give what state_dict() returned")
    slots, groups = state.get("state", {}), state.get("param_groups", [])
    parts: list[tuple[str, Any, type | tuple[type, ...], str]] = [
        ("state", slots, Mapping, "a dict"),
        ("param_groups", groups, (list, tuple), "a list of dicts"),
    ]
    if isinstance(slots, Mapping):
        parts += [(f"state[{key!r}]", part, Mapping, "a dict") for key, part in slots.items()]
    for number, group in enumerate(groups if isinstance(groups, (list, tuple)) else ()):
        parts.append((f"param_groups[{number}]", group, Mapping, "a dict"))
        if isinstance(group, Mapping):
            params = group.get("params", [])
            parts.append((f"param_groups[{number}]['params']", params, (list, tuple), "a list of whole numbers"))
    wrong = [f"{at} is a {type_name(part)}, not {kind}" for at, part, base, kind in parts if not isinstance(part, base)]
    if wrong:
        raise CheckpointError(f"{name}: state does not fit:\n  " + "\n  ".join(wrong))


def check_sizes(optimizer: Any, groups: Sequence[Mapping[str, Any]]) -> None:
    """CheckpointError if the groups of a state have other numbers of parameters than those of the optimizer."""
    saved, own = ([len(group.get("params", ())) for group in side] for side in (groups, optimizer.param_groups))
    if saved != own:
        raise CheckpointError(f"{optimizer._name}: groups of {saved} parameters, here {own}")


def checked_state(
    optimizer: Any, state: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], dict[Tensor, Mapping[str, Any]]]:
    """The groups and the states of parameters in a `state_dict()`, if everything fits."""
    name = optimizer._name
    missing = [key for key in ("optimizer", "state", "param_groups") if key not in state]
    if missing:
        raise CheckpointError(f"{name}: the state has no {', '.join(missing)}; it is not an Alpha optimizer's state")
    if state["optimizer"] != name:
        raise CheckpointError(f"{name}: the state is that of {state['optimizer']}; make the same optimizer first")
    check_sizes(optimizer, state["param_groups"])

    problems: list[str] = []
    groups = [_group(optimizer, number, group, problems) for number, group in enumerate(state["param_groups"])]
    indices = [_index(i) for group in state["param_groups"] for i in group["params"]]
    pairs = zip(optimizer.param_groups, groups, strict=True)
    owners = dict(zip(indices, ((p, saved) for group, saved in pairs for p in group["params"]), strict=True))
    if len(owners) != len(indices) or None in owners:
        problems.append(f"the groups' params {indices} are not different whole numbers")
    slots = {}
    for key, arrays in state["state"].items():
        if _index(key) not in owners:
            problems.append(f"parameter {key!r} is in no group")
            continue
        parameter, group = owners[_index(key)]
        slots[parameter] = _arrays(optimizer, key, parameter, optimizer._required_slots(group), arrays, problems)
    if problems:
        raise CheckpointError(f"{name}: state does not fit:\n  " + "\n  ".join(problems))
    return groups, slots


def _group(optimizer: Any, number: int, group: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """The saved hyper-parameters of a group, checked, and what else the program had put there."""
    values = {**optimizer.added, **{name: value for name, value in group.items() if name != "params"}}
    problems += [f"group {number}: {name} is missing" for name in optimizer.defaults if name not in values]
    for name, rule in optimizer._written.items():
        if name in values:
            try:
                values[name] = rule(values[name])
            except (TypeError, ValueError) as error:
                problems.append(f"group {number}: {name}={values[name]!r} {error}")
    if not problems:
        try:
            optimizer._check({**values, "params": []})
        except (TypeError, ValueError) as error:
            problems.append(f"group {number}: {error}")
    return values


def _arrays(
    optimizer: Any, key: Any, parameter: Tensor, required: Sequence[str], arrays: Mapping[str, Any], problems: list[str]
) -> Mapping[str, Any]:
    """The state of one parameter, checked."""
    result = dict(arrays)
    if optimizer._own_step:
        return result
    for name, rule in optimizer.counts.items():
        try:
            result[name] = rule(arrays.get(name))
        except (TypeError, ValueError) as error:
            problems.append(f"parameter {key}: {name}={arrays.get(name)!r} {error}")
    if result.get("step"):
        needed = [name for name in required if optimizer._slot_shape(name, parameter) is not None]
        problems += [f"parameter {key}: {name} is missing" for name in needed if name not in arrays]
    for name, value in arrays.items():
        if name in optimizer.counts:
            continue
        shape = optimizer._slot_shape(name, parameter) if name in optimizer.slots else None
        if shape is None:
            problems.append(f"parameter {key}: {name} is unknown")
        elif not isinstance(value, np.ndarray):
            problems.append(f"parameter {key}: {name} is a {type(value).__name__}, not an array")
        elif value.shape != shape:
            here = "the parameter" if shape == parameter.shape else "that of the parameter"
            problems.append(f"parameter {key}: {name} has shape {value.shape}, {here} {shape}")
        elif value.dtype != parameter.dtype:
            problems.append(f"parameter {key}: {name} is {value.dtype.name}, the parameter {parameter.dtype.name}")
    return result


def _index(key: Any) -> int | None:
    """The whole number of a key, which JSON has made a string; None for anything else."""
    if isinstance(key, str) and key.isdecimal():
        return int(key)
    return int(key) if is_integer(key) else None


def for_checkpoint(value: Any) -> Any:
    """Copy an array of the state to the host and return it; return any other value as it is."""
    if isinstance(value, Tensor):
        return value.numpy()
    return on_host(value) if hasattr(value, "nbytes") else value


def restored(optimizer: Any, parameter: Tensor, name: str, value: Any) -> Any:
    """A value of a checkpoint as the state of a parameter has it."""
    if not optimizer._own_step or name in optimizer.slots:
        return value if name in optimizer.counts else uploaded(parameter, value)
    return tensor(value, device=parameter.device) if isinstance(value, np.ndarray) else value
