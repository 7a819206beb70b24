"""The gradient of a weight in bfloat16: the float32 gradient, rounded once, without a launch that does nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import conv2d_geometry
import numpy as np
import pytest
from conv2d_cases import FEW_OUTPUTS, hopper, make, operands
from helpers import sample_of
from launch_log import observed_launches

import alpha
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.nn import functional as F
from alpha.ops.conv2d import conv2d_backward_weight
from alpha.ops.conv2d.plan import cuda_target, named_operands, plan_configuration
from alpha.ops.conv2d.problem import WEIGHT, Configuration, ConvProblem
from alpha.ops.conv2d.select.table import CONFIGURATIONS

ROWS = [v for v in CONFIGURATIONS if v.device == "cuda" and v.operator == WEIGHT and v.precision == "bf16"]
OTHERS = [v for v in CONFIGURATIONS if v.name in ("sk_dilated_ffma", "sk_dilated_sm90_fp16_64x64")]


@pytest.mark.parametrize("row", [*sample_of(ROWS), *OTHERS])
def test_every_row_rounds_the_gradient_once(row: Configuration) -> None:
    device = hopper()
    target = cuda_target(device)
    s = FEW_OUTPUTS[0] if row.base is not None else conv2d_geometry.of(row)[0]
    arrays = tuple(device.upload(a.astype(BFLOAT16)) for a in operands(WEIGHT, s, "float32"))
    found = []
    for gradient in (FLOAT32, BFLOAT16):
        made = plan_configuration(ConvProblem(WEIGHT, s, "bf16", dtype=BFLOAT16, gradient=gradient), row, target)
        dW = made.launch(device, named_operands(made, WEIGHT, arrays, None, 1.0))["dW"]
        assert dW.dtype == made.outputs["dW"].dtype == gradient
        found.append(device.download(dW))
    np.testing.assert_array_equal(found[0].astype(BFLOAT16), found[1])


@pytest.mark.slow
@pytest.mark.parametrize("splits", ["one", "several"])
def test_no_cast_follows_the_kernel(splits: str) -> None:
    s = make(1, (4, 4), (8, 8), (1, 3)) if splits == "one" else make(64, (8, 8), (64, 64), (3, 3), p=(1, 1))
    device = hopper()
    X, dY = (device.upload(a.astype(BFLOAT16)) for a in operands(WEIGHT, s, "float32"))
    with observed_launches(device) as log:
        halves = conv2d_backward_weight(X, dY, s, "bf16", BFLOAT16)
    assert "elementwise/cast.cu" not in [launch.source for launch in log]
    assert log[-1].defines["OUTPUT"] == "bfloat16"
    assert (len(log) > 1) == (splits == "several")
    assert halves.dtype == BFLOAT16
    whole = conv2d_backward_weight(X, dY, s, "bf16")
    assert whole.dtype == FLOAT32
    np.testing.assert_array_equal(device.download(whole).astype(BFLOAT16), device.download(halves))


LAYERS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "conv2d": (F.conv2d, (4, 6, 6, 32), (64, 3, 3, 32), {"padding": 1}),
    "conv1d": (F.conv1d, (4, 12, 32), (64, 3, 32), {"padding": 1}),
    "conv3d": (F.conv3d, (2, 4, 6, 6, 32), (64, 3, 3, 3, 32), {"padding": 1}),
    "conv_transpose2d": (F.conv_transpose2d, (4, 4, 4, 64), (64, 3, 3, 32), {"stride": 2}),
    "conv_transpose1d": (F.conv_transpose1d, (4, 6, 64), (64, 3, 32), {"stride": 2}),
    "depthwise": (F.conv2d, (32, 16, 16, 32), (32, 3, 3, 1), {"groups": 32, "padding": 1}),
    "groups in pieces": (F.conv2d, (4, 6, 6, 128), (128, 3, 3, 64), {"groups": 2, "padding": 1}),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16], ids=str)
@pytest.mark.parametrize("layer", LAYERS)
def test_the_gradient_has_the_dtype_of_the_weight(layer: str, dtype: np.dtype[Any]) -> None:
    """The operands may be cast to any dtype. Depthwise layers of few pixels, which are not split, are cast."""
    function, x_shape, w_shape, options = LAYERS[layer]
    rng, device = np.random.default_rng(0), hopper()
    x = alpha.tensor(rng.standard_normal(x_shape, np.float32).astype(BFLOAT16), device=device)
    values = rng.standard_normal(w_shape, np.float32).astype(BFLOAT16)
    w = alpha.tensor(values.astype(dtype), device=device, requires_grad=True)
    with alpha.precision("bf16"):
        y = function(x, w, **options)
        with observed_launches(device) as log:
            y.backward(alpha.ones_like(y))
    assert w.grad is not None
    assert w.grad.dtype == dtype
    if layer != "groups in pieces":
        assert "elementwise/cast.cu" not in [launch.source for launch in log]
    with alpha.precision("float32"):
        w_cpu = alpha.tensor(values.astype(np.float64), requires_grad=True)
        y = function(alpha.tensor(x.numpy().astype(np.float64)), w_cpu, **options)
        y.backward(alpha.ones_like(y))
    assert w_cpu.grad is not None
    expected = w_cpu.grad.numpy()
    np.testing.assert_allclose(w.grad.numpy().astype(float), expected, rtol=5e-3, atol=5e-3 * np.abs(expected).max())
