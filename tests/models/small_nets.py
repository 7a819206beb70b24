"""Small versions of the paper's four networks, and the batch that they are tested on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import alpha
from alpha import nn
from alpha.models import VGG, ResNet

BATCH, SIZE, CLASSES = 16, 32, 10
STEPS, LR = 10, 2e-3

RESNET: dict[str, dict[str, object]] = {
    "resnet18": {"stages": (1, 1, 1, 1), "hidden": 16, "stem": 7, "width": 4},
    "resnet34": {"stages": (2, 1, 1, 1), "hidden": 16, "stem": 3, "width": 4},
}
VGGS: dict[str, dict[str, object]] = {
    "vgg16": {"convolutions": (2, 2, 3, 2, 1), "normalised": 4},
    "vgg19": {"convolutions": (2, 2, 2, 2, 2), "normalised": 5},
}
VGG_SHAPE: dict[str, object] = {"head": (16, 16, 8, CLASSES), "channels": (4, 8, 8, 16, 16)}

MAKE: dict[str, Callable[[], nn.Module]] = {
    **{
        name: lambda options=options: ResNet(num_classes=CLASSES, dropout=0.0, **options)
        for name, options in RESNET.items()
    },
    **{name: lambda options=options: VGG(dropout=0.0, **options, **VGG_SHAPE) for name, options in VGGS.items()},
}


def build(name: str) -> nn.Module:
    """The small net of that name with the initial weights of seed 1: the same on every machine."""
    alpha.manual_seed(1)
    return MAKE[name]()


def batch() -> tuple[np.ndarray, np.ndarray]:
    """Images (BATCH, SIZE, SIZE, 3), their brightness by label, and labels (BATCH,)."""
    alpha.manual_seed(2)
    images = alpha.core.rng.uniform((BATCH, SIZE, SIZE, 3), -1.0, 1.0)
    labels = alpha.core.rng.uniform((BATCH,), 0.0, CLASSES).astype(np.int32)
    images += (labels / CLASSES - 0.5).reshape(-1, 1, 1, 1).astype(np.float32)
    return images, labels


def train(model: nn.Module, device: str, steps: int = STEPS) -> list[float]:
    """The losses of so many steps of Adam on the one batch."""
    model.to(device)
    optimizer = alpha.optim.Adam(model.parameters(), lr=LR)
    images, labels = (alpha.tensor(values, device=device) for values in batch())
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses
