"""Filters side by side on few channels: the patches of an image as rows of a matrix product."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.core.numerics import PRECISIONS
from alpha.nn import functional as F
from alpha.ops.conv2d.problem import FORWARD, INPUT, OPERANDS, WEIGHT, Target
from alpha.ops.conv2d.shape import TRIVIAL, Axis
from alpha.ops.convolution import pieces, whole
from alpha.ops.convolution.conv_arguments import ConvAxes
from alpha.ops.convolution.whole import as_product, is_patches, patches_of
from alpha.runtime.cuda.planning.driver_dry import DryDevice

HOPPER = Target("cuda", (9, 0), 132, 227 << 10, name="NVIDIA H200")


def axis(I: int, F: int, s: int, p: int = 0, d: int = 1) -> Axis:
    return Axis(I, F, s, p, d, (I + 2 * p - d * (F - 1) - 1) // s + 1)


def of(IC: int, OC: int, *axes: Axis, N: int = 64, groups: int = 1) -> ConvAxes:
    return ConvAxes(N, IC, OC, groups, (*[TRIVIAL] * (3 - len(axes)), *axes))  # type: ignore[arg-type]


VIT = of(3, 768, axis(224, 16, 16), axis(224, 16, 16))
TUBELETS = of(3, 96, axis(16, 2, 2), axis(224, 16, 16), axis(224, 16, 16), N=8)

CASES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], Any]] = {  # function, x, weight, stride
    "what is left over": ("conv2d", (2, 17, 11, 3), (40, 4, 4, 3), 4),
    "one patch": ("conv2d", (3, 4, 4, 5), (16, 4, 4, 5), 4),
    "another height than width": ("conv2d", (2, 6, 10, 2), (9, 3, 5, 2), (3, 5)),
    "a sequence": ("conv1d", (2, 33, 4), (24, 8, 4), 8),
    "a volume": ("conv3d", (2, 4, 9, 8, 3), (24, 2, 4, 4, 3), (2, 4, 4)),
}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_those_of_the_cpu(name: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patches as products are forced here: a small one need not be faster."""
    monkeypatch.setattr(whole, "predicted_cycles", lambda _, shape, *rest: 1e12 if shape.taps > 1 else 0)
    as_product.cache_clear()
    function, *shapes, stride = CASES[name]
    rng, found = np.random.default_rng(0), []
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in (*shapes, shapes[1][:1])]
    for device in ("cpu", "cuda"):
        x, w, b = (alpha.tensor(a, device=device, requires_grad=True) for a in arrays)
        with alpha.precision(precision):
            y = getattr(F, function)(x, w, b, stride, negative_slope=0.5)
            (y * y).sum().backward()
        found.append([t.numpy() for t in (y, x.grad, w.grad, b.grad)])
    as_product.cache_clear()
    limit = {"float32": 2e-6, "tf32": 4e-3, "bf16": 2e-2}[precision]
    for host, mine in zip(*found, strict=True):
        assert host.shape == mine.shape
        np.testing.assert_allclose(mine, host, atol=limit * np.abs(host).max())


def test_patches_are_a_box_of_the_images() -> None:
    c = of(2, 5, axis(7, 3, 3), axis(4, 2, 2), N=3)
    X = np.arange(3 * 7 * 4 * 2).reshape(3, 7, 4, 2)
    box = patches_of(c)
    found = np.lib.stride_tricks.as_strided(X, box.shape, [X.itemsize * n for n in box.strides])
    expected = X[:, :6].reshape(3, 2, 3, 2, 2, 2).transpose(0, 1, 3, 2, 4, 5)
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)


def test_a_vision_transformer_begins_with_a_product() -> None:
    X = DryDevice.of("sm_90a").empty(VIT.X, np.float32)
    for operator in OPERANDS:
        for precision in PRECISIONS:
            for c, K in ((VIT, 768), (TUBELETS, 1536)):
                product = as_product(operator, c, HOPPER, precision)
                assert product is not None
                assert ((math.prod(c.Y[:-1]), 1, 1, K), c.OC) == (product.X, product.OC)
        (piece,) = pieces._pieces(operator, VIT, X, "tf32")
        assert piece.shape == as_product(operator, VIT, HOPPER, "tf32")


@pytest.mark.parametrize(
    "c",
    [
        of(16, 64, axis(32, 2, 2), axis(32, 2, 2)),  # channels enough
        of(3, 64, axis(32, 3, 2), axis(32, 2, 2)),  # filters that overlap
        of(3, 64, axis(32, 2, 3), axis(32, 2, 2)),  # and with gaps between them
        of(3, 64, axis(32, 2, 2, p=1), axis(32, 2, 2)),
        of(3, 64, axis(32, 2, 2, d=2), axis(32, 2, 2)),
        of(4, 64, axis(32, 2, 2), axis(32, 2, 2), groups=2),
        of(3, 64, axis(32, 1, 1), axis(32, 1, 1)),  # a tap per pixel
    ],
    ids=["channels", "overlap", "gaps", "padding", "dilation", "groups", "one tap"],
)
def test_what_is_no_patch(c: ConvAxes) -> None:
    assert not is_patches(c)
    assert all(as_product(operator, c, HOPPER, "tf32") is None for operator in OPERANDS)


def test_the_copy_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product that is faster by less than the copy of its patches takes is not taken."""
    copied = whole.constants_of(HOPPER.name).launch + 2 * 2 * math.prod(VIT.X) / whole.constants_of("").memory
    for gain, taken in ((0.9 * copied, False), (1.1 * copied, True)):
        monkeypatch.setattr(whole, "predicted_cycles", lambda _, shape, *r, g=gain: g if shape.taps > 1 else 0.0)
        as_product.cache_clear()
        assert (as_product(FORWARD, VIT, HOPPER, "bf16") is not None) == taken
    as_product.cache_clear()


def test_the_bias_of_a_transposed_convolution_is_that_of_its_channels(device: str) -> None:
    """The result has few channels, and a patch of it many."""
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((2, 2, 2, 3, 8), (8, 2, 2, 2, 3), (3,)))
    y = F.conv_transpose3d(*(alpha.tensor(a, device=device) for a in (x, w, b)), 2)
    expected = np.einsum("ndhwk,kabcj->ndahbwcj", x, w).reshape(2, 4, 4, 6, 3) + b
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-4, atol=1e-5)
    X = DryDevice.of("sm_90a").empty((8, 8), np.float32)
    c = of(3, 64, axis(16, 2, 2), axis(16, 2, 2), axis(16, 2, 2))
    assert pieces._pieces(INPUT, c, X, "tf32", None) != pieces._pieces(INPUT, c, X, "tf32", X)
    assert pieces._pieces(WEIGHT, c, X, "tf32", None) == pieces._pieces(WEIGHT, c, X, "tf32", X)
