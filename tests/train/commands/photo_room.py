"""Folders of small photos, a network whose training takes no time, and the command that trains it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

import alpha
from alpha.train.commands import train_photos

COLORS = {"blue": (30, 60, 200), "green": (30, 180, 60), "red": (200, 40, 30)}


def photos(folder: Path, names: tuple[str, ...] = tuple(COLORS), count: int = 10, side: int = 40) -> Path:
    """Photos of one colour with noise, in a folder for each colour."""
    generator = np.random.default_rng(0)
    for name in names:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            noise = generator.integers(-25, 26, (side, side + number, 3))
            pixels = np.clip(np.array(COLORS[name]) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.jpg", quality=90)
    return folder


SMALL = ["--image-size", "32", "--device", "cpu", "--batch-size", "8"]


def tiny(num_classes: int, image_size: int = 32) -> alpha.nn.Module:
    """A network whose test takes no time."""
    if image_size > 64:
        raise ValueError(f"tiny: image_size={image_size} is above 64")
    nn = alpha.nn
    layers = [nn.Conv2d(3, 8, 3, stride=4), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8, num_classes))


def train(*arguments: str) -> int:
    return train_photos.main([*arguments])
