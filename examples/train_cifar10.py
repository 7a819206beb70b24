"""Trains one of the paper's networks on CIFAR-10.

    python examples/train_cifar10.py                        # ResNet18; the sample without a GPU
    python examples/train_cifar10.py --model vgg16 --data full --device cuda

On the full set the defaults are the paper's: batch 512, Adam with lr 1e-3, pixels in [-1, 1], no
augmentation, 25 to 40 epochs. On the sample they end in minutes on two CPU cores, the lr falling
to 0 along a cosine. The output folder gets weights.safetensors and history.csv after every epoch,
curves.png at the end.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import alpha
from alpha import models
from alpha.data import DataLoader, resolve
from alpha.errors import AlphaError
from alpha.numerics import PRECISIONS
from alpha.train import History, Row, Trainer, make_folder, save_curves, save_weights
from alpha.train.options import Parser, natural_int, positive_float, positive_int

PAPER_EPOCHS = {"resnet18": 25, "resnet34": 30, "vgg16": 35, "vgg19": 40}
PAPER_BATCH = 512
SAMPLE_EPOCHS = 6
SAMPLE_BATCH = 64


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="train_cifar10", description="Train a network on CIFAR-10.")
    add = parser.add_argument
    add("--model", choices=PAPER_EPOCHS, default="resnet18")
    add("--epochs", type=positive_int, help="default: 6 on the sample, the paper's on the full set")
    add("--steps", type=positive_int, help="at most so many steps an epoch")
    add("--batch-size", type=positive_int, help="default: 64 on the sample, 512 on the full set")
    add("--lr", type=positive_float, default=1e-3, help="of Adam (default: %(default)s)")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto")
    add(
        "--precision",
        choices=PRECISIONS,
        default="float32",
        help="of convolutions and matrix products on cuda; bf16 is also how activations are stored",
    )
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
    add("--seed", type=natural_int, default=0)
    add("--output", type=Path, metavar="DIR", help="default: runs/MODEL-DATA")
    return parser.parse_args(arguments)


def train(args: argparse.Namespace) -> int:
    device = alpha.get_device(args.device)
    source = resolve(args.data, has_gpu=device.name == "cuda")
    print(f"{args.model} on {device.name} in {args.precision}, {source}", flush=True)
    train_set, test_set = source.load()
    sample = source.name == "sample"
    epochs = args.epochs or (SAMPLE_EPOCHS if sample else PAPER_EPOCHS[args.model])
    batch_size = args.batch_size or (SAMPLE_BATCH if sample else PAPER_BATCH)
    train_loader = DataLoader(train_set, batch_size, shuffle=True, seed=args.seed)
    test_loader = DataLoader(test_set, batch_size)

    alpha.manual_seed(args.seed)
    model = getattr(models, args.model)(num_classes=len(train_set.classes)).to(device)
    optimizer = alpha.optim.Adam(model.parameters(), lr=args.lr)
    schedule = None
    if (args.schedule or ("cosine" if sample else "constant")) == "cosine":
        steps = min(len(train_loader), args.steps or len(train_loader))
        schedule = alpha.optim.CosineAnnealingLR(optimizer, epochs * steps)
    trainer = Trainer(model, optimizer, device, schedule=schedule, precision=args.precision)

    output = args.output or Path("runs") / f"{args.model}-{source.name}"
    make_folder(output)
    weights = output / "weights.safetensors"
    history = History(output / "history.csv")

    def save() -> None:
        facts = {
            "model": args.model,
            "data": source.name,
            "seed": args.seed,
            "precision": args.precision,
            "epoch": trainer.epoch,
            "step": trainer.step,
        }
        save_weights(weights, model.state_dict(), facts)

    def finish() -> None:
        title = f"{args.model} on CIFAR-10 ({source.name}), batch {batch_size}, lr {args.lr:g}, {args.precision}"
        curves = save_curves(output / "curves.png", history.rows, title)
        print(f"saved in {output}: {weights.name}, {history.path.name}, {curves}")

    try:
        for epoch in range(1, epochs + 1):
            trained = trainer.train_epoch(train_loader, steps=args.steps)
            tested = trainer.evaluate(test_loader)
            row = Row.of(epoch, trained, tested)
            save()
            history.append(row)
            print(f"epoch {epoch:2}/{epochs}  {row}", flush=True)
        if args.steps is None and not sample:
            print(f"on the train set: {trainer.evaluate(train_loader).accuracy:.2%}")
    except KeyboardInterrupt:
        save()
        history.save()
        print(f"interrupted after step {trainer.step} of epoch {trainer.epoch}")
        finish()
        return 130
    finish()
    return 0


def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    try:
        return train(args)
    except AlphaError as error:
        print(f"train_cifar10: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("train_cifar10: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
