"""A network of your own: a new activation, a block with a gate that learns, its own forward.

    python examples/custom_model.py                  # under a minute on two CPU cores
    python examples/custom_model.py --device cuda

Trains on the CIFAR-10 sample that comes with Alpha (5,000 images; guessing gets 10 %).
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import alpha
from alpha import Tensor, nn
from alpha.data import DataLoader, resolve
from alpha.ops.kernel.elementwise import activation
from alpha.train import Trainer
from alpha.train.commands.command_line import Parser, command, natural_int, positive_int


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


# Y = X sigmoid(X). One expression a device for the result, and one for the gradient, where `a` is
# dY and `b` is X; numpy functions fill their first argument.
swish = activation(
    "swish",
    forward=("a / (1 + exp(-a))", lambda y, a: np.multiply(a, sigmoid(a), out=y)),
    gradient=(
        "a / (1 + exp(-b)) * (1 + b / (1 + exp(b)))",
        lambda dx, a, b: np.multiply(a, sigmoid(b) * (1 + b * sigmoid(-b)), out=dx),
    ),
)


class GatedBlock(nn.Module):
    """x + gate * conv(swish(norm(x))), a gate a channel   (N, H, W, channels) -> the same"""

    def __init__(self, channels: int) -> None:
        self.norm = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.gate = nn.Parameter(np.full(channels, 0.5, np.float32))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(swish(self.norm(x))) * self.gate


class GatedNet(nn.Module):
    """Halve the map, double the channels, refine; three times   (N, 32, 32, 3) -> (N, 10)"""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128), classes: int = 10) -> None:
        inputs = (3, *widths)
        self.reduce = nn.ModuleList(
            [nn.Conv2d(i, o, 3, stride=2, padding=1) for i, o in zip(inputs, widths, strict=False)]
        )
        self.refine = nn.ModuleList([GatedBlock(width) for width in widths])
        self.norm = nn.BatchNorm2d(widths[-1])
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        for reduce, refine in zip(self.reduce, self.refine, strict=True):
            x = refine(reduce(x))
        return self.head(swish(self.norm(x)).mean(dim=(1, 2)))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="custom_model", description="Train a network of your own.")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--epochs", type=positive_int, default=6)
    parser.add_argument("--steps", type=positive_int, help="at most so many steps an epoch")
    parser.add_argument("--seed", type=natural_int, default=0)
    return parser.parse_args(arguments)


def train(args: argparse.Namespace) -> None:
    device = alpha.get_device(args.device)
    train_set, test_set = resolve("sample", has_gpu=device.name == "cuda").load()
    train_loader = DataLoader(train_set, batch_size=50, shuffle=True, seed=args.seed)
    test_loader = DataLoader(test_set, batch_size=250)

    alpha.manual_seed(args.seed)
    model = GatedNet().to(device)
    print(model.summary((50, 32, 32, 3)))
    trainer = Trainer(model, alpha.optim.AdamW(model.parameters(), lr=2e-3), device)
    for epoch in range(1, args.epochs + 1):
        trained = trainer.train_epoch(train_loader, steps=args.steps)
        tested = trainer.evaluate(test_loader)
        print(
            f"epoch {epoch}  loss {trained.loss:.3f}  train {trained.accuracy:.1%}  "
            f"test {tested.accuracy:.1%}  {trained.images_per_second:,.0f} images/s",
            flush=True,
        )


@command("custom_model")
def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    train(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
