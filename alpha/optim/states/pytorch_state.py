"""States of optimizers in the form of `torch.optim`, from one of Alpha and back.

Arrays have PyTorch's names and layout: moments of filters are turned as the filters are, and those of layers that take
flattened maps as their weights. What else PyTorch has of an optimizer, and what it has not, its class says
(`in_pytorch` and the class variables below it, of `Optimizer`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from alpha.core.host_values import host_array, torch_tensor
from alpha.core.tensor import Tensor
from alpha.errors import CheckpointError
from alpha.module.parameter import shape_text
from alpha.module.pytorch_layout import TorchLayout
from alpha.optim.states.saved_state import check_sizes

if TYPE_CHECKING:
    from alpha.module.module import Module

State = Mapping[str, Any]
Values = NDArray[Any]
CHOICES = ("foreach", "fused", "capturable", "differentiable")  # of an implementation; they change no numbers
LATER = ("maximize", "decoupled_weight_decay")  # settings that older versions of PyTorch do not write


def is_pytorch(optimizer: Any, state: State, model: Module | None) -> bool:
    """True if a state is one of `torch.optim`: it does not name its optimizer, and has what PyTorch's have."""
    if "optimizer" in state or not {"state", "param_groups"} <= state.keys():
        return False
    if model is not None or any(name in group for group in state["param_groups"] for name in CHOICES):
        return True
    theirs = set((optimizer.in_pytorch or {}).values()) - {*optimizer.slots}
    return any(name in slots for slots in state["state"].values() for name in theirs)


def to_pytorch(optimizer: Any, state: State, model: Module | None) -> dict[str, Any]:
    """A state of Alpha in the form of `torch.optim`, with tensors of PyTorch on the host.

    Args:
        optimizer: whose state it is.
        state: its `state_dict()`.
        model: the module with its parameters.

    Raises:
        CheckpointError: PyTorch has no such optimizer, or not its settings; or a parameter is not in the model.
        ImportError: PyTorch is not installed.
    """
    turning = _Turning(optimizer, model, "state_dict(layout='NCHW', model=model)")
    own = optimizer.own_settings
    groups, group_of = [], {}
    for number, group in enumerate(state["param_groups"]):
        if set_ := {name: group[name] for name in own if group.get(name)}:
            raise CheckpointError(f"{optimizer._name}: group {number} has {set_}, which PyTorch's optimizer has not")
        fields = optimizer._fields.items()
        choices = {name: field.default for name, field in fields if field.declared_by in ("unused", "only")}
        groups.append({**choices, **{name: value for name, value in group.items() if name not in own}})
        group_of.update(dict.fromkeys(group["params"], groups[-1]))
    found = {}
    for index, slots in state["state"].items():
        parameter = turning.parameters[index]
        found[index] = {
            theirs: turning.out(parameter, theirs, slots[ours])
            for ours, theirs in optimizer.in_pytorch.items()
            if ours in slots
        }
        if optimizer.counts_in_pytorch:
            counts = {name: slots[name] for name in optimizer.counts if name in slots}
            counts.update(optimizer._following(group_of[index], slots.get("step", 0)))
            found[index].update({name: turning.count(value) for name, value in counts.items()})
    return {"state": found, "param_groups": groups}


def from_pytorch(optimizer: Any, state: State, model: Module | None) -> dict[str, Any]:
    """A state of `torch.optim` in the form of Alpha.

    The parameters are told by the names that the state has, if PyTorch's optimizer was made of named parameters, else
    by their order.

    Args:
        optimizer: which takes it.
        state: a `state_dict()` of PyTorch's optimizer, of which the arrays may be of PyTorch, numpy or Alpha.
        model: the module with the parameters.

    Raises:
        CheckpointError: PyTorch has no such optimizer; the state is that of another one, or does not fit.
    """
    name = optimizer._name
    turning = _Turning(optimizer, model, "load_state_dict(state, model=model)")
    order = turning.order(state)
    turning.parameters = list(order.values())
    back = {theirs: ours for ours, theirs in optimizer.in_pytorch.items()}
    known = {*back, *optimizer.counts, *optimizer.follows_in_pytorch}
    strangers = {key for slots in state["state"].values() for key in slots} - known
    if strangers:
        raise CheckpointError(
            f"{name}: the state has {', '.join(sorted(map(str, strangers)))}, which torch.optim.{name} does not keep; "
            "make the same optimizer first"
        )
    own = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    found = {}
    for key, slots in state["state"].items():
        if key not in order:
            raise CheckpointError(f"{name}: parameter {key!r} is in no group of the state")
        taken: dict[str, Any] = {"step": 0} if "step" in optimizer.counts else {}
        for theirs, value in slots.items():
            if theirs in back and value is not None:
                taken[back[theirs]] = turning.inward(order[key], theirs, value)
            elif theirs in optimizer.counts:
                taken[theirs] = _plain(value)
        taken.update({"step": int(taken["step"])} if "step" in taken else {})
        found[own.index(id(order[key]))] = taken
    groups = []
    for here, group in zip(optimizer.param_groups, state["param_groups"], strict=True):
        later = {key: optimizer.defaults[key] for key in LATER if key in optimizer.defaults}
        values = {key: _plain(value) for key, value in group.items() if key not in (*CHOICES, "param_names")}
        names = {"param_names": here["param_names"]} if "param_names" in here else {}
        groups.append({**later, **values, **names, "params": [own.index(id(p)) for p in here["params"]]})
    return {"optimizer": name, "state": found, "param_groups": groups}


def _plain(value: Any) -> Any:
    """A number of PyTorch, Alpha or numpy as Python's; anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


class _Turning:
    """The way of state arrays into PyTorch's layout, and back.

    Attributes:
        parameters: those of the optimizer, in the order in which PyTorch's has them.
    """

    def __init__(self, optimizer: Any, model: Module | None, call: str) -> None:
        self._optimizer, self._name = optimizer, optimizer._name
        if optimizer.in_pytorch is None:
            raise CheckpointError(f"{self._name}: PyTorch has no such optimizer, so its state has no form there")
        if model is None:
            raise CheckpointError(
                f"{self._name}: {call} is needed for a state of torch.optim: the layers of the model tell which arrays "
                "belong to filters, which PyTorch has in another layout"
            )
        self.parameters: list[Tensor] = [p for group in optimizer.param_groups for p in group["params"]]
        self._names: dict[int, str] = {}
        for full, parameter in model.named_parameters():
            self._names.setdefault(id(parameter), full)
        if lost := [p for p in self.parameters if id(p) not in self._names]:
            raise CheckpointError(
                f"{self._name}: {len(lost)} of its parameters are not in the model, a {type(model).__name__}, the "
                f"first one {shape_text(lost[0])}; give the model that it trains"
            )
        self._layout = TorchLayout(model)

    def order(self, state: State) -> dict[Any, Tensor]:
        """The parameters by the indices that a state of PyTorch has for them."""
        name, groups = self._name, state["param_groups"]
        check_sizes(self._optimizer, groups)
        keys = [key for group in groups for key in group["params"]]
        told = [str(full).removeprefix("module.") for group in groups for full in group.get("param_names", ())]
        if len(told) != len(keys):
            return dict(zip(keys, self.parameters, strict=True))
        named = {self._names[id(parameter)]: parameter for parameter in self.parameters}
        if lost := [full for full in told if full not in named]:
            raise CheckpointError(f"{name}: the state names a parameter {lost[0]!r}, which the model does not have")
        order = {key: named[full] for key, full in zip(keys, told, strict=True)}
        for number, (group, here) in enumerate(zip(groups, self._optimizer.param_groups, strict=True)):
            if {id(order[key]) for key in group["params"]} != set(map(id, here["params"])):
                raise CheckpointError(f"{name}: group {number} of the state has other parameters than here")
        return order

    def count(self, value: float) -> Any:
        """A number of a parameter as PyTorch keeps it."""
        return torch_tensor(np.array(value, np.float32))

    def out(self, parameter: Tensor, theirs: str, value: Any) -> Any:
        """A value of the state, for PyTorch."""
        if isinstance(value, (list, tuple)):
            return [self.out(parameter, theirs, part) for part in value]
        if not isinstance(value, np.ndarray):
            return value
        if not self._optimizer.per_parameter:
            return torch_tensor(np.concatenate([self._out(p, part).reshape(-1) for p, part in self._parts(value)]))
        turned = self._out(parameter, np.empty(parameter.shape, value.dtype))
        if value.shape != parameter.shape:
            self._check_factors(parameter, turned)
            return torch_tensor(value)
        return torch_tensor(self._out(parameter, value))

    def inward(self, parameter: Tensor, theirs: str, value: Any) -> Any:
        """A value of PyTorch's state."""
        if theirs in self._optimizer.numbers_in_pytorch:
            return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else _plain(value)
        if isinstance(value, (list, tuple)):
            return [self.inward(parameter, theirs, part) for part in value]
        array = host_array(value)
        if not self._optimizer.per_parameter:
            return np.concatenate([self._in(p, part).reshape(-1) for p, part in self._parts(array, of_pytorch=True)])
        there = self._out(parameter, np.empty(parameter.shape, array.dtype))
        if array.shape == there.shape:
            return np.array(self._in(parameter, array), order="C")
        ours = next(ours for ours, name in self._optimizer.in_pytorch.items() if name == theirs)
        if self._optimizer._slot_shape(ours, parameter) in (parameter.shape, None):
            raise CheckpointError(
                f"{self._name}: {theirs} of {self._names[id(parameter)]!r} has shape {array.shape}, the parameter "
                f"{there.shape} in PyTorch's layout"
            )
        self._check_factors(parameter, there)
        return array

    def _parts(self, vector: Values, of_pytorch: bool = False) -> list[tuple[Tensor, Values]]:
        """The part of each parameter in a vector of all, in its shape."""
        sizes = [int(parameter.size) for parameter in self.parameters]
        if vector.shape != (sum(sizes),):
            raise CheckpointError(
                f"{self._name}: a vector has shape {vector.shape}, the parameters {sum(sizes)} elements"
            )
        parts = np.split(vector, np.cumsum(sizes)[:-1])
        shapes = [
            self._out(parameter, np.empty(parameter.shape)).shape if of_pytorch else parameter.shape
            for parameter in self.parameters
        ]
        return [(p, part.reshape(shape)) for p, part, shape in zip(self.parameters, parts, shapes, strict=True)]

    def _out(self, parameter: Tensor, value: Values) -> Values:
        return self._layout.outward(self._names[id(parameter)], value)

    def _in(self, parameter: Tensor, value: Values) -> Values:
        return self._layout.inward(self._names[id(parameter)], value)

    def _check_factors(self, parameter: Tensor, in_pytorch: Values) -> None:
        """Refuse means over rows and columns of a parameter whose axes are others in PyTorch."""
        if in_pytorch.ndim > 2 and in_pytorch.strides != np.empty(in_pytorch.shape, in_pytorch.dtype).strides:
            raise CheckpointError(
                f"{self._name}: {self._names[id(parameter)]!r} is a filter, of which it keeps means over the last two "
                f"axes; these are {parameter.shape[-2:]} here and {in_pytorch.shape[-2:]} in PyTorch, so the state of "
                "one is none of the other"
            )
