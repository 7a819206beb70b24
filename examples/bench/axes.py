"""Convolutions in one, two and three dimensions through the public functions: dilated layers, videos and sequences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import alpha
import alpha.nn.functional as F

OPERATORS = ("forward", "dX", "dW")


@dataclass(frozen=True)
class Layer:
    """A convolution of X (N, *lengths, IC) with OC filters of `kernel` lengths; `dilation` is that of all axes.

    It keeps the lengths of X, divided by the stride, unless the filters stand side by side: then it has no padding.
    """

    N: int
    lengths: tuple[int, ...]
    IC: int
    OC: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: int = 1

    @property
    def padding(self) -> tuple[int, ...]:
        if self.kernel == self.stride:
            return (0,) * len(self.kernel)
        return tuple([self.dilation * (k // 2) for k in self.kernel])

    @property
    def name(self) -> str:
        lengths, kernel = ("x".join(map(str, n)) for n in (self.lengths, self.kernel))
        rate = f", rate {self.dilation}" if self.dilation > 1 else ""
        return f"{self.N}x{lengths}x{self.IC} -> {self.OC}, {kernel} / {max(self.stride)}{rate}"


def _cube(N: int, frames: int, side: int, IC: int, OC: int, stride: int = 1) -> Layer:
    return Layer(N, (frames, side, side), IC, OC, (3, 3, 3), (stride,) * 3)


LAYERS = {
    # DeepLabV3 on 513x513 images: the last stages of its ResNet50, and its pyramid
    "dilated": (
        Layer(8, (65, 65), 256, 256, (3, 3), (1, 1), 2),
        Layer(8, (65, 65), 512, 512, (3, 3), (1, 1), 2),
        Layer(8, (65, 65), 512, 512, (3, 3), (1, 1), 4),
        Layer(8, (65, 65), 2048, 256, (3, 3), (1, 1), 12),
        Layer(8, (65, 65), 2048, 256, (3, 3), (1, 1), 24),
    ),
    # an 18-layer ResNet on 16 frames of 112x112 pixels, without its first layer
    "video": (
        _cube(8, 16, 56, 64, 64),
        _cube(8, 16, 56, 64, 128, 2),
        _cube(8, 8, 28, 128, 128),
        _cube(8, 8, 28, 128, 256, 2),
        _cube(8, 4, 14, 256, 256),
        _cube(8, 4, 14, 256, 512, 2),
        _cube(8, 2, 7, 512, 512),
        Layer(8, (16, 56, 56), 64, 128, (1, 1, 1), (2, 2, 2)),
    ),
    "sequence": (
        Layer(64, (1024,), 64, 64, (3,), (1,)),
        Layer(64, (1024,), 64, 128, (3,), (2,)),
        Layer(64, (512,), 128, 128, (3,), (1,)),
        Layer(64, (512,), 128, 128, (7,), (1,)),
        Layer(64, (512,), 128, 256, (5,), (2,)),
        Layer(64, (256,), 256, 256, (3,), (1,)),
        Layer(64, (256,), 256, 512, (3,), (2,)),
        Layer(64, (256,), 256, 256, (3,), (1,), 4),
    ),
    # first layers of vision transformers, of ConvNeXt and of a transformer for videos
    "patches": (
        Layer(64, (224, 224), 3, 768, (16, 16), (16, 16)),
        Layer(64, (224, 224), 3, 1024, (14, 14), (14, 14)),
        Layer(64, (224, 224), 3, 96, (4, 4), (4, 4)),
        Layer(8, (16, 224, 224), 3, 96, (2, 16, 16), (2, 16, 16)),
    ),
}


def drawn(layer: Layer, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (N, .., IC), W (OC, .., IC) and dY (N, .., OC), normal numbers, W such that Y is of size 1."""
    rng = np.random.default_rng(seed)
    results = [
        (n + 2 * p - layer.dilation * (k - 1) - 1) // s + 1
        for n, p, k, s in zip(layer.lengths, layer.padding, layer.kernel, layer.stride, strict=True)
    ]
    shapes = (layer.N, *layer.lengths, layer.IC), (layer.OC, *layer.kernel, layer.IC), (layer.N, *results, layer.OC)
    X, W, dY = (rng.standard_normal(shape, np.float32) for shape in shapes)
    return X, W / np.float32(np.sqrt(W[0].size)), dY


def our_calls(layer: Layer, operands: tuple[Any, Any, Any]) -> dict[str, Callable[[], Any]]:
    """Calls that are timed on Alpha's side, of tensors X, W, dY."""
    X, W, dY = operands
    function = (F.conv1d, F.conv2d, F.conv3d)[len(layer.kernel) - 1]
    options = layer.stride, layer.padding, layer.dilation
    for tensor in (X, W):
        tensor.requires_grad = True
    Y = function(X, W, None, *options)

    def forward() -> Any:
        with alpha.no_grad():
            return function(X, W, None, *options)

    return {
        "forward": forward,
        "dX": lambda: alpha.grad(Y, X, dY, retain_graph=True)[0],
        "dW": lambda: alpha.grad(Y, W, dY, retain_graph=True)[0],
    }


def their_calls(layer: Layer, torch: Any, operands: tuple[Any, Any, Any]) -> dict[str, Callable[[], Any]]:
    """The same of PyTorch's tensors, channels second."""
    X, W, dY = operands
    function = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)
    sizes = [list(layer.stride), list(layer.padding), [layer.dilation] * len(layer.kernel)]

    def backward(which: int) -> Callable[[], Any]:
        mask = [which == 0, which == 1, False]
        more = False, [0] * len(layer.kernel), 1
        return lambda: torch.ops.aten.convolution_backward(dY, X, W, None, *sizes, *more, mask)[which]

    return {
        "forward": lambda: function[len(layer.kernel) - 1](X, W, None, *sizes),
        "dX": backward(0),
        "dW": backward(1),
    }
