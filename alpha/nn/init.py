"""Initialisers, drawn from `alpha.core.rng`: the same values on every device, repeated by `alpha.manual_seed`.

Those with an underscore write a tensor in place and return it, with PyTorch's names, arguments and distributions; the
others take a shape and return a numpy array. Weights are channels last: (O, .., I), with the taps of a filter between.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from alpha.core import rng
from alpha.core.names.missing_names import tell_instead
from alpha.core.numerics import is_floating
from alpha.core.tensor import Tensor
from alpha.module.module import Buffer, Module

__all__ = [
    "calculate_gain",
    "constant_",
    "dirac_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "sparse_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]

Values = npt.NDArray[Any]


_CONVOLUTIONS = [f"conv{way}{rank}d" for way in ("", "_transpose") for rank in (1, 2, 3)]  # which are linear
_STEPS = 2**16  # of a table of the normal distribution, whose values are exact to float32


def gain(nonlinearity: str, slope: float = 0.0) -> float:
    """The factor that keeps the variance through a nonlinearity (He et al. 2015), as in PyTorch."""
    gains = {
        "linear": 1.0,
        "sigmoid": 1.0,
        "tanh": 5.0 / 3.0,
        "relu": math.sqrt(2.0),
        "leaky_relu": math.sqrt(2.0 / (1.0 + slope * slope)),
        "selu": 0.75,
        **dict.fromkeys(_CONVOLUTIONS, 1.0),
    }
    if nonlinearity not in gains:
        raise ValueError(f"gain: {nonlinearity!r} is not one of {', '.join(gains)}")
    return gains[nonlinearity]


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """(fan in, fan out) of a weight (O, ..., I): the products with and without the leading axis."""
    if isinstance(shape, Tensor):
        raise TypeError(
            "a shape is needed, not a tensor; initialisers that write a tensor end in _, as kaiming_normal_"
        )
    if len(shape) < 2:
        raise ValueError(f"fans: a weight has at least 2 axes, not {shape}")
    taps = math.prod(shape[1:-1])
    return taps * shape[-1], taps * shape[0]


def kaiming_uniform(shape: tuple[int, ...], slope: float = math.sqrt(5.0), nonlinearity: str = "leaky_relu") -> Values:
    """U(-b, b) with b = gain sqrt(3 / fan_in); by default 1 / sqrt(fan_in), as PyTorch's layers."""
    bound = gain(nonlinearity, slope) * math.sqrt(3.0 / fans(shape)[0])
    return rng.uniform(shape, -bound, bound)


def kaiming_normal(shape: tuple[int, ...], slope: float = 0.0, nonlinearity: str = "leaky_relu") -> Values:
    """N(0, std) with std = gain / sqrt(fan_in)."""
    return rng.normal(shape, 0.0, gain(nonlinearity, slope) / math.sqrt(fans(shape)[0]))


def xavier_uniform(shape: tuple[int, ...], gain: float = 1.0) -> Values:
    """U(-b, b) with b = gain sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010)."""
    bound = gain * math.sqrt(6.0 / sum(fans(shape)))
    return rng.uniform(shape, -bound, bound)


def xavier_normal(shape: tuple[int, ...], gain: float = 1.0) -> Values:
    """N(0, std) with std = gain sqrt(2 / (fan_in + fan_out))."""
    return rng.normal(shape, 0.0, gain * math.sqrt(2.0 / sum(fans(shape))))


def bias_uniform(shape: tuple[int, ...], fan_in: int) -> Values:
    """U(-b, b) with b = 1 / sqrt(fan_in), as PyTorch's layers draw a bias."""
    bound = 1.0 / math.sqrt(fan_in) if fan_in else 0.0
    return rng.uniform(shape, -bound, bound)


def zeros(shape: tuple[int, ...]) -> Values:
    """Zeros of float32."""
    return np.zeros(shape, np.float32)


def ones(shape: tuple[int, ...]) -> Values:
    """Ones of float32."""
    return np.ones(shape, np.float32)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """`gain`, as PyTorch calls it; `param` is the slope of "leaky_relu", by default 0.01."""
    return gain(nonlinearity, 0.01 if param is None else param)


# -- in place -------------------------------------------------------------------------------------


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """U(a, b)"""
    return _write("uniform_", tensor, lambda: rng.uniform(tensor.shape, a, b))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """N(mean, std)"""
    return _write("normal_", tensor, lambda: rng.normal(tensor.shape, mean, std))


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Tensor:
    """N(mean, std) within [a, b]; what is outside of them is never drawn."""
    if not (a < b and std > 0):
        raise ValueError(f"trunc_normal_: a={a} is not below b={b}, or std={std} is not above 0")

    def draw() -> Values:
        low, high = (a - mean) / std, (b - mean) / std
        sign = -1.0 if low + high > 0 else 1.0  # the side on which the distribution function keeps its digits
        low, high = (-high, -low) if sign < 0 else (low, high)
        high = min(high, 9.0)
        steps = np.linspace(max(low, high - 18.0), high, _STEPS + 1)
        shares = np.array([math.erfc(-z * math.sqrt(0.5)) for z in steps])
        unit = rng.uniform(tensor.shape).astype(np.float64) + 2.0**-25  # never an end, which may be far away
        values = sign * np.interp(shares[0] + unit * (shares[-1] - shares[0]), shares, steps)
        return np.asarray(np.clip(mean + std * values, a, b))

    return _write("trunc_normal_", tensor, draw)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """The number `val` everywhere, in a tensor of any dtype."""
    return _write("constant_", tensor, lambda: np.full(tensor.shape, val), floating=False)


def ones_(tensor: Tensor) -> Tensor:
    """Ones, in a tensor of any dtype."""
    return _write("ones_", tensor, lambda: ones(tensor.shape), floating=False)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros, in a tensor of any dtype."""
    return _write("zeros_", tensor, lambda: zeros(tensor.shape), floating=False)


def eye_(tensor: Tensor) -> Tensor:
    """The identity, of a tensor of two axes."""
    _check_axes("eye_", tensor, (2,))
    return _write("eye_", tensor, lambda: np.eye(tensor.shape[0], tensor.shape[1]), floating=False)


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Filters (O, .., I) of which each hands on one channel, as many of each group as there are."""
    _check_axes("dirac_", tensor, (3, 4, 5))
    if tensor.shape[0] % groups:
        raise ValueError(f"dirac_: {tensor.shape[0]} filters do not divide into groups={groups}")
    each = tensor.shape[0] // groups
    values = zeros(tensor.shape)
    for channel in range(min(each, tensor.shape[-1])):
        place: tuple[Any, ...] = (slice(channel, None, each), *(taps // 2 for taps in tensor.shape[1:-1]), channel)
        values[place] = 1
    return _write("dirac_", tensor, lambda: values)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """U(-b, b) with b = gain sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010)."""
    _fans("xavier_uniform_", tensor)
    return _write("xavier_uniform_", tensor, lambda: xavier_uniform(tensor.shape, gain))


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """N(0, std) with std = gain sqrt(2 / (fan_in + fan_out))."""
    _fans("xavier_normal_", tensor)
    return _write("xavier_normal_", tensor, lambda: xavier_normal(tensor.shape, gain))


def kaiming_uniform_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """U(-b, b) with b = gain sqrt(3 / fan) (He et al. 2015); arguments as of `kaiming_normal_`."""
    fan, factor = _fan("kaiming_uniform_", tensor, mode), gain(nonlinearity, a)

    def draw() -> Values:
        bound = factor * math.sqrt(3.0 / fan)
        return rng.uniform(tensor.shape, -bound, bound)

    return _write("kaiming_uniform_", tensor, draw)


def kaiming_normal_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """N(0, std) with std = gain / sqrt(fan) (He et al. 2015).

    Args:
        a: the slope of "leaky_relu".
        mode: "fan_in" keeps the variance forward, "fan_out" backward; see `fans`.
        nonlinearity: what follows the layer; see `gain`.

    Examples:
        >>> import alpha
        >>> layer = alpha.nn.Linear(4, 2)
        >>> alpha.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu").shape
        (2, 4)
    """
    fan, factor = _fan("kaiming_normal_", tensor, mode), gain(nonlinearity, a)
    return _write("kaiming_normal_", tensor, lambda: rng.normal(tensor.shape, 0.0, factor / math.sqrt(fan)))


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """`gain` times rows or columns that are orthogonal to each other; the rows are the first axis, all others one."""
    _fans("orthogonal_", tensor)
    rows = tensor.shape[0]

    def draw() -> Values:
        values = rng.normal((rows, tensor.size // rows)).astype(np.float64)
        wide = values.shape[0] < values.shape[1]
        q, r = np.linalg.qr(values.T if wide else values)
        q = q * np.where(np.diag(r) < 0, -1.0, 1.0)  # so that each such matrix is as likely
        return gain * (q.T if wide else q).reshape(tensor.shape)

    return _write("orthogonal_", tensor, draw)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01) -> Tensor:
    """N(0, std) with the share `sparsity` of each column at 0, of a tensor of two axes (Martens 2010)."""
    _check_axes("sparse_", tensor, (2,))

    def draw() -> Values:
        order = np.argsort(rng.uniform(tensor.shape), axis=0, kind="stable")
        values = rng.normal(tensor.shape, 0.0, std)
        np.put_along_axis(values, order[: math.ceil(sparsity * tensor.shape[0])], 0.0, axis=0)
        return values

    return _write("sparse_", tensor, draw)


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """`fans` of a tensor, under the name that layers of PyTorch's programs use."""
    return _fans("_calculate_fan_in_and_fan_out", tensor)


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    """The fan in or the fan out of a tensor, as PyTorch's; mode is "fan_in" or "fan_out", also in capitals."""
    return _fan("_calculate_correct_fan", tensor, mode.lower())


def _fan(name: str, tensor: Tensor, mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"{name}: mode={mode!r} is not one of 'fan_in', 'fan_out'")
    return _fans(name, tensor)[mode == "fan_out"]


def _fans(name: str, tensor: Tensor) -> tuple[int, int]:
    _check_tensor(name, tensor)
    return fans(tensor.shape)


def _check_tensor(name: str, tensor: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: a {type(tensor).__name__} is not a tensor of Alpha")


def _check_axes(name: str, tensor: Tensor, counts: tuple[int, ...]) -> None:
    _check_tensor(name, tensor)
    if len(tensor.shape) not in counts:
        raise ValueError(f"{name}: the tensor has {len(tensor.shape)} axes {tensor.shape}, not one of {counts}")


def _write(name: str, tensor: Tensor, draw: Callable[[], Values], floating: bool = True) -> Tensor:
    """Write values into the memory of a tensor; nothing is drawn for one without elements."""
    _check_tensor(name, tensor)
    if floating and not is_floating(tensor.dtype):
        raise TypeError(f"{name}: the tensor is {tensor.dtype.name}, a floating one is needed")
    if tensor.size:
        values = np.asarray(draw(), tensor.dtype, order="C")
        if isinstance(tensor.array, np.ndarray):
            np.copyto(tensor.array, values)
        else:
            tensor.array.device.copy_into(tensor.array, tensor.array.device.upload(values))
        tensor._version.bump(f"nn.init.{name}")
    return tensor


tell_instead(__name__)


def reset_uniform(fan: int, *tensors: Tensor | None) -> None:
    """Draw tensors from U(-b, b) with b = 1 / sqrt(fan)."""
    bound = 1 / math.sqrt(fan) if fan else 0.0
    for tensor in tensors:
        if tensor is not None:
            uniform_(tensor, -bound, bound)


def reset_table(weight: Tensor, padding_idx: int | None) -> None:
    """Draw a table from N(0, 1), and let its padding row be 0."""
    normal_(weight)
    if padding_idx is not None:
        zeros_(weight.data[padding_idx])


class Resets(Module):
    """A normalisation: its weight and running variance are 1 at first, its bias and running mean 0."""

    def _hold(self, name: str, buffer: Buffer | None) -> None:
        """Keep a buffer, or None, in whose place a Tensor that is assigned later becomes one."""
        setattr(self, name, buffer)
        if buffer is None:
            self._await(name, persistent=True)

    def reset_running_stats(self) -> None:
        """Forget the running statistics, if there are any and the layer tracks them."""
        if not getattr(self, "track_running_stats", True):
            return
        for name, write in (("mean", zeros_), ("var", ones_)):
            if (found := getattr(self, f"running_{name}", None)) is not None:
                write(found)
        if (count := getattr(self, "num_batches_tracked", None)) is not None:
            count.zero_()

    def reset_parameters(self) -> None:
        """Let weight, bias and running statistics be what they were at first."""
        self.reset_running_stats()
        if not (getattr(self, "affine", True) and getattr(self, "elementwise_affine", True)):
            return
        for name, write in (("weight", ones_), ("bias", zeros_)):
            if (found := getattr(self, name, None)) is not None:
                write(found)
