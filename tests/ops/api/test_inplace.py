"""Methods that give a tensor other values: what they write, their gradients, and where they are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import GradientError, ShapeError, Tensor

VALUES = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
WRITES: dict[str, tuple[Callable[[Tensor], Tensor], np.ndarray, list[list[float]]]] = {  # the result, and its slope
    "zero_": (lambda x: x.zero_(), VALUES * 0, [[0, 0, 0], [0, 0, 0]]),
    "fill_": (lambda x: x.fill_(2.5), VALUES * 0 + 2.5, [[0, 0, 0], [0, 0, 0]]),
    "copy_": (lambda x: x.copy_(alpha.tensor([1, 2, 3])), VALUES * 0 + [1, 2, 3], [[0, 0, 0], [0, 0, 0]]),
    "clamp_": (lambda x: x.clamp_(-2.0, 1.0), VALUES.clip(-2, 1), [[0, 1, 1], [1, 1, 0]]),
    "clamp_ to a tensor": (
        lambda x: x.clamp_(max=alpha.tensor([0.5], device=x.device)),
        VALUES.clip(max=0.5),
        [[1, 1, 1], [1, 0, 0]],
    ),
    "masked_fill_": (lambda x: x.masked_fill_(x > 0, -7), np.where(VALUES > 0, -7, VALUES), [[1, 1, 1], [1, 0, 0]]),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_and_its_gradient(device: str, name: str) -> None:
    write, wanted, slope = WRITES[name]
    x = alpha.tensor(VALUES, device=device)
    before = x.array
    assert write(x) is x
    assert x.array is before
    np.testing.assert_array_equal(x.numpy(), wanted)
    leaf = alpha.tensor(VALUES, device=device, requires_grad=True)
    y = leaf * 2.0 - leaf  # what is saved for backward is not y
    assert write(y) is y
    y.sum().backward()
    np.testing.assert_array_equal(y.numpy(), wanted)
    np.testing.assert_array_equal(leaf.grad.numpy(), slope)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", [*WRITES, "normal_", "uniform_"])
def test_a_leaf_with_a_gradient_is_written_under_no_grad_only(device: str, name: str) -> None:
    write = WRITES[name][0] if name in WRITES else lambda x: getattr(x, name)()
    leaf = alpha.tensor(VALUES, device=device, requires_grad=True)
    with pytest.raises(GradientError, match=rf"^{name.split()[0]}: a leaf .* cannot be written in place; .* no_grad"):
        write(leaf)
    np.testing.assert_array_equal(leaf.numpy(), VALUES)
    with alpha.no_grad():
        write(leaf)
    assert leaf.requires_grad
    y = alpha.tensor(VALUES, device=device, requires_grad=True) + 1.0
    z = y * y
    write(y)
    with pytest.raises(GradientError, match=rf"written in place by {name.split()[0]} "):
        z.sum().backward()


def test_random_numbers(device: str) -> None:
    alpha.manual_seed(3)
    x = alpha.zeros(50, 80, device=device)
    drawn = x.normal_(2.0, 0.5).numpy()
    np.testing.assert_allclose([drawn.mean(), drawn.std()], [2.0, 0.5], atol=0.03)
    spread = x.uniform_(-1.0, 3.0).numpy()
    assert -1 <= spread.min() < -0.98
    assert 2.98 < spread.max() <= 3
    np.testing.assert_allclose(spread.mean(), 1.0, atol=0.06)
    alpha.manual_seed(3)
    np.testing.assert_array_equal(alpha.zeros(50, 80, device=device).normal_(2.0, 0.5).numpy(), drawn)
    leaf = alpha.ones(2, device=device, requires_grad=True)
    (leaf * 1.0).uniform_().sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), [0.0, 0.0])  # type: ignore[union-attr]
    assert alpha.zeros(4, device=device, dtype="bfloat16").normal_().numpy().astype(np.float32).any()


def test_gradients_of_what_is_written(device: str) -> None:
    value = alpha.tensor(1.5, device=device, requires_grad=True)
    source = alpha.tensor([1.0, 2.0, 3.0], requires_grad=True)  # on the cpu
    x = alpha.zeros(2, 3, device=device)
    (x.fill_(value) * 2.0).sum().backward()
    assert value.grad is not None
    assert value.grad.item() == 12
    (alpha.zeros(2, 3, device=device, dtype="float64").copy_(source) * 3.0).sum().backward()
    assert source.grad is not None
    assert (source.grad.device.name, source.grad.dtype.name) == ("cpu", "float32")
    np.testing.assert_array_equal(source.grad.numpy(), [6, 6, 6])
    value.grad = None
    x = alpha.tensor(VALUES, device=device).masked_fill_(alpha.tensor([True, False, True], device=device), value)
    x.sum().backward()
    assert value.grad is not None
    assert value.grad.item() == 4


def test_integers(device: str) -> None:
    x = alpha.tensor([[1, 2, 3]], device=device)
    assert x.clamp_(2).tolist() == [[2, 2, 3]]
    assert x.masked_fill_(x == 3, 7).tolist() == [[2, 2, 7]]
    assert x.fill_(4).tolist() == [[4, 4, 4]]
    assert x.zero_().tolist() == [[0, 0, 0]]
    assert alpha.tensor([True, False], device=device).fill_(True).tolist() == [True, True]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.fill_([1.0]), TypeError, "fill_: value is not a number or a 0-d Tensor"),
        (lambda x: x.fill_(x), TypeError, "fill_: value is not a number or a 0-d Tensor"),
        (lambda x: x.copy_(VALUES), TypeError, "copy_: src is a ndarray, a Tensor is needed"),
        (lambda x: x.copy_(alpha.ones(2)), ShapeError, r"copy_: src \(2,\) does not fit x \(2, 3\)"),
        (lambda x: x.copy_(alpha.ones(1, 2, 3)), ShapeError, r"copy_: src \(1, 2, 3\) does not fit x \(2, 3\)"),
        (lambda x: x.int().clamp_(0.5), TypeError, "result has dtype float32, which x of dtype int32 can"),
        (lambda x: x.clamp_(alpha.ones(2, 2, 3)), ShapeError, r"clamp_: the result \(2, 2, 3\) does not fit into"),
        (lambda x: x.clamp_(), ValueError, "min or max is needed"),
        (lambda x: x.masked_fill_(x, 1), TypeError, "masked_fill_: the mask has dtype float32; bools are needed"),
        (lambda x: x[0].masked_fill_(x > 0, 1), ShapeError, r"masked_fill_: mask \(2, 3\) does not fit x \(3,\)"),
        (lambda x: x.masked_fill_(x > 0, "1"), TypeError, "masked_fill_: value is not a number or a 0-d Tensor"),
        (lambda x: x.int().normal_(), TypeError, "normal_: x has dtype int32, a floating one is needed"),
        (lambda x: x.normal_(0.0, -1.0), ValueError, "normal_: std=-1.0 is below 0"),
        (lambda x: x.uniform_(2.0, 1.0), ValueError, "uniform_: low=2.0 is above to=1.0"),
    ],
)
def test_what_is_refused(call: Callable[[Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(alpha.tensor(VALUES))


def test_data_is_the_memory_outside_of_the_graph(device: str) -> None:
    p = alpha.tensor([1.0, 2.0], device=device, requires_grad=True)
    assert not p.data.requires_grad
    p.data.fill_(3.0)
    p.data -= 1.0
    np.testing.assert_array_equal(p.numpy(), [2, 2])
    other = alpha.tensor([5.0, 6.0], device=device)
    loss = (p * p).sum()
    p.data = other
    assert p.requires_grad
    assert p.array is other.array
    loss.backward()  # of the values before
    np.testing.assert_array_equal(p.grad.numpy(), [4, 4])  # type: ignore[union-attr]
    loss = (p * p).sum()
    other.add_(1.0)
    with pytest.raises(GradientError, match=r"written in place by x \+= number"):
        loss.backward()
    with pytest.raises(ShapeError, match=r"data = ..: the value has shape \(3,\), the tensor \(2,\)"):
        p.data = alpha.ones(3, device=device)
    with pytest.raises(TypeError, match=r"data = ..: the value is a list"):
        p.data = [1.0, 2.0]  # type: ignore[assignment]
