"""Optimizer, the base of all optimizers: groups of parameters, steps, and checkpoints.

`Optimizer` has, in this order: groups, a step, what a subclass defines, checkpoints. At the end are functions for the
parameters of a step. The updates are in the subclasses, and the checks of a checkpoint in `states/saved_state.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from alpha.autograd.shares import any_shares, share_of
from alpha.core.origins import LAYOUTS
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.errors import CheckpointError, GradientError
from alpha.module.hooks import HookHandle
from alpha.module.parameter import shape_text, zero_gradients
from alpha.ops.kernel.tables.deferred import Update, deferred
from alpha.optim.hyper import Field, Rule, check, flag, natural, ordered, whole, written
from alpha.optim.states.pytorch_state import from_pytorch, is_pytorch, to_pytorch
from alpha.optim.states.saved_state import check_form, checked_state, for_checkpoint, on_host, restored, uploaded
from alpha.optim.step_hooks import Hook, as_update, evaluated, with_hooks
from alpha.runtime.recording import again, phase, refuse

if TYPE_CHECKING:
    from alpha.module.module import Module

__all__ = ["Optimizer"]

Group = dict[str, Any]
Parameters = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[Group]


class Optimizer:
    """Base: parameter groups, each a dict of "params" and its own hyper-parameters.

    A subclass defines the update of a group in `_update`, or, as in PyTorch, a `step` of its own, which goes through
    `param_groups` and keeps tensors and numbers in `state`.

    Args:
        params: leaf tensors that require gradients, or groups `{"params": [...], "lr": ...}`. In place of a tensor
            there may be a pair of a name and a tensor, as of `model.named_parameters()`; the group keeps the names as
            "param_names".
        defaults: hyper-parameters of the groups that do not set them, as a dict or by name.

    Attributes:
        param_groups: the groups; writing `param_groups[0]["lr"] = 1e-4` acts on the next step. As in PyTorch, numbers
            that are written or given with a group may be negative, and those of the constructor may not.
        state: for each parameter that was updated its "step" count and its arrays, for example moments.

    A subclass names the rules of its hyper-parameters in `rules`, its state arrays in `slots`, and in `counts` the
    rules of the numbers that each step changes in a parameter's state. An optimizer of Alpha declares its
    hyper-parameters as fields, from which `rules`, `added` and its constructor follow (`hyper.py`). It says
    `per_parameter = False` if an update of one parameter depends on the gradients of others.

    If PyTorch has the same optimizer, `in_pytorch` says what the state arrays are called there. How the states differ
    otherwise, which a subclass inherits:

    - `own_settings`: hyper-parameters that PyTorch does not have.
    - `counts_in_pytorch`: False if PyTorch does not keep the numbers of `counts`.
    - `numbers_in_pytorch`: what `in_pytorch` names that are numbers, or lists of numbers, and no arrays.
    - `follows_in_pytorch`: numbers of PyTorch's state that follow from others, so Alpha does not keep them.
    """

    rules: ClassVar[Mapping[str, Rule]] = {"lr": natural, "weight_decay": natural}
    slots: ClassVar[tuple[str, ...]] = ()
    counts: ClassVar[Mapping[str, Rule]] = {"step": whole}
    per_step: ClassVar[frozenset[str]] = frozenset({"lr", "initial_lr"})  # hyper-parameters that a replay reads anew
    per_parameter: ClassVar[bool] = True
    in_pytorch: ClassVar[Mapping[str, str] | None] = None  # its state arrays in torch.optim; None: it is not there
    own_settings: ClassVar[frozenset[str]] = frozenset()
    counts_in_pytorch: ClassVar[bool] = True
    numbers_in_pytorch: ClassVar[frozenset[str]] = frozenset()
    follows_in_pytorch: ClassVar[frozenset[str]] = frozenset()
    added: ClassVar[Mapping[str, Any]] = {}  # hyper-parameters that older checkpoints lack, and what they mean there

    _fields: ClassVar[Mapping[str, Field]] = {}  # what `hyper_parameters` found in the class and its bases
    _written: ClassVar[Mapping[str, Rule]] = {name: written(rule) for name, rule in rules.items()}
    _pre_hooks: tuple[Hook, ...] = ()
    _post_hooks: tuple[Hook, ...] = ()
    _stepping = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._written = {name: written(rule) for name, rule in cls.rules.items()}
        if "step" in vars(cls):
            cls.step = with_hooks(as_update(vars(cls)["step"]))  # type: ignore[method-assign]

    def __init__(self, params: Parameters, defaults: Mapping[str, Any] | None = None, **named: Any) -> None:
        if not isinstance(defaults, (Mapping, type(None))):
            raise TypeError(f"{self._name}: defaults is a {type(defaults).__name__}, not a dict")
        self.defaults = {**(defaults or {}), **named}
        self.param_groups: list[Group] = []
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        check(self._name, self.defaults, self.rules)
        if isinstance(params, Tensor):
            raise TypeError(f"{self._name}: params is one tensor; give a list of them")
        items: list[Any] = ordered(self._name, params)
        if not items:
            raise ValueError(f"{self._name}: there are no parameters to optimize")
        for group in items if isinstance(items[0], Mapping) else [{"params": items}]:
            self.add_param_group(group)

    def _take_fields(self, given: dict[str, Any]) -> None:
        """Refuse what Alpha does not offer, and make the groups, from the arguments of a declared constructor."""
        owner, fields = self._name, self._fields
        choices = [name for name, field in fields.items() if field.declared_by == "unused"]
        check(owner, given, {name: flag for name in choices if given[name] is not None})
        if sum(bool(given[name]) for name in choices) > 1:
            raise ValueError(f"{owner}: {' and '.join(choices)} cannot be True together")
        values = {}
        for name, field in fields.items():
            if field.declared_by in ("hyper", "fixed"):
                values[name] = given.get(name, field.default)
            elif field.declared_by == "only" and given[name] is not field.default:
                raise ValueError(f"{owner}: {name}={given[name]!r} is not offered; only {field.default!r}")
        Optimizer.__init__(self, given["params"], values)

    @property
    def _name(self) -> str:
        return type(self).__name__

    # -- the groups --------------------------------------------------------------------------------

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add parameters with hyper-parameters of their own, for example those of a layer unfrozen later.

        Keys that the optimizer does not know stay in the group and in the state, for the program's own use.
        """
        if "params" not in group:
            raise ValueError(f"{self._name}: the group has no 'params'")
        params = [group["params"]] if isinstance(group["params"], Tensor) else ordered(self._name, group["params"])
        named = [item for item in params if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)]
        if named and len(named) < len(params):
            raise ValueError(
                f"{self._name}: {len(named)} of {len(params)} parameters have names; give all a name or none"
            )
        if any(("param_names" in other) != bool(named or "param_names" in group) for other in self.param_groups):
            raise ValueError(f"{self._name}: give the parameters of all groups a name or none")
        params = [parameter for _, parameter in named] or params
        known = {id(p) for other in self.param_groups for p in other["params"]}
        for parameter in params:
            if not isinstance(parameter, Tensor):
                raise TypeError(f"{self._name}: {type(parameter).__name__} is not a tensor")
            if not parameter.is_leaf:
                raise ValueError(f"{self._name}: a result of operators cannot be optimized")
            if id(parameter) in known:
                raise ValueError(f"{self._name}: a parameter {shape_text(parameter)} comes twice")
            known.add(id(parameter))
        merged = {**self.defaults, **group, "params": params}
        if named:
            merged["param_names"] = [name for name, _ in named]
        self._check(merged)
        self.param_groups.append(merged)

    def _check(self, group: Group) -> None:
        """Refuse hyper-parameters that mean nothing; numpy scalars become Python's numbers in `group`."""
        check(self._name, group, self._written)

    def __repr__(self) -> str:
        lines = []
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return "\n".join([f"{self._name} (", *lines, ")"])

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop every gradient, or fill it with zeros in place if not `set_to_none`."""
        for group in self.param_groups:
            zero_gradients(group["params"], set_to_none)

    def reset(self) -> None:
        """Begin anew, as if no step had been made; the groups keep their hyper-parameters.

        State arrays keep their places, so that a captured step goes on without a new capture. The state of an optimizer
        with a `step` of its own is dropped.
        """
        refuse(f"{self._name}: reset counts steps anew on the host")
        if self._own_step:
            self.state.clear()
            return
        for group in self.param_groups:
            for slots in [self.state[p] for p in group["params"] if p in self.state]:
                for name, value in slots.items():
                    first = self._first_value(name, group)
                    if name in self.counts:
                        slots[name] = type(value)(first)
                    elif isinstance(value, np.ndarray):
                        value.fill(first)
                    else:
                        value.device.fill(value, first)

    # -- a step ------------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Hook) -> HookHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; a result (args, kwargs) replaces its arguments."""
        return HookHandle(self, "_pre_hooks", partial(hook), False)

    def register_step_post_hook(self, hook: Hook) -> HookHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return HookHandle(self, "_post_hooks", partial(hook), False)

    @with_hooks
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient, in place.

        Args:
            closure: computes the loss and its gradients anew; it is called first, and its result is returned.

        Raises:
            TypeError, ValueError: a hyper-parameter that was written into a group means nothing.
            GradientError: a gradient has another shape, dtype or device than its parameter.
        """
        loss = None if closure is None else evaluated(closure)
        work: list[tuple[Group, list[Tensor]]] = []
        for group in self.param_groups:
            ready = []
            for parameter in group["params"]:
                if (grad := parameter.grad) is not None:
                    self._check_gradient(parameter, grad)
                    ready.append(parameter)
            work.append((group, ready))
        if any_shares():
            self._check_shares()
        with phase("update"):
            self._run(work)
        return loss

    def _run(self, work: list[tuple[Group, list[Tensor]]]) -> None:
        """Count the step and update the parameters of each group.

        Nothing is written before there is memory for all updates. So a step that finds none changes nothing.
        """
        ready = [parameter for _, parameters in work for parameter in parameters]
        name = self._name
        parts = [version for parameter in ready if (version := parameter._version).unaware is not None]
        for version in parts:
            version.check_writable(name)
        restore = snapshot(self.state, ready)
        try:
            updates = self._prepared(work, ready)
        except BaseException:
            restore()
            raise
        for parameter in ready:  # first: an update that is cut off may have written some of them
            if parameter._version.unaware is None:
                parameter._version.bump(name)
        try:
            for update in updates:
                update()
        finally:
            for version in parts:  # copies, which let the memory of which they are parts have what they have now
                version.bump(name)

    def _prepared(self, work: list[tuple[Group, list[Tensor]]], ready: list[Tensor]) -> list[Update]:
        """Count the step, and return the updates of all groups. They need no more memory."""
        states = iter(self._count(work))
        # a replay of a captured step is a step, too
        again(partial(self._count, work), partial(snapshot, self.state, ready))

        def ask() -> None:
            for group, parameters in work:
                # one fused update for parameters of one age, device and dtype: as a rule, all of them
                batches: dict[tuple[Any, ...], list[Tensor]] = {}
                for parameter in parameters:
                    age = map(next(states).get, self.counts)
                    key = *age, type(parameter.array), parameter.array.dtype.num
                    batches.setdefault(key, []).append(parameter)
                for batch in batches.values():
                    self._update(group, batch)

        return deferred(ask)

    def _count(self, work: list[tuple[Group, list[Tensor]]]) -> list[dict[str, Any]]:
        """Check the hyper-parameters of a step, count it for these parameters, and return their states."""
        for group, _ in work:
            self._check(group)
        states = []
        for group, parameters in work:
            for parameter in parameters:
                state = self.state[parameter]
                state.setdefault("step", 0)
                self._count_one(group, state)
                states.append(state)
        return states

    def _count_one(self, group: Group, state: dict[str, Any]) -> None:
        """Count a step in the state of one parameter."""
        state["step"] += 1

    def _check_shares(self) -> None:
        """Refuse parameters whose gradients go to the ranks that another optimizer has chosen."""
        for parameter in [parameter for group in self.param_groups for parameter in group["params"]]:
            if (share := share_of(parameter)) is not None and share.optimizer() is not self:
                raise GradientError(
                    f"{self._name}: a parameter {shape_text(parameter)} belongs to a ZeroRedundancyOptimizer, so other "
                    "ranks may have its gradient; step that one, or drop it before the backward pass"
                )

    def _check_gradient(self, parameter: Tensor, grad: Tensor) -> None:
        """Refuse a gradient of another shape, dtype or device than its parameter."""
        if parameter._version.unaware is not None or grad._version.unaware is not None:  # copies of parts
            parameter._version.refresh()
            grad._version.refresh()
        own, other = parameter.array, grad.array
        if own.shape != other.shape or own.dtype != other.dtype or type(own) is not type(other):
            raise GradientError(
                f"{self._name}: a gradient is {grad.dtype.name} {grad.shape} on {grad.device.name}, "
                f"its parameter {parameter.dtype.name} {parameter.shape} on {parameter.device.name}"
            )

    # -- what a subclass defines: the update, and the arrays of a parameter ------------------------

    def _update(self, group: Group, ready: list[Tensor]) -> None:
        """Update parameters of one age, device and dtype. What may change between steps is read in a `StepValue`.

        Fused updates, and others that are given to `make` of `alpha.ops.kernel.tables.deferred`, wait until all groups
        are ready.
        """
        raise TypeError(f"{self._name} defines no update")

    def _structure(self, group: Mapping[str, Any]) -> tuple[Any, ...]:
        """The decisions about the launches of a step that follow from values of `per_step`.

        A captured step ends if they change.
        """
        return ()

    def _required_slots(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        """The slots that a parameter of `group` has after its first step."""
        return ()

    def _first_value(self, name: str, group: Group) -> float:
        """The value of a state array, or of a number of `counts`, before the first step."""
        return 0.0

    def _slot_shape(self, name: str, parameter: Tensor) -> tuple[int, ...] | None:
        """The shape of a state array; None if the parameter has none of this name."""
        return parameter.shape

    def _slots(self, name: str, ready: list[Tensor], group: Group) -> list[Array]:
        """One state array per parameter; it follows a parameter to another device or dtype."""
        result = []
        for parameter in ready:
            slots, own = self.state[parameter], parameter.array
            held = slots.get(name)
            if held is None:
                held = parameter.device.zeros(self._slot_shape(name, parameter) or (), parameter.dtype)
                if value := self._first_value(name, group):
                    parameter.device.fill(held, value)
            elif isinstance(held, np.ndarray) != isinstance(own, np.ndarray) or held.dtype != own.dtype:
                held = uploaded(parameter, on_host(held))
            slots[name] = held
            result.append(held)
        return result

    # -- checkpoints -------------------------------------------------------------------------------

    @property
    def _own_step(self) -> bool:
        """True if a subclass has a `step` of its own, which keeps in the state what it likes."""
        return type(self).step is not Optimizer.step

    def state_dict(self, *, layout: str = "NHWC", model: Module | None = None) -> dict[str, Any]:
        """A copy, on the host, of what resuming needs; later steps do not change it.

        {"optimizer": class name, "state": {index: {"step": int, name: numpy array, ..}},
         "param_groups": [{"params": [index, ..], "lr": ..}, ..]}, the index running on over groups.

        With layout="NCHW" it is a state of PyTorch's optimizer of the same name, with tensors of PyTorch: what
        `torch_optimizer.load_state_dict` takes, if that one has the parameters in the same order. Moments of filters
        have PyTorch's layout.

        Args:
            layout: "NHWC" or "NCHW".
            model: the module whose parameters are optimized, which "NCHW" needs.

        Raises:
            ValueError: the layout is another one.
            CheckpointError: PyTorch has no such optimizer, or not its settings; a parameter is not in the model; or the
                state has an entry that belongs to no parameter of a group.
            ImportError: "NCHW" needs PyTorch.
        """
        return self._in_layout(self._state_of_now(), layout, model)

    def _in_layout(self, state: dict[str, Any], layout: str, model: Module | None) -> dict[str, Any]:
        """A state of Alpha in a layout."""
        if layout not in LAYOUTS:
            raise ValueError(f"{self._name}: layout={layout!r} is not one of 'NHWC', 'NCHW'")
        return to_pytorch(self, state, model) if layout == "NCHW" else state

    def _state_of_now(self) -> dict[str, Any]:
        parameters = [p for group in self.param_groups for p in group["params"]]
        index = {id(parameter): i for i, parameter in enumerate(parameters)}
        foreign = [key for key in self.state if id(key) not in index]
        if foreign:
            what = "a tensor that no group has" if isinstance(foreign[0], Tensor) else repr(foreign[0])
            raise CheckpointError(
                f"{self._name}: its state has an entry of {what}; what belongs to no parameter stands in a group, as "
                "in param_groups[0]['name']"
            )
        return {
            "optimizer": self._name,
            "state": {
                index[id(parameter)]: {
                    name: value if name in self.counts and not isinstance(value, Tensor) else for_checkpoint(value)
                    for name, value in slots.items()
                }
                for parameter, slots in self.state.items()
            },
            "param_groups": [
                {**group, "params": [index[id(p)] for p in group["params"]]} for group in self.param_groups
            ],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any], *, model: Module | None = None) -> None:
        """Go on from a `state_dict()` of the same groups; nothing changes unless everything fits.

        Args:
            state_dict: that of the same optimizer, of Alpha or of `torch.optim`. PyTorch's has its parameters in the
                same order, or names them, as `torch.optim.Adam(torch_model.named_parameters())` does.
            model: the module whose parameters are optimized, which a state of `torch.optim` needs: its layers tell
                which arrays have PyTorch's layout.

        Raises:
            CheckpointError: lists every mismatch at once.
        """
        self._take_state(*self._checked_state(self._of_alpha(state_dict, model)))

    def _of_alpha(self, state: Mapping[str, Any], model: Module | None) -> Mapping[str, Any]:
        """A state in the form of Alpha: the state itself, or what a state of `torch.optim` is here."""
        check_form(self._name, state)
        return from_pytorch(self, state, model) if is_pytorch(self, state, model) else state

    def _following(self, group: Mapping[str, Any], step: int) -> dict[str, float]:
        """Numbers of a parameter's state in PyTorch that follow from its steps."""
        return {}

    def _checked_state(self, state_dict: Mapping[str, Any]) -> tuple[list[Group], dict[Tensor, Mapping[str, Any]]]:
        """The groups and the states of parameters in a `state_dict()`, if everything fits."""
        return checked_state(self, state_dict)

    def _take_state(self, groups: list[Group], slots: Mapping[Tensor, Mapping[str, Any]]) -> None:
        """Take what `_checked_state` has found."""
        new = {
            parameter: {key: restored(self, parameter, key, value) for key, value in arrays.items()}
            for parameter, arrays in slots.items()
        }
        for group, other in zip(self.param_groups, groups, strict=True):
            group.update(other)
        self.state = defaultdict(dict, new)


# -- the parameters of a step ----------------------------------------------------------------------


def gradients(ready: list[Tensor]) -> list[Array]:
    """The arrays of the parameters' gradients."""
    return [grad.array for p in ready if (grad := p.grad) is not None]


def snapshot(states: dict[Tensor, dict[str, Any]], parameters: list[Tensor]) -> Callable[[], None]:
    """Copy the states of these parameters, and return a function that restores them."""
    held = [states.get(parameter) for parameter in parameters]
    before = [None if slots is None else slots.copy() for slots in held]

    def restore() -> None:
        for parameter, slots, values in zip(parameters, held, before, strict=True):
            if slots is None or values is None:
                states.pop(parameter, None)
            else:
                slots.clear()
                slots.update(values)

    return restore
