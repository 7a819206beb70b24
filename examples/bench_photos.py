"""Seconds of an epoch on images from files: with augmentation or without, on the GPU or copied batch by batch.

    python examples/bench_photos.py FOLDER                 # a folder for each class
    python examples/bench_photos.py FOLDER --precision bf16 --epochs 5

ResNet18 of the paper is trained at 128x128 on images that are packed at 144 pixels. The GPU's use is NVML's mean over
the epochs but the first.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

from bench.use import use_of_gpu

import alpha
from alpha import models, transforms
from alpha.core.numerics import PRECISIONS
from alpha.data import DataLoader, PackedImages
from alpha.train import Trainer
from alpha.train.commands.command_line import Parser, command, path, positive_int

SIZE, PACKED = 128, 144
AUGMENTATIONS: dict[str, Any] = {
    "centre crop": [transforms.CenterCrop(SIZE)],
    "random crop, mirrored": [transforms.RandomCrop(SIZE), transforms.RandomHorizontalFlip()],
    "resized crop, mirrored": [
        transforms.RandomResizedCrop(SIZE, scale=(0.35, 1.0)),
        transforms.RandomHorizontalFlip(),
    ],
}


def measure(images: PackedImages, augmentation: str, resident: bool, args: argparse.Namespace) -> str:
    """Train some epochs; a line with the median of their seconds but the first, and the use of the GPU."""
    alpha.manual_seed(0)
    model = models.resnet18(len(images.classes), SIZE).to(args.device)
    optimizer = alpha.optim.Adam(model.parameters(), lr=1e-3)
    trainer = Trainer(model, optimizer, args.device, precision=args.precision, resident=resident)
    trainer.augment = transforms.Compose(AUGMENTATIONS[augmentation])
    loader = DataLoader(images, args.batch_size, shuffle=True, seed=0, drop_last=True)
    trainer.train_epoch(loader)
    with use_of_gpu() as used:
        results = [trainer.train_epoch(loader) for _ in range(args.epochs)]
    seconds = statistics.median(result.seconds for result in results)
    where = "on the device" if resident else "copied by batch"
    busy = f"  GPU {statistics.mean(used):.0f} %" if used else ""
    return f"{where:16} {augmentation:24} {seconds:8.3f} s  {results[-1].images / seconds:9,.0f} images/s{busy}"


@command("bench_photos")
def main(arguments: list[str] | None = None) -> int:
    parser = Parser(prog="bench_photos", description="Seconds of an epoch of ResNet18 on images from files.")
    add = parser.add_argument
    add("folder", type=path, help="with a folder of images for each class")
    add("--precision", choices=PRECISIONS, default="float32", help="default: float32")
    add("--epochs", type=positive_int, default=3, help="that are timed, after a first one (default: 3)")
    add("--batch-size", type=positive_int, default=256, help="default: 256")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto")
    args = parser.parse_args(arguments)
    args.device = alpha.get_device(args.device).name
    images = PackedImages(args.folder, PACKED)
    print(f"{len(images):,} images, batch {args.batch_size}, {args.precision}, {args.device}", flush=True)
    for resident in (True, False) if args.device == "cuda" else (False,):
        for augmentation in AUGMENTATIONS:
            print(measure(images, augmentation, resident, args), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
