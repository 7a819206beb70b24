"""One step of a recurrent layer, as layers of their own, and what these share with the layers of many steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from alpha.core import rng
from alpha.core.numerics import BFLOAT16
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Module, Parameter
from alpha.nn import functional as F
from alpha.nn.resetting import reset_uniform
from alpha.ops.array.layout import view as reshaped
from alpha.ops.kernel.options import integer
from alpha.ops.sequence.packing import last_rows
from alpha.ops.sequence.recurrent import GATES, Recurrent, Steps

__all__ = ["GRUCell", "LSTMCell", "RNNCell"]


def is_relu(operator: str, nonlinearity: str) -> bool:
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f"{operator}: nonlinearity={nonlinearity!r} is neither 'tanh' nor 'relu'")
    return nonlinearity == "relu"


def state_tensors(operator: str, x: Tensor, state: Any, count: int) -> tuple[Tensor, ...]:
    """The given state as `count` tensors, or none; `TypeError` names what is no Tensor."""
    states = () if state is None else tuple(state) if isinstance(state, (tuple, list)) else (state,)
    for name, value in (("x", x), *(("a state", part) for part in states)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{operator}: {name} is a {type(value).__name__}, a Tensor is needed")
    if state is not None and len(states) != count:
        raise ShapeError(f"{operator}: {count} tensors of state are needed, not {len(states)}")
    return states


def as_float32(x: Tensor) -> Tensor:
    return x.astype("float32") if x.dtype == BFLOAT16 else x


def steps(
    x: Tensor, start: tuple[Tensor, ...], weights: Sequence[Tensor | None], how: Steps
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The states after each step, and the last ones of each sequence

    x (T, N, features) or (rows, features) -> (T, N, R) or (rows, R), (N, R) and of an LSTM (N, H)

    Args:
        start: the states before the first step: h (N, R), and c (N, H) of an LSTM.
        weights: weight_ih, weight_hh, bias_ih or None, bias_hh or None, weight_hr or None.
        how: what the steps are, and how many rows of x each has.
    """
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    assert w_ih is not None
    h, c = start[0], start[1] if len(start) > 1 else None
    flat = Recurrent.apply(as_float32(F.linear(x, w_ih, b_ih)), w_hh, b_hh, h, c, w_hr, steps=how)
    sizes, (N, R) = how.sizes, h.shape
    rows = sum(sizes)
    y = reshaped(flat[: rows * R], (*x.shape[:-1], R))
    if sizes[-1] == N:
        last = reshaped(flat[(rows - N) * R : rows * R], (N, R))
    else:
        last = F.index_select(reshaped(y, (rows, R)), 0, last_rows(sizes).on(x.device))
    return y, (last,) if c is None else (last, reshaped(flat[rows * R :], c.shape))


class _Cell(Module):
    """One step of a layer   x (N, input_size) or (input_size,), h as h -> h"""

    kind: str
    nonlinearity: str = "tanh"

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        name = type(self).__name__
        self.input_size = integer(name, "input_size", input_size, least=1)
        self.hidden_size = integer(name, "hidden_size", hidden_size, least=1)
        width, bound = GATES[self.kind] * self.hidden_size, 1 / math.sqrt(self.hidden_size)

        def made(*shape: int) -> Parameter:
            return Parameter(rng.uniform(shape, -bound, bound))

        self.weight_ih, self.weight_hh = made(width, self.input_size), made(width, self.hidden_size)
        self.bias = bias
        self.bias_ih = made(width) if bias else None
        self.bias_hh = made(width) if bias else None

    def forward(self, x: Tensor, hx: Any = None) -> Any:
        """The next state: h, or of an LSTM (h, c).

        Args:
            hx: the state before the step, 0 by default.
        """
        name, count = type(self).__name__, 2 if self.kind == "LSTM" else 1
        states = [as_float32(state) for state in state_tensors(name, x, hx, count)]
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            raise ShapeError(f"{name}: x (N, {self.input_size}) or ({self.input_size},) is needed  (x {x.shape})")
        shape = (*x.shape[:-1], self.hidden_size)
        if any(state.shape != shape for state in states):
            raise ShapeError(f"{name}: a state {shape} is needed  (x {x.shape}, state {states[0].shape})")
        if not states:
            states = [Tensor(x.device.zeros(shape, as_float32(x).dtype))] * count
        N, relu = 1 if x.ndim == 1 else len(x), is_relu(name, self.nonlinearity)
        start = tuple(reshaped(state, (N, self.hidden_size)) for state in states)
        weights = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh, None]
        end = steps(reshaped(x, (1, N, self.input_size)), start, weights, Steps(self.kind, relu, (N,)))[1]
        made = tuple(reshaped(state, shape) for state in end)
        return made if count == 2 else made[0]

    def reset_parameters(self) -> None:
        """Draw the parameters anew, in place."""
        reset_uniform(self.hidden_size, *self.parameters())

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, bias={self.bias_ih is not None}"


class RNNCell(_Cell):
    """One step of an `RNN`   x (N, input_size), h (N, hidden_size) -> h"""

    kind = "RNN"

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh") -> None:
        is_relu("RNNCell", nonlinearity)
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, nonlinearity={self.nonlinearity}"


class GRUCell(_Cell):
    """One step of a `GRU`   x (N, input_size), h (N, hidden_size) -> h"""

    kind = "GRU"


class LSTMCell(_Cell):
    """One step of an `LSTM`   x (N, input_size), (h, c) of (N, hidden_size) -> (h, c)"""

    kind = "LSTM"
