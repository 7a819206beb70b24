"""A trainer's state as a dict on the host, and back; a state that does not fit changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from alpha.core.rng import get_rng_state, set_rng_state
from alpha.errors import CheckpointError
from alpha.module.state_dict import StateDict
from alpha.module.uninitialized import Uninitialized
from alpha.train.tally import TALLIED

if TYPE_CHECKING:
    from alpha.train.trainer import Trainer


def state_dict(trainer: Trainer) -> dict[str, Any]:
    """See `Trainer.state_dict`."""
    return {
        "epoch": trainer.epoch,
        "step": trainer.step,
        "precision": trainer.precision,
        "loader": trainer._loader,
        "tally": None if trainer._unfinished is None else dict(trainer._unfinished),
        "rng": get_rng_state(),
        "schedule": None if trainer.schedule is None else trainer.schedule.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "model": trainer.model.state_dict().numpy(),
    }


def load_state_dict(trainer: Trainer, state: Mapping[str, Any]) -> None:
    """See `Trainer.load_state_dict`."""
    own = state_dict(trainer)
    missing = [name for name in own if name not in state]
    if missing:
        raise CheckpointError(f"Trainer: the state has no {', '.join(missing)}")
    if state["precision"] != trainer.precision:
        raise CheckpointError(f"Trainer: the state is of precision {state['precision']}, here {trainer.precision}")
    if (state["schedule"] is None) != (trainer.schedule is None):
        has = ("a", "no") if trainer.schedule is None else ("no", "a")
        raise CheckpointError(f"Trainer: the state has {has[0]} schedule, the trainer has {has[1]} schedule")
    same_loader = trainer._same_loader
    try:
        _load(trainer, state)
    except BaseException:
        now = trainer.model.state_dict()  # what a lazy layer had no values for before keeps those that were loaded
        own["model"].update(
            {name: now[name] for name, value in own["model"].items() if isinstance(value, Uninitialized)}
        )
        _load(trainer, own)
        trainer._same_loader = same_loader
        raise


def _load(trainer: Trainer, state: Mapping[str, Any]) -> None:
    try:
        epoch, step = (int(state[name]) for name in ("epoch", "step"))
        tally = None if state["tally"] is None else {name: float(state["tally"][name]) for name in TALLIED}
        loader = None if state["loader"] is None else dict(state["loader"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"Trainer: the state's place in the epoch cannot be read: {error!r}") from error
    own = trainer.model.state_dict()  # its arrays have the layout of those that were saved
    weights = dict(state["model"])
    trainer.model.load_state_dict(StateDict(weights, own.layout) if isinstance(own, StateDict) else weights)
    trainer.optimizer.load_state_dict(state["optimizer"])
    if trainer.schedule is not None:
        trainer.schedule.load_state_dict(state["schedule"])
    try:
        set_rng_state(state["rng"])
    except ValueError as error:
        raise CheckpointError(f"Trainer: {error}") from error
    trainer.epoch, trainer.step = epoch, step
    trainer._unfinished, trainer._loader, trainer._same_loader = tally, loader, loader is not None
