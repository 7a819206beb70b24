"""Recurrent layers, and cells of one step, under PyTorch's names, arguments, order of gates and names of parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from alpha.autograd.tracing import traced_whole
from alpha.core import rng
from alpha.core.numerics import BFLOAT16
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Module, Parameter
from alpha.nn import functional as F
from alpha.nn.init import reset_uniform
from alpha.nn.utils.rnn import PackedSequence
from alpha.ops.array.layout import view as reshaped
from alpha.ops.kernel.options import integer
from alpha.ops.noise.dropout import check_probability
from alpha.ops.sequence.packing import Counts, backwards, last_rows
from alpha.ops.sequence.recurrence import GATES, Recurrent, Steps

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]


class _Recurrent(Module):
    """Base of the recurrent layers: their parameters, and the way through layers and directions."""

    kind: str
    relu = False

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        self._make((input_size, hidden_size, num_layers, 0), bias, batch_first, dropout, bidirectional)

    def _make(
        self, sizes: tuple[int, int, int, int], bias: bool, batch_first: bool, dropout: float, bidirectional: bool
    ) -> None:
        """`sizes`: input_size, hidden_size, num_layers, proj_size."""
        least = {"input_size": 1, "hidden_size": 1, "num_layers": 1, "proj_size": 0}
        checked = [integer(self.kind, name, n, least[name]) for name, n in zip(least, sizes, strict=True)]
        self.input_size, self.hidden_size, self.num_layers, self.proj_size = checked
        check_probability(self.kind, dropout, "dropout")
        if self.proj_size >= self.hidden_size:
            raise ValueError(
                f"{self.kind}: proj_size={self.proj_size} must be less than hidden_size={self.hidden_size}"
            )
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self._made_with = self._structure()
        H, R = self.hidden_size, self.proj_size or self.hidden_size
        width = GATES[self.kind] * H
        for layer in range(self.num_layers):
            features = self.input_size if layer == 0 else R * (1 + self.bidirectional)
            shapes: dict[str, tuple[int, ...]] = {"weight_ih": (width, features), "weight_hh": (width, R)}
            if bias:
                shapes |= {"bias_ih": (width,), "bias_hh": (width,)}
            if self.proj_size:
                shapes["weight_hr"] = (R, H)
            for ending in self._endings(layer):
                for name, shape in shapes.items():
                    bound = 1 / math.sqrt(H)
                    setattr(self, name + ending, Parameter(rng.uniform(shape, -bound, bound)))

    def _structure(self) -> dict[str, Any]:
        """The attributes that the parameters follow from."""
        names = "input_size", "hidden_size", "num_layers", "bias", "bidirectional", "proj_size", "nonlinearity"
        return {name: getattr(self, name, None) for name in names}

    def _check_structure(self) -> None:
        """Refuse what was written to attributes that the parameters follow from (`ValueError`)."""
        now, made_with = self._structure(), self._made_with
        if now != made_with:
            changed = [name for name in now if now[name] != made_with[name]]
            new, old = (", ".join(f"{name}={of[name]!r}" for name in changed) for of in (now, made_with))
            raise ValueError(
                f"{self.kind}: {new} was written after the layer was made with {old}, which its parameters follow from."
                " Make another layer"
            )

    def _endings(self, layer: int) -> tuple[str, ...]:
        """Endings of the names of a layer's parameters, one for each direction."""
        return (f"_l{layer}", f"_l{layer}_reverse")[: 1 + self.bidirectional]

    def forward(self, x: Any, hx: Any = None) -> Any:
        """The states of the last layer at each step, and the last states of all layers

        x (T, N, input_size) or (N, T, input_size) with batch_first, or (T, input_size)
        -> y (T, N, directions R) as x, and h (layers directions, N, R), of an LSTM (h, c) with c (.., N, H).

        Of a `PackedSequence` y is one, too, and the last states are those of each sequence's own last step, or of its
        first one backwards. The states before and behind are in the order in which the sequences were packed.

        Args:
            x: a tensor or a `nn.utils.rnn.PackedSequence`.
            hx: the states before the first step, 0 by default: h, or of an LSTM (h, c).

        Raises:
            ShapeError: x or a state has another shape than the layer needs.
            TypeError: x is neither, or a state is no Tensor.
        """
        self._check_structure()
        packed = x if isinstance(x, PackedSequence) else None
        x = x if packed is None else packed.data
        given = [as_float32(state) for state in state_tensors(self.kind, x, hx, 2 if self.kind == "LSTM" else 1)]
        if x.ndim not in (2, 3)[: 1 if packed else 2] or x.shape[-1] != self.input_size:
            I = self.input_size
            needed = f"packed data (rows, {I}) are" if packed else f"x (T, N, {I}) or (T, {I}) is"
            raise ShapeError(f"{self.kind}: {needed} needed  (x {x.shape})")
        if packed is not None:
            sizes = packed.sizes
            starts = self._starts(x, sizes, given)
            y, last = self._layers(x, [packed.sorted_states(state) for state in starts] if given else starts, sizes)
            last = [packed.unsorted_states(state) for state in last]
            return packed.with_data(y), last[0] if len(last) == 1 else tuple(last)
        one = x.ndim == 2
        y = x.unsqueeze(1) if one else x.transpose(0, 1) if self.batch_first else x
        sizes = (y.shape[1],) * y.shape[0]
        y, last = self._layers(y, self._starts(y, sizes, [s.unsqueeze(1) for s in given] if one else given), sizes)
        if one:
            y, last = y.squeeze(1), [state.squeeze(1) for state in last]
        elif self.batch_first:
            y = y.transpose(0, 1)
        return y, last[0] if len(last) == 1 else tuple(last)

    def _layers(self, y: Tensor, starts: list[Tensor], sizes: Counts) -> tuple[Tensor, list[Tensor]]:
        """The states of the last layer, and the last ones of all   y (T, N, input_size) or (rows, input_size)"""
        ends: list[tuple[Tensor, ...]] = []
        for layer in range(self.num_layers):
            made = []
            for ending in self._endings(layer):
                start = tuple(states[len(ends)] for states in starts)
                found, end = self._direction(y, start, ending, sizes)
                made.append(found)
                ends.append(end)
            y = made[0] if len(made) == 1 else F.cat(made, -1)
            if layer + 1 < self.num_layers:
                y = F.dropout(y, self.dropout, self.training)
        return y, [F.stack(list(parts)) for parts in zip(*ends, strict=True)]

    def reset_parameters(self) -> None:
        """Draw the parameters anew, in place."""
        reset_uniform(self.hidden_size, *self.parameters())

    def flatten_parameters(self) -> None:
        """Does nothing: the kernels take the parameters from where they are."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction, those of the first layer first."""
        endings = [ending for layer in range(self.num_layers) for ending in self._endings(layer)]
        return [[p for name, p in self.named_parameters() if name.endswith(end)] for end in endings]

    def _starts(self, x: Tensor, sizes: Counts, states: list[Tensor]) -> list[Tensor]:
        """The states before the first step, of all layers and directions: h, and c of an LSTM."""
        if not sizes:
            raise ShapeError(f"{self.kind}: x has no step  (x {x.shape})")
        count, N = self.num_layers * (1 + self.bidirectional), sizes[0]
        widths = (self.proj_size or self.hidden_size, self.hidden_size)[: 2 if self.kind == "LSTM" else 1]
        shapes = [(count, N, width) for width in widths]
        if not states:
            return [Tensor(x.device.zeros(shape, as_float32(x).dtype)) for shape in shapes]
        if [state.shape for state in states] != shapes:
            given = ", ".join(str(state.shape) for state in states)
            raise ShapeError(f"{self.kind}: the state has shape {given}; {', '.join(map(str, shapes))} is needed")
        return states

    def _direction(
        self, x: Tensor, start: tuple[Tensor, ...], ending: str, sizes: Counts
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The states at each step of one direction of a layer, and the last ones   x (.., features) -> (.., R)"""

        def turned(t: Tensor) -> Tensor:
            """Each sequence from its end to its beginning."""
            if not ending.endswith("reverse"):
                return t
            return F.flip(t, 0) if t.ndim == 3 else F.index_select(t, 0, backwards(sizes).on(t.device))

        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        weights = [getattr(self, name + ending, None) for name in names]
        y, end = steps(turned(x), start, weights, Steps(self.kind, self.relu, sizes))
        return turned(y), end

    def extra_repr(self) -> str:
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        usual |= {"proj_size": 0}
        changed = [f"{name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *changed])


class RNN(_Recurrent):
    """h = tanh(W_ih x + b_ih + W_hh h + b_hh), step by step   (T, N, input_size) -> (T, N, H), (layers, N, H)

    Args:
        num_layers: layers one after the other.
        nonlinearity: "tanh" or "relu".
        batch_first: x and y are (N, T, ..); states are not.
        dropout: its probability between layers.
        bidirectional: a second direction goes from the last step to the first one; y has both, one behind the other.
    """

    kind = "RNN"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        self.relu, self.nonlinearity = is_relu("RNN", nonlinearity), nonlinearity
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)

    def extra_repr(self) -> str:
        return super().extra_repr() + (", nonlinearity=relu" if self.relu else "")


class GRU(_Recurrent):
    """Gated recurrent units (Cho et al. 2014)   (T, N, input_size) -> (T, N, H), (layers, N, H)

    r, z = sigmoid of their gates; n = tanh(W_in x + b_in + r (W_hn h + b_hn)); h = (1 - z) n + z h.

    Args:
        num_layers, batch_first, dropout, bidirectional: as of `RNN`.
    """

    kind = "GRU"


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter & Schmidhuber 1997)   (T, N, input_size) -> (T, N, R), ((layers, N, R), c)

    i, f, o = sigmoid of their gates, g = tanh of its own; c = f c + i g; h = o tanh(c).

    Args:
        num_layers, batch_first, dropout, bidirectional: as of `RNN`.
        proj_size: if not 0, the states h are multiplied by a matrix (proj_size, hidden_size), and R is proj_size.

    Examples:
        >>> import alpha
        >>> lstm = alpha.nn.LSTM(8, 16, batch_first=True)
        >>> output, (h, c) = lstm(alpha.ones(2, 5, 8))
        >>> output.shape, h.shape
        ((2, 5, 16), (1, 2, 16))
    """

    kind = "LSTM"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
    ) -> None:
        self._make((input_size, hidden_size, num_layers, proj_size), bias, batch_first, dropout, bidirectional)


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


@traced_whole
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
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        name = type(self).__name__
        self.input_size = integer(name, "input_size", input_size, least=1)
        self.hidden_size = integer(name, "hidden_size", hidden_size, least=1)
        width, bound = GATES[self.kind] * self.hidden_size, 1 / math.sqrt(self.hidden_size)

        def made(*shape: int) -> Parameter:
            return Parameter(rng.uniform(shape, -bound, bound))

        self.weight_ih, self.weight_hh = made(width, self.input_size), made(width, self.hidden_size)
        self.bias = bias
        self.register_parameter("bias_ih", made(width) if bias else None)
        self.register_parameter("bias_hh", made(width) if bias else None)

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
