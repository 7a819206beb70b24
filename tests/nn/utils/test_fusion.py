"""A batch normalisation in the layer before it, against the two layers and PyTorch's errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import ShapeError, nn
from alpha.nn import utils

PAIRS: dict[str, tuple[Callable[[], Any], Callable[[], Any], tuple[int, ...]]] = {
    "Conv1d": (lambda: nn.Conv1d(4, 6, 3, bias=False), lambda: nn.BatchNorm1d(6), (2, 7, 4)),
    "Conv2d": (lambda: nn.Conv2d(4, 6, 3, groups=2), lambda: nn.BatchNorm2d(6, eps=0.1), (2, 5, 6, 4)),
    "Conv3d": (lambda: nn.Conv3d(2, 3, 2), lambda: nn.BatchNorm3d(3, affine=False), (1, 3, 4, 3, 2)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 6, 3), lambda: nn.BatchNorm1d(6, bias=False), (2, 7, 4)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2), lambda: nn.BatchNorm2d(6), (2, 5, 6, 4)),
    "Linear": (lambda: nn.Linear(4, 6), lambda: nn.BatchNorm1d(6), (5, 4)),
    "Linear, no bias": (lambda: nn.Linear(4, 6, bias=False), lambda: nn.BatchNorm1d(6), (5, 4)),
}


def pair(name: str, device: str) -> tuple[Any, Any, alpha.Tensor]:
    """Both layers in evaluation, with statistics and parameters that are not 0 and 1, and an input."""
    alpha.manual_seed(3)
    make, norm, shape = PAIRS[name]
    layer, bn = make().to(device), norm().to(device)
    for value in (*bn.parameters(), *bn.buffers()):
        value.data.copy_(alpha.rand(value.shape, device=device) + 0.5)
    return layer.eval(), bn.eval(), alpha.randn(shape, device=device)


@pytest.mark.parametrize("name", PAIRS)
def test_one_layer_is_both(device: str, name: str) -> None:
    layer, bn, x = pair(name, device)
    before = layer.state_dict().numpy()
    fuse: Any = utils.fuse_linear_bn_eval if name.startswith("Linear") else utils.fuse_conv_bn_eval
    fused = fuse(layer, bn)
    assert type(fused) is type(layer)
    np.testing.assert_allclose(fused(x).numpy(), bn(layer(x)).numpy(), rtol=1e-4, atol=1e-5)
    assert all((value == before[key]).all() for key, value in layer.state_dict().numpy().items())
    assert sorted(fused.state_dict()) == ["bias", "weight"]
    fused(x).sum().backward()
    assert fused.bias.grad.device.name == device
    assert all(p.grad is None for p in layer.parameters())


def test_that_it_is_transposed_may_be_said(device: str) -> None:
    layer, bn, x = pair("ConvTranspose2d", device)
    given = utils.fuse_conv_bn_eval(layer, bn, transpose=True)
    np.testing.assert_array_equal(given(x).numpy(), utils.fuse_conv_bn_eval(layer, bn)(x).numpy())


def test_what_cannot_be_fused() -> None:
    layer, bn, _ = pair("Conv2d", "cpu")
    with pytest.raises(ValueError, match=r"fuse_conv_bn_eval: both layers must be in evaluation; call \.eval"):
        utils.fuse_conv_bn_eval(layer.train(), bn)
    with pytest.raises(ValueError, match="fuse_conv_bn_eval: both layers must be in evaluation"):
        utils.fuse_conv_bn_eval(layer.eval(), nn.BatchNorm2d(6))
    with pytest.raises(ValueError, match="bn has no running statistics, so it normalises by each batch"):
        utils.fuse_conv_bn_eval(layer, nn.BatchNorm2d(6, track_running_stats=False).eval())
    with pytest.raises(ShapeError, match="bn has 5 channels, and the layer before it 6"):
        utils.fuse_conv_bn_eval(layer, nn.BatchNorm2d(5).eval())
    with pytest.raises(ValueError, match=r"the activation of conv, negative_slope=0\.1, is before bn"):
        utils.fuse_conv_bn_eval(nn.Conv2d(4, 6, 3, negative_slope=0.1).eval(), bn)
    with pytest.raises(ShapeError, match="fuse_linear_bn_eval: bn has 6 channels, and the layer before it 3"):
        utils.fuse_linear_bn_eval(nn.Linear(2, 3).eval(), nn.BatchNorm1d(6).eval())
