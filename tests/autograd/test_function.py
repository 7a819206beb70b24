"""Operators of the user's own: alpha.Function with forward and backward on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import Function, GradientError, Tensor
from alpha.ops.kernel.elementwise import add, affine, multiply


def leaf(device: str, *values: float) -> Tensor:
    return alpha.tensor(list(values), requires_grad=True, device=device)


def grad(x: Tensor) -> list[float]:
    assert x.grad is not None
    return [float(value) for value in x.grad.numpy().reshape(-1)]


class OneArrayTwice(Function):
    """Y = A + B; both gradients are one array."""

    def forward(self, *arrays: Any, **options: Any) -> Any:
        return add(*arrays)

    def backward(self, dY: Any) -> Any:
        one = add(dY, dY)
        return one, one


class Itself(OneArrayTwice):
    """Y = A + B; both gradients are the output's."""

    def backward(self, dY: Any) -> Any:
        return dY, dY


class Saved(Function):
    """Y = sum of W X; the gradient of X is the saved W itself, as dY is 1."""

    def forward(self, *arrays: Any, **options: Any) -> Any:
        self.save(arrays[1])
        return multiply(*arrays)

    def backward(self, dY: Any) -> Any:
        return self.saved[0], None


@pytest.mark.parametrize(("rule", "slope"), [(OneArrayTwice, 2.0), (Itself, 1.0)])
def test_a_rule_that_returns_one_array_for_two_inputs(device: str, rule: type[Function], slope: float) -> None:
    """Leaves and results: what is added to one gradient must not get into the other."""
    a, b = leaf(device, 1.0), leaf(device, 1.0)
    for _ in range(2):
        rule.apply(a, b).sum().backward()
    assert (grad(a), grad(b)) == ([2 * slope], [2 * slope])
    with alpha.no_grad():
        a.grad.mul_(100.0)  # type: ignore[union-attr]
    assert grad(b) == [2 * slope]
    a, b = leaf(device, 1.0), leaf(device, 1.0)
    x, y = a * 3.0, b * 5.0
    (rule.apply(x, y) + x * 7.0 + y * 11.0).sum().backward()
    assert (grad(a), grad(b)) == ([3 * (slope + 7)], [5 * (slope + 11)])
    a = leaf(device, 1.0)
    x = a * 3.0
    rule.apply(x, x).sum().backward()
    assert grad(a) == [6 * slope]


def test_a_rule_that_returns_what_it_saved(device: str) -> None:
    x, w = leaf(device, 1.0, 2.0), alpha.tensor([3.0, 4.0], device=device)
    for source in (x, x * 1.0):
        z = source * 10.0  # made first, so that its gradient is added to the one that is w itself
        loss = (Saved.apply(source, w) + z).sum()
        for _ in range(2):
            loss.backward(retain_graph=True)
    np.testing.assert_array_equal(w.numpy(), [3, 4])
    assert grad(x) == [52.0, 56.0]


def test_an_operator_of_the_users_own() -> None:
    class Cube(Function):
        def forward(self, *arrays: Any, **options: Any) -> Any:
            self.save(arrays[0])
            return arrays[0] ** 3

        def backward(self, dY: Any) -> Any:
            (X,) = self.saved
            return 3 * X**2 * dY

    x = leaf("cpu", 2.0)
    Cube.apply(x).sum().backward()
    assert grad(x) == [12.0]


def test_numpy_scalars_and_views_of_a_users_operator_are_arrays() -> None:
    class Cube(Function):
        def forward(self, *arrays: Any, **options: Any) -> Any:
            self.save(arrays[0])
            X = arrays[0]
            return X * X * X  # a numpy scalar, if X is 0-d

        def backward(self, dY: Any) -> Any:
            (X,) = self.saved
            return (X + X + X) * X * dY  # in float32 with numpy 1, too, for which 3 is a float64

    class Turn(Function):
        def forward(self, *arrays: Any, **options: Any) -> Any:
            return arrays[0].T

        def backward(self, dY: Any) -> Any:
            return dY.T

    x = alpha.tensor(2.0, requires_grad=True)
    y = Cube.apply(x)
    assert (y.shape, y.item()) == ((), 8.0)
    y.backward()
    assert x.grad is not None
    assert (x.grad.shape, x.grad.item()) == ((), 12.0)
    x = alpha.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    y = Turn.apply(x)
    assert y.array.flags.c_contiguous
    with alpha.no_grad():
        y.add_(1.0)
    np.testing.assert_array_equal(y.numpy(), x.numpy().T + 1)
    (y * alpha.tensor([[1.0, 2.0]] * 3)).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [[1, 1, 1], [2, 2, 2]])
    with alpha.no_grad():
        x.grad.add_(1.0)
    np.testing.assert_array_equal(x.grad.numpy(), [[2, 2, 2], [3, 3, 3]])


class Reverse(Function):
    """Y = X, the same memory, with the gradient reversed."""

    def forward(self, *arrays: Any, **options: Any) -> Any:
        return arrays[0]

    def backward(self, dY: Any) -> Any:
        return affine(dY, p=-1.0)


def test_an_operator_that_returns_its_input_gives_a_view(device: str) -> None:
    """Writes are seen on both sides: one memory has one version."""
    x = leaf(device, 1.0, 2.0)
    Reverse.apply(x * 3.0).sum().backward()
    assert grad(x) == [-3.0, -3.0]
    y = x * 1.0
    reversed_ = Reverse.apply(y)
    with pytest.raises(GradientError, match=r"x \+= number: a view \(Reverse\)"):
        reversed_.add_(1.0)
    loss = (y * y).sum()
    with alpha.no_grad():
        Reverse.apply(y).add_(1.0)
    with pytest.raises(GradientError, match=r"written in place by x \+= number"):
        loss.backward()
    y.mul_(2.0)
    with pytest.raises(GradientError, match=r"wrote the base of a view \(Reverse\)"):
        reversed_.sum()


def test_what_is_no_tensor_is_named() -> None:
    class Same(Function):
        def forward(self, *arrays: Any, **options: Any) -> Any:
            return options.get("result", arrays[0])

    with pytest.raises(TypeError, match=r"Same: input 1 is a ndarray, a Tensor is needed; use alpha\.tensor"):
        Same.apply(leaf("cpu", 1.0), np.ones(1))
    with pytest.raises(TypeError, match="Same: at least one input must be a Tensor"):
        Same.apply()
    for result in (None, [1.0], alpha.tensor(1.0)):
        with pytest.raises(TypeError, match=r"Tensor takes an array of a device, not a (NoneType|list|Tensor)"):
            Same.apply(leaf("cpu", 1.0), result=result)
    for values in ((1.0, 2.0), 3.0, np.float32(3)):
        with pytest.raises(TypeError, match=r"Tensor takes an array .* use alpha\.tensor"):
            Tensor(values)


def test_a_rule_with_the_wrong_number_of_gradients_is_named() -> None:
    class Wrong(Function):
        def forward(self, *arrays: Any, **options: Any) -> Any:
            return arrays[0] + arrays[1]

        def backward(self, dY: Any) -> Any:
            return dY

    with pytest.raises(GradientError, match="Wrong: backward returned 1 gradients for 2 inputs"):
        Wrong.apply(leaf("cpu", 1.0), leaf("cpu", 1.0)).sum().backward()
