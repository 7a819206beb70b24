"""A run's folder: one file to resume it from, and its weights and history. Two runs never share a folder."""

from __future__ import annotations

import json
import os
import shutil
import warnings
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from alpha.config import user_path
from alpha.core.numerics import computed_precision, is_floating
from alpha.distributed.process_group import current
from alpha.errors import CheckpointError, TrainingError
from alpha.io.files import make_folder, new_folder
from alpha.io.serialization import save_weights
from alpha.runtime.activity import busy
from alpha.runtime.ranks import rank
from alpha.train.background import Background
from alpha.train.files.history import History, Result, Row
from alpha.train.files.state_file import changed, environment, evaluated_weights, load_state, save_state
from alpha.train.trainer import Trainer
from alpha.train.trainer_state import consolidate, release

try:
    import fcntl
except ImportError:  # Windows: the folder is not locked
    fcntl = None  # type: ignore[assignment]

OPTIONS, CHECKPOINT, WEIGHTS, HISTORY = "run.json", "checkpoint.safetensors", "weights.safetensors", "history.csv"


class Run:
    """A run in a folder of its own; make one with `start` or `resume`.

    Attributes:
        folder: holds run.json (the options), checkpoint.safetensors (all that resuming needs), weights.safetensors and
            history.csv.
        options: what the run was started with; JSON's types.
        history: a row for each epoch that was trained and evaluated.
        trained: the result of an epoch that was trained but not evaluated when the run was interrupted, or None.
        callbacks: the states of the callbacks of `fit` by name, as they were last saved.
        saved: whether this run has been saved, so that it can be resumed.
    """

    def __init__(self, folder: Path, options: Mapping[str, Any], claim: int | None) -> None:
        self.folder = folder
        self.options = dict(options)
        self.history = History(folder / HISTORY)
        self.trained: Result | None = None
        self.callbacks: dict[str, Any] = {}
        self.saved = False
        self._takes_back: tuple[Path, ...] = ()  # what `discard` removes
        # the descriptor of run.json, locked as long as it is open; None on a process that does not write
        self._claim = claim
        self._close = weakref.finalize(self, lambda: None if claim is None else os.close(claim))
        self._state: Mapping[str, Any] | None = None
        self._environment: Mapping[str, str] = {}  # in which it was saved
        self._writer = Background()

    @classmethod
    def start(
        cls, options: Mapping[str, Any], default: str | Path, folder: str | Path | None = None, overwrite: bool = False
    ) -> Run:
        """A new run in `folder`, or else in the first of default, default-2, default-3 .. that does not exist.

        Nothing of another run is touched; with `overwrite` its files are replaced when this run first saves.
        Raises CheckpointError if `folder` holds a run and `overwrite` is False, or that run is still going on.
        """
        group = current()
        if rank() > 0:
            assert group is not None
            return cls(Path(group.told("the folder of the run")), options, None)
        made = folder is None or not user_path(folder).exists()
        folder = new_folder(user_path(default)) if folder is None else user_path(folder)
        old = _held(folder)
        run = cls(folder, options, _claim(folder, options, overwrite))
        run._takes_back = (folder,) if made else () if old else (folder / OPTIONS,)
        if group is not None:
            group.told("the folder of the run", str(folder))
        return run

    @classmethod
    def resume(cls, folder: str | Path) -> Run:
        """The run in `folder`, as it was last saved; `restore` puts a trainer there.

        Raises CheckpointError if there is none, its file is damaged, or the run is still going on.
        """
        folder = user_path(folder)
        if not (folder / CHECKPOINT).exists():
            held = (folder / OPTIONS).exists()
            why = "the run there was stopped before it saved anything" if held else "there is no run"
            raise CheckpointError(f"{folder}: has no {CHECKPOINT}: {why}; nothing to resume")
        try:
            claim = None if rank() > 0 else _lock(folder, os.O_CREAT)
        except OSError as error:
            raise CheckpointError(f"{folder / OPTIONS}: cannot be written: {error.strerror}") from error
        run = cls(folder, {}, claim)
        try:
            state = load_state(folder / CHECKPOINT)
            run.options = dict(state["options"])
            run.history.rows = [Row(**row) for row in state["history"]]
            run.trained = None if state["trained"] is None else Result(**state["trained"])
            run.callbacks = dict(state.get("callbacks", {}))  # runs of before have none
            run.saved = True
            run._state = state["trainer"]
            run._environment = dict(state.get("environment", {}))  # older runs have none
        except CheckpointError:
            run.close()
            raise
        except (KeyError, TypeError, ValueError) as error:
            run.close()
            raise CheckpointError(f"{folder / CHECKPOINT}: is not the state of a run ({error!r:.300})") from error
        return run

    def restore(self, trainer: Trainer) -> None:
        """Put `trainer` where the run was saved. Raises CheckpointError if it does not fit.

        A warning says what of the machine or its libraries has changed since, as the run then may have other bits than
        one that was never stopped.
        """
        if self._state is None:
            raise CheckpointError(f"{self.folder}: is a new run; there is nothing to restore")
        trainer.load_state_dict(self._state)
        self._state = None
        if self._environment and (why := changed(environment(trainer.device), self._environment)):
            warnings.warn(
                f"{self.folder}: the run goes on with other libraries or on another machine ({why}), so its bits may "
                "differ from those of a run that was never stopped",
                RuntimeWarning,
                stacklevel=2,
            )

    def check_restored(self) -> None:
        """Raise CheckpointError for a resumed run that is not restored, whose files another training would replace."""
        if self._state is not None:
            raise CheckpointError(
                f"{self.folder}: the run was resumed, and no trainer has its state; call run.restore(trainer) before"
            )

    def save(self, trainer: Trainer, wait: bool = True) -> None:
        """Writes the weights, the history and then the checkpoint, each atomically.

        So a run that is killed meanwhile goes on from the last checkpoint, and makes the other files anew.
        The weights are those that `Trainer.evaluate` measures. `alpha.models.load` makes the network of them if
        `options` has the entry "network", which `alpha.models.Description.as_option` gives.

        With `wait` False the state is copied to the host, and written while the program goes on. If the next `save`
        comes before the writing has begun, only the newer state is written. `wait()` and `close()` wait for the files;
        an error of the writing is raised by them or by the next `save`. Of several processes that train together only
        rank 0 writes; all of them call it at once, since it gathers the state of a `ZeroRedundancyOptimizer`, and drops
        it again.

        Raises:
            TrainingError: a weight is not finite; the files of the last epoch are intact then.
            CheckpointError: a file cannot be written, or the run was resumed and not restored.
        """
        self.check_restored()
        claim = self._claim
        consolidate(trainer)
        if claim is None:
            return
        state = trainer.state_dict()
        release(trainer)
        precision = computed_precision(trainer.device.name, trainer.precision)
        place = {"precision": precision, "epoch": trainer.epoch, "step": trainer.step}
        weights = evaluated_weights(state)
        for name, values in (*state["model"].items(), *weights.items()):
            if is_floating(values.dtype) and not np.isfinite(values).all():
                raise TrainingError(
                    f"{self.folder}: not saved: {name} is not finite after step {trainer.step} of epoch "
                    f"{trainer.epoch}; what was saved before is intact; a lower learning rate usually helps"
                )
        options, history = dict(self.options), self.history.copy()
        checkpoint = {
            "options": options,
            "history": [asdict(row) for row in self.history.rows],
            "trained": None if self.trained is None else asdict(self.trained),
            "trainer": state,
            "callbacks": dict(self.callbacks),
            "environment": environment(trainer.device),
        }

        def write() -> None:
            save_weights(self.folder / WEIGHTS, weights, {**options, **place})
            history.save()
            _write_options(claim, options)
            save_state(self.folder / CHECKPOINT, checkpoint)
            self.saved = True

        self._writer.start(write)
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until what was saved is written. Raises CheckpointError if a file could not be written."""
        with busy("writes the run"):
            self._writer.wait()

    def __repr__(self) -> str:
        best = [row.test_accuracy for row in self.history.rows if row.test_accuracy is not None]
        shown = f", best test accuracy {max(best):.1%}" if best else ""
        return f"Run({str(self.folder)!r}, {len(self.history.rows)} epochs{shown})"

    def discard(self) -> None:
        """Leave the folder, and remove what this run has put there if it was never saved. Safe to call twice."""
        with suppress(CheckpointError):  # nothing more is to be written
            self.wait()
        if not self.saved:
            for path in self._takes_back:  # before others may have the folder
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
            self._takes_back = ()
        self._close()

    def close(self) -> None:
        """Wait for the files and leave the folder to others; the end of the process does so, too."""
        try:
            self.wait()
        finally:
            self._close()


def _held(folder: Path) -> list[str]:
    """The names of a run's files that are in a folder."""
    return [name for name in (OPTIONS, CHECKPOINT, WEIGHTS, HISTORY) if (folder / name).exists()]


def _claim(folder: Path, options: Mapping[str, Any], overwrite: bool) -> int:
    """Makes run.json, which says whose folder it is, and locks it; CheckpointError if the folder has a run."""
    make_folder(folder)
    held = _held(folder)
    try:
        if held and overwrite:
            return _lock(folder, os.O_CREAT)
        if not held:
            claim = _lock(folder, os.O_CREAT | os.O_EXCL)
            _write_options(claim, options)
            return claim
    except FileExistsError:  # another run was faster
        held = [OPTIONS]
    except OSError as error:
        raise CheckpointError(f"{folder / OPTIONS}: cannot be written: {error.strerror}") from error
    raise CheckpointError(
        f"{folder}: holds a run ({', '.join(held)}); go on with it (resume), replace it (overwrite), or choose another "
        "folder"
    )


def _lock(folder: Path, flags: int) -> int:
    """Opens run.json and keeps other processes out as long as it is open; CheckpointError if one of them is there."""
    claim = os.open(folder / OPTIONS, os.O_RDWR | flags, 0o666)
    if fcntl is not None:
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(claim)
            raise CheckpointError(f"{folder}: the run there is still going on; wait for it or stop it") from error
        except OSError:  # a file system without locks
            pass
    return claim


def _write_options(claim: int, options: Mapping[str, Any]) -> None:
    """Writes run.json, if it has another content, in place: another file would not have the lock.

    A file that becomes shorter is cut behind spaces, so it is whole at any time.
    """
    text = (json.dumps(dict(options), indent=2) + "\n").encode()
    size = os.fstat(claim).st_size
    os.lseek(claim, 0, os.SEEK_SET)
    if os.read(claim, size) != text:
        os.lseek(claim, 0, os.SEEK_SET)
        os.write(claim, text.ljust(size))
        os.ftruncate(claim, len(text))
