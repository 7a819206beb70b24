"""The layers of a network of the zoo, and the milliseconds of a step that docs/benchmarks.md has."""

from __future__ import annotations

import numpy as np

import alpha
from alpha.errors import ConfigError
from alpha.nn import Module
from alpha.nn.summary.model_summary import trace
from scaling.step import Layer

PRECISIONS = ("float32", "tf32", "bf16")
BATCH = {32: 512, 128: 256}  # images a GPU, of the steps below
STEP_MS = {  # of an H200; by network and size, in the order of PRECISIONS
    ("resnet18", 32): (4.20, 3.02, 1.94),
    ("resnet34", 32): (8.85, 6.72, 4.17),
    ("vgg16", 32): (6.61, 4.31, 2.68),
    ("vgg19", 32): (8.06, 4.96, 3.15),
    ("resnet18", 128): (31.9, 20.9, 11.9),
    ("resnet34", 128): (66.2, 41.0, 23.3),
    ("vgg16", 128): (53.9, 30.2, 18.3),
    ("vgg19", 128): (67.1, 34.8, 22.2),
}


def measured_ms(name: str, image_size: int, precision: str) -> float:
    """Milliseconds of a step on one GPU.

    Raises:
        ConfigError: docs/benchmarks.md has none.
    """
    if (name, image_size) not in STEP_MS:
        known = ", ".join(dict.fromkeys(model for model, _ in STEP_MS))
        raise ConfigError(
            f"docs/benchmarks.md has no step of {name} at {image_size}x{image_size} ({known} at 32x32 and 128x128): "
            "measure one and give --step-ms and --batch-size"
        )
    return STEP_MS[name, image_size][PRECISIONS.index(precision)]


def layers_of(model: Module, image_size: int) -> list[Layer]:
    """Layers with parameters or multiply-adds in the order of the forward pass, found with one black image."""
    modules = dict(model.named_modules())
    rows = trace(model, (alpha.tensor(np.zeros((1, image_size, image_size, 3), np.float32)),))
    names = ["" if row.name == "(model)" else row.name for row in rows]
    # a module's row stands behind those of its submodules, but its own parameters are used with the first of them
    first = [next(i for i, name in enumerate(names) if not n or f"{name}.".startswith(f"{n}.")) for n in names]
    order = sorted(range(len(rows)), key=lambda i: (first[i], bool(names[i]), names[i].count(".")))
    found: list[Layer] = []
    counted: set[int] = set()
    for i in order:
        own = [p for p in modules[names[i]].parameters(recurse=False) if id(p) not in counted]
        counted.update(map(id, own))
        if own or rows[i].cost.flops:
            found.append(Layer(rows[i].name, tuple(p.size for p in own), rows[i].cost.flops // 2))
    return found
