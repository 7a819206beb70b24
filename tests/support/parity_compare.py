"""One sample of PyTorch's through Alpha: arguments over, call, result, gradients and written arguments compared.

A sample is right, wrong, or refused. Refused is an error that Alpha raises on purpose: TypeError, ValueError,
IndexError or an AlphaError, from a `raise` in Alpha or because a signature does not take the arguments. Any other
exception is wrong.
"""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import alpha
import alpha.nn.functional as F
from alpha import Tensor

ALPHA = str(Path(alpha.__file__).parent)
OFFERED = {"float32", "float64", "bfloat16", "int32", "int64", "uint8", "bool"}
# the gradient at NaN is dY in PyTorch's scalar loops and on its GPUs, but NaN or 0 in its vector loops of the cpu
SCALAR_LOOPS = ("elu", "selu", "celu", "hardtanh", "relu6", "hardswish", "hardshrink", "softshrink")
# the gradient of PyTorch goes through logarithms, whose differences lose digits: by which factor a rounding is larger
COARSE_GRADIENTS = {"logcumsumexp": 2.0**13, "cov": 2.0**8}
FLOAT_NUMBERS = ("hardsigmoid",)  # PyTorch has a number of it in float32 also for float64
# what Python itself says of a call that does not fit: a signature, and the two operands of a sign
SIGNATURE = re.compile(
    r"^([\w.<>]+)\(\) (got an unexpected keyword|got multiple values|missing|takes)|^(\w+)\(\) takes no arguments"
)
OPERANDS = re.compile(r"^unsupported operand|not supported between")


@dataclass
class Tally:
    """Outcome of the samples of one operator, layer or optimizer."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: str, message: str) -> None:
        if outcome == "right":
            self.right += 1
        elif outcome == "refused":
            self.refused[message] += 1
        else:
            self.wrong.append(message)


class Refused(Exception):
    """Alpha said no, with a reason."""


class Wrong(Exception):
    """Alpha's answer is another one, or it broke."""


class Unanswered(Exception):
    """PyTorch has no answer on the cpu, so there is nothing to compare."""


# -- layout: PyTorch's axes to Alpha's -------------------------------------------------------------------------------

# besides the names that end in 1d, 2d or 3d: operators of images whose channels are PyTorch's axis 1
OF_IMAGES = (
    "batch_norm",
    "instance_norm",
    "group_norm",
    "local_response_norm",
    "interpolate",
    "upsample_nearest",
    "upsample_bilinear",
    "channel_shuffle",
    "prelu",
    "grid_sample",
)
DEEP = ("transformer", "rnn", "gru", "lstm")
OF_LAST_THREE = ("pixel_shuffle", "pixel_unshuffle")  # (.., C, H, W)
OF_CLASSES = ("cross_entropy", "nll_loss")

Order = tuple[int, ...] | None  # a transposition, or None


@dataclass(frozen=True)
class Layout:
    """Layout of the channels of an operator's tensors; all orders are for PyTorch -> Alpha."""

    key: str

    @property
    def depth(self) -> int:
        """A factor of the length of sums: roundings grow through layers that follow each other, and their norms."""
        return 100 if self.key.startswith(DEEP) else 1

    @property
    def _axes(self) -> int | None:
        """The number of the axes of an image: 2 for conv2d."""
        match = re.search(r"(\d)d$", self.key)
        return int(match[1]) if match else None

    def of_image(self, ndim: int) -> Order:
        if self.key in OF_LAST_THREE:
            return (*range(ndim - 3), ndim - 2, ndim - 1, ndim - 3) if ndim >= 3 else None
        axes = self._axes
        if axes is None and self.key not in OF_IMAGES:
            return None
        if axes == ndim - 1:  # one image without a batch
            return (*range(1, ndim), 0)
        return (0, *range(2, ndim), 1) if ndim > 2 else None

    def of_argument(self, place: int | str, tensor: torch.Tensor, first: torch.Tensor | None) -> Order:
        ndim = tensor.ndim
        if place in (0, "input"):
            if self.key in OF_CLASSES:
                return (0, *range(2, ndim), 1) if ndim > 2 else None
            return self.of_image(ndim)
        if "unpool" in self.key and place in (1, "indices"):
            return self.of_image(ndim)
        if self.key.startswith("conv") and place in (1, "weight") and ndim > 2:
            return (0, *range(2, ndim), 1)
        if self.key in OF_CLASSES and place in (1, "target") and first is not None and tensor.ndim == first.ndim > 2:
            return (0, *range(2, ndim), 1)  # probabilities of classes
        return None


def to_numpy(value: torch.Tensor) -> np.ndarray:
    value = value.detach()
    if value.dtype == torch.bfloat16:
        return value.float().numpy()
    return np.ascontiguousarray(value.resolve_conj().numpy(force=True)).reshape(tuple(value.shape))


def forth(array: np.ndarray, order: Order) -> np.ndarray:
    return array if order is None else np.ascontiguousarray(array.transpose(order))


def back(array: np.ndarray, order: Order) -> np.ndarray:
    return array if order is None else array.transpose(np.argsort(order))


# -- arguments -------------------------------------------------------------------------------------------------------


@dataclass
class Pair:
    """A tensor of a sample on both sides."""

    theirs: torch.Tensor
    ours: Tensor
    order: Order


class Arguments:
    """Copies of a sample's arguments for both sides.

    Attributes:
        theirs, ours: (args, kwargs), the input first.
        pairs: every tensor among them.
    """

    def __init__(self, values: tuple[Any, ...], keywords: dict[str, Any], layout: Layout, device: str) -> None:
        self.layout, self.device = layout, device
        self.pairs: list[Pair] = []
        self.first = values[0] if values and isinstance(values[0], torch.Tensor) else None
        both = [self._both(value, place) for place, value in enumerate(values)]
        named = {name: self._both(value, name) for name, value in keywords.items()}
        self.theirs = tuple(pair[0] for pair in both), {name: pair[0] for name, pair in named.items()}
        self.ours = tuple(pair[1] for pair in both), {name: pair[1] for name, pair in named.items()}

    def _both(self, value: Any, place: int | str) -> tuple[Any, Any]:
        if isinstance(value, torch.Tensor):
            theirs = value.detach().clone()
            if self.layout.key in SCALAR_LOOPS:
                theirs = apart(theirs)
            theirs.requires_grad_(value.requires_grad)
            order = self.layout.of_argument(place, value, self.first)
            ours = tensor(value, order, self.device)
            self.pairs.append(Pair(theirs, ours, order))
            return theirs, ours
        if isinstance(value, torch.dtype):
            return value, dtype_name(value)
        if isinstance(value, torch.device) or place == "device":
            return value, self.device
        if isinstance(value, torch.nn.TransformerEncoderLayer):
            return value, encoder_layer(value)
        if callable(value) and hasattr(F, getattr(value, "__name__", "")):
            return value, getattr(F, value.__name__)
        if isinstance(value, torch.Size):
            return value, tuple(value)
        if isinstance(value, (list, tuple)):
            parts = [self._both(part, f"{place}, part") for part in value]
            return tuple(type(value)(part[side] for part in parts) for side in (0, 1))  # type: ignore[return-value]
        return value, value


def encoder_layer(value: torch.nn.TransformerEncoderLayer) -> alpha.nn.TransformerEncoderLayer:
    """Alpha's layer with the same arguments; its weights come later."""
    return alpha.nn.TransformerEncoderLayer(
        value.linear1.in_features,
        value.self_attn.num_heads,
        value.linear1.out_features,
        value.dropout.p,
        getattr(F, value.activation.__name__),
        value.norm1.eps,
        value.self_attn.batch_first,
        value.norm_first,
        value.linear1.bias is not None,
    )


def apart(value: torch.Tensor) -> torch.Tensor:
    """The same numbers with gaps between them in memory, so that vector loops do not take them."""
    return torch.stack([value, value], -1)[..., 0]


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def tensor(value: torch.Tensor, order: Order, device: str) -> Tensor:
    name = dtype_name(value.dtype)
    if name not in OFFERED:
        raise Refused(f"there is no dtype {name}")
    if value.ndim > 64:
        raise Refused("an array of numpy has at most 64 axes")
    return alpha.tensor(forth(to_numpy(value), order), dtype=name, device=device, requires_grad=value.requires_grad)


# -- calls -----------------------------------------------------------------------------------------------------------


def call_alpha(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result; `Refused` or `Wrong` for what it raises."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        raise judged(error) from error


def judged(error: Exception) -> Exception:
    """Verdict on an exception: a refusal with a message, or a breakdown."""
    name = type(error).__name__
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error)
    on_purpose = isinstance(error, (TypeError, ValueError, IndexError, alpha.AlphaError)) and bool(text)
    inside = frame.filename.startswith(ALPHA)
    raised = inside and (frame.line or "").startswith("raise")
    if on_purpose and (raised or _refused_by_python(text, inside)):
        return Refused(f"{name}: {text}")
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    return Wrong(f"broke with {name} at {place}: {text[:200]}")


def _refused_by_python(text: str, inside: bool) -> bool:
    """The user's own call does not fit; inside of Alpha only what a public function is called with."""
    call = SIGNATURE.match(text)
    if call is None:
        return not inside and OPERANDS.search(text) is not None
    names = (call[1] or call[3]).split(".")
    homes = (F, Tensor, alpha.nn, alpha.optim)
    return not inside or any(hasattr(home, name) for home in homes for name in names if not name.startswith("_"))


def leaves(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, (list, tuple)) else [value]


def run_torch(function: Callable[..., Any], arguments: Arguments) -> Any:
    """PyTorch's result; `Unanswered` if PyTorch breaks on its own sample."""
    args, kwargs = arguments.theirs
    try:
        return function(*args, **kwargs)
    except Exception as error:
        raise Unanswered(str(error)) from error


# -- comparison ------------------------------------------------------------------------------------------------------


def check_array(
    what: str, ours: np.ndarray, theirs: torch.Tensor, order: Order, length: int, least: float = 0.0
) -> None:
    """Shape, dtype and values; a sum of `length` rounded terms walks like the root of it.

    `least`: a rounding is at least as large.
    """
    name = dtype_name(theirs.dtype)
    if ours.dtype.name != name:
        raise Wrong(f"{what}: dtype {ours.dtype.name}, PyTorch's {name}")
    exact = forth(to_numpy(theirs), order)
    if tuple(ours.shape) != tuple(exact.shape):
        raise Wrong(f"{what}: shape {tuple(ours.shape)}, PyTorch's {tuple(exact.shape)}")
    if exact.dtype.kind in "iub":
        if not np.array_equal(ours, exact):
            raise Wrong(f"{what}: {_excerpt(ours)}, PyTorch's {_excerpt(exact)}")
        return
    ours, exact = ours.astype(np.float64), exact.astype(np.float64)
    eps = max(least, 2.0**-8 if name == "bfloat16" else float(np.finfo(name).eps))
    finite = np.isfinite(exact)
    # 16 and 4: a few roundings in each term on both sides, and the walk of the sums, at four standard deviations
    tolerance = eps * (16 + 4 * length**0.5)
    scale = max(1.0, float(np.abs(exact[finite]).max(initial=0.0)))
    if not np.array_equal(ours[~finite], exact[~finite], equal_nan=True):
        raise Wrong(f"{what}: {_excerpt(ours)}, PyTorch's {_excerpt(exact)}")
    error = np.abs(ours[finite] - exact[finite])
    if not np.all(error <= tolerance * scale):
        worst = float(error.max()) if np.isfinite(error).all() else float("nan")
        raise Wrong(f"{what}: off by {worst:.3g} at scale {scale:.3g}: {_excerpt(ours)}, PyTorch's {_excerpt(exact)}")


def _excerpt(array: np.ndarray) -> str:
    return np.array2string(array.reshape(-1)[:6], precision=6, threshold=8) + ("" if array.size <= 6 else " ..")


def length_of(pairs: list[Pair], result: Any) -> int:
    """No sum of the operator is longer than its largest tensor."""
    sizes = [pair.theirs.numel() for pair in pairs] + [
        leaf.numel() for leaf in leaves(result) if isinstance(leaf, torch.Tensor)
    ]
    return max(sizes, default=1)


def check_result(arguments: Arguments, ours: Any, theirs: Any, order: Order) -> None:
    """The result, each gradient, and what the call wrote into its arguments."""
    length = arguments.layout.depth * length_of(arguments.pairs, theirs)
    mine, others = leaves(ours), leaves(theirs)
    if len(mine) != len(others):
        raise Wrong(f"{len(mine)} results, PyTorch's are {len(others)}")
    seeds: list[tuple[Tensor, torch.Tensor, np.ndarray]] = []
    for a, b in zip(mine, others, strict=True):
        if not isinstance(b, torch.Tensor):
            if isinstance(a, Tensor) or not (a == b or (a != a and b != b)):
                raise Wrong(f"result {a!r}, PyTorch's {b!r}")
            continue
        if not isinstance(a, Tensor):
            raise Wrong(f"the result is a {type(a).__name__}, PyTorch's a tensor")
        if a.device.name != arguments.device:
            raise Wrong(f"the result is on {a.device.name}")
        kept = order if order is not None and len(order) == b.ndim else None
        check_array("result", a.numpy(), b, kept, length)
        if a.requires_grad != b.requires_grad:
            raise Wrong(f"the result's requires_grad is {a.requires_grad}, PyTorch's {b.requires_grad}")
        if b.requires_grad:
            seed = np.random.default_rng(7).standard_normal(tuple(b.shape))
            seeds.append((a, b, forth(np.asarray(seed), kept)))
            try:
                b.backward(torch.tensor(seed, dtype=b.dtype), retain_graph=True)
            except RuntimeError as error:  # as for a bound of clamp that broadcasts
                raise Unanswered(str(error)) from error
    for a, b, seed in seeds:
        g = alpha.tensor(seed, dtype=dtype_name(b.dtype), device=arguments.device)
        try:
            call_alpha(a.backward, g, retain_graph=len(seeds) > 1)
        except Refused as refusal:  # the forward pass was to refuse what has no gradient
            raise Wrong(f"backward broke with {refusal}") from refusal
    check_gradients(arguments.pairs, length, least=least_rounding(arguments))


def least_rounding(arguments: Arguments) -> float:
    """A rounding of PyTorch's gradients if it is larger than that of their dtype."""
    key, dtypes = arguments.layout.key, {pair.theirs.dtype for pair in arguments.pairs}
    if key in FLOAT_NUMBERS:
        return 2.0**-24
    if key in COARSE_GRADIENTS and arguments.pairs[0].theirs.is_floating_point():
        return COARSE_GRADIENTS[key] * float(np.finfo(dtype_name(arguments.pairs[0].theirs.dtype)).eps)
    return 2.0**-8 if torch.bfloat16 in dtypes and len(dtypes) > 1 else 0.0


def check_gradients(pairs: list[Pair], length: int, names: list[str] | None = None, least: float = 0.0) -> None:
    """Gradients of all leaves, and their values now, which a call may have written."""
    for i, pair in enumerate(pairs):
        what = names[i] if names else f"argument {i}"
        if pair.theirs.is_leaf:
            a, b = pair.ours.grad, pair.theirs.grad
            if (a is None) != (b is None):
                raise Wrong(f"gradient of {what}: {'missing' if a is None else 'one that PyTorch does not have'}")
            if a is not None and b is not None:
                check_array(f"gradient of {what}", a.numpy(), b, pair.order, length, least)
        check_array(f"{what} afterwards", pair.ours.numpy(), pair.theirs, pair.order, length)
