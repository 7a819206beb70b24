"""Module that an ONNX file becomes: its nodes as a list of calls, and its weights as layers and parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Module
from alpha.nn import functional as F
from alpha.onnx.resizing import resized
from alpha.ops.array.axes import expand
from alpha.ops.array.joining import cat, split
from alpha.ops.indexing.where import where
from alpha.ops.math import power, unary
from alpha.ops.matmul.einsum import einsum
from alpha.ops.matmul.matmul import matmul


class Call(NamedTuple):
    """One call of a forward.

    Attributes:
        run: the name of a function of `FUNCTIONS`; empty for a layer.
        inputs: values by their names in the file; a name that begins with "@" is a weight of the module.
        outputs: the names of what it makes.
        options: keyword arguments of the function; of a layer its dotted name, `layer`.
    """

    run: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    options: Mapping[str, Any]


class Part(Module):
    """A part of a module that an ONNX file became, which only holds layers."""

    def forward(self, *args: Any) -> Any:
        raise TypeError("this part of an ONNX network has no forward of its own; call the whole network")


class Network(Part):
    """Network of an ONNX file, which `alpha.onnx.load` makes: trainable, with running statistics, maps in NHWC.

    Attributes:
        calls: what forward does, in order.
        input_names, output_names: those of the file, in order.
    """

    def __init__(self, calls: Sequence[Call], input_names: Sequence[str], output_names: Sequence[str]) -> None:
        self.calls = tuple(calls)
        self.input_names, self.output_names = tuple(input_names), tuple(output_names)
        self._results = self.output_names  # the names of the values that are returned
        self._last: dict[str, int] = {}  # of each value, the number of the last call that takes it

    def forward(self, *inputs: Tensor) -> Any:
        """Results in the order of the file; one result alone, not in a tuple.

        Raises:
            ShapeError: there are more or fewer inputs than in the file.
        """
        if len(inputs) != len(self.input_names):
            raise ShapeError(f"Network: {len(inputs)} inputs, {', '.join(self.input_names)} are needed")
        values: dict[str, Any] = dict(zip(self.input_names, inputs, strict=True))
        for number, call in enumerate(self.calls):
            given = [self._weight(name[1:]) if name[:1] == "@" else values[name] for name in call.inputs]
            if call.run:
                made = FUNCTIONS[call.run](*given, **call.options)
            else:
                made = self.get_submodule(call.options["layer"])(*given)
            for name in call.inputs:
                if self._last.get(name) == number:
                    values.pop(name, None)
            values.update(zip(call.outputs, made if isinstance(made, (tuple, list)) else [made], strict=True))
        results = [self._weight(name[1:]) if name[:1] == "@" else values[name] for name in self._results]
        return results[0] if len(results) == 1 else tuple(results)

    def _weight(self, path: str) -> Tensor:
        owner, _, name = path.rpartition(".")
        found: Tensor = getattr(self.get_submodule(owner), name)
        return found

    def extra_repr(self) -> str:
        return f"{', '.join(self.input_names)} -> {', '.join(self.output_names)}, {len(self.calls)} calls"


# -- functions by the names of ONNX's operators, or names of what they need before -------------------------


def _sliced(x: Tensor, *, cuts: Sequence[tuple[int, int, int, int]]) -> Tensor:
    """A box; `cuts` are (axis, start, end, step)."""
    for axis, start, end, step in cuts:
        if step < 0:
            x = F.flip(x, axis)
            n = x.shape[axis]
            bounds = slice(start, None if end < -n else end, step).indices(n)
            start, end, step = n - 1 - bounds[0], n - 1 - bounds[1], -step
        x = x[(*[slice(None)] * axis, slice(start, end, step))]
    return x


def _averaged(x: Tensor, *, rank: int, sizes: Sequence[Any], count_include_pad: bool, ceil_mode: bool) -> Tensor:
    pool: Any = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1]
    found: Tensor = pool(x, *sizes, ceil_mode=ceil_mode, count_include_pad=count_include_pad)
    return found


def _largest(x: Tensor, *, rank: int, sizes: Sequence[Any], dilation: Any, ceil_mode: bool) -> Tensor:
    pool: Any = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
    found: Tensor = pool(x, *sizes, dilation=dilation, ceil_mode=ceil_mode)
    return found


def _global(x: Tensor, *, largest: bool) -> Tensor:
    axes = tuple(range(1, x.ndim - 1))
    return F.amax(x, axes, keepdim=True) if largest else x.mean(axes, keepdim=True)


def _reduced(x: Tensor, *, how: str, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    if how == "l2":
        return F.norm(x, 2, axes, keepdim=keepdims)
    function: Any = {"mean": F.mean, "sum": F.sum, "max": F.amax, "min": F.amin}[how]
    found: Tensor = function(x, axes, keepdim=keepdims)
    return found


def _clipped(x: Tensor, *, low: float | None, high: float | None) -> Tensor:
    if (low, high) == (0, None):
        return F.relu(x)
    if (low, high) == (0, 6):
        return F.relu6(x)
    return F.clamp(x, low, high)


def _instance_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    return F.instance_norm(x, weight=weight, bias=bias, eps=eps)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, eps: float) -> Tensor:
    return F.layer_norm(x, weight.shape, weight, bias, eps)


def _extreme_of(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def run(*given: Tensor) -> Tensor:
        found = given[0]
        for other in given[1:]:
            found = function(found, other)
        return found

    return run


def _reshaped(x: Tensor, *, shape: Sequence[int]) -> Tensor:
    """A reshape, in which 0 keeps the length of that axis."""
    return x.reshape(tuple(x.shape[i] if n == 0 else n for i, n in enumerate(shape)))


def _expanded(x: Tensor, like: Tensor | None = None, *, shape: Sequence[int]) -> Tensor:
    """x repeated; a length of -1 is that of the batch, the first axis of `like`."""
    wanted = [len(like) if n == -1 and like is not None else n for n in shape]
    return expand(x, np.broadcast_shapes(x.shape, tuple(wanted)))


def _unflattened(x: Tensor, *, lengths: tuple[int, ...]) -> Tensor:
    """A map (N, H W C) that was flattened in NHWC, in the order of NCHW."""
    C, *I = lengths
    return x.reshape(len(x), *I, C).movedim(-1, 1).reshape(len(x), -1)


def _flattened(x: Tensor, *, lengths: tuple[int, ...]) -> Tensor:
    """Rows (.., C H W) of maps of the lengths (C, H, W) in the order of NHWC."""
    before = x.shape[:-1]
    return x.reshape(*before, *lengths).movedim(len(before), -1).reshape(x.shape)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Abs": lambda x: F.abs(x),
    "Add": lambda x, y: x + y,
    "ArgMax": lambda x, dim, keepdims: F.argmax(x, dim, keepdim=keepdims),
    "AveragePool": _averaged,
    "Cast": lambda x, dtype: x.astype(dtype),
    "Ceil": lambda x: F.ceil(x),
    "Celu": lambda x, alpha: F.celu(x, alpha),
    "Clip": _clipped,
    "Concat": lambda *x, dim: cat(list(x), dim),
    "Div": lambda x, y: x / y,
    "Einsum": lambda *x, equation: einsum(equation, *x),
    "Elu": lambda x, alpha: F.elu(x, alpha),
    "Equal": lambda x, y: x == y,
    "Erf": lambda x: F.erf(x),
    "Exp": lambda x: unary.exp(x),
    "Expand": _expanded,
    "Flattened": _flattened,
    "Floor": lambda x: F.floor(x),
    "Gather": lambda x, index, dim: F.index_select(x, dim, index),
    "Gelu": lambda x, approximate: F.gelu(x, approximate=approximate),
    "Global": _global,
    "Greater": lambda x, y: x > y,
    "HardSigmoid": lambda x, alpha, beta: F.clamp(x * alpha + beta, 0.0, 1.0),
    "HardSwish": lambda x: F.hardswish(x),
    "Identity": lambda x: x,
    "InstanceNormalization": _instance_norm,
    "LRN": lambda x, size, alpha, beta, k: F.local_response_norm(x, size, alpha, beta, k),
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda x, alpha: F.leaky_relu(x, alpha),
    "Less": lambda x, y: x < y,
    "Log": lambda x: unary.log(x),
    "LogSoftmax": lambda x, dim: F.log_softmax(x, dim),
    "MatMul": lambda x, y: matmul(x, y),
    "Max": _extreme_of(F.maximum),
    "MaxPool": _largest,
    "Min": _extreme_of(F.minimum),
    "Mish": lambda x: F.mish(x),
    "Mul": lambda x, y: x * y,
    "Neg": lambda x: -x,
    "PRelu": lambda x, weight: where(x > 0, x, x * weight),
    "Pad": lambda x, pad, mode, value: F.pad(x, pad, mode, value),
    "Permute": lambda x, order: x.permute(*order),
    "Pow": lambda x, y: power.pow(x, y),
    "Reciprocal": lambda x: F.reciprocal(x),
    "Reduce": _reduced,
    "Relu": lambda x: F.relu(x),
    "Reshape": _reshaped,
    "Resize": resized,
    "Selu": lambda x: F.selu(x),
    "Sigmoid": lambda x: F.sigmoid(x),
    "Slice": _sliced,
    "Softmax": lambda x, dim: F.softmax(x, dim),
    "Softplus": lambda x: F.softplus(x),
    "Softsign": lambda x: F.softsign(x),
    "Split": lambda x, sizes, dim: split(x, list(sizes), dim),
    "Sqrt": lambda x: unary.sqrt(x),
    "Sub": lambda x, y: x - y,
    "Tanh": lambda x: F.tanh(x),
    "Unflatten": _unflattened,
    "Where": lambda m, x, y: where(m, x, y),
}
