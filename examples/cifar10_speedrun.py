"""The community's yardstick of training speed: 94 % of CIFAR-10's test set in the least time on one GPU.

    python examples/cifar10_speedrun.py --runs 10                                   # the full set, on a GPU
    python examples/cifar10_speedrun.py --device cpu --width 0.125 --epochs 2       # the sample, on two CPU cores

The recipe is that of a public record, airbench94_muon.py in github.com/KellerJordan/cifar10-airbench (2.59 s on an
A100): a fixed first layer that whitens patches of 2x2 pixels, six convolutions, Muon for the filters, images that are
mirrored in every other epoch, and the mean over six views of each test image. Time is counted as there. It begins with
the normalisation of the images and the whitening, and ends with the answers to the test set; reading the data, the
first weights, and a run on random labels before, which compiles and captures, are not in it.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import alpha
import alpha.nn.functional as F
from alpha import Tensor, nn, optim, transforms
from alpha.core.numerics import PRECISIONS, computed_precision
from alpha.data import ArrayDataset, resolve
from alpha.train.commands.command_line import Parser, command, natural_int, positive_float, positive_int

# About the mean of each colour and their deviation: bfloat16 holds such a pixel, (0 to 255 - MEAN) / 64, without error.
MEAN, DEVIATION = (125.0, 123.0, 114.0), 64.0


class Recipe(NamedTuple):
    """The numbers of a run; `widths` and `depth` are those of its groups of convolutions."""

    widths: tuple[int, ...] = (64, 256, 256)
    depth: int = 2
    epochs: float = 8.2
    batch: int = 2000
    bias_epochs: int = 3  # after which the bias of the first layer stays
    translate: int = 2
    cutout: int = 0


RECIPES = {94: Recipe(), 96: Recipe((128, 384, 512), depth=3, epochs=46, batch=1000, translate=4, cutout=12)}


class Group(nn.Module):
    """Convolutions, the first of which halves the map; a third one has a shortcut   (N, H, W, I) -> (N, H/2, W/2, O)"""

    def __init__(self, before: int, after: int, depth: int) -> None:
        def conv_norm(before: int, *between: nn.Module) -> list[nn.Module]:
            norm = nn.BatchNorm2d(after, eps=1e-12, momentum=0.4)
            norm.weight.requires_grad_(False)
            return [nn.Conv2d(before, after, 3, padding=1, bias=False), *between, norm]

        self.first = nn.Sequential(*conv_norm(before, nn.MaxPool2d(2)), nn.GELU())
        self.second = nn.Sequential(*conv_norm(after), nn.GELU())
        self.third = nn.Sequential(*conv_norm(after)) if depth == 3 else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        y = self.second(x)
        return y if self.third is None else F.gelu(self.third(y) + x)


class SpeedNet(nn.Module):
    """A layer that whitens patches, groups of convolutions and a linear layer   (N, 32, 32, 3) -> (N, 10)"""

    def __init__(self, recipe: Recipe) -> None:
        self.whiten = nn.Conv2d(3, 24, 2)
        self.whiten.weight.requires_grad_(False)
        sizes = itertools.pairwise((24, *recipe.widths))
        self.groups = nn.Sequential(*[Group(*size, recipe.depth) for size in sizes])
        self.head = nn.Linear(recipe.widths[-1], 10, bias=False)

    def forward(self, x: Tensor, train_bias: bool = True) -> Tensor:
        bias = self.whiten.bias if train_bias else self.whiten.bias.detach()
        x = F.gelu(F.conv2d(x, self.whiten.weight, bias))
        x = F.max_pool2d(self.groups(x), 3).flatten(1)
        with alpha.precision("float32"):  # answers of 8 bits would often be equal
            return self.head(x.float()) / x.shape[1]

    @property
    def filters(self) -> list[Tensor]:
        """The filters that learn."""
        return [p for p in self.parameters() if p.ndim == 4 and p.requires_grad]

    @alpha.no_grad()
    def reset(self) -> None:
        """Draw new weights, in place: the first filters of a layer hand their input on."""
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.BatchNorm2d, nn.Linear)):
                module.reset_parameters()
        for w in self.filters:
            nn.init.dirac_(w[: w.shape[-1]])
        self.head.weight.div_(self.head.weight.std())

    @alpha.no_grad()
    @alpha.precision("float32")
    def whiten_patches_of(self, images: Tensor, eps: float = 5e-4) -> None:
        """Let the first layer make patches uncorrelated, with variance 1; its other half is the negative."""
        corners = [images[:, i : i + 31, j : j + 31] for i, j in itertools.product((0, 1), (0, 1))]
        patches = alpha.cat(corners, dim=3).reshape(len(images), 31 * 31, 12).float()
        covariance = (patches.mT @ patches).mean(0) / patches.shape[1]
        values, vectors = np.linalg.eigh(covariance.numpy())
        filters = (vectors / np.sqrt(values + eps)).T
        both = np.concatenate([filters, -filters]).reshape(self.whiten.weight.shape)
        self.whiten.weight.copy_(alpha.tensor(both, device=images.device))


class Speedrun:
    """Runs of one recipe, with new weights and another seed each, that share their captured steps."""

    def __init__(self, recipe: Recipe, data: tuple[ArrayDataset, ArrayDataset], device: str, precision: str) -> None:
        self.recipe, self.precision, self.device = recipe, precision, alpha.get_device(device)
        self.dtype = alpha.bfloat16 if precision == "bf16" else alpha.float32
        (self.images, self.labels), self.test = [
            (alpha.tensor(part.images, device=device), alpha.tensor(part.labels, device=device)) for part in data
        ]
        self.steps = len(self.images) // recipe.batch  # in an epoch
        self.net = SpeedNet(recipe).to(device)
        decay = 2e-6 * recipe.batch

        def sgd(lr: float, *params: Tensor) -> optim.SGD:
            return optim.SGD(params, lr, momentum=0.85, weight_decay=decay / lr, nesterov=True)

        biases = [p for name, p in self.net.named_parameters() if name.startswith("groups") and name.endswith("bias")]
        muon = optim.Muon(self.net.filters, lr=0.24, momentum=0.6, weight_decay=0, ns_steps=3, fixed_norm=True)
        self.bias_optimizer = sgd(0.053, self.net.whiten.bias)
        self.optimizers = [self.bias_optimizer, sgd(0.053, *biases), sgd(0.67, self.net.head.weight), muon]
        self.rates = [optimizer.param_groups[0]["lr"] for optimizer in self.optimizers]
        self.captured_step, self.captured_answers = alpha.capture(self.step), alpha.capture(self.answers)

    def step(self, x: Tensor, y: Tensor, train_bias: bool) -> Tensor:
        """One step of training on a batch; its loss."""
        loss = F.cross_entropy(self.net(x, train_bias), y, reduction="sum", label_smoothing=0.2)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        self.net.zero_grad()
        return loss

    def answers(self, x: Tensor) -> Tensor:
        """The weighted mean over six views of each image: at three places, and mirrored   (N, 32, 32, 3) -> (N, 10)"""
        padded = F.pad(x, (0, 0, 1, 1, 1, 1), mode="reflect")
        views = [(0.125, padded[:, :32, :32]), (0.25, x), (0.125, padded[:, 2:, 2:])]
        return sum(share * (self.net(view) + self.net(view.flip(2))) for share, view in views)

    def normalized(self, images: Tensor) -> Tensor:
        """Images of bytes, to numbers about 0   (N, 32, 32, 3) -> the same"""
        mean = alpha.tensor(np.array(MEAN, np.float32), device=self.device)
        return ((images.float() - mean) / DEVIATION).astype(self.dtype)

    def epochs(self, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """All images and labels of each epoch, in an order of its own."""
        recipe, count = self.recipe, len(self.images)
        changes: list[nn.Module] = [transforms.RandomCrop(32, padding=recipe.translate, padding_mode="reflect")]
        if recipe.cutout:
            changes.append(transforms.RandomErasing(1.0, ((recipe.cutout / 32) ** 2,) * 2, (1.0, 1.0)))
        augment = transforms.Compose(changes)
        images = transforms.RandomHorizontalFlip()(self.normalized(self.images))
        for epoch in range(math.ceil(recipe.epochs)):
            order = alpha.randperm(count, device=self.device)
            changed = augment(images[order])
            yield (changed.flip(2) if epoch % 2 else changed), labels[order]

    def train(self, labels: Tensor) -> None:
        """All steps of a run; the learning rates fall to 0 along a line."""
        total, bias_steps = round(self.recipe.epochs * self.steps), self.recipe.bias_epochs * self.steps
        self.net.train()
        done = 0
        for images, classes in self.epochs(labels):
            for start in range(0, min(self.steps, total - done) * self.recipe.batch, self.recipe.batch):
                for optimizer, rate in zip(self.optimizers, self.rates, strict=True):
                    length = bias_steps if optimizer is self.bias_optimizer else total
                    optimizer.param_groups[0]["lr"] = rate * max(0.0, 1 - done / length)
                batch = slice(start, start + self.recipe.batch)
                self.captured_step(images[batch], classes[batch], done < bias_steps)
                done += 1

    def accuracy(self) -> float:
        """The share of right answers to the test set."""
        self.net.eval()
        images, labels = self.normalized(self.test[0]), self.test[1]
        with alpha.no_grad():
            right = [self.captured_answers(part).argmax(1) for part in images.split(2000)]
            return (alpha.cat(right) == labels).float().mean().item()

    def compile(self) -> None:
        """Compile the kernels of all steps, as many at a time as there are cores."""
        x, y = self.normalized(self.images[: self.recipe.batch]), self.labels[: self.recipe.batch]
        with alpha.precision(self.precision):
            for train_bias in (True, False):
                alpha.compile_kernels(self.step, x, y, train_bias)
            with alpha.no_grad():
                alpha.compile_kernels(self.answers, x)

    def run(self, seed: int, labels: Tensor | None = None) -> tuple[float, float]:
        """Accuracy and seconds of a run from new weights; `labels` are others than those of the images."""
        alpha.manual_seed(seed)
        self.net.reset()
        for optimizer in self.optimizers:
            optimizer.reset()
        with alpha.precision(self.precision):
            alpha.synchronize(self.device)
            start = time.perf_counter()
            self.net.whiten_patches_of(self.normalized(self.images[:5000]))
            self.train(self.labels if labels is None else labels)
            accuracy = self.accuracy()
        return accuracy, time.perf_counter() - start


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="cifar10_speedrun", description="Train on CIFAR-10 to an accuracy in the least time.")
    add = parser.add_argument
    add("--runs", type=positive_int, default=1, help="runs that are timed, each with a seed of its own (default: 1)")
    add("--target", type=int, choices=RECIPES, default=94, help="the accuracy in percent (default: 94)")
    add("--epochs", type=positive_float, help="default: those of the recipe")
    add("--batch-size", type=positive_int, help="default: that of the recipe")
    add("--width", type=positive_float, default=1.0, metavar="FACTOR", help="of the recipe's widths (default: 1)")
    add("--data", metavar="sample|full|FOLDER", help="default: full with a GPU, where it is to be had, else sample")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto")
    add("--precision", choices=PRECISIONS, default="bf16", help="on cuda (default: bf16); the cpu computes in float32")
    add("--seed", type=natural_int, default=0, help="of the first run (default: 0)")
    return parser.parse_args(arguments)


def speedrun(args: argparse.Namespace) -> None:
    device = alpha.get_device(args.device).name
    source = resolve(args.data, has_gpu=device == "cuda")
    recipe = RECIPES[args.target]
    recipe = recipe._replace(
        widths=tuple(max(1, round(args.width * width)) for width in recipe.widths),
        epochs=args.epochs or recipe.epochs,
        batch=args.batch_size or (recipe.batch if source.name == "full" else 250),
    )
    precision = computed_precision(device, args.precision)
    print(f"{args.target} % on {device} in {precision}, {source}", flush=True)
    runs = Speedrun(recipe, source.load(), device, precision)
    runs.compile()
    labels = alpha.randint(0, 10, runs.labels.shape, dtype=runs.labels.dtype, device=device)
    print(f"warm-up on random labels: {runs.run(args.seed, labels)[1]:.3f} s", flush=True)
    results = []
    for seed in range(args.seed, args.seed + args.runs):
        results.append(runs.run(seed))
        print("seed {}: {:.2%} in {:.3f} s".format(seed, *results[-1]), flush=True)
    for name, values in zip(("accuracy", "seconds"), zip(*results, strict=True), strict=True):
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        print(f"{name}: mean {statistics.mean(values):.4f}, standard deviation {spread:.4f}")


@command("cifar10_speedrun")
def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    speedrun(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
