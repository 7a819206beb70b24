"""Trains one of the paper's networks on CIFAR-10.

    python examples/train_cifar10.py                        # ResNet18; the sample without a GPU
    python examples/train_cifar10.py --model vgg16 --data full --device cuda
    python examples/train_cifar10.py --resume runs/resnet18 # goes on with a run that was stopped
    python examples/train_cifar10.py --resume runs/resnet18 --epochs 12   # or with more epochs, or another --lr
    python -m alpha.run --gpus 2 examples/train_cifar10.py  # on two GPUs, --batch-size images on each
    alpha-predict runs/resnet18 photo.jpg                   # what the network takes a photo for

On the full set the defaults are the paper's: batch 512, Adam with lr 1e-3, pixels in [-1, 1], no augmentation, 25 to 40
epochs. On the sample they end in minutes on two CPU cores, the lr falling to 0 along a cosine. A run has a folder of
its own, which gets checkpoint.safetensors, weights.safetensors and history.csv after every epoch and when Ctrl-C or
SIGTERM stops the run, and curves.png at the end. A resumed run ends with the same bits as one that was not stopped,
if its options are the same. `alpha-train FOLDER` does the same for photos of your own.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import alpha
from alpha import models, transforms
from alpha.autograd.memory_mode import FAST, MODES
from alpha.core.numerics import PRECISIONS, computed_precision
from alpha.data import DataLoader, Source, resolve
from alpha.train import Interrupted, Run, Trainer, interrupt_between_steps, save_curves
from alpha.train.commands.command_line import (
    Parser,
    command,
    join_ranks,
    natural_int,
    path,
    positive_float,
    positive_int,
)
from alpha.train.commands.resumed import change_options, check_agreement, share_batch, with_changes

PAPER_EPOCHS = {"resnet18": 25, "resnet34": 30, "vgg16": 35, "vgg19": 40}
PAPER_BATCH = 512
SAMPLE_EPOCHS = 6
SAMPLE_BATCH = 64


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; an option that was not given is None."""
    parser = Parser(prog="train_cifar10", description="Train a network on CIFAR-10.")
    add = parser.add_argument
    add("--model", choices=PAPER_EPOCHS, help="default: resnet18")
    add("--epochs", type=positive_int, help="default: 6 on the sample, the paper's on the full set")
    add("--steps", type=positive_int, help="at most so many steps per epoch")
    add("--batch-size", type=positive_int, help="of each process (default: 64 on the sample, 512 on the full set)")
    add("--lr", type=positive_float, help="of Adam (default: 0.001)")
    add("--device", choices=["auto", "cpu", "cuda"], help="default: auto")
    add(
        "--precision",
        choices=PRECISIONS,
        help="of convolutions and matrix products on cuda; bf16 is also how activations are stored; default: float32",
    )
    add("--memory-mode", choices=MODES, help="balanced keeps less for the gradients, least the least; default: fast")
    add(
        "--schedule",
        choices=["constant", "cosine"],
        help="of the lr; default: cosine, to 0, on the sample, the paper's constant on the full set",
    )
    add(
        "--data",
        metavar="sample|full|FOLDER",
        help="default: full with a GPU, where it is present or can be fetched, else sample",
    )
    add(
        "--augment",
        action="store_const",
        const=True,
        help="train on parts of images with a border, at random places, and mirrored (default: no augmentation)",
    )
    add("--seed", type=natural_int, help="default: 0")
    add("--output", type=path, metavar="DIR", help="default: runs/MODEL, or runs/MODEL-2 and so on if that exists")
    add("--overwrite", action="store_true", help="replace the run in --output")
    add("--resume", type=path, metavar="DIR", help="go on with the run in DIR; only --epochs and --lr may be others")
    args = parser.parse_args(arguments)
    if args.resume and (args.output or args.overwrite):
        parser.error("--resume goes on in its own folder: leave --output and --overwrite out")
    if args.overwrite and not args.output:
        parser.error("--overwrite needs --output")
    return args


def new_options(args: argparse.Namespace) -> tuple[dict[str, Any], Source]:
    """Options of a run, with the defaults filled in, and its data."""
    device = alpha.get_device(args.device or "auto").name
    source = resolve(args.data, has_gpu=device == "cuda")
    sample = source.name == "sample"
    model = args.model or "resnet18"
    named = args.data in (None, "sample", "full")
    options = {
        "model": model,
        "data": source.name if named else str(path(args.data).resolve()),
        "device": device,
        "precision": computed_precision(device, args.precision or "float32"),
        "memory_mode": args.memory_mode or FAST,
        "epochs": args.epochs or (SAMPLE_EPOCHS if sample else PAPER_EPOCHS[model]),
        "steps": args.steps,
        "batch_size": args.batch_size or (SAMPLE_BATCH if sample else PAPER_BATCH),
        "processes": alpha.distributed.world_size(),
        "lr": args.lr or 1e-3,
        "schedule": args.schedule or ("cosine" if sample else "constant"),
        "augment": bool(args.augment),
        "seed": args.seed or 0,
    }
    return options, source


def resumed_options(args: argparse.Namespace, run: Run) -> tuple[dict[str, Any], Source, list[str]]:
    """The options of the run, its data, and what changes; CheckpointError if the command line contradicts it."""
    options = run.options
    options.setdefault("augment", False)  # runs of before have none
    options.setdefault("memory_mode", FAST)
    share_batch(run.folder, options)
    given = {name: getattr(args, name) for name in options if getattr(args, name, None) is not None}
    if given.get("device") == "auto":
        del given["device"]
    if given.get("data") not in (None, "sample", "full"):
        given["data"] = str(path(given["data"]).resolve())
    if "precision" in given:
        given["precision"] = computed_precision(options["device"], given["precision"])
    changes = change_options(options, given)
    check_agreement(run.folder, options, given)
    return options, resolve(options["data"], has_gpu=options["device"] == "cuda"), changes


def train(args: argparse.Namespace) -> int:
    join_ranks(args.device or "auto")
    run = Run.resume(args.resume) if args.resume else None
    options, source, changes = resumed_options(args, run) if run else (*new_options(args), [])
    device = alpha.get_device(options["device"])
    asked, precision = args.precision, options["precision"]
    note = f" (the cpu computes {asked} in float32)" if asked not in (None, precision) else ""
    print(f"{options['model']} on {device.name} in {precision}{note}, {source}", flush=True)
    train_set, test_set = source.load()
    train_loader = DataLoader(train_set, options["batch_size"], shuffle=True, seed=options["seed"])
    test_loader = DataLoader(test_set, options["batch_size"])

    alpha.manual_seed(options["seed"])
    arguments = {"num_classes": len(train_set.classes)}
    network = models.Description(options["model"], arguments, train_set.classes, precision=precision)
    options["network"] = network.as_option()
    model = getattr(models, options["model"])(**arguments).to(device)
    optimizer = alpha.optim.Adam(model.parameters(), lr=options["lr"])
    trainer = Trainer(model, optimizer, device, precision=precision, memory_mode=options["memory_mode"])
    steps = trainer.steps_of(train_loader)
    steps = min(steps, options["steps"] or steps)
    if options["schedule"] == "cosine":
        trainer.schedule = alpha.optim.CosineAnnealingLR(optimizer, options["epochs"] * steps)
    if options["augment"]:  # as He et al. (2016) train on CIFAR-10
        trainer.augment = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()])
    if run:
        run.restore(trainer)
        given = with_changes(trainer, options, changes, steps)
        print(f"{run.folder}: goes on after step {trainer.step} of epoch {trainer.epoch}{given}", flush=True)
    else:
        run = Run.start(options, Path("runs") / options["model"], args.output, args.overwrite)

    try:
        with interrupt_between_steps(signal.SIGINT, signal.SIGTERM):
            trainer.fit(train_loader, test_loader, options["epochs"], steps=options["steps"], run=run)
        if options["steps"] is None and source.name != "sample":
            print(f"on the train set: {trainer.evaluate(train_loader).accuracy:.2%}")
    except Interrupted as stop:
        run.save(trainer)  # the signal may have come behind the last epoch
        print(
            f"interrupted after step {trainer.step} of epoch {trainer.epoch}; "
            f"go on with --resume {shlex.quote(str(run.folder))}"
        )
        finish(run)
        return stop.status
    finish(run)
    return 0


def finish(run: Run) -> None:
    if alpha.distributed.rank():
        return
    run.wait()
    o = run.options
    title = f"{o['model']} on CIFAR-10 ({o['data']}), batch {o['batch_size']}, lr {o['lr']:g}, {o['precision']}"
    curves = save_curves(run.folder / "curves.png", run.history.rows, title)
    for row in run.history.rows[-1:]:
        print(f"epoch {row.epoch}: {row.images_per_second:,.0f} images/s, {row.live_mb:,.0f} MB, {row.precision}")
    print(f"saved in {run.folder}: checkpoint.safetensors, weights.safetensors, history.csv, {curves}")


@command("train_cifar10", if_diverged="try --lr with a smaller number")
def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    try:
        return train(args)
    except KeyboardInterrupt:
        print("train_cifar10: stopped at once; the last saved epoch is intact", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
