"""Options of alpha-train: what they are, their defaults, and those of a run that goes on."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import alpha
from alpha.autograd.memory_mode import FAST, MODES
from alpha.core.numerics import PRECISIONS, computed_precision
from alpha.data.images.image_files import shown
from alpha.errors import CheckpointError, ConfigError
from alpha.models import saved
from alpha.train import Run
from alpha.train.commands.chosen_network import names_as_help, network
from alpha.train.commands.command_line import Parser, fraction, natural_int, path, positive_float, positive_int
from alpha.train.commands.fine_tuning import start_of
from alpha.train.commands.resumed import change_options, check_agreement, share_batch

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
    "memory_mode": FAST,
}
FINE_TUNING_LR = 1e-4  # with --weights, which larger steps would undo
FREE = ("workers",)  # options on which nothing depends


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
    add("--memory-mode", choices=MODES, help="balanced keeps less for the gradients, least the least; default: fast")
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
    options.setdefault("memory_mode", FAST)  # runs of before have none
    share_batch(run.folder, options)
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


def check_output(photos: Path, output: Path | None) -> None:
    """Raises ConfigError if the run would lie among the photos, where its pictures were taken for photos."""
    where = (output or Path("runs")).resolve()
    if where.is_relative_to(photos.resolve()):
        raise ConfigError(f"{shown(where)}: lies in the folder of photos; name another one with --output")
