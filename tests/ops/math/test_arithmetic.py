"""Arithmetic of tensors: gradients, broadcasting, numbers, in-place forms, errors."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import check_gradient, check_torch, positive
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha import GradientError, ShapeError, Tensor
from alpha.core.numerics import BFLOAT16
from alpha.runtime import workers

BROADCASTS = [
    ((2, 3), (2, 3)),
    ((4, 3), (3,)),
    ((3,), (4, 3)),
    ((2, 1, 3), (5, 1)),
    ((2, 3), ()),
    ((), (2, 3)),
    ((1,), (1, 1)),
    ((2, 3, 4), (3, 1)),
    ((3, 1), (1, 4)),
    ((2, 3, 4), (1, 3, 4)),
    ((1, 5), (4, 1)),
]
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
}
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "number on the right": lambda x: (x + 2.0) * 3.0 - 1.5,
    "number on the left": lambda x: 1.0 - 2.0 * x,
    "division by a number": lambda x: x / 4.0,
    "division of a number": lambda x: 3.0 / x,
    "negative": lambda x: -x,
    "square": lambda x: x**2,
    "power": lambda x: x**-1.5,
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "sqrt": lambda x: x.sqrt(),
    "itself twice": lambda x: x * x + x,
    "array on the left": lambda x: np.full(x.shape, 2.0) - x,
}

IN_PLACE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add_": lambda a, b: (a * 1.0).add_(b),
    "add_ a number": lambda a, b: (a * b).add_(2.0),
    "mul_ a number": lambda a, b: (a * b).mul_(-3.0),
    "mul_ a constant": lambda a, b: (a + b).mul_(b.detach()[:1].reshape(3) * 0.0 + 2.0),
    "chain": lambda a, b: (a * 2.0).add_(b).mul_(0.5).add_(a),
    "sub_": lambda a, b: (a * 1.0).sub_(b),
    "sub_ a number": lambda a, b: (a * b).sub_(2.0),
    "div_ a number": lambda a, b: (a * b).div_(-3.0),
    "div_ a constant": lambda a, b: (a + b).div_(b.detach()[:1].reshape(3) * 0.0 + 2.0),
    "add_ alpha": lambda a, b: (a * 1.0).add_(b * b, alpha=-0.5),
    "sub_ alpha": lambda a, b: (a * 1.0).sub_(b * b, alpha=3),
}


@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_binary_gradients(name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    check_gradient(BINARY[name], *(positive(*shape) for shape in shapes))


@pytest.mark.parametrize("name", UNARY)
def test_unary_gradients(name: str) -> None:
    check_gradient(UNARY[name], positive(3, 4))


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_gradients(name: str) -> None:
    check_gradient(IN_PLACE[name], (4, 3), (4, 3))


@pytest.mark.torch
@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
def test_broadcasting_as_in_pytorch(device: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    def function(a, b):  # type: ignore[no-untyped-def]
        return (a + b) * a - b / (a * a + 1.0)

    check_torch(function, function, *shapes, device=device)


@pytest.mark.torch
@pytest.mark.parametrize("name", [name for name in UNARY if name != "array on the left"])
def test_unary_as_in_pytorch(device: str, name: str) -> None:
    check_torch(UNARY[name], UNARY[name], positive(5, 3), device=device)


def test_in_place_writes_the_same_memory(device: str) -> None:
    x = alpha.tensor([1.0, 2.0], device=device)
    y = x
    y += 1.0
    y *= alpha.tensor([2.0, 3.0], device=device)
    y.add_(alpha.tensor(0.5, device=device))
    assert y is x
    np.testing.assert_array_equal(x.numpy(), [4.5, 9.5])
    y -= 0.5
    y -= alpha.tensor([1.0, 2.0], device=device)
    y /= np.float32(2)
    y /= [1.5, 7.0]
    y += np.ones(2)
    assert y is x
    np.testing.assert_array_equal(x.numpy(), [2, 1.5])
    for result in (x.sub_(x, alpha=2), x.add_(1, alpha=np.float32(0.5)), x.div_(0.5), x.mul_(True)):
        assert result is x
    np.testing.assert_array_equal(x.numpy(), [-3, -2])


AUGMENTED = {
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
    "/=": operator.itruediv,
    "**=": operator.ipow,
    "@=": operator.imatmul,
    "//=": operator.ifloordiv,
    "%=": operator.imod,
    "&=": operator.iand,
    "|=": operator.ior,
    "^=": operator.ixor,
    "<<=": operator.ilshift,
    ">>=": operator.irshift,
}


class Reflected:
    """Object that would answer every operator that the tensor leaves to it."""

    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rpow__ = __rmatmul__ = lambda self, other: 0.0


@pytest.mark.parametrize("name", AUGMENTED)
def test_no_augmented_assignment_binds_the_name_anew(device: str, name: str) -> None:
    """A parameter that `p -= lr * p.grad` made a new tensor would not be trained."""
    leaf = alpha.tensor([[2.0, 0.0], [0.0, 4.0]], requires_grad=True, device=device)
    other = alpha.tensor([[1.0, 0.0], [0.0, 1.0]], device=device)
    for operand in (2, 2.0, np.float32(2), np.ones((2, 2)), other, [[1.0, 2.0], [3.0, 4.0]], Reflected(), "2"):
        for context, allowed in ((contextlib.nullcontext(), False), (alpha.no_grad(), True)):
            with context:
                try:
                    result = AUGMENTED[name](leaf, operand)
                except (TypeError, GradientError):
                    continue
            assert allowed
            assert result is leaf
    assert leaf.is_leaf


def test_a_step_by_hand_trains(device: str) -> None:
    model = alpha.nn.Linear(2, 2).to(device)
    before = {name: p.numpy() for name, p in model.named_parameters()}
    model(alpha.tensor([[1.0, 2.0]], device=device)).sum().backward()
    with alpha.no_grad():
        for p in model.parameters():
            assert p.grad is not None
            p -= 0.5 * p.grad
            p /= 2.0
            p.sub_(p.grad, alpha=0.1)
    for name, p in model.named_parameters():
        assert p.grad is not None
        expected = (before[name] - 0.5 * p.grad.numpy()) / 2 - np.float32(0.1) * p.grad.numpy()
        np.testing.assert_allclose(p.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["mul_", "div_"])
def test_in_place_with_a_part_of_itself_keeps_the_factor(device: str, name: str) -> None:
    """The gradient reads the factor as it was, not the part of the result that overwrote it."""
    x = alpha.tensor([[2.0, 4.0], [6.0, 8.0]], requires_grad=True, device=device)
    y = x * 1.0
    getattr(y, name)(y.detach()[0])
    y.sum().backward()
    assert x.grad is not None
    factor = np.array([2.0, 4.0], np.float32)
    np.testing.assert_array_equal(x.grad.numpy(), np.tile(factor if name == "mul_" else 1 / factor, (2, 1)))


def test_in_place_with_a_part_of_itself(device: str) -> None:
    """The rows are added as they were, though the first of them is written meanwhile."""
    values = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    x = alpha.tensor(values, device=device)
    x.add_(x[0] + 0.0)
    np.testing.assert_array_equal(x.numpy(), values + values[0])
    x = alpha.tensor(values + 1, device=device)
    x.mul_(x[1])
    np.testing.assert_array_equal(x.numpy(), (values + 1) * (values + 1)[1])
    x = alpha.tensor(values + 1, device=device)
    x.div_(x[1]).sub_(x[0] + 0.0)
    expected = (values + 1) / (values + 1)[1]
    np.testing.assert_array_equal(x.numpy(), expected - expected[0])


def test_empty(device: str) -> None:
    x = alpha.tensor(np.zeros((0, 3), np.float32), requires_grad=True, device=device)
    b = alpha.tensor(np.ones(3, np.float32), requires_grad=True, device=device)
    y = (x * 2.0 + b) / b
    assert y.shape == (0, 3)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == (0, 3)
    assert b.grad is not None
    np.testing.assert_array_equal(b.grad.numpy(), [0, 0, 0])


def test_rows_off_every_alignment(device: str) -> None:
    """Views that begin anywhere: no vector load may be assumed."""
    values = np.arange(35, dtype=np.float32).reshape(7, 5)
    x = alpha.tensor(values, device=device)
    np.testing.assert_array_equal((x[1:6] * 2.0 + x[2:7]).numpy(), values[1:6] * 2 + values[2:7])
    np.testing.assert_array_equal((x[3] + x[4]).numpy(), values[3] + values[4])
    np.testing.assert_array_equal(x[1:5].sum(0).numpy(), values[1:5].sum(0))
    np.testing.assert_array_equal((x[2:4] @ F.transpose(x[1:3], 0, 1)).numpy(), values[2:4] @ values[1:3].T)


def test_errors(device: str) -> None:
    a, b = (alpha.tensor(np.ones(s, np.float32), device=device) for s in ((2, 3), (4,)))
    with pytest.raises(ShapeError, match=r"add: shapes \(2, 3\) and \(4,\) do not broadcast"):
        a + b
    with pytest.raises(ShapeError, match=r"add_: \(2, 3\) does not fit into \(3,\)"):
        alpha.tensor(np.ones(3, np.float32), device=device).add_(a)
    if device == "cuda":  # on cpu they meet in float64
        with pytest.raises(TypeError, match="dtypes float32 and float64 differ"):
            a * alpha.tensor(np.ones(3), device=device)
    leaf = alpha.tensor([1.0], requires_grad=True, device=device)
    with pytest.raises(GradientError, match="leaf"):
        leaf.add_(1.0)
    for name in ("add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_"):
        with pytest.raises(TypeError, match=f"^{name}: str is no operand; a Tensor, a number or a numpy array"):
            getattr(a, name)("1")
    for name in ("add", "add_", "sub", "sub_"):
        with pytest.raises(TypeError, match=f"^{name}: alpha is a Tensor, a number is needed"):
            getattr(a, name)(a, alpha=leaf)


def test_numbers_of_every_kind(device: str) -> None:
    x = alpha.tensor([1.0, 2.0], device=device)
    for n in (2, 2.0, np.int64(2), np.uint8(2), np.float64(2), np.float32(2), np.float16(2), BFLOAT16.type(2)):
        for y in (x + n, n + x, F.add(x, n)):
            assert isinstance(y, Tensor)
            assert y.dtype == np.float32
            np.testing.assert_array_equal(y.numpy(), [3, 4])
        np.testing.assert_array_equal((n - x * n / n).numpy(), [1, 0])
    np.testing.assert_array_equal((x + True + np.True_).numpy(), [3, 4])
    np.testing.assert_array_equal(F.add(x, x, alpha=-2).numpy(), [-1, -2])
    with pytest.raises(TypeError, match="unsupported operand"):
        x + 1j


def test_division_by_zero(device: str) -> None:
    """Infinities and NaN as in PyTorch, without a warning."""
    x = alpha.tensor([1.0, -1.0, 0.0], requires_grad=True, device=device)
    for y in (x / 0, x / 0.0, x / alpha.tensor(0.0, device=device), x / np.zeros(3)):
        np.testing.assert_array_equal(y.numpy(), [np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal((1 / x).numpy(), [1, -1, np.inf])
    (x / 0).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.full(3, np.inf))
    x.grad = None
    (1 / x).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [-1, -1, -np.inf])


def test_the_gradient_of_a_divisor_does_not_overflow_early(device: str) -> None:
    a = alpha.tensor([1e-30], device=device)
    b = alpha.tensor([1e-20], requires_grad=True, device=device)
    (a / b).sum().backward()
    assert b.grad is not None
    np.testing.assert_allclose(b.grad.numpy(), [-1e10], rtol=1e-6)


@pytest.mark.parametrize("name", [*BINARY, *UNARY])
def test_gradients_of_arrays_of_several_chunks(name: str) -> None:
    """Workers share a large array on the cpu: every chunk is computed, where it belongs."""
    rows, columns = 3, workers.CHUNK_BYTES // 4 + 17
    values = [np.random.default_rng(i).uniform(0.5, 2.0, (rows, columns)).astype(np.float32) for i in range(2)]
    function: Callable[..., Tensor] = {**BINARY, **UNARY}[name]
    count = 2 if name in BINARY else 1
    whole = [alpha.tensor(v, requires_grad=True) for v in values[:count]]
    y = function(*whole)
    y.backward(alpha.tensor(np.ones((rows, columns), np.float32)))
    edges = [0, 1, columns // 2, columns - 1]
    parts = [alpha.tensor(np.ascontiguousarray(v[:, edges]), requires_grad=True) for v in values[:count]]
    z = function(*parts)
    z.backward(alpha.tensor(np.ones((rows, 4), np.float32)))
    np.testing.assert_allclose(y.numpy()[:, edges], z.numpy(), rtol=1e-6)
    for large, small in zip(whole, parts, strict=True):
        assert large.grad is not None
        assert small.grad is not None
        np.testing.assert_allclose(large.grad.numpy()[:, edges], small.grad.numpy(), rtol=1e-5)


def test_gradients_of_a_broadcast_over_several_chunks() -> None:
    rows = workers.CHUNK_BYTES // 4 // 100 + 13
    x = alpha.tensor(np.ones((rows, 100), np.float32), requires_grad=True)
    w = alpha.tensor(np.arange(100, dtype=np.float32), requires_grad=True)
    (x * w + w / x).sum().backward()
    assert x.grad is not None
    assert w.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.zeros((rows, 100)))
    np.testing.assert_array_equal(w.grad.numpy(), np.full(100, 2 * rows))


# -- numbers that are tensors on the cpu, beside tensors on cuda ------------------------------------------


def test_a_tensor_without_axes_on_the_cpu_goes_with_tensors_on_cuda() -> None:
    x = alpha.tensor([1.0, -2.0, 3.0], device="cuda")
    two = alpha.tensor(2.0)
    forms: dict[str, Any] = {
        "x * 2": lambda two: x * two,
        "2 * x": lambda two: two * x,
        "x / 2": lambda two: x / two,
        "2 - x": lambda two: two - x,
        "x ** 2": lambda two: x**two,
        "x % 2": lambda two: x % two,
        "x // 2": lambda two: x // two.long(),
        "x > 2": lambda two: x > two,
        "x == 2": lambda two: x == two,
        "where": lambda two: alpha.where(x > 0, x, two),
        "masked_fill": lambda two: x.masked_fill(x > 0, two),
        "maximum": lambda two: alpha.maximum(x, two),
        "clamp": lambda two: x.clamp(min=two),
        "lerp": lambda two: x.lerp(x * 3, two),
        "x *= 2": lambda two: x.clone().mul_(two),
        "x += 2": lambda two: x.clone().add_(two),
        "fill_": lambda two: x.clone().fill_(two),
        "bools": lambda two: (x > 0) & (two > 3),
    }
    with trials() as trial:
        for name, form in forms.items():
            with trial(name):
                found, expected = form(two), form(two.to("cuda"))
                assert found.device.name == "cuda"
                assert found.numpy().tobytes() == expected.numpy().tobytes()
    y = x.clone()
    y[0] = two
    assert y.tolist() == [2, -2, 3]


def test_its_gradient_comes_back_to_the_cpu() -> None:
    x = alpha.tensor([1.0, -2.0, 3.0], device="cuda", requires_grad=True)
    scale = alpha.tensor(2.0, requires_grad=True)
    (x * scale).sum().backward()
    assert scale.grad is not None
    assert (scale.grad.item(), scale.grad.device.name) == (2.0, "cpu")
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]


def test_other_tensors_on_two_devices_are_refused() -> None:
    x, two = alpha.ones(3, device="cuda"), alpha.tensor(2.0)
    for wrong in (alpha.ones(1), alpha.ones(3)):
        with pytest.raises(alpha.DeviceError, match="Multiply: tensors on cuda and on cpu; move them together"):
            x * wrong
    for write in (two.add_, two.mul_):  # what is written stays where it is
        with pytest.raises(alpha.DeviceError, match="tensors on cpu and on cuda"):
            write(alpha.tensor(1.0, device="cuda"))
