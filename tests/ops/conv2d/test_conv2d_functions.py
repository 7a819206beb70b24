"""Convolution as a function of tensors: values and gradients by the formula and by central difference, and errors."""

from __future__ import annotations

from typing import Any

import conv2d_reference as reference
import numpy as np
import pytest
from conv2d_cases import make, shapes
from helpers import check_gradient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import alpha
import alpha.nn.functional as F
from alpha.errors import ShapeError
from alpha.ops.conv2d.shape import ConvShape

# (x, weight, stride, padding)
SHAPES = [
    ((2, 5, 6, 3), (4, 3, 3, 3), 1, 1),
    ((2, 6, 5, 2), (3, 2, 3, 2), (2, 1), (0, 2)),
    ((1, 4, 4, 1), (1, 1, 1, 1), 3, 0),
    ((2, 2, 3, 2), (2, 4, 3, 2), 2, 3),
    ((40, 3, 3, 64), (64, 2, 2, 64), 1, 0),
]
# (x, weight, stride, padding, output_padding)
TRANSPOSED = [
    ((2, 3, 4, 3), (3, 3, 3, 2), 1, 1, 0),
    ((2, 3, 3, 2), (2, 3, 2, 3), (2, 3), (1, 0), (1, 2)),
    ((1, 1, 1, 1), (1, 4, 4, 2), 2, 1, 0),
]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_conv2d(case: tuple[Any, ...]) -> None:
    x, w, *options = case
    check_gradient(lambda x, w, b: F.conv2d(x, w, b, *options), x, w, (w[0],))
    check_gradient(lambda x, w: F.conv2d(x, w, None, *options), x, w)


@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_conv_transpose2d(case: tuple[Any, ...]) -> None:
    x, w, *options = case
    check_gradient(lambda x, w, b: F.conv_transpose2d(x, w, b, *options), x, w, (w[3],))


@pytest.mark.parametrize("slope", [0.0, 0.25])
def test_with_an_activation(slope: float) -> None:
    x, w, *options = SHAPES[0]
    check_gradient(lambda x, w, b: F.conv2d(x, w, b, *options, negative_slope=slope), x, w, (w[0],))
    x, w, *options = TRANSPOSED[0]
    check_gradient(lambda x, w, b: F.conv_transpose2d(x, w, b, *options, negative_slope=slope), x, w, (w[3],))


@pytest.mark.parametrize("slope", [-0.1, 1.5, float("nan")])
def test_a_slope_outside_0_to_1(slope: float) -> None:
    x, w = (alpha.tensor(np.zeros(shape, np.float32)) for shape in SHAPES[0][:2])
    with pytest.raises(ValueError, match="negative_slope"):
        F.conv2d(x, w, negative_slope=slope)


@given(s=shapes(images=2, channels=st.integers(1, 3)))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_operator_and_gradients(device: str, s: ConvShape) -> None:
    rng = np.random.default_rng(0)
    x = alpha.tensor(rng.standard_normal(s.X).astype("f"), requires_grad=True, device=device)
    w = alpha.tensor(rng.standard_normal(s.W).astype("f"), requires_grad=True, device=device)
    b = alpha.tensor(rng.standard_normal(s.OC).astype("f"), requires_grad=True, device=device)
    dY = rng.standard_normal(s.Y).astype("f")
    y = F.conv2d(x, w, b, (s.sh, s.sw), (s.ph, s.pw))
    y.backward(alpha.tensor(dY, device=device))
    assert x.grad is not None
    assert w.grad is not None
    assert b.grad is not None
    tolerance = {"atol": 1e-4, "rtol": 1e-4}
    np.testing.assert_allclose(y.numpy(), reference.forward(x.numpy(), w.numpy(), s) + b.numpy(), **tolerance)
    np.testing.assert_allclose(x.grad.numpy(), reference.backward_input(dY, w.numpy(), s), **tolerance)
    np.testing.assert_allclose(w.grad.numpy(), reference.backward_weight(x.numpy(), dY, s), **tolerance)
    np.testing.assert_allclose(b.grad.numpy(), dY.sum(axis=(0, 1, 2)), **tolerance)


def test_transposed_convolution_is_the_adjoint(device: str) -> None:
    rng = np.random.default_rng(0)
    s = make(2, (7, 6), (3, 4), (3, 2), (2, 3), (1, 0))  # the convolution; its input is our output
    x = alpha.tensor(rng.standard_normal(s.Y).astype("f"), requires_grad=True, device=device)
    w = alpha.tensor(rng.standard_normal(s.W).astype("f"), requires_grad=True, device=device)
    rest = (s.IH - ((s.OH - 1) * s.sh - 2 * s.ph + s.FH), s.IW - ((s.OW - 1) * s.sw - 2 * s.pw + s.FW))
    y = F.conv_transpose2d(x, w, None, (s.sh, s.sw), (s.ph, s.pw), rest)
    assert y.shape == s.X
    np.testing.assert_allclose(y.numpy(), reference.backward_input(x.numpy(), w.numpy(), s), atol=1e-5)
    dY = rng.standard_normal(s.X).astype("f")
    y.backward(alpha.tensor(dY, device=device))
    assert x.grad is not None
    assert w.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), reference.forward(dY, w.numpy(), s), atol=1e-5)
    np.testing.assert_allclose(w.grad.numpy(), reference.backward_weight(dY, x.numpy(), s), atol=1e-4)


@pytest.mark.torch
@pytest.mark.parametrize(("stride", "padding", "output_padding"), [(1, 0, 0), (2, 1, 1), ((3, 2), (0, 2), (2, 0))])
def test_transposed_convolution_equals_pytorch(stride, padding, output_padding) -> None:  # type: ignore[no-untyped-def]
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((2, 5, 4, 3)).astype("f"), rng.standard_normal((3, 3, 2, 6)).astype("f"))
    y = F.conv_transpose2d(alpha.tensor(x), alpha.tensor(w), None, stride, padding, output_padding)
    expected = torch.nn.functional.conv_transpose2d(
        torch.tensor(x.transpose(0, 3, 1, 2)),
        torch.tensor(w.transpose(0, 3, 1, 2)),
        None,
        stride,
        padding,
        output_padding,
    )
    np.testing.assert_allclose(y.numpy(), expected.numpy().transpose(0, 2, 3, 1), atol=1e-5)


@pytest.mark.parametrize(
    ("x", "w", "options", "message"),
    [
        ((8, 32, 32, 3), (64, 3, 3, 4), {}, r"conv2d: x has 3 channels but weight expects 4  \(x \(8, 32, 32, 3\)"),
        ((1, 2, 2, 1), (1, 3, 3, 1), {}, r"the output would be \(1, 0, 0, 1\), which is empty"),
        ((0, 2, 2, 1), (1, 3, 3, 1), {}, "empty"),
        ((4, 1), (1, 3, 3, 1), {}, r"x \(N, H, W, C\)"),
        ((1, 4, 4, 1), (1, 3, 3, 1), {"stride": 0}, "stride=0 must be at least 1"),
        ((1, 4, 4, 1), (1, 3, 3, 1), {"padding": (-1, 0)}, "padding"),
    ],
)
def test_bad_shapes_say_what_is_wrong(x, w, options, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        F.conv2d(alpha.tensor(np.zeros(x, "f")), alpha.tensor(np.zeros(w, "f")), **options)


def test_a_wrong_bias_is_a_shape_error() -> None:
    x, w, b = (alpha.tensor(np.zeros(n, "f")) for n in ((1, 4, 4, 2), (3, 3, 3, 2), (2,)))
    with pytest.raises(ShapeError, match=r"bias has shape \(2,\), \(3,\) is needed"):
        F.conv2d(x, w, b)
