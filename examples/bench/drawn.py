"""Convolutions that belong to no network, drawn by a fixed seed: `--cases drawn`.

A choice of kernels that holds only for the listed networks shows here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alpha.ops.conv2d.shape import ConvShape, conv_shape

COUNT, SEED = 48, 2026
IMAGES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
PIXELS = (4, 7, 8, 12, 14, 16, 20, 28, 32, 40, 56, 64, 96, 112, 128, 160, 224)
CHANNELS = (16, 24, 32, 40, 48, 64, 72, 80, 96, 112, 128, 144, 160, 192, 224, 256, 320, 384, 512, 640, 768, 1024)
FILTERS, SHARES = (1, 2, 3, 4, 5, 7), (0.2, 0.05, 0.5, 0.05, 0.1, 0.1)
STRIDES, STRIDE_SHARES = (1, 2, 3), (0.65, 0.3, 0.05)
FLOPS = (3e8, 3e11)
ELEMENTS = 1 << 27  # at most, of an image batch


def drawn() -> Iterator[ConvShape]:
    """COUNT shapes; rows and columns differ in every third of them."""
    rng = np.random.default_rng(SEED)
    found = 0
    while found < COUNT:
        shape = _draw(rng, square=found % 3 > 0)
        if FLOPS[0] <= shape.flops <= FLOPS[1] and max(np.prod(shape.X), np.prod(shape.Y)) <= ELEMENTS:
            found += 1
            yield shape


def _draw(rng: np.random.Generator, square: bool) -> ConvShape:
    """Any shape whose filter fits its image; `square` gives the columns what the rows have."""
    N, IC, OC = (int(rng.choice(values)) for values in (IMAGES, CHANNELS, CHANNELS))
    axes = []
    for _ in range(1 if square else 2):
        F, stride = int(rng.choice(FILTERS, p=SHARES)), int(rng.choice(STRIDES, p=STRIDE_SHARES))
        padding = int(rng.integers(0, F // 2 + 1)) if rng.random() < 0.3 else F // 2
        axes.append((max(F, int(rng.choice(PIXELS))), F, stride, padding))
    (IH, FH, sh, ph), (IW, FW, sw, pw) = axes[0], axes[-1]
    return conv_shape("drawn", (N, IH, IW, IC), (OC, FH, FW, IC), (sh, sw), (ph, pw))
