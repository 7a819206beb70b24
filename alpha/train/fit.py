"""The epochs of a training: train, evaluate, record, save, and ask the callbacks."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from alpha.data import DataLoader
from alpha.data.checks import whole_number
from alpha.errors import CheckpointError
from alpha.runtime import progress
from alpha.runtime.ranks import rank, world_size
from alpha.train.batches.host import check_loader
from alpha.train.beginning import check_classes
from alpha.train.callbacks import Callback, Fit
from alpha.train.files.history import Result, Row
from alpha.train.interrupt import Interrupted, interrupt_between_steps


def fit(
    trainer: Any,
    train_loader: DataLoader,
    test_loader: DataLoader | None = None,
    epochs: int = 1,
    *,
    steps: int | None = None,
    run: Any = None,
    callbacks: Sequence[Callback] = (),
    show: Callable[[str], None] | None = progress.say,
) -> list[Row]:
    """Train until `epochs` epochs are done in all; evaluate, record and save each, and ask the callbacks.

    Args:
        trainer: a `Trainer`.
        test_loader: what is evaluated after each epoch; without it there are no numbers of a test set.
        epochs: those that the trainer, or the run, has done before count.
        steps: at most so many steps an epoch.
        run: a `Run`, in whose folder the state and the history are saved after each epoch, and when Ctrl-C stops the
            training; a run of `Run.resume` must be restored before, and goes on where it was.
        callbacks: asked in this order after each epoch, before it is saved; their states are saved with it.
        show: prints a line for each epoch; None for none.

    Returns:
        The rows of this call's epochs, or all rows of the run.

    Raises:
        Interrupted: Ctrl-C, after a whole step; the run is saved.
        CheckpointError: two callbacks have one name, the state of one of them does not fit, or the run was resumed and
            not restored.
        DataError: the two data sets name other classes.
        TypeError: one of the loaders is no loader.

    If an evaluation, a metric or a callback raises an error, a run of one process is saved as it is after the training
    of the epoch, and goes on with its evaluation when it is resumed. One of several processes has the epoch before.
    """
    epochs = whole_number("fit", "epochs", epochs, 1)
    for loader in (train_loader, *([] if test_loader is None else [test_loader])):
        check_loader(loader)
    if test_loader is not None and trainer.user_step is None:
        check_classes(test_loader.dataset, train_loader.describe())
    if run is not None:
        run.check_restored()
    names = [callback.name for callback in callbacks]
    if len(set(names)) < len(names):
        raise CheckpointError(f"fit: two callbacks have one name ({', '.join(names)}); give one of them another name=")
    rows = run.history.rows if run is not None else []
    state = Fit(trainer, rows, epochs, run)
    for callback in callbacks:
        if run is not None and callback.name in run.callbacks:
            callback.load_state_dict(run.callbacks[callback.name])
        callback.on_start(state)

    def report(step: int, loss: float) -> None:
        for callback in callbacks:
            callback.on_steps(state, step, loss)

    if rank() > 0:  # rank 0 says and writes what is the same on all
        show = None
    trained: Result | None = None if run is None else run.trained
    if (done := trainer.finished_epochs if run is None else len(rows)) >= epochs and show is not None:
        show(f"nothing to train: {done} epochs are done; a larger number of epochs trains more")
    try:
        both = signal.SIGINT, signal.SIGTERM
        with interrupt_between_steps(*both) if world_size() > 1 else nullcontext() as check:  # no rank must stop alone
            _epochs(state, (train_loader, test_loader), steps, callbacks, trained, report, show)
            if run is not None:
                run.wait()
            trainer.machine.ranks.check_at_end(check)
    except Interrupted:
        if run is not None and (world_size() == 1 or trainer.place.unfinished is not None):
            run.save(trainer)
            trainer.machine.ranks.agreed(None)  # a rank that ends may end all, so each waits until rank 0 has saved
        raise
    except Exception:
        if run is not None and run.trained is not None and world_size() == 1:
            _save_trained(trainer, run)
        raise
    finally:
        for callback in callbacks:
            callback.on_end(state)
    if state.stopping is not None and show is not None:
        show(f"stopped after epoch {len(rows)}: {state.stopping}")
    return rows


def _save_trained(trainer: Any, run: Any) -> None:
    """Save an epoch that was trained, and whose evaluation or callbacks have failed."""
    with suppress(Exception):  # as of weights that are not finite, or a full disk: the first error is the one to raise
        run.save(trainer)


def _epochs(
    state: Fit,
    loaders: tuple[DataLoader, DataLoader | None],
    steps: int | None,
    callbacks: Sequence[Callback],
    trained: Result | None,
    report: Callable[[int, float], None],
    show: Callable[[str], None] | None,
) -> None:
    """The epochs of a `fit`; `trained` is the result of one that was not evaluated yet."""
    trainer, rows, epochs, run = state.trainer, state.rows, state.epochs, state.run
    train_loader, test_loader = loaders
    while state.stopping is None:
        epoch = trainer.finished_epochs if run is None else len(rows)
        if epoch >= epochs:
            break
        if show is not None and (news := trainer.modes.news(trainer.model)):
            show(news)
        if trained is None:
            reported = {"report": report} if callbacks else {}  # which a subclass's train_epoch may not take
            trained = trainer.train_epoch(train_loader, steps, **reported)
        if run is not None:
            run.trained = trained
        rows.append(Row.of(epoch + 1, trained, None if test_loader is None else trainer.evaluate(test_loader)))
        trained = None
        try:
            for callback in callbacks:
                callback.on_epoch(state)
        except BaseException:
            rows.pop()  # the epoch is to be evaluated, and the callbacks asked, once more
            raise
        state.stopping = trainer.machine.ranks.agreed(state.stopping)
        if run is not None:
            run.trained = None
            run.callbacks |= {callback.name: callback.state_dict() for callback in callbacks}
            run.save(trainer, wait=len(rows) == 1)  # the first at once: from then on it can be resumed
        if show is not None:
            show(f"epoch {len(rows):2}/{epochs}  {rows[-1]}")
