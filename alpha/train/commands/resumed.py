"""Options of a run that goes on: which may be others than before, and what follows from that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from alpha.errors import CheckpointError
from alpha.runtime.ranks import world_size
from alpha.train.schedules import change_rates
from alpha.train.trainer import Trainer

CHANGED = ("epochs", "lr", "early_stopping")  # options that may differ when a run goes on


def change_options(options: dict[str, Any], given: dict[str, Any]) -> list[str]:
    """Put those of the given options that may be others into the options of a run and return what has changed.

    They are taken out of `given`; what is left there must agree with the run.
    """
    changes = []
    for name in CHANGED:
        if name in given and (given[name] or None) != (options[name] or None):
            changes.append(f"{name.replace('_', ' ')} {options[name] or 'none'} -> {given[name] or 'none'}")
            options[name] = given[name]
        given.pop(name, None)
    return changes


def share_batch(folder: Path, options: dict[str, Any]) -> None:
    """Let the processes of now share the steps of a run, though it may have begun with another number of them.

    Raises:
        CheckpointError: they cannot share a batch equally.
    """
    before, now = options.get("processes", 1), world_size()  # runs of before have none
    whole = options["batch_size"] * before
    if whole % now:
        fitting = ", ".join(str(count) for count in range(1, whole + 1) if whole % count == 0)
        raise CheckpointError(
            f"{folder}: a step of the run has {whole} images, which {now} processes cannot share: use one of {fitting}"
        )
    options |= {"batch_size": whole // now, "processes": now}


def with_changes(trainer: Trainer, options: Mapping[str, Any], changes: Sequence[str], steps: int) -> str:
    """Give the changed options of a run to its trainer, and say so behind "goes on"; empty if nothing has changed.

    Args:
        options: with "lr" and "epochs".
        steps: of an epoch.
    """
    if not changes:
        return ""
    done = max(0, trainer.epoch - 1) * steps + trainer.step
    change_rates(trainer, options["lr"], max(0, options["epochs"] * steps - done))
    rate = float(trainer.optimizers[0].param_groups[0]["lr"])
    falls = " and falls to 0 at the end" if trainer.schedules else ""
    return f", with {', '.join(changes)}\nthe learning rate is {rate:.3g} now{falls}"


def check_agreement(folder: Path, options: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raises CheckpointError if given options are others than those of the run in a folder."""
    wrong = [
        f"--{name.replace('_', '-')} {value} (the run has {'none' if options[name] is None else options[name]})"
        for name, value in given.items()
        if value != options[name]
    ]
    if wrong:
        raise CheckpointError(f"the options contradict the run in {folder}: {', '.join(wrong)}; leave them out")
