"""Muon: descent along the orthogonalized momentum of matrices."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, InitVar
from typing import Any, ClassVar, NamedTuple

import numpy as np

from alpha.core.numerics import FLOAT32, get_precision
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor
from alpha.ops.kernel.casts import CUDA_TYPES, DType, product_type, require_float32
from alpha.ops.kernel.elementwise import elementwise
from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Plan, ScalarArg
from alpha.ops.kernel.tables.chunk_tables import Addresses, count_chunks, table_writer
from alpha.ops.kernel.tables.deferred import make
from alpha.ops.matmul.matmul import matmul_batch
from alpha.optim.hyper import flag, hyper, hyper_parameters, natural, number, several, whole
from alpha.optim.optimizer import Group, Optimizer, Parameters, gradients
from alpha.runtime.cpu import empty as cpu_empty
from alpha.runtime.recording import StepValue

__all__ = ["Muon"]

RATIOS: dict[str | None, Callable[[int, int], float]] = {
    "original": lambda rows, columns: math.sqrt(max(1, rows / columns)),
    "match_rms_adamw": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
}
RATIOS[None] = RATIOS["original"]


coefficients = several(3, number)  # three finite numbers


def iterations(value: Any) -> int:
    """A whole number below 100."""
    checked = whole(value)
    if checked >= 100:
        raise ValueError("is not below 100")
    return checked


def ratio_name(value: Any) -> str | None:
    """None or the name of a way to adjust the learning rate."""
    if not isinstance(value, (str, type(None))) or value not in RATIOS:
        raise ValueError("is not None, 'original' or 'match_rms_adamw'")
    return value


def _weighted_cpu(y: Array, a: Array, b: Array, p: float, q: float) -> None:
    t = y.dtype.type
    np.copyto(y, t(p) * a + t(q) * b)


weighted_sum = elementwise("weighted_sum", "p * a + q * b", _weighted_cpu, 2)

SMALL = 1 << 20  # elements of a matrix whose products take less time than their launches
MOST = 1 << 22  # elements of a stack of small matrices, with the zeros beside them


class MuonNumbers(NamedTuple):
    """The numbers of a step that change from step to step."""

    rate: float
    shrink: float


def matrix_shape(array: Array) -> tuple[int, int]:
    """(rows, columns) of a parameter as a matrix: a row is a filter."""
    return array.shape[0], math.prod(array.shape[1:])


def stacks(shapes: list[tuple[int, int]], together: bool) -> list[list[int]]:
    """Numbers of the matrices of each stack; small ones, all wide or all tall, share one if `together`."""
    found: list[list[int]] = []
    shared: dict[bool, list[int]] = {}
    for one in sorted(range(len(shapes)), key=lambda i: math.prod(shapes[i]), reverse=True):
        tall = shapes[one][0] > shapes[one][1]
        joined = [*shared.get(tall, ()), one]
        M, N = (max(lengths) for lengths in zip(*(shapes[i] for i in joined), strict=True))
        if together and len(joined) > 1 and M * N <= SMALL and len(joined) * M * N <= MOST:
            shared[tall].append(one)
        else:
            shared[tall] = [one]
            found.append(shared[tall])
    return found


@primitive
def muon_stack(
    velocities: list[Array],
    gradients: list[Array],
    shape: tuple[int, int],
    p: float,
    q: float,
    eps: float,
    dtype: DType,
) -> Array:
    """X_i = V_i / max(norm(V_i), eps), V_i = p v_i + q g_i as a matrix, with zeros beside it   -> X (D, *shape)"""


@primitive
def muon_update(
    parameters: list[Array],
    gradients: list[Array],
    velocities: list[Array],
    X: Array,
    ratios: list[float],
    momentum: float,
    fixed_norm: bool,
    numbers: StepValue[MuonNumbers],
) -> None:
    """W = shrink W - rate ratio X_i;  v = momentum v + (1 - momentum) g, in place   X (D, M, N)

    X_i is what `muon_stack` has for a matrix, orthogonalized. With `fixed_norm` a W that is not 0 first gets the norm
    sqrt(rows). Inside of `deferred` the changes wait.
    """


@muon_stack.impl("cpu")
@np.errstate(all="ignore")
def _(
    velocities: list[Array],
    gradients: list[Array],
    shape: tuple[int, int],
    p: float,
    q: float,
    eps: float,
    dtype: DType,
) -> Array:
    X = cpu_empty((len(velocities), *shape), dtype)
    X.fill(0)
    for x, v, g in zip(X, velocities, gradients, strict=True):
        t, (rows, columns) = v.dtype.type, matrix_shape(v)
        direction = (t(p) * v + t(q) * g).reshape(rows, columns)
        x[:rows, :columns] = direction / max(_norm(direction), t(eps))
    return X


def _norm(x: Array) -> Any:
    return np.sqrt(np.sum(np.square(x, dtype=np.float64))).astype(x.dtype)


@muon_update.impl("cpu")
def _(
    parameters: list[Array],
    gradients: list[Array],
    velocities: list[Array],
    X: Array,
    ratios: list[float],
    momentum: float,
    fixed_norm: bool,
    numbers: StepValue[MuonNumbers],
) -> None:
    now = numbers.now()

    @np.errstate(all="ignore")
    def update() -> None:
        for w, g, v, x, ratio in zip(parameters, gradients, velocities, X, ratios, strict=True):
            t, (rows, columns) = w.dtype.type, matrix_shape(w)
            norm = _norm(w) if fixed_norm else 0
            if norm > 0:
                w *= t(math.sqrt(rows)) / norm
            w *= t(now.shrink)
            w -= t(now.rate * ratio) * x[:rows, :columns].reshape(w.shape)
            v *= t(momentum)
            v += t(1 - momentum) * g

    make(update)


@muon_stack.impl("cuda")
def _(
    velocities: list[Array],
    gradients: list[Array],
    shape: tuple[int, int],
    p: float,
    q: float,
    eps: float,
    dtype: DType,
) -> Array:
    device = velocities[0].device
    whole_stack = all(matrix_shape(v) == shape for v in velocities)
    X = (device.empty if whole_stack else device.zeros)((len(velocities), *shape), dtype)
    table, chunks = _table(velocities, velocities, gradients, X, [1.0] * len(velocities))
    operands = {"table": table(), "parts": device.empty((chunks,), np.dtype(np.float64))}
    _plan(chunks, dtype, "norms", "stack").launch(
        device, {**operands, "p": np.float32(p), "q": np.float32(q), "least": np.float64(eps)}
    )
    return X


@muon_update.impl("cuda")
def _(
    parameters: list[Array],
    gradients: list[Array],
    velocities: list[Array],
    X: Array,
    ratios: list[float],
    momentum: float,
    fixed_norm: bool,
    numbers: StepValue[MuonNumbers],
) -> None:
    device = X.device
    table, chunks = _table(parameters, velocities, gradients, X, ratios)
    packed, address = device.step_value(numbers, lambda now: np.array(tuple(now), RULE)[()])
    plan = _plan(chunks, X.dtype, *(["norms of W"] if fixed_norm else []), "muon")
    plan.prepare(device)
    operands = {"momentum": np.float32(momentum), "gain": np.float32(1 - momentum), "rule": packed, "address": address}
    if fixed_norm:
        operands["parts"] = device.empty((chunks,), np.dtype(np.float64))
    held = parameters, velocities, gradients, X  # live until then: the table has only their addresses

    def launch(_: Any = held) -> None:
        plan.launch(device, {"table": table(), **operands})

    make(launch)


RULE = np.dtype([(name, FLOAT32) for name in MuonNumbers._fields], align=True)  # the struct `Rule` of the kernel


def _table(
    parameters: list[Array], velocities: list[Array], gradients: list[Array], X: Array, ratios: list[float]
) -> tuple[Callable[[], Array], int]:
    """Function that gives the table of cuda/optimizer/muon.cu, and the number of its rows."""
    require_float32("Muon", *parameters, *velocities, *gradients)
    device, (_, M, N) = X.device, X.shape
    shapes, sizes = [*map(matrix_shape, parameters)], tuple([w.size for w in parameters])
    chunks = [count_chunks((size,)) for size in sizes]
    columns: Iterable[Iterable[int]] = (
        *([array.address for array in arrays] for arrays in (parameters, velocities, gradients)),
        [X.address + i * M * N * X.dtype.itemsize for i in range(len(sizes))],
        *zip(*shapes, strict=True),
        [N] * len(sizes),
        [sum(chunks[:i]) for i in range(len(sizes))],
        chunks,
        np.array(ratios, np.float64).view(np.int64).tolist(),
    )
    addresses: Addresses = tuple([tuple(column) for column in columns])
    used = [*parameters, *velocities, *gradients, X]
    return table_writer(device, addresses, sizes, used), sum(chunks)


@functools.lru_cache(maxsize=256)
def _plan(chunks: int, dtype: DType, *kernels: str) -> Plan:
    """The launches of kernels of cuda/optimizer/muon.cu, one after the other."""
    table, parts, written = ArrayArg("table"), ArrayArg("parts", True), ArrayArg("parts", True, updated=True)
    p, q = ScalarArg("p"), ScalarArg("q")
    arguments: dict[str, tuple[Any, ...]] = {
        "norms": (written, table, p, q, np.int32(0)),
        "norms of W": (written, table, np.float32(0), np.float32(0), np.int32(1)),
        "stack": (table, parts, p, q, ScalarArg("least", np.dtype(np.float64))),
        "muon": (
            *(table, parts, ScalarArg("momentum"), ScalarArg("gain")),
            *(ScalarArg("rule", RULE), ArrayArg("address", optional=True)),
        ),
    }
    macros = {"TYPE": CUDA_TYPES[dtype]}
    return Plan(
        "Muon",
        tuple(
            KernelLaunch("optimizer/muon.cu", kernel.split()[0], chunks, 256, arguments[kernel], macros)
            for kernel in kernels
        ),
        {},
    )


def orthogonalized(X: Array, coefficients: tuple[float, float, float], steps: int, precision: str) -> Array:
    """Approximate U V^T of each X = U S V^T, whose norm is at most 1, by Newton-Schulz iterations

    X (D, M, N) -> (D, M, N)

    steps times: A = X X^T;  X = a X + (b A + c A^2) X.  If M > N, X^T takes the place of X.
    """
    a, b, c = coefficients
    tall = X.shape[1] > X.shape[2]

    def product(A: Array, B: Array, transpose_a: bool = False, transpose_b: bool = False) -> Array:
        return matmul_batch(A, B, transpose_a, transpose_b, precision, X.dtype)

    for _ in range(steps):
        A = product(X, X, tall, not tall)
        B = weighted_sum(A, product(A, A), p=b, q=c)
        X = weighted_sum(X, product(X, B) if tall else product(B, X), p=a, q=1.0)
    return X


@hyper_parameters
class Muon(Optimizer):
    """Descent along the orthogonalized momentum (Jordan et al. 2024), with PyTorch's arguments in PyTorch's order.

    V = momentum V + (1 - momentum) g;  W -= lr weight_decay W + lr ratio orthogonalized(V)

    Matrices can be parameters, and filters (OC, FH, FW, IC), each of which is the matrix (OC, FH FW IC) here, as Jordan
    has it; PyTorch refuses them. Give all other parameters to another optimizer, such as AdamW. The iterations are
    computed in the precision of `alpha.set_precision`; PyTorch always computes them in bfloat16.

    Args:
        lr: learning rate.
        weight_decay: lambda of a decoupled L2 decay.
        momentum: decay of the momentum, at least 0.
        nesterov: orthogonalize momentum V + (1 - momentum) g instead of V.
        ns_coefficients: a, b and c of an iteration, X = a X + (b A + c A^2) X with A = X X^T.
        eps: the least norm by which a matrix is divided.
        ns_steps: number of iterations, below 100.
        adjust_lr_fn: the ratio of a matrix (rows, columns): sqrt(max(1, rows / columns)) for None and "original",
            0.2 sqrt(max(rows, columns)) for "match_rms_adamw".
        fixed_norm: give each matrix the norm sqrt(rows) before its update, which a normalisation behind it does not
            see; PyTorch has no such argument.

    Raises:
        ValueError: a parameter has fewer than two axes.
    """

    params: InitVar[Parameters]
    lr: InitVar[float] = hyper(1e-3, natural)
    weight_decay: InitVar[float] = hyper(0.1, natural)
    momentum: InitVar[float] = hyper(0.95, natural)
    nesterov: InitVar[bool] = hyper(True, flag)
    ns_coefficients: InitVar[tuple[float, float, float]] = hyper((3.4445, -4.775, 2.0315), coefficients)
    eps: InitVar[float] = hyper(1e-7, natural)
    ns_steps: InitVar[int] = hyper(5, iterations)
    adjust_lr_fn: InitVar[str | None] = hyper(None, ratio_name)
    _: KW_ONLY
    fixed_norm: InitVar[bool] = hyper(False, flag, added=True)

    slots: ClassVar[tuple[str, ...]] = ("velocity",)
    in_pytorch: ClassVar[Mapping[str, str] | None] = {"velocity": "momentum_buffer"}
    counts_in_pytorch: ClassVar[bool] = False
    own_settings: ClassVar[frozenset[str]] = frozenset({"fixed_norm"})

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        super().add_param_group(group)
        wrong = [p.shape for p in self.param_groups[-1]["params"] if p.ndim < 2]
        if wrong:
            self.param_groups.pop()
            raise ValueError(
                f"Muon: a parameter has shape {wrong[0]}; only matrices and filters are updated, use AdamW for others"
            )

    def _required_slots(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return self.slots

    def _update(self, group: Group, ready: list[Tensor]) -> None:
        momentum, precision, ratio = group["momentum"], get_precision(), RATIOS[group["adjust_lr_fn"]]
        # of momentum V + (1 - momentum) g, once more with nesterov
        p, q = (momentum**2, 1 - momentum**2) if group["nesterov"] else (momentum, 1 - momentum)
        velocities = self._slots("velocity", ready, group)
        work = [
            (parameter.array, g, v)
            for parameter, g, v in zip(ready, gradients(ready), velocities, strict=True)
            if parameter.size
        ]
        shapes = [matrix_shape(w) for w, _, _ in work]
        on_cuda = bool(work) and not isinstance(work[0][0], np.ndarray)
        numbers = StepValue(lambda: MuonNumbers(group["lr"], 1 - group["lr"] * group["weight_decay"]))
        # products of a batch in float32 are not as fast as those of single matrices
        for members in stacks(shapes, together=on_cuda and precision != "float32"):
            parameters, given, held = map(list, zip(*(work[i] for i in members), strict=True))
            shape = tuple(map(max, zip(*(shapes[i] for i in members), strict=True)))
            kind = parameters[0].dtype
            dtype = product_type("Muon", precision, kind, kind, on_cuda)
            X = muon_stack(held, given, shape, p, q, group["eps"], dtype)
            X = orthogonalized(X, group["ns_coefficients"], group["ns_steps"], precision)
            ratios = [ratio(*shapes[i]) for i in members]
            muon_update(parameters, given, held, X, ratios, momentum, group["fixed_norm"], numbers)
