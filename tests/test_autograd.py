"""Gradients as a whole: accumulation, order, freeing, in-place writes, hooks, depth and memory."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import Function, GradientError, ShapeError, Tensor


def leaf(device: str, *values: float) -> Tensor:
    return alpha.tensor(list(values), requires_grad=True, device=device)


def grad(x: Tensor) -> list[float]:
    assert x.grad is not None
    return [float(value) for value in x.grad.numpy().reshape(-1)]


def test_gradients_accumulate_until_they_are_cleared(device: str) -> None:
    x = leaf(device, 1.0, 2.0)
    for _ in range(2):
        (x * x).sum().backward()
    assert grad(x) == [4.0, 8.0]
    x.zero_grad()
    (x * x).sum().backward()
    assert grad(x) == [2.0, 4.0]


def test_a_tensor_used_on_several_paths(device: str) -> None:
    """d/dx of (2x)^2 + 3 (2x) + x, the inner 2x shared: 8x + 7"""
    x = leaf(device, 1.0, -2.0)
    y = x * 2.0
    (y * y + y * 3.0 + x).sum().backward()
    assert grad(x) == [15.0, -9.0]


def test_nested_diamonds(device: str) -> None:
    """Each y + y doubles the number of paths: a walk over paths would not end."""
    x = leaf(device, 1.0)
    y = x
    for _ in range(60):
        y = y + y
    y.sum().backward()
    assert grad(x) == [2.0**60]


def test_a_gradient_given_by_the_user_is_not_taken_over(device: str) -> None:
    x = leaf(device, 1.0, 2.0)
    given = alpha.tensor([1.0, 1.0], device=device)
    for y in (x, x + x.detach(), x.reshape(2, 1).reshape(2)):
        y.backward(given)
    assert grad(x) == [3.0, 3.0]
    np.testing.assert_array_equal(given.numpy(), [1, 1])


def test_gradients_of_two_leaves_do_not_share_memory(device: str) -> None:
    a, b = leaf(device, 1.0), leaf(device, 2.0)
    (a + b).sum().backward()
    assert a.grad is not None
    with alpha.no_grad():
        a.grad.mul_(10.0)
    assert grad(b) == [1.0]


def test_only_what_requires_a_gradient_gets_one(device: str) -> None:
    x, constant = leaf(device, 1.0), alpha.tensor([3.0], device=device)
    y = x * constant
    y.sum().backward()
    assert grad(x) == [3.0]
    assert constant.grad is None
    assert y.grad is None


def test_no_grad_records_nothing_and_nests(device: str) -> None:
    x = leaf(device, 1.0)

    @alpha.no_grad()
    def double(t: Tensor) -> Tensor:
        with alpha.no_grad():
            assert not alpha.is_grad_enabled()
        assert not alpha.is_grad_enabled()
        return t * 2.0

    assert double(x).is_leaf
    assert not double(x).requires_grad
    assert alpha.is_grad_enabled()
    with pytest.raises(ZeroDivisionError), alpha.no_grad():
        raise ZeroDivisionError
    assert alpha.is_grad_enabled()


def test_backward_twice_needs_retain_graph(device: str) -> None:
    x = leaf(device, 3.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert grad(x) == [12.0]
    with pytest.raises(GradientError, match=r"Multiply: the graph was freed .*retain_graph=True"):
        y.backward()


def test_backward_refuses(device: str) -> None:
    x = leaf(device, 1.0, 2.0)
    with pytest.raises(GradientError, match=r"grad is needed for a tensor of 2 elements"):
        (x * 2.0).backward()
    with pytest.raises(ShapeError, match=r"grad has shape \(3,\), the tensor \(2,\)"):
        (x * 2.0).backward(alpha.tensor([1.0, 1.0, 1.0], device=device))
    with pytest.raises(GradientError, match="grad is float64 on"):
        (x * 2.0).backward(alpha.tensor(np.ones(2), device=device))
    with pytest.raises(GradientError, match="does not require a gradient"):
        alpha.tensor(1.0, device=device).backward()


# -- in-place writes ------------------------------------------------------------------------------


def test_an_in_place_write_of_a_saved_tensor_names_both_operators(device: str) -> None:
    x = leaf(device, 1.0, 2.0)
    y = x * 1.0
    loss = (y * y).sum()
    y.add_(1.0)
    with pytest.raises(GradientError, match=r"Multiply: .* written in place by AffineInPlace \(version 1,"):
        loss.backward()


def test_a_write_through_a_view_or_detached_counts(device: str) -> None:
    for alias in (lambda t: t.detach(), lambda t: t.detach().reshape(2, 1)):
        x = leaf(device, 1.0, 2.0)
        y = x * 1.0
        loss = (y * y).sum()
        alias(y).add_(1.0)
        with pytest.raises(GradientError, match="written in place by AffineInPlace"):
            loss.backward()


def test_an_optimizer_step_between_forward_and_backward_is_noticed() -> None:
    layer = alpha.nn.Linear(2, 2)
    optimizer = alpha.optim.SGD(layer.parameters(), lr=0.1)
    x = leaf("cpu", 1.0, 2.0)
    layer(x.reshape(1, 2)).sum().backward()
    loss = layer(x.reshape(1, 2)).sum()
    optimizer.step()
    with pytest.raises(GradientError, match=r"Linear: .* written in place by SGD"):
        loss.backward()


def test_in_place_operators_that_need_no_saved_tensor(device: str) -> None:
    x = leaf(device, 1.0, -2.0)
    y = x * 2.0
    y.add_(x)
    y.mul_(3.0)
    alpha.nn.functional.leaky_relu(y, 0.5, inplace=True)
    np.testing.assert_array_equal(y.numpy(), [9, -9])
    y.sum().backward()
    assert grad(x) == [9.0, 4.5]


def test_a_leaf_cannot_be_written_in_place(device: str) -> None:
    x = leaf(device, 1.0)
    with pytest.raises(GradientError, match=r"AffineInPlace: a leaf .* or no_grad\(\)"):
        x.add_(1.0)
    with alpha.no_grad():
        x.add_(1.0)
    assert x.item() == 2.0


def test_a_view_cannot_be_written_in_place(device: str) -> None:
    x = leaf(device, 1.0, 2.0)
    view = (x * 2.0).reshape(2, 1)
    with pytest.raises(GradientError, match=r"AffineInPlace: a view \(Reshape\)"):
        view.add_(1.0)


def test_a_view_taken_before_a_recorded_write_is_refused(device: str) -> None:
    """Its node leads past the write, so its gradient would be wrong."""
    x = leaf(device, 1.0, 2.0)
    y = x * 2.0
    before = y.reshape(2, 1)
    y.mul_(3.0)
    with pytest.raises(GradientError, match=r"AffineInPlace wrote the base of a view \(Reshape\)"):
        before.sum()
    y.reshape(2, 1).sum().backward()
    assert grad(x) == [6.0, 6.0]


# -- hooks ----------------------------------------------------------------------------------------


def test_hooks_see_and_replace_gradients(device: str) -> None:
    x = leaf(device, 1.0, 2.0)
    seen: list[list[float]] = []
    y = x * 3.0
    y.register_hook(lambda g: seen.append([float(v) for v in g.numpy()]))
    x.register_hook(lambda g: g * 10.0)
    (y * y).sum().backward()
    assert seen == [[6.0, 12.0]]
    assert grad(x) == [180.0, 360.0]
    with pytest.raises(GradientError, match="register_hook"):
        alpha.tensor(1.0).register_hook(lambda g: None)


def test_a_leaf_hook_sees_the_whole_gradient_once(device: str) -> None:
    x = leaf(device, 1.0)
    seen: list[float] = []
    x.register_hook(lambda g: seen.append(g.item()))
    (x * 2.0 + x * 3.0 + x).sum().backward()
    assert seen == [6.0]
    assert grad(x) == [6.0]


def test_a_tensor_returned_by_a_hook_stays_the_users(device: str) -> None:
    x = leaf(device, 1.0)
    mine = alpha.tensor([5.0], device=device)
    x.register_hook(lambda g: mine)
    for _ in range(2):
        (x * 2.0).sum().backward()
    assert grad(x) == [10.0]
    assert mine.item() == 5.0


# -- depth and memory -----------------------------------------------------------------------------


def test_a_deep_chain_needs_no_recursion() -> None:
    x = leaf("cpu", 1.0)
    y = x
    for _ in range(5000):
        y = y + 1.0
    y.sum().backward()
    assert grad(x) == [1.0]
    del y  # neither does its end


class Probe(Function):
    """Y = X, keeping a copy of X whose life the test watches."""

    alive: list[weakref.ref[Any]] = []  # noqa: RUF012
    seen: list[int] = []  # noqa: RUF012

    def forward(self, *arrays: Any, **options: Any) -> Any:
        kept = arrays[0].copy()
        Probe.alive.append(weakref.ref(kept))
        self.save(kept)
        return arrays[0].copy()

    def backward(self, dY: Any) -> Any:
        Probe.seen.append(sum(ref() is not None for ref in Probe.alive))
        return dY.copy()


def test_what_a_node_saved_is_freed_as_soon_as_it_has_run() -> None:
    Probe.alive.clear()
    Probe.seen.clear()
    y = leaf("cpu", 1.0)
    for _ in range(4):
        y = Probe.apply(y)
    y.sum().backward()
    assert Probe.seen == [4, 3, 2, 1]
    assert not any(ref() is not None for ref in Probe.alive)


def test_a_graph_without_backward_is_freed_by_counting_references() -> None:
    Probe.alive.clear()
    gc.disable()
    try:
        y = Probe.apply(leaf("cpu", 1.0))
        assert Probe.alive[0]() is not None
        del y
        assert Probe.alive[0]() is None
    finally:
        gc.enable()


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


def test_a_rule_with_the_wrong_number_of_gradients_is_named() -> None:
    class Wrong(Function):
        def forward(self, *arrays: Any, **options: Any) -> Any:
            return arrays[0] + arrays[1]

        def backward(self, dY: Any) -> Any:
            return dY

    with pytest.raises(GradientError, match="Wrong: backward returned 1 gradients for 2 inputs"):
        Wrong.apply(leaf("cpu", 1.0), leaf("cpu", 1.0)).sum().backward()
