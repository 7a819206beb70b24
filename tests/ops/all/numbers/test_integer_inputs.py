"""Integers and bools in every function, every method of Tensor and every operator: refused, or the numbers of float64.

A method of Tensor has its call here, in the table UNARY; functions have those of the rows in tests/rows/.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from rows.calls import CALLS, MATRIX, array, call, given, put
from rows.kinds import each
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha import AlphaError, Tensor
from alpha.ops.math import unary

DTYPES = ("int32", "int64", "uint8", "bool")
CASTING = sorted(  # softmin refuses them: it would negate them before the cast, as PyTorch does
    name for name in F.__all__ if "dtype" in inspect.signature(getattr(F, name)).parameters and name != "softmin"
)


@pytest.mark.parametrize("name", CASTING)
def test_integers_are_taken_where_dtype_casts_them(name: str) -> None:
    function, x = getattr(F, name), alpha.tensor([[3, 1, 2], [4, 6, 5]])
    dim = inspect.signature(function).parameters["dim"]
    options = {"dim": 1} if dim.default in (inspect.Parameter.empty, None) else {}
    wanted = function(x.astype("float64"), **options)
    for result in (
        function(x, dtype="float64", **options),
        *(getattr(x, name)(dtype="float64", **options) for _ in range(hasattr(Tensor, name))),
    ):
        assert result.dtype == alpha.float64
        np.testing.assert_array_equal(result.numpy(), wanted.numpy())


def right_or_refused(ours: Callable[..., Any], *values: np.ndarray, device: str, result: Any = None) -> None:
    """`TypeError`, or the numbers that float64 arrays give, as far as uint8 and bool hold them."""
    with np.errstate(all="ignore"):
        expected = (result or ours)(*(v.astype(np.float64) for v in values))
    try:
        found = ours(*(alpha.tensor(v, device=device) for v in values))
    except TypeError as error:
        assert "dtype" in str(error) or "float32" in str(error), error  # noqa: PT017
        return
    assert isinstance(found, Tensor)
    if found.dtype == np.uint8:  # it wraps around, as PyTorch's
        expected = expected % 256
    elif found.dtype == bool:
        expected = expected != 0
    np.testing.assert_allclose(found.numpy().astype(np.float64), expected, rtol=1e-5, equal_nan=True)


# functions that take integers only, that mean something else by a quotient of integers, or whose uint8 wraps around:
# tests/ops/math/test_integers.py
OF_INTEGERS = (
    "floor_divide",
    "remainder",
    "fmod",
    "gcd",
    "lcm",
    *("neg", "negative", "diff"),
    *(name for name in CALLS if name.startswith("bitwise")),
)
OF_LABELS = ("cross_entropy", "nll_loss", "multi_margin_loss", "multilabel_margin_loss", "normalize_pixels")
CALCULATING = [name for name in CALLS if name not in (*OF_LABELS, *OF_INTEGERS) and not name.startswith("max_unpool")]


@pytest.mark.parametrize("name", CALCULATING)
def test_integers_in_functions(device: str, name: str) -> None:
    with trials() as trial:
        for dtype in DTYPES:
            with trial(dtype):
                check_integers(device, name, dtype)


def check_integers(device: str, name: str, dtype: str) -> None:
    def cast(*dtypes: str) -> dict[str, Any]:
        """The arrays in one dtype and then in the next; masks and indices stay as they are."""

        def one(array: np.ndarray) -> np.ndarray:
            for to in dtypes if array.dtype.kind == "f" else ():
                array = array.astype(to)
            return array

        return {key: each(one, values) for key, values in given(name).items()}

    arrays, floats = cast(dtype), cast(dtype, "float32")
    alpha.manual_seed(0)
    expected = call(name, put(floats, "cpu")).numpy()
    alpha.manual_seed(0)
    try:
        found = call(name, put(arrays, device)).numpy()
    except TypeError as error:
        assert "dtype" in str(error) or "float32" in str(error), error  # noqa: PT017
    else:
        np.testing.assert_allclose(found.astype(np.float64), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_integer_logits_are_refused(device: str, dtype: str) -> None:
    with pytest.raises(TypeError, match=rf"cross_entropy: .*{dtype}"):
        call("cross_entropy", put({**given("cross_entropy"), "x": MATRIX.astype(dtype)}, device))


IN_NUMPY = (
    *(name for name in unary.__all__ if hasattr(np, name)),
    *("tanh", "max", "min", "argmax", "argmin", "all", "any", "prod"),
)
COPIES = ("clone", "contiguous", "cpu", "cuda", "float", "double", "bfloat16", "int", "long")
INVERSES = ("sin", "cos", "tan", "sinh", "cosh", "tanh")


def first(x: Tensor) -> Tensor:
    """An index of x that names the first elements."""
    return alpha.zeros_like(x, dtype="int64")


STRUCTURE: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {  # on a tensor, and in numpy
    "mm": (lambda x: x.mm(x), lambda x: x @ x),
    "mv": (lambda x: x.mv(x[0]), lambda x: x @ x[0]),
    "dot": (lambda x: x[0].dot(x[1]), lambda x: x[0] @ x[1]),
    "inner": (lambda x: x.inner(x), lambda x: x @ x.T),
    "outer": (lambda x: x[1].outer(x[2]), lambda x: np.outer(x[1], x[2])),
    "addmm": (lambda x: x.addmm(x, x), lambda x: x + x @ x),
    "addmv": (lambda x: x[0].addmv(x, x[1]), lambda x: x[0] + x @ x[1]),
    "baddbmm": (lambda x: x.baddbmm(x.reshape(1, 4, 4), x.reshape(1, 4, 4)), lambda x: (x + x @ x)[None]),
    "kron": (lambda x: x.kron(x[:2]), lambda x: np.kron(x, x[:2])),
    "cross": (lambda x: x[:3].cross(x[1:], 0), lambda x: np.cross(x[:3], x[1:], axis=0)),
    "t": (lambda x: x.t(), np.transpose),
    "trace": (lambda x: x.trace(), np.trace),
    "diag": (lambda x: x.diag(1), lambda x: np.diag(x, 1)),
    "diagonal": (lambda x: x.diagonal(-1), lambda x: np.diagonal(x, -1)),
    "diag_embed": (lambda x: x[1].diag_embed(), lambda x: np.diag(x[1])),
    "broadcast_to": (lambda x: x.broadcast_to(2, 4, 4), lambda x: np.stack([x, x])),
    "expand_as": (lambda x: x[0].expand_as(x), lambda x: np.broadcast_to(x[0], (4, 4))),
    "reshape_as": (lambda x: x.reshape_as(alpha.ones(2, 8, device=x.device)), lambda x: x.reshape(2, 8)),
    "fliplr": (lambda x: x.fliplr(), np.fliplr),
    "flipud": (lambda x: x.flipud(), np.flipud),
    "moveaxis": (lambda x: x.moveaxis(0, 1), np.transpose),
    "swapdims": (lambda x: x.swapdims(0, 1), np.transpose),
    "tensor_split": (lambda x: x.tensor_split(3)[0], lambda x: x[:2]),
    "repeat_interleave": (lambda x: x.repeat_interleave(2, 1), lambda x: np.repeat(x, 2, 1)),
    "index_fill": (lambda x: x.index_fill(1, first(x)[0, :1], 1), lambda x: np.hstack([x[:, :1] * 0 + 1, x[:, 1:]])),
    "index_copy": (lambda x: x.index_copy(0, first(x)[0, :1], x[1:2]), lambda x: np.vstack([x[1:2], x[1:]])),
    "index_put": (lambda x: x.index_put((first(x)[0, :1],), x[1:2]), lambda x: np.vstack([x[1:2], x[1:]])),
    "masked_select": (lambda x: x.masked_select(x > 0), lambda x: x[x > 0]),
    "masked_scatter": (lambda x: x.masked_scatter(x != x, x), lambda x: x),
    "take": (lambda x: x.take(first(x)), lambda x: x * 0 + x[0, 0]),
    "narrow": (lambda x: x.narrow(1, 1, 2), lambda x: x[:, 1:3]),
    "select": (lambda x: x.select(1, 2), lambda x: x[:, 2]),
    "argwhere": (lambda x: x.argwhere(), np.argwhere),
    "scatter_reduce": (
        lambda x: x.scatter_reduce(0, first(x)[:1], x[2:], "amax"),
        lambda x: np.vstack([x[:1].clip(x[2:3]), x[1:]]),
    ),
    "bincount": (lambda x: x[1].bincount(minlength=5), lambda x: np.bincount(x[1].astype(int), minlength=5)),
    "histc": (lambda x: x.histc(4), lambda x: np.histogram(x, 4)[0]),
    "unique": (lambda x: x.unique(), np.unique),
    "unique_consecutive": (
        lambda x: x.unique_consecutive(),
        lambda x: x[np.insert(np.diff(x.ravel()) != 0, 0, True).reshape(4, 4)],
    ),
    "bernoulli": (lambda x: x.bernoulli(0.0), np.zeros_like),
    **{f"arc{name}": (lambda x, n=name: getattr(x, f"arc{n}")(), getattr(np, f"arc{name}")) for name in INVERSES},
    "arctan2": (lambda x: x.arctan2(x), lambda x: np.arctan2(x, x)),
    "negative": (lambda x: x.negative(), np.negative),
    "fix": (lambda x: x.fix(), np.trunc),
    "greater": (lambda x: x.greater(2), lambda x: x > 2),
    "greater_equal": (lambda x: x.greater_equal(2), lambda x: x >= 2),
    "less": (lambda x: x.less(2), lambda x: x < 2),
    "less_equal": (lambda x: x.less_equal(2), lambda x: x <= 2),
    "not_equal": (lambda x: x.not_equal(2), lambda x: x != 2),
    "ger": (lambda x: x[1].ger(x[2]), lambda x: np.outer(x[1], x[2])),
    "vdot": (lambda x: x[0].vdot(x[1]), lambda x: x[0] @ x[1]),
    "adjoint": (lambda x: x.adjoint(), np.transpose),
    "msort": (lambda x: x.msort(), lambda x: np.sort(x, 0)),
    "split_with_sizes": (lambda x: x.split_with_sizes([1, 3], 1)[1], lambda x: x[:, 1:]),
    "select_scatter": (lambda x: x.select_scatter(x[1], 0, 0), lambda x: np.vstack([x[1:2], x[1:]])),
    "slice_scatter": (lambda x: x.slice_scatter(x[1:2], end=1), lambda x: np.vstack([x[1:2], x[1:]])),
    "diagonal_scatter": (lambda x: x.diagonal_scatter(x[0]), lambda x: np.where(np.eye(4), x[0], x)),
    "narrow_copy": (lambda x: x.narrow_copy(1, 1, 2), lambda x: x[:, 1:3]),
    "diagflat": (lambda x: x.diagflat(1), lambda x: np.diagflat(x, 1)),
    "hsplit": (lambda x: x.hsplit(2)[1], lambda x: x[:, 2:]),
    "vsplit": (lambda x: x.vsplit([1])[1], lambda x: x[1:]),
    "dsplit": (lambda x: x.reshape(2, 2, 4).dsplit(2)[1], lambda x: x.reshape(2, 2, 4)[..., 2:]),
    "addr": (lambda x: x.addr(x[0], x[1]), lambda x: x + np.outer(x[0], x[1])),
    "addbmm": (lambda x: x.addbmm(x.reshape(1, 4, 4), x.reshape(1, 4, 4)), lambda x: x + x @ x),
    "matrix_power": (lambda x: x.matrix_power(3), lambda x: x @ x @ x),
    "cov": (lambda x: x.cov(), np.cov),
    "corrcoef": (lambda x: x.corrcoef(), lambda x: np.corrcoef(x).clip(-1, 1)),
    "dist": (lambda x: x.dist(x[0]), lambda x: np.sqrt(((x - x[0]) ** 2).sum())),
    "renorm": (lambda x: x.renorm(2, 0, 1e9), lambda x: x),
    "unfold": (lambda x: x.unfold(1, 3, 1), lambda x: np.stack([x[:, :3], x[:, 1:]], 1)),
    "isreal": (lambda x: x.isreal(), np.isreal),
    "sum_to_size": (lambda x: x.sum_to_size(4, 1), lambda x: x.sum(1, keepdims=True)),
    "byte": (lambda x: x.byte(), lambda x: x),
    "hardshrink": (lambda x: x.hardshrink(1), lambda x: np.where(x > 1, x, 0)),
    "prelu": (lambda x: x.prelu(x[0, :1] * 0), lambda x: x),
    "exponential_": (lambda x: x.exponential_() * 0, np.zeros_like),
    "geometric_": (lambda x: x.geometric_(0.5) * 0, np.zeros_like),
    "cauchy_": (lambda x: x.cauchy_() * 0, np.zeros_like),
    "log_normal_": (lambda x: x.log_normal_() * 0, np.zeros_like),
    "multinomial": (lambda x: x[:, :1].multinomial(1), lambda x: np.zeros((4, 1))),
}
UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {  # on a tensor, and in numpy
    "-x": (lambda x: -x, lambda x: -x),
    "x + 1": (lambda x: x + 1, lambda x: x + 1),
    "1 - x": (lambda x: 1 - x, lambda x: 1 - x),
    "x * 0.5": (lambda x: x * 0.5, lambda x: x * 0.5),
    "x / 2": (lambda x: x / 2, lambda x: x / 2),
    "2 / x": (lambda x: 2 / x, lambda x: 2 / x),
    "x ** 2": (lambda x: x**2, lambda x: x**2),
    "x ** 0.5": (lambda x: x**0.5, lambda x: x**0.5),
    "2 ** x": (lambda x: 2**x, lambda x: 2.0**x),
    "exp": (lambda x: x.exp(), np.exp),
    "log": (lambda x: x.log(), np.log),
    "sqrt": (lambda x: x.sqrt(), np.sqrt),
    "sum": (lambda x: x.sum(), np.sum),
    "mean": (lambda x: x.mean(), np.mean),
    "sum 0": (lambda x: x.sum(0), lambda x: x.sum(0)),
    "mean 1": (lambda x: x.mean(1), lambda x: x.mean(1)),
    "transpose": (lambda x: x.transpose(1, 0), np.transpose),
    "flatten": (lambda x: x.flatten(), np.ravel),
    "reshape": (lambda x: x.reshape(8, 2), lambda x: x.reshape(8, 2)),
    "permute": (lambda x: x.permute(1, 0), np.transpose),
    "swapaxes": (lambda x: x.swapaxes(1, 0), np.transpose),
    "movedim": (lambda x: x.movedim(0, 1), np.transpose),
    "squeeze": (lambda x: x.squeeze(), np.squeeze),
    "unsqueeze": (lambda x: x.unsqueeze(1), lambda x: x[:, None]),
    "expand": (lambda x: x.expand(2, 4, 4), lambda x: np.stack([x, x])),
    "repeat": (lambda x: x.repeat(2, 1), lambda x: np.tile(x, (2, 1))),
    "tile": (lambda x: x.tile(2), lambda x: np.tile(x, 2)),
    "flip": (lambda x: x.flip(0), lambda x: x[::-1]),
    "roll": (lambda x: x.roll(1, 0), lambda x: np.roll(x, 1, 0)),
    "rot90": (lambda x: x.rot90(), np.rot90),
    "split": (lambda x: x.split(3)[1], lambda x: x[3:]),
    "chunk": (lambda x: x.chunk(2, 1)[1], lambda x: x[:, 2:]),
    "unbind": (lambda x: x.unbind(1)[2], lambda x: x[:, 2]),
    **{name: (lambda x, n=name: getattr(x, n)(), lambda x, n=name: getattr(np, n)(x)) for name in IN_NUMPY},
    **{f"a{name}": (lambda x, n=name: getattr(x, f"a{n}")(), getattr(np, f"arc{name}")) for name in INVERSES},
    "trunc": (lambda x: x.trunc(), np.trunc),
    "frac": (lambda x: x.frac(), lambda x: x - np.trunc(x)),
    "erf": (lambda x: x.erf(), np.vectorize(math.erf)),
    "rsqrt": (lambda x: x.rsqrt(), lambda x: 1 / np.sqrt(x)),
    "sigmoid": (lambda x: x.sigmoid(), lambda x: 1 / (1 + np.exp(-x))),
    "relu": (lambda x: x.relu(), lambda x: np.maximum(x, 0)),
    "reciprocal": (lambda x: x.reciprocal(), lambda x: 1 / x),
    "amax": (lambda x: x.amax(1), lambda x: x.max(1)),
    "amin": (lambda x: x.amin((0, 1)), np.min),
    "max 1": (lambda x: x.max(1).values, lambda x: x.max(1)),
    "min 1": (lambda x: x.min(1).indices, lambda x: x.argmin(1)),
    "var": (lambda x: x.var(0), lambda x: x.var(0, ddof=1)),
    "std": (lambda x: x.std(correction=0), np.std),
    "norm": (lambda x: x.norm(), lambda x: np.sqrt((x * x).sum())),
    "where": (lambda x: x.where(x > 2, 7), lambda x: np.where(x > 2, x, 7)),
    "masked_fill": (lambda x: x.masked_fill(x > 2, 1), lambda x: np.where(x > 2, 1, x)),
    "clamp": (lambda x: x.clamp(1, 3), lambda x: x.clip(1, 3)),
    "clip": (lambda x: x.clip(max=2.5), lambda x: x.clip(max=2.5)),
    "maximum": (lambda x: x.maximum(x), lambda x: x),
    "minimum": (lambda x: x.minimum(x), lambda x: x),
    "sort": (lambda x: x.sort(0).values, lambda x: np.sort(x, 0)),
    "argsort": (lambda x: x.argsort(1), lambda x: np.argsort(x, 1, kind="stable")),
    "isnan": (lambda x: x.isnan(), np.isnan),
    "softmax": (lambda x: x.softmax(1), lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
    "log_softmax": (lambda x: x.log_softmax(1), lambda x: x - np.log(np.exp(x).sum(1, keepdims=True))),
    "bmm": (lambda x: x.reshape(1, 4, 4).bmm(x.reshape(1, 4, 4)), lambda x: (x @ x)[None]),
    "unflatten": (lambda x: x.unflatten(1, (2, -1)), lambda x: x.reshape(4, 2, 2)),
    "index_add": (lambda x: x.index_add(0, first(x)[0, :1], x[1:2]), lambda x: np.vstack([x[:1] + x[1:2], x[1:]])),
    "view_as": (lambda x: x.view_as(alpha.ones(2, 8)), lambda x: x.reshape(2, 8)),
    "type": (lambda x: x.type(alpha.int32), lambda x: x.astype(np.int32)),
    "type_as": (lambda x: x.type_as(alpha.ones(1)), lambda x: x),
    "pin_memory": (lambda x: x.cpu().pin_memory(), lambda x: x),
    "data": (lambda x: x.data, lambda x: x),
    "zero_": (lambda x: x.zero_(), np.zeros_like),
    "fill_": (lambda x: x.fill_(1), np.ones_like),
    "copy_": (lambda x: x.copy_(alpha.ones(4)), np.ones_like),
    "clamp_": (lambda x: x.clamp_(1, 3), lambda x: x.clip(1, 3)),
    "masked_fill_": (lambda x: x.masked_fill_(x > 2, 1), lambda x: np.where(x > 2, 1, x)),
    "neg_": (lambda x: x.neg_(), np.negative),
    "pow_": (lambda x: x.pow_(2), np.square),
    "tril_": (lambda x: x.tril_(), np.tril),
    "scatter_": (lambda x: x.scatter_(1, first(x)[:, :1], 1), lambda x: np.hstack([x[:, :1] * 0 + 1, x[:, 1:]])),
    "index_add_": (lambda x: x.index_add_(0, first(x)[0, :1], x[1:2]), lambda x: np.vstack([x[:1] + x[1:2], x[1:]])),
    "fill_diagonal_": (lambda x: x.fill_diagonal_(1), lambda x: np.where(np.eye(4), 1, x)),
    "unsqueeze_": (lambda x: x.unsqueeze_(1), lambda x: x[:, None]),
    "random_": (lambda x: x.random_(0, 1), np.zeros_like),
    "bernoulli_": (lambda x: x.bernoulli_(1), np.ones_like),
    "new_zeros": (lambda x: x.new_zeros(2), lambda x: np.zeros(2)),
    "new_ones": (lambda x: x.new_ones(2), lambda x: np.ones(2)),
    "new_full": (lambda x: x.new_full((2,), 1), lambda x: np.ones(2)),
    "new_tensor": (lambda x: x.new_tensor([1, 0]), lambda x: np.array([1, 0])),
    "new_empty": (lambda x: x.new_empty(0), lambda x: np.empty(0)),
    "normal_": (lambda x: x.normal_(), lambda x: x),
    "uniform_": (lambda x: x.uniform_(), lambda x: x),
    "topk": (lambda x: x.topk(2).values, lambda x: -np.sort(-x)[:, :2]),
    "cumsum": (lambda x: x.cumsum(1), lambda x: x.cumsum(1)),
    "cumprod": (lambda x: x.cumprod(1), lambda x: x.cumprod(1)),
    "logsumexp": (lambda x: x.logsumexp(1), lambda x: np.log(np.exp(x).sum(1))),
    "gather": (lambda x: x.gather(1, first(x)), lambda x: x[:, :1].repeat(4, 1)),
    "take_along_dim": (lambda x: x.take_along_dim(first(x), 1), lambda x: x[:, :1].repeat(4, 1)),
    "index_select": (lambda x: x.index_select(1, first(x)[0]), lambda x: x[:, :1].repeat(4, 1)),
    "scatter": (lambda x: x.scatter(1, first(x)[:, :1], 1), lambda x: np.hstack([x[:, :1] * 0 + 1, x[:, 1:]])),
    "scatter_add": (lambda x: x.scatter_add(1, first(x), alpha.zeros_like(x)), lambda x: x),
    "nonzero": (lambda x: x.nonzero(), np.argwhere),
    "nan_to_num": (lambda x: x.nan_to_num(), lambda x: x),
    "atan2": (lambda x: x.atan2(x), lambda x: np.arctan2(x, x)),
    "hypot": (lambda x: x.hypot(x), lambda x: np.hypot(x, x)),
    "tril": (lambda x: x.tril(), np.tril),
    "triu": (lambda x: x.triu(-1), lambda x: np.triu(x, -1)),
    **{name: (lambda x, n=name: getattr(x, n)(), lambda x: x) for name in COPIES},
    "bool": (lambda x: x.bool(), lambda x: x != 0),
    **STRUCTURE,
    "T": (lambda x: x.T, np.transpose),
    "mT": (lambda x: x.mT, np.transpose),
    "view": (lambda x: x.view(2, -1), lambda x: x.reshape(2, -1)),
    "ravel": (lambda x: x.ravel(), np.ravel),
    "eq": (lambda x: x.eq(2), lambda x: x == 2),
    "ne": (lambda x: x.ne(2), lambda x: x != 2),
    "lt": (lambda x: x.lt(2), lambda x: x < 2),
    "le": (lambda x: x.le(2), lambda x: x <= 2),
    "gt": (lambda x: x.gt(2), lambda x: x > 2),
    "ge": (lambda x: x.ge(2), lambda x: x >= 2),
    "row": (lambda x: x[1], lambda x: x[1]),
    "rows": (lambda x: x[1:3], lambda x: x[1:3]),
    "columns": (lambda x: x[..., ::2], lambda x: x[..., ::2]),
    "index array": (lambda x: x[[1, -1]], lambda x: x[[1, -1]]),
    "mask": (lambda x: x[x > 0], lambda x: x[x > 0]),
    "astype": (lambda x: x.astype("float64"), lambda x: x),
    "detach": (lambda x: x.detach(), lambda x: x),
    "to": (lambda x: x.to("cpu"), lambda x: x),
    "x == 2": (lambda x: x == 2, lambda x: x == 2),
    "x < 1.5": (lambda x: x < 1.5, lambda x: x < 1.5),
    "add_": (lambda x: x.add_(1), lambda x: x + 1),
    "sub_": (lambda x: x.sub_(0.5), lambda x: x - 0.5),
    "mul_": (lambda x: x.mul_(0.5), lambda x: x * 0.5),
    "div_": (lambda x: x.div_(2), lambda x: x / 2),
    "floor_divide": (lambda x: x.floor_divide(3), lambda x: x // 3),
    "remainder": (lambda x: x.remainder(3), lambda x: x % 3),
    "logical_and": (lambda x: x.logical_and(x), lambda x: x != 0),
    "logical_or": (lambda x: x.logical_or(x), lambda x: x != 0),
    "logical_xor": (lambda x: x.logical_xor(x), lambda x: x != x),
    "logical_not": (lambda x: x.logical_not(), lambda x: x == 0),
    "neg": (lambda x: x.neg(), lambda x: -x),
    "absolute": (lambda x: x.absolute(), np.abs),
    "sgn": (lambda x: x.sgn(), np.sign),
    "subtract": (lambda x: x.subtract(x), lambda x: x - x),
    "multiply": (lambda x: x.multiply(x), lambda x: x * x),
    "divide": (lambda x: x.divide(2), lambda x: x / 2),
    "true_divide": (lambda x: x.true_divide(2), lambda x: x / 2),
    "float_power": (lambda x: x.float_power(2), lambda x: x**2),
    "clamp_min": (lambda x: x.clamp_min(2), lambda x: np.maximum(x, 2)),
    "clamp_max": (lambda x: x.clamp_max(2), lambda x: np.minimum(x, 2)),
    **{
        name: (lambda x, n=name: getattr(x, n)(), getattr(np, name))
        for name in ("isfinite", "isinf", "isposinf", "isneginf", "signbit", "count_nonzero")
    },
    "isclose": (lambda x: x.isclose(x), lambda x: np.isclose(x, x)),
    "fmod": (lambda x: x.fmod(3), lambda x: np.fmod(x, 3)),
    "fmax": (lambda x: x.fmax(x), lambda x: x),
    "fmin": (lambda x: x.fmin(x), lambda x: x),
    "copysign": (lambda x: x.copysign(-1), lambda x: -x),
    "heaviside": (lambda x: x.heaviside(x), lambda x: np.heaviside(x, x)),
    "logaddexp": (lambda x: x.logaddexp(x), lambda x: np.logaddexp(x, x)),
    "logaddexp2": (lambda x: x.logaddexp2(x), lambda x: np.logaddexp2(x, x)),
    "xlogy": (lambda x: x.xlogy(2), lambda x: x * np.log(2)),
    "logit": (lambda x: x.logit(0.1), lambda x: np.log(x.clip(0.1, 0.9) / (1 - x.clip(0.1, 0.9)))),
    "sinc": (lambda x: x.sinc().round(decimals=3), lambda x: np.sinc(x).round(3)),
    "erfc": (lambda x: x.erfc(), np.vectorize(math.erfc)),
    "lerp": (lambda x: x.lerp(x, 0.5), lambda x: x),
    "addcmul": (lambda x: x.addcmul(x, x), lambda x: x + x * x),
    "addcdiv": (lambda x: x.addcdiv(x, x), lambda x: x + x / x),
    "ldexp": (lambda x: x.ldexp(x), lambda x: x * 2**x),
    "gcd": (lambda x: x.gcd(x), lambda x: x),
    "lcm": (lambda x: x.lcm(x), lambda x: x),
    "nansum": (lambda x: x.nansum(), np.sum),
    "nanmean": (lambda x: x.nanmean(), np.mean),
    "aminmax": (lambda x: x.aminmax().max, np.max),
    "median": (lambda x: x.median(), lambda x: np.sort(x.ravel())[7]),
    "nanmedian": (lambda x: x.nanmedian(), lambda x: np.sort(x.ravel())[7]),
    "quantile": (lambda x: x.quantile(0.3), lambda x: np.quantile(x, 0.3)),
    "nanquantile": (lambda x: x.nanquantile(0.3), lambda x: np.nanquantile(x, 0.3)),
    "kthvalue": (lambda x: x.kthvalue(2).values, lambda x: np.sort(x, 1)[:, 1]),
    "cummax": (lambda x: x.cummax(1).values, lambda x: np.maximum.accumulate(x, 1)),
    "cummin": (lambda x: x.cummin(1).values, lambda x: np.minimum.accumulate(x, 1)),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), lambda x: np.logaddexp.accumulate(x, 1)),
    "diff": (lambda x: x.diff(), lambda x: np.diff(x)),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "**": lambda a, b: a**b,
    "@": lambda a, b: a @ b,
    "==": lambda a, b: a == b,
    "<=": lambda a, b: a <= b,
}
OTHERS = {  # of Tensor: what they are is tested in tests/core/test_tensor.py and test_autograd.py
    *("array", "backward", "device", "dtype", "grad", "is_leaf", "item", "ndim", "numpy", "register_hook"),
    *(name for name in alpha.ops.math.bitwise.__all__ if name.startswith("bitwise")),  # tests/ops/math/test_integers.py
    "equal",  # gives no tensor: tests/ops/math/test_checks.py
    *("allclose", "get_device", "is_complex", "is_nonzero", "is_same_size", "is_signed", "stride"),  # test_facts.py
    *("tolist", "numel", "dim", "requires_grad", "shape", "size", "zero_grad"),
    *("element_size", "grad_fn", "is_contiguous", "is_cuda", "is_floating_point", "itemsize", "nbytes", "ndimension"),
    *("nelement", "retain_grad"),  # tests/core/test_tensor_facts.py
    *(name for name in dir(Tensor) if name.startswith("is_") and not callable(getattr(Tensor, name))),
}


def test_every_method_is_here() -> None:
    tested = {name.rstrip("_") for name in (*UNARY, "add", "sub", "mul", "div", "pow", "matmul")}
    public = {name.rstrip("_") for name, _ in inspect.getmembers(Tensor) if not name.startswith("_")}
    assert public - tested - OTHERS == set()


@pytest.mark.parametrize("name", UNARY)
def test_integers_in_methods(device: str, name: str) -> None:
    ours, theirs = UNARY[name]
    with trials() as trial:
        for dtype in DTYPES:
            with trial(dtype):
                right_or_refused(ours, MATRIX.astype(dtype), device=device, result=theirs)


@pytest.mark.parametrize("name", BINARY)
def test_integers_in_operators(device: str, name: str) -> None:
    with trials() as trial:
        for first, second in product(DTYPES, (*DTYPES, "float32")):
            a, b = MATRIX.astype(first), np.ascontiguousarray(array(4, 4).T.astype(second))
            with trial(first, second):
                right_or_refused(BINARY[name], a, b, device=device)
                right_or_refused(BINARY[name], b, a, device=device)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_devices_agree_about_integers(dtype: str) -> None:
    """Integers that one device computes with are computed with on the other, too."""
    calls = {name: ours for name, (ours, _) in UNARY.items()}
    calls |= {name: lambda x, f=f: f(x, x) for name, f in BINARY.items()}
    for name, function in calls.items():
        outcomes = []
        for device in ("cpu", "cuda"):
            try:
                outcomes.append(function(alpha.tensor(MATRIX.astype(dtype), device=device)).dtype.name)
            except (TypeError, AlphaError) as error:
                outcomes.append(type(error).__name__)
        assert outcomes[0] == outcomes[1], name
