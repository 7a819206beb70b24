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
import difflib
import inspect
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import alpha
from alpha import transforms
from alpha.core.numerics import PRECISIONS, computed_precision
from alpha.data import DataLoader
from alpha.data.images.image_files import shown
from alpha.errors import AlphaError, CheckpointError, ConfigError, DataError, TrainingError
from alpha.models import saved
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
from alpha.train.commands.command_line import Parser, command, fraction, natural_int, path, positive_float, positive_int
from alpha.train.commands.fine_tuning import start_of, take_weights
from alpha.train.commands.photos import Photos, read_photos
from alpha.train.commands.report import Report, write_report
from alpha.train.commands.resumed import change_options, check_agreement, with_changes

AUGMENTATIONS = ("none", "basic", "strong")
DEFAULTS = {
    "model": "resnet18",
    "image_size": 128,
    "epochs": 20,
    "batch_size": None,  # see `fitting_batch`
    "lr": 1e-3,
    "schedule": "cosine",
    "augment": "basic",
    "test_share": 0.2,
    "on_error": "raise",
    "seed": 0,
    "keep_best": 1,
}
FINE_TUNING_LR = 1e-4  # with --weights, which larger steps would undo
FREE = ("workers",)  # options on which nothing depends
FEW = 5  # of what is left out are shown


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; an option that was not given is None."""
    parser = Parser(
        prog="alpha-train",
        description="Train a network on a folder of photos that has a folder for each class, or train and val with "
        "such folders. alpha-predict then says what new photos are.",
    )
    add = parser.add_argument
    add("folder", type=path, nargs="?", metavar="FOLDER", help="of photos; FOLDER/CLASS/NAME.jpg")
    add("--model", type=network, metavar="NAME", help=f"default: resnet18; also {names_as_help()}")
    add(
        "--weights",
        type=path,
        metavar="FILE",
        help="begin with the weights of this run or file (safetensors, .pth), but a new last layer",
    )
    add("--image-size", type=positive_int, metavar="N", help="height and width in pixels; default: 128")
    add("--epochs", type=positive_int, metavar="N", help="default: 20")
    add("--batch-size", type=positive_int, metavar="N", help="default: 64, for fewer than 512 photos an eighth of them")
    add(
        "--lr",
        type=positive_float,
        metavar="X",
        help="the first learning rate, of AdamW; default: 0.001, with --weights 0.0001",
    )
    add("--schedule", choices=["constant", "cosine"], help="of the learning rate; default: cosine, to 0")
    add(
        "--augment",
        choices=AUGMENTATIONS,
        help="of training photos; basic: random parts, mirrored (default); strong: also RandAugment, MixUp and CutMix",
    )
    add("--ema", type=fraction, metavar="X", help="test and save a mean of the weights with this decay, such as 0.999")
    add("--early-stopping", type=natural_int, metavar="N", help="stop after N epochs without a better test loss; 0: no")
    add("--keep-best", type=natural_int, metavar="N", help="keep the weights of the N best epochs (default: 1)")
    add("--test-share", type=fraction, metavar="X", help="of the photos, without a folder val; default: 0.2")
    add("--on-error", choices=["raise", "skip"], help="for damaged or unread photos and empty classes; default: raise")
    add("--workers", type=positive_int, metavar="N", help="threads that decode photos; default: as many as cores")
    add("--device", choices=["auto", "cpu", "cuda"], help="default: auto")
    add("--precision", choices=PRECISIONS, help="of convolutions and matrix products on cuda; default: float32")
    add("--seed", type=natural_int, metavar="N", help="default: 0")
    add("--tensorboard", action="store_const", const=True, help="log for TensorBoard in the run's folder")
    add("--output", type=path, metavar="DIR", help="default: runs/FOLDER, or runs/FOLDER-2 and so on if that exists")
    add("--overwrite", action="store_true", help="replace the run in --output")
    add(
        "--resume",
        type=path,
        metavar="DIR",
        help="go on with the run in DIR; --epochs, --lr and --early-stopping may be others, and FOLDER says where its "
        "photos are now",
    )
    add("--list-models", action="store_true", help="print the names of all networks, and do nothing else")
    args: argparse.Namespace = parser.parse_args(arguments)
    wrong = [name for name in ("output", "overwrite", "weights") if getattr(args, name)]
    if args.resume and wrong:
        parser.error(f"--resume goes on in its own folder: leave out {', '.join(f'--{name}' for name in wrong)}")
    if args.list_models:
        print(*saved.NETWORKS, sep="\n")
        parser.exit()
    if not args.resume and not args.folder:
        parser.error("a FOLDER of photos is needed, or --resume DIR")
    if args.overwrite and not args.output:
        parser.error("--overwrite needs --output")
    return args


def network(text: str) -> str:
    """The name of a network."""
    names = list(saved.NETWORKS)
    if text not in names:
        close = [name for name in names if text in name] or difflib.get_close_matches(text, names)
        hint = f"; is it {' or '.join(close[:3])}?" if close else ""
        raise argparse.ArgumentTypeError(f"there is no network {text!r}{hint}")
    return text


def names_as_help() -> str:
    own = [name for name in list(saved.NETWORKS) if "." not in name and name != "resnet18"]
    return f"{', '.join(own)}, or torchvision.NAME, as torchvision.resnet50; --list-models prints all"


def new_options(args: argparse.Namespace) -> dict[str, Any]:
    """Options of a run, with the defaults filled in."""
    device = alpha.get_device(args.device or "auto").name
    options: dict[str, Any] = {"folder": str(args.folder.resolve()), "device": device}
    options["precision"] = computed_precision(device, args.precision or "float32")
    given = vars(args)
    for name in ("weights", "ema", "early_stopping", "tensorboard", "workers"):
        options[name] = given[name]
    for name, value in DEFAULTS.items():
        options[name] = value if given[name] is None else given[name]
    if args.weights is not None:
        options["weights"] = str(args.weights.resolve())
        options["lr"] = args.lr or FINE_TUNING_LR
        start = start_of(args.weights)
        if start is not None:
            options["model"] = args.model or start.model
            options["image_size"] = args.image_size or start.image_size
        elif args.model is None:
            raise ConfigError(f"{shown(args.weights)}: does not say which network it has; name it with --model")
    return options


def resumed_options(args: argparse.Namespace, run: Run) -> tuple[dict[str, Any], list[str]]:
    """The options of a run that goes on, and what has changed; CheckpointError if the others are contradicted."""
    options = run.options
    if "folder" not in options or "network" not in options:
        raise CheckpointError(f"{run.folder}: is not a run of alpha-train")
    given = {name: value for name, value in vars(args).items() if name in options and value is not None}
    if "folder" in given:  # the photos were moved
        options["folder"] = str(given.pop("folder").resolve())
    if given.get("device") == "auto":
        del given["device"]
    if "precision" in given:
        given["precision"] = computed_precision(options["device"], given["precision"])
    changes = change_options(options, given)
    options |= {name: given.pop(name) for name in FREE if name in given}
    check_agreement(run.folder, options, given)
    return options, changes


def arguments_of(model: str, classes: int, image_size: int) -> dict[str, Any]:
    """The arguments of a network for so many classes, and images of this size if it has a form for each."""
    taken = inspect.signature(saved.NETWORKS[model]).parameters
    return {"num_classes": classes, **({"image_size": image_size} if "image_size" in taken else {})}


def built(name: str, arguments: dict[str, Any], image_size: int) -> Module:
    """The network of a name. Raises ConfigError if it cannot take images of this size."""
    try:
        model = saved.build(name, arguments)
        with alpha.no_grad():
            outputs = model.eval()(alpha.zeros(1, image_size, image_size, 3))
    except (ValueError, AlphaError) as error:
        raise ConfigError(f"{name} cannot be trained on images of {image_size}x{image_size}: {error}") from error
    if outputs.shape != (1, arguments["num_classes"]):
        raise ConfigError(f"{name} gives {outputs.shape} for an image, not a number for each class")
    return model.train()


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
        given = with_changes(trainer, options, changes, len(train_loader))
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
            print(f"to train on: alpha-train --resume {run.folder} --early-stopping 0")
        finish(run, photos, outputs)
    except Interrupted as stop:
        print(f"interrupted after step {trainer.step} of epoch {trainer.epoch}; go on with --resume {run.folder}")
        return stop.status
    except KeyboardInterrupt:
        what = f"go on from the last saved epoch with --resume {run.folder}" if run.saved else "nothing was saved"
        print(f"alpha-train: stopped at once; {what}", file=sys.stderr)
        run.discard()
        return 130
    return 0


def check_output(photos: Path, output: Path | None) -> None:
    """Raises ConfigError if the run would lie among the photos, where its pictures were taken for photos."""
    where = (output or Path("runs")).resolve()
    if where.is_relative_to(photos.resolve()):
        raise ConfigError(f"{shown(where)}: lies in the folder of photos; name another one with --output")


def fitting_batch(photos: int) -> int:
    """Batch size for so many photos: 64, or for few an eighth of them, so that an epoch has some steps to learn in."""
    return min(64, max(8, photos // 8))


def trainer_of(model: Module, options: dict[str, Any], photos: Photos) -> tuple[Trainer, DataLoader]:
    count, batch = len(photos.train_set), min(options["batch_size"], len(photos.train_set))
    # a short last batch would have too few samples for the statistics of a BatchNorm
    loader = DataLoader(photos.train_set, batch, shuffle=True, seed=options["seed"], drop_last=count > batch)
    optimizer = alpha.optim.AdamW(model.parameters(), lr=options["lr"])
    schedule = None
    if options["schedule"] == "cosine":
        schedule = alpha.optim.CosineAnnealingLR(optimizer, options["epochs"] * len(loader))
    device = alpha.get_device(options["device"])
    trainer = Trainer(
        model, optimizer, device, schedule=schedule, precision=options["precision"], ema=options["ema"]
    )  # fmt: skip
    trainer.augment = augmentation(options["augment"], options["image_size"], len(photos.classes))
    return trainer, loader


def finish(run: Run, photos: Photos, outputs: Any) -> None:
    """Draw the curves, write the report, and say where they are and what can be done with them."""
    o = run.options
    name = Path(o["folder"]).name
    title = f"{o['model']} on {name}, {o['image_size']}x{o['image_size']}, batch {o['batch_size']}, {o['precision']}"
    curves = save_curves(run.folder / "curves.png", run.history.rows, title)
    logits = np.asarray(outputs, np.float64)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    report = Report(powers / powers.sum(axis=1, keepdims=True), photos.test_labels, photos.classes)
    files = write_report(run.folder / "report", report, photos, f"{o['model']} on {name}")
    print("\n".join(report.lines()))
    print(f"saved in {run.folder}: weights.safetensors, history.csv, {curves}")
    print(f"report in {run.folder / 'report'}:", *(f"  {file}" for file in files), sep="\n")
    print(f"predict:  alpha-predict {run.folder} PHOTO ..")
    best = max(run.history.rows, key=lambda row: row.number("test_accuracy"))  # the first of several
    better = best.number("test_accuracy") > run.history.rows[-1].number("test_accuracy")
    if o["keep_best"] and better and (kept := run.folder / weights_name(best.epoch)).exists():
        print(f"epoch {best.epoch} was the best, with {best.test_accuracy:.1%}: alpha-predict {kept} PHOTO ..")


@command
def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    try:
        return train(args)
    except TrainingError as error:
        print(f"alpha-train: {error}: try --lr with a smaller number", file=sys.stderr)
        return 2
    except (AlphaError, ImportError) as error:
        print(f"alpha-train: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        what = f"the run in {args.resume} is as it was saved" if args.resume else "nothing was saved"
        print(f"alpha-train: stopped before the first step; {what}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
