"""Command alpha-train: train a network on a folder of photos, one folder for each class in it.

    alpha-train photos                                # photos/CLASS/*.jpg; a fifth of each class is for testing
    alpha-train photos --model torchvision.resnet50   # or photos/train/CLASS/*.jpg and photos/val/CLASS/*.jpg
    alpha-train --resume runs/photos --epochs 40      # goes on, with more epochs
    alpha-train flowers --weights runs/photos         # fine-tunes: begins with the weights of another run
    alpha-predict runs/photos new.jpg

The folder of a run gets checkpoint.safetensors, weights.safetensors, history.csv and history.jsonl after every epoch
and when Ctrl-C or SIGTERM stops the run, and curves.png and report/ at the end.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import alpha
from alpha import transforms
from alpha.data import DataLoader
from alpha.data.images.image_files import shown
from alpha.errors import AlphaError, CheckpointError, ConfigError, DataError
from alpha.models.saved import Description
from alpha.module.module import Module
from alpha.train import (
    Callback,
    EarlyStopping,
    Interrupted,
    JsonLines,
    KeepWeights,
    Run,
    TensorBoard,
    Trainer,
    interrupt_between_steps,
    save_curves,
)
from alpha.train.callbacks import weights_name
from alpha.train.commands.chosen_network import arguments_of, built
from alpha.train.commands.command_line import command, join_ranks
from alpha.train.commands.fine_tuning import take_weights
from alpha.train.commands.photo_options import check_output, new_options, parse, resumed_options
from alpha.train.commands.photos import Photos, read_photos
from alpha.train.commands.report import Report, write_report
from alpha.train.commands.resumed import with_changes

FEW = 5  # of what is left out are shown


def augmentation(kind: str, size: int, classes: int) -> Any:
    """The augmentation of this name for pixels in [-1, 1]."""
    if kind == "none":
        return None
    basic = [transforms.RandomResizedCrop(size, scale=(0.35, 1.0)), transforms.RandomHorizontalFlip()]
    if kind == "basic":
        return transforms.Compose(basic)
    mix = transforms.RandomChoice([transforms.MixUp(num_classes=classes), transforms.CutMix(num_classes=classes)])
    return transforms.Compose([*basic, transforms.RandAugment(bounds=(-1, 1)), mix])


def callbacks_of(options: dict[str, Any], folder: Path) -> list[Callback]:
    found: list[Callback] = [JsonLines(folder / "history.jsonl")]
    if options["keep_best"]:
        found.append(KeepWeights(best=options["keep_best"]))
    if options["early_stopping"]:
        found.append(EarlyStopping(options["early_stopping"]))
    if options["tensorboard"]:
        found.append(TensorBoard(folder / "tensorboard"))
    return found


def train(args: argparse.Namespace) -> int:
    join_ranks(args.device or "auto")
    run = Run.resume(args.resume) if args.resume else None
    options, changes = resumed_options(args, run) if run else (new_options(args), [])
    if run is None:
        check_output(Path(options["folder"]), args.output)
    device, size, seed = alpha.get_device(options["device"]), options["image_size"], options["seed"]
    folder = Path(options["folder"])
    if run is not None and not folder.exists():
        raise DataError(f"{shown(folder)}: is not there any more; if it was moved: alpha-train FOLDER --resume DIR")
    photos = read_photos(
        folder, size, options["augment"] != "none", options["test_share"], seed,
        options["on_error"], options["workers"],
    )  # fmt: skip
    for number, (file, reason) in enumerate(photos.skipped):
        if number == FEW:
            print(f"and {len(photos.skipped) - FEW} more are left out")
            break
        print(f"left out: {shown(file)}: {reason}")
    arguments = arguments_of(options["model"], len(photos.classes), size)
    network = Description(options["model"], arguments, photos.classes, size, (-1.0, 1.0), options["precision"])
    if run is not None and list(run.options["network"]["classes"]) != list(photos.classes):
        raise CheckpointError(f"{folder}: the classes are others than when the run in {run.folder} began")
    options["network"] = network.as_option()
    split = photos.split(folder)
    if run is not None and run.options.get("split", split) != split:  # older runs do not have it
        raise CheckpointError(
            f"{folder}: the photos are others than when the run in {run.folder} began, so it could be "
            "tested on photos that it was trained on; put the photos back, or begin a new run"
        )
    options["split"] = split
    options["batch_size"] = options["batch_size"] or fitting_batch(len(photos.train_set))
    options["processes"] = alpha.distributed.world_size()

    alpha.manual_seed(seed)
    model = built(options["model"], arguments, size)
    started = None
    if run is None and options["weights"]:
        started = take_weights(model, Path(options["weights"]), options["model"], photos.classes)
    model.to(device)
    count = sum(parameter.size for parameter in model.parameters())
    print(
        f"{options['model']} ({count / 1e6:.1f} million parameters) on {device.name} in {options['precision']}\n"
        f"{len(photos.train_set)} photos to train on, {len(photos.test_set)} to test on, "
        f"{len(photos.classes)} classes, {size}x{size}, batch {options['batch_size']}\n"
        f"decoded copies of the photos: {shown(photos.copies)}",
        flush=True,
    )
    if started:
        print(started)
    trainer, train_loader = trainer_of(model, options, photos)
    if run is not None:
        run.restore(trainer)
        given = with_changes(trainer, options, changes, trainer.steps_of(train_loader))
        print(f"{run.folder}: goes on after step {trainer.step} of epoch {trainer.epoch}{given}", flush=True)
        if changes:
            run.callbacks.pop(EarlyStopping.name, None)  # its count begins anew
    else:
        run = Run.start(options, Path("runs") / Path(options["folder"]).name, args.output, args.overwrite)
    try:
        return fit(run, trainer, train_loader, photos)
    except (AlphaError, ImportError) as error:
        run.discard()  # what was to be a new run stands in nobody's way
        if "no variance to train on" in str(error):
            raise ConfigError(f"{error}: try --batch-size with a larger number") from error
        raise


def fit(run: Run, trainer: Trainer, train_loader: DataLoader, photos: Photos) -> int:
    """The epochs of a run and its report; the status of the command."""
    options, test_loader = run.options, DataLoader(photos.test_set, run.options["batch_size"])
    try:
        with interrupt_between_steps(signal.SIGINT, signal.SIGTERM):
            trainer.fit(
                train_loader, test_loader, options["epochs"], run=run, callbacks=callbacks_of(options, run.folder)
            )
            outputs = trainer.predict(test_loader)
        if len(run.history.rows) < options["epochs"]:
            print(f"to train on: alpha-train --resume {quoted(run.folder)} --early-stopping 0")
        finish(run, photos, outputs)
    except Interrupted as stop:
        print(
            f"interrupted after step {trainer.step} of epoch {trainer.epoch}; go on with --resume {quoted(run.folder)}"
        )
        return stop.status
    except CheckpointError as error:  # a full disk, say
        if not run.saved:
            raise
        raise CheckpointError(f"{error}; go on from the last saved epoch with --resume {quoted(run.folder)}") from error
    except KeyboardInterrupt:
        what = (
            f"go on from the last saved epoch with --resume {quoted(run.folder)}" if run.saved else "nothing was saved"
        )
        print(f"alpha-train: stopped at once; {what}", file=sys.stderr)
        run.discard()
        return 130
    return 0


def quoted(path: Path) -> str:
    """A path as a shell takes it."""
    return shlex.quote(str(path))


def fitting_batch(photos: int) -> int:
    """Batch size for so many photos: 64, or for few an eighth of them, so that an epoch has some steps to learn in."""
    return min(64, max(8, photos // 8))


def trainer_of(model: Module, options: dict[str, Any], photos: Photos) -> tuple[Trainer, DataLoader]:
    count = -(-len(photos.train_set) // alpha.distributed.world_size())  # of each process
    batch = min(options["batch_size"], count)
    # a short last batch would have too few samples for the statistics of a BatchNorm
    loader = DataLoader(photos.train_set, batch, shuffle=True, seed=options["seed"], drop_last=count > batch)
    optimizer = alpha.optim.AdamW(model.parameters(), lr=options["lr"])
    device = alpha.get_device(options["device"])
    chosen: Any = {name: options[name] for name in ("precision", "ema", "memory_mode")}
    trainer = Trainer(model, optimizer, device, **chosen)
    if options["schedule"] == "cosine":
        trainer.schedule = alpha.optim.CosineAnnealingLR(optimizer, options["epochs"] * trainer.steps_of(loader))
    trainer.augment = augmentation(options["augment"], options["image_size"], len(photos.classes))
    return trainer, loader


def finish(run: Run, photos: Photos, outputs: Any) -> None:
    """Draw the curves, write the report, and say where they are and what can be done with them."""
    if alpha.distributed.rank():
        return
    o = run.options
    name = shown(Path(o["folder"]).name)
    title = f"{o['model']} on {name}, {o['image_size']}x{o['image_size']}, batch {o['batch_size']}, {o['precision']}"
    curves = save_curves(run.folder / "curves.png", run.history.rows, title)
    logits = np.asarray(outputs, np.float64)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    report = Report(powers / powers.sum(axis=1, keepdims=True), photos.test_labels, photos.classes)
    files = write_report(run.folder / "report", report, photos, f"{o['model']} on {name}")
    print("\n".join(report.lines()))
    print(f"saved in {run.folder}: weights.safetensors, history.csv, {curves}")
    print(f"report in {run.folder / 'report'}:", *(f"  {file}" for file in files), sep="\n")
    print(f"predict:  alpha-predict {quoted(run.folder)} PHOTO ..")
    best = max(run.history.rows, key=lambda row: row.number("test_accuracy"))  # the first of several
    better = best.number("test_accuracy") > run.history.rows[-1].number("test_accuracy")
    if o["keep_best"] and better and (kept := run.folder / weights_name(best.epoch)).exists():
        print(f"epoch {best.epoch} was the best, with {best.test_accuracy:.1%}: alpha-predict {quoted(kept)} PHOTO ..")


@command("alpha-train", if_diverged="try --lr with a smaller number")
def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    try:
        return train(args)
    except ImportError as error:
        raise ConfigError(str(error)) from error
    except KeyboardInterrupt:
        what = f"the run in {args.resume} is as it was saved" if args.resume else "nothing was saved"
        print(f"alpha-train: stopped before the first step; {what}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
