"""Optimizer: parameter groups, state, checkpoints; the updates are in the subclasses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from alpha.errors import CheckpointError
from alpha.primitive import Array
from alpha.tensor import Tensor

Group = dict[str, Any]
Parameters = Iterable[Tensor] | Iterable[Group]


class Optimizer:
    """Base: parameter groups, each a dict of "params" and its own hyper-parameters.

    Args:
        params: leaf tensors that require gradients, or groups `{"params": [...], "lr": ...}`.
        defaults: hyper-parameters of the groups that do not set them.

    Attributes:
        param_groups: the groups; writing `param_groups[0]["lr"] = 1e-4` acts on the next step.
        state: for each parameter that was updated its "step" count and its arrays, as moments.
    """

    def __init__(self, params: Parameters, **defaults: Any) -> None:
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self.state: dict[Tensor, dict[str, Any]] = {}
        if isinstance(params, Tensor):
            raise TypeError(f"{self._name}: params is one tensor; give a list of them")
        items: list[Any] = list(params)
        if not items:
            raise ValueError(f"{self._name}: there are no parameters to optimize")
        for group in items if isinstance(items[0], Mapping) else [{"params": items}]:
            self.add_param_group(group)

    @property
    def _name(self) -> str:
        return type(self).__name__

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add parameters with hyper-parameters of their own, as of a layer unfrozen later."""
        unknown = sorted(set(group) - set(self.defaults) - {"params"})
        if unknown:
            raise ValueError(f"{self._name}: unknown options {', '.join(unknown)}")
        params = [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])
        known = {p for other in self.param_groups for p in other["params"]}
        for parameter in params:
            if not isinstance(parameter, Tensor):
                raise TypeError(f"{self._name}: {type(parameter).__name__} is not a tensor")
            if not parameter.is_leaf:
                raise ValueError(f"{self._name}: a result of operators cannot be optimized")
            if parameter in known:
                raise ValueError(f"{self._name}: a parameter {parameter.shape} comes twice")
            known.add(parameter)
        merged = {**self.defaults, **group, "params": params}
        self._check(merged)
        self.param_groups.append(merged)

    def _check(self, group: Group) -> None:
        for name in ("lr", "weight_decay"):
            if group[name] < 0:
                raise ValueError(f"{self._name}: {name}={group[name]} is negative")

    def zero_grad(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def step(self) -> None:
        """Update every parameter that has a gradient, in place."""
        for group in self.param_groups:
            # one fused update for parameters of one age, device and dtype: as a rule, all of them
            batches: dict[tuple[int, str, str], list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    slots = self.state.setdefault(parameter, {"step": 0})
                    slots["step"] += 1
                    key = slots["step"], parameter.device.name, parameter.dtype.name
                    batches.setdefault(key, []).append(parameter)
            for (step, _, _), ready in batches.items():
                gradients = [p.grad.array for p in ready if p.grad is not None]
                self._update(group, ready, gradients, step)
                for parameter in ready:
                    parameter._version.bump(self._name)

    def _update(self, group: Group, ready: list[Tensor], gradients: list[Array], step: int) -> None:
        raise TypeError(f"{self._name} defines no update")

    def _slots(self, name: str, ready: list[Tensor]) -> list[Array]:
        """One state array a parameter, zeros at first; follows a parameter that moved."""
        result = []
        for parameter in ready:
            slots = self.state[parameter]
            held = slots.get(name)
            if held is None:
                held = parameter.device.zeros(parameter.shape, parameter.dtype)
            elif isinstance(held, np.ndarray) != isinstance(parameter.array, np.ndarray):
                held = parameter.device.upload(_on_host(held))
            slots[name] = held
            result.append(held)
        return result

    # -- checkpoints --------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What resuming needs, on the host: a copy that later steps do not change.

        {"state": {index: {"step": int, name: numpy array, ..}},
         "param_groups": [{"params": [index, ..], "lr": ..}, ..]}, the index running on over groups.
        """
        parameters = [p for group in self.param_groups for p in group["params"]]
        index = {parameter: i for i, parameter in enumerate(parameters)}
        return {
            "state": {
                index[parameter]: {
                    name: value if isinstance(value, int) else _on_host(value) for name, value in slots.items()
                }
                for parameter, slots in self.state.items()
            },
            "param_groups": [{**group, "params": [index[p] for p in group["params"]]} for group in self.param_groups],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict()` of the same groups; nothing changes unless everything fits.

        Raises:
            CheckpointError: lists every mismatch at once.
        """
        groups, slots = state["param_groups"], state["state"]
        saved, own = ([len(g["params"]) for g in side] for side in (groups, self.param_groups))
        if saved != own:
            raise CheckpointError(f"{self._name}: groups of {saved} parameters, here {own}")
        parameters = [p for group in self.param_groups for p in group["params"]]
        problems = [
            f"parameter {i}: {name} has shape {value.shape}, the parameter {parameters[i].shape}"
            for i, arrays in slots.items()
            for name, value in arrays.items()
            if name != "step" and value.shape != parameters[i].shape
        ]
        if problems:
            raise CheckpointError(f"{self._name}: state does not fit:\n  " + "\n  ".join(problems))
        for group, other in zip(self.param_groups, groups, strict=True):
            group.update({name: value for name, value in other.items() if name != "params"})
        self.state = {
            parameters[i]: {
                name: value
                if name == "step"
                else parameters[i].device.upload(np.ascontiguousarray(value, parameters[i].dtype))
                for name, value in arrays.items()
            }
            for i, arrays in slots.items()
        }


def _on_host(array: Array) -> Array:
    return array.copy() if isinstance(array, np.ndarray) else array.device.download(array)
