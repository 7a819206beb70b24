"""ZeroRedundancyOptimizer: an optimizer whose state is shared out over the ranks (ZeRO-1; Rajbhandari et al. 2020).

Each parameter has an owner, the rank that updates it and keeps its state. The backward pass reduces a gradient to the
owner of its parameter (see `DataParallel`), and a step sends the new values from the owners to all.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from alpha.autograd.shares import give, refuse_unreduced, share_of
from alpha.autograd.versions import array_of
from alpha.core.names.missing_names import tell_instead
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.distributed.data_parallel import PACKED, name_of
from alpha.distributed.engines.side_by_side import copy_arrays, pack
from alpha.distributed.process_group import Group, current, joined_engine
from alpha.errors import DistributedError, GradientError, type_name
from alpha.optim.optimizer import Optimizer, Parameters
from alpha.runtime.ranks import rank, world_size
from alpha.runtime.recording import phase

if TYPE_CHECKING:
    from alpha.module.module import Module

__all__ = ["ZeroRedundancyOptimizer"]

NAME = "ZeroRedundancyOptimizer"


class _Whole(NamedTuple):
    """The states of all parameters by their indices, and how often the parameters were written until then."""

    states: dict[int, dict[str, Any]]
    written: list[int]


# of optimizers that have been consolidated; here, since a captured step depends on all that an optimizer holds
_whole: WeakKeyDictionary[ZeroRedundancyOptimizer, _Whole] = WeakKeyDictionary()


def shared_out(sizes: Sequence[int], loads: list[int]) -> list[int]:
    """The owner of each parameter: the largest ones first, each to the rank that has the least until then.

    Args:
        sizes: of the parameters.
        loads: the sizes that each rank has together; those of these parameters are added.
    """
    owners = [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        owners[number] = owner = loads.index(min(loads))
        loads[owner] += sizes[number]
    return owners


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer of which each rank keeps the state of a part of the parameters: about 1 / world_size of it.

        model = alpha.DataParallel(network)  # a Trainer makes it itself
        optimizer = ZeroRedundancyOptimizer(model.parameters(), alpha.optim.Adam, lr=1e-3)

    It steps as the optimizer itself would, up to rounding. After a backward pass the gradient of a parameter is on the
    rank that updates it, and `.grad` is None on the others; `clip_grad_norm_` counts those of all ranks. Parameters
    are whole on each rank. All ranks make it with the same parameters in the same order, and step it alike. In a group
    of one, or without one, it is the optimizer itself.

    Args:
        params: parameters or groups, as those of any optimizer.
        optimizer_class: for example `alpha.optim.Adam`; each parameter must be updated by its own gradient and state.
        process_group, parameters_as_bucket_view, overlap_with_ddp: change nothing. There is one group; gradients are
            reduced beside the backward pass in any case.
        defaults: the arguments of `optimizer_class`, by name.

    Attributes:
        optim: the optimizer of `optimizer_class`. Its `state` is that of this rank's parameters.

    Raises:
        TypeError: `optimizer_class` is no class of an optimizer.
        ValueError: it updates all parameters together, as LBFGS does.
        DistributedError: the ranks have other parameters, or it was made before `alpha.distributed.init()`.
        GradientError: from `step`: gradients were not reduced, or a frozen parameter has one.
    """

    def __init__(
        self,
        params: Parameters,
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if not isinstance(optimizer_class, type) or not issubclass(optimizer_class, Optimizer):
            raise TypeError(f"{NAME}: optimizer_class is {_shown(optimizer_class)}, not a class of an optimizer")
        if issubclass(optimizer_class, ZeroRedundancyOptimizer):
            raise TypeError(f"{NAME}: optimizer_class is {NAME} itself; give the class of the optimizer within")
        if not optimizer_class.per_parameter:
            raise ValueError(
                f"{NAME}: {optimizer_class.__name__} updates all parameters together, so its state cannot be shared "
                "out; use it by itself, on all ranks"
            )
        self.optim = optimizer_class(params, **defaults)
        self.defaults, self.param_groups, self.state = self.optim.defaults, self.optim.param_groups, self.optim.state
        self._ranks = world_size()
        self._owners: list[int] = []  # of the parameters, in the order of the groups
        self._loads = [0] * self._ranks
        self._share_out()

    # a captured step compares of the state what the optimizer within says

    @property
    def counts(self) -> Any:  # type: ignore[override]
        return self.optim.counts

    @property
    def per_step(self) -> Any:  # type: ignore[override]
        return self.optim.per_step

    def _structure(self, group: Mapping[str, Any]) -> tuple[Any, ...]:
        return self.optim._structure(group)

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _shared(self) -> bool:
        """True if there are other ranks.

        Raises:
            DistributedError: there are others now than when the optimizer was made.
        """
        if world_size() != self._ranks:
            raise DistributedError(
                f"{NAME}: it was made in a group of {self._ranks}, and there are {world_size()} processes now; call "
                "alpha.distributed.init() first of all, and make the optimizer anew after a shutdown"
            )
        return self._ranks > 1

    def _share_out(self) -> None:
        """Choose the owners of parameters that have none."""
        group = current()
        if not self._shared() or group is None:
            return
        known = len(self._owners)
        new = self._parameters()[known:]
        lines = [f"{name_of(parameter)} {parameter.dtype.name} {tuple(parameter.shape)}".strip() for parameter in new]
        group.compare_lines(f"parameters of {NAME}", [type(self.optim).__name__, *lines])
        owners = shared_out([parameter.array.nbytes for parameter in new], self._loads)
        self._owners += owners
        for number, (parameter, owner) in enumerate(zip(new, owners, strict=True), known):
            give(parameter, owner, self.optim, number)

    def __deepcopy__(self, memo: dict[int, Any]) -> ZeroRedundancyOptimizer:
        """An optimizer of the copied parameters, which are shared out in the same way."""
        other: ZeroRedundancyOptimizer = type(self).__new__(type(self))
        memo[id(self)] = other
        vars(other).update(copy.deepcopy(vars(self), memo))
        if other._owners:
            for number, (parameter, owner) in enumerate(zip(other._parameters(), other._owners, strict=True)):
                give(parameter, owner, other.optim, number)
        return other

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add parameters, and share them out, too; all ranks do it."""
        self.optim.add_param_group(group)
        self._share_out()

    def reset(self) -> None:
        """Begin anew, as if no step had been made; see `Optimizer.reset`."""
        self.optim.reset()
        _whole.pop(self, None)

    # -- a step ------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update this rank's parameters, and send them to the other ranks; see `Optimizer.step`."""
        if not self._shared():
            return self.optim.step(closure)
        loss = None if closure is None else closure()
        self._check_owners()
        if any(parameter._grad is not None and not parameter.requires_grad for parameter in self._parameters()):
            raise GradientError(
                f"{NAME}: a parameter that requires no gradient has one, so only the rank that owns it would change "
                "it; set its .grad to None where it is frozen"
            )
        self.optim.step()
        with phase("update"):
            self._send()
        return loss

    def _check_owners(self) -> None:
        """Refuse gradients that were not reduced for this optimizer; a dry run, on another device, reduces nothing."""
        group, parameters = current(), self._parameters()
        if group is None or parameters[0].device is not group.device:
            return
        for parameter in parameters:
            if (share := share_of(parameter)) is None or share.optimizer() is not self.optim:
                raise DistributedError(
                    f"{NAME}: its parameters belong to another {NAME} that was made later, or it is a copy that was "
                    "unpickled; make it anew"
                )
        refuse_unreduced(NAME, parameters, rank())

    def _send(self) -> None:
        """Give all ranks the new values; small arrays of one owner are sent side by side."""
        own, others = rank(), []
        sent: list[Array] = []
        sources: list[int] = []
        alike: dict[tuple[int, np.dtype[Any]], list[Array]] = {}
        for parameter, owner in zip(self._parameters(), self._owners, strict=True):
            if not parameter.requires_grad:
                continue
            array = array_of(parameter)
            if owner != own:
                others.append(parameter)
            if array.nbytes < PACKED:
                alike.setdefault((owner, array.dtype), []).append(array)
            else:
                sent.append(array)
                sources.append(owner)
        copies = []
        for (owner, dtype), arrays in alike.items():
            packed = arrays[0]
            if len(arrays) > 1:
                packed, parts = pack(arrays, dtype)
                if owner != own:
                    copies.append((arrays, parts))
            sent.append(packed)
            sources.append(owner)
        joined_engine(NAME).broadcast(sent, sources)
        for arrays, parts in copies:
            copy_arrays(arrays, parts)
        for parameter in others:
            parameter._version.bump(NAME)

    # -- checkpoints -------------------------------------------------------------------------------

    def consolidate_state_dict(self, to: int | None = 0) -> None:
        """Bring the states of all parameters to a rank, whose `state_dict()` has them then; all ranks call it at once.

        Args:
            to: the rank; None for all of them.

        Raises:
            ValueError: there is no such rank.
            TypeError: a state holds what is neither an array nor a number.
        """
        if to is not None and not 0 <= to < world_size():
            raise ValueError(f"{NAME}: consolidate_state_dict: to={to}, but there are ranks 0 to {world_size() - 1}")
        _whole.pop(self, None)
        group = current()
        if not self._shared() or group is None:
            return
        states = self._gathered(group, to in (None, rank()))
        if to in (None, rank()):
            _whole[self] = _Whole(states, self._versions())

    def _gathered(self, group: Group, wanted: bool) -> dict[int, dict[str, Any]]:
        """The states of all parameters, if they are wanted here, on the host."""
        states = self.optim.state_dict()["state"]
        own = {number: slots for number, slots in states.items() if self._owners[number] == rank()}
        described = {number: {name: _form(name, value) for name, value in own[number].items()} for number in own}
        texts = group.texts(f"the state of {NAME}", json.dumps(described))
        found: dict[int, dict[str, Any]] = {}
        for source, told in enumerate(texts):
            for key, forms in json.loads(told).items():
                number = int(key)
                named = {name: form for name, form in forms.items() if isinstance(form, list)}
                if source == rank():
                    arrays = [group.device.upload(own[number][name]) for name in named]
                else:
                    arrays = [group.device.empty(tuple(shape), np.dtype(dtype)) for dtype, shape in named.values()]
                if arrays:
                    joined_engine(NAME).broadcast(arrays, [source] * len(arrays))
                if wanted:
                    slots = {name: None if name in named else form["value"] for name, form in forms.items()}
                    downloaded = zip(named, map(group.device.download, arrays), strict=True)
                    found[number] = own[number] if source == rank() else {**slots, **dict(downloaded)}
        return dict(sorted(found.items()))

    def release(self) -> None:
        """Drop what `consolidate_state_dict` has brought here."""
        _whole.pop(self, None)

    def _versions(self) -> list[int]:
        return [parameter._version.value for parameter in self._parameters()]

    def state_dict(self, *, layout: str = "NHWC", model: Module | None = None) -> dict[str, Any]:
        """A `state_dict()` of `optimizer_class` without sharing, for any number of ranks; see `Optimizer.state_dict`.

        Raises:
            DistributedError: `consolidate_state_dict` was not called since the last step, or for another rank.
        """
        if not self._shared():
            return self.optim.state_dict(layout=layout, model=model)
        whole = _whole.get(self)
        if whole is None or whole.written != self._versions():
            raise DistributedError(
                f"{NAME}: rank {rank()} has a share of the state alone; call consolidate_state_dict(to={rank()}) on "
                "all ranks before, after the last step (a Run does so by itself)"
            )
        state = {**self.optim.state_dict(), "state": {number: dict(slots) for number, slots in whole.states.items()}}
        return self.optim._in_layout(state, layout, model)

    def local_state_dict(self) -> dict[str, Any]:
        """A `state_dict()` of this rank's parameters alone, which `load_state_dict` takes on the same rank."""
        return self.optim.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any], *, model: Module | None = None) -> None:
        """Go on from a `state_dict()`, of this optimizer or of an `optimizer_class`, with this rank's share of it.

        Raises:
            CheckpointError: lists every mismatch at once; nothing has changed then.
        """
        state_dict = self.optim._of_alpha(state_dict, model)
        if not self._shared():
            self.optim.load_state_dict(state_dict)
        else:
            own = {p for p, owner in zip(self._parameters(), self._owners, strict=True) if owner == rank()}
            if type(self.optim).load_state_dict is Optimizer.load_state_dict:
                groups, states = self.optim._checked_state(state_dict)
                self.optim._take_state(groups, {p: slots for p, slots in states.items() if p in own})
            else:
                self.optim.load_state_dict(state_dict)
                for parameter in self.optim.state.keys() - own:
                    del self.optim.state[parameter]
        self.state = self.optim.state
        _whole.pop(self, None)


def _shown(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else f"a {type_name(value)}"


def _form(name: str, value: Any) -> Any:
    """The dtype and the shape of an array, or the value itself, as JSON."""
    if isinstance(value, np.ndarray):
        return [value.dtype.name, value.shape]
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, (bool, int, float, str, type(None))):
        raise TypeError(f"{NAME}: {name} of a state is a {type(value).__name__}; only arrays and numbers can be sent")
    return {"value": plain}


tell_instead(__name__)
