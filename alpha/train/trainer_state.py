"""State of a Trainer: its place in the epoch, and a dict from which another goes on; a wrong one changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from alpha.core.rng import get_rng_state, set_rng_state
from alpha.data import DataLoader
from alpha.data.loader import HELD_BY
from alpha.distributed import ZeroRedundancyOptimizer
from alpha.errors import CheckpointError
from alpha.module.module import Module
from alpha.module.parameter import Uninitialized
from alpha.module.state_dict import StateDict
from alpha.train.batches.host import EPOCH_SEED, check_loader, difference, seed_of_epoch
from alpha.train.batches.tally import TALLIED, TALLIED_SINCE
from alpha.train.beginning import average_of, check_classes

ADDED = ("averaged",)  # parts of a state that older ones have not


@dataclass
class Place:
    """Place of a training in its epochs, besides the numbers of the epoch and the step.

    Attributes:
        unfinished: the tally of an epoch that was interrupted, or None.
        loader: what the last epoch was trained on; None before the first.
        same_loader: whether the next epoch must be trained on the same.
    """

    unfinished: Mapping[str, Any] | None = None
    loader: dict[str, Any] | None = None
    same_loader: bool = False

    def begin(self, loader: DataLoader, classes: bool) -> int | None:
        """Note what the loader gives, and return the seed of the epoch; refuse another loader if one must go on.

        Args:
            classes: whether the labels are numbers of classes.
        """
        check_loader(loader)
        found, before = loader.describe(), self.loader or {}
        if self.same_loader and classes:
            check_classes(loader.dataset, before, "the training that goes on")
        ignored = (HELD_BY,) if self.unfinished is None else ()
        seen, wanted = ({k: v for k, v in about.items() if k not in ignored} for about in (found, before))
        if self.same_loader and before and (wrong := difference(seen, wanted)):
            raise CheckpointError(f"Trainer: the run must go on with the loader that it began with: {wrong}")
        epoch_seed = seed_of_epoch(loader, None if self.unfinished is None else before)
        self.loader = {**found, EPOCH_SEED: epoch_seed}
        return epoch_seed


def state_dict(trainer: Any, local: bool = False) -> dict[str, Any]:
    """See `Trainer.state_dict`; if `local`, optimizers that are shared out have this rank's share alone."""
    return {
        "epoch": trainer.epoch,
        "step": trainer.step,
        "precision": trainer.precision,
        "loader": trainer.place.loader,
        "tally": None if trainer.place.unfinished is None else dict(trainer.place.unfinished),
        "rng": get_rng_state(),
        "schedule": _one_or_list([schedule.state_dict() for schedule in trainer.schedules]),
        "optimizer": _one_or_list(
            [
                optimizer.local_state_dict()
                if local and isinstance(optimizer, ZeroRedundancyOptimizer)
                else optimizer.state_dict()
                for optimizer in trainer.optimizers
            ]
        ),
        **weights_of(trainer),
    }


def weights_of(trainer: Any) -> dict[str, Any]:
    """The parts of a state that are weights: those of the model, and their mean."""
    averaged = trainer.averaged
    return {
        "model": trainer.model.state_dict().numpy(),
        "averaged": None if averaged is None else averaged.state_dict().numpy(),
    }


def consolidate(trainer: Any) -> None:
    """Bring the states of optimizers that are shared out to rank 0; all ranks call it at once."""
    for optimizer in trainer.optimizers:
        if isinstance(optimizer, ZeroRedundancyOptimizer):
            optimizer.consolidate_state_dict()


def release(trainer: Any) -> None:
    """Drop what `consolidate` has brought."""
    for optimizer in trainer.optimizers:
        if isinstance(optimizer, ZeroRedundancyOptimizer):
            optimizer.release()


def _one_or_list(states: list[Any]) -> Any:
    return states[0] if len(states) == 1 else states or None


def _as_list(state: Any) -> list[Any]:
    return [] if state is None else list(state) if isinstance(state, list) else [state]


def load_state_dict(trainer: Any, state: Mapping[str, Any]) -> None:
    """See `Trainer.load_state_dict`."""
    own = state_dict(trainer, local=True)
    missing = [name for name in own if name not in state and name not in ADDED]
    if missing:
        raise CheckpointError(f"Trainer: the state has no {', '.join(missing)}")
    if state["precision"] != trainer.precision:
        raise CheckpointError(f"Trainer: the state is of precision {state['precision']}, here {trainer.precision}")
    for name, held in (("schedule", trainer.schedules), ("optimizer", trainer.optimizers)):
        found = len(_as_list(state[name]))
        if found != len(held):
            numbers = [("no" if count == 0 else "a" if count == 1 else str(count)) for count in (found, len(held))]
            names = [name + "s" * (count > 1) for count in (found, len(held))]
            raise CheckpointError(
                f"Trainer: the state has {numbers[0]} {names[0]}, the trainer has {numbers[1]} {names[1]}"
            )
    if trainer.ema is None and trainer.averaged is None and state.get("averaged") is not None:
        raise CheckpointError("Trainer: the state has a mean of the weights, the trainer has no ema=")
    place, averaged = trainer.place, trainer.averaged
    try:
        _load(trainer, state)
    except BaseException:
        now = trainer.model.state_dict()  # what a lazy layer had no values for before keeps those that were loaded
        own["model"].update(
            {name: now[name] for name, value in own["model"].items() if isinstance(value, Uninitialized)}
        )
        trainer.averaged = averaged
        _load(trainer, own)
        trainer.place = place
        raise


def _load(trainer: Any, state: Mapping[str, Any]) -> None:
    try:
        epoch, step = (int(state[name]) for name in ("epoch", "step"))
        tally = None if state["tally"] is None else {name: float(state["tally"][name]) for name in TALLIED}
        if tally is not None:  # older states have not all of these
            tally |= {name: state["tally"][name] for name in TALLIED_SINCE if state["tally"].get(name) is not None}
        loader = None if state["loader"] is None else dict(state["loader"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"Trainer: the state's place in the epoch cannot be read: {error!r}") from error
    _load_weights(trainer.model, state["model"])
    for optimizer, found in zip(trainer.optimizers, _as_list(state["optimizer"]), strict=True):
        optimizer.load_state_dict(found)
    for schedule, found in zip(trainer.schedules, _as_list(state["schedule"]), strict=True):
        schedule.load_state_dict(found)
    if state.get("averaged") is not None:
        trainer.averaged = average_of(trainer.model, trainer.ema, trainer.averaged)
        assert trainer.averaged is not None
        _load_weights(trainer.averaged, state["averaged"])
    try:
        set_rng_state(state["rng"])
    except ValueError as error:
        raise CheckpointError(f"Trainer: {error}") from error
    trainer.epoch, trainer.step = epoch, step
    trainer.place = Place(tally, loader, loader is not None)


def _load_weights(model: Module, state: Mapping[str, Any]) -> None:
    own = model.state_dict()  # its arrays have the layout of those that were saved
    weights = dict(state)
    model.load_state_dict(StateDict(weights, own.layout) if isinstance(own, StateDict) else weights)
