"""Hooks of tensors: they see, replace and keep gradients."""

from __future__ import annotations

from typing import Any

import pytest

import alpha
from alpha import GradientError, Tensor


def leaf(device: str, *values: float) -> Tensor:
    return alpha.tensor(list(values), requires_grad=True, device=device)


def grad(x: Tensor) -> list[float]:
    assert x.grad is not None
    return [float(value) for value in x.grad.numpy().reshape(-1)]


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


@pytest.mark.parametrize("what", ["leaf", "result"])
def test_two_hooks_run_in_order_each_on_the_result_of_the_one_before(device: str, what: str) -> None:
    x = leaf(device, 1.0, 2.0)
    y = x * 1.0
    seen: list[tuple[str, list[float]]] = []

    def hook(name: str, factor: float | None) -> Any:
        def call(g: Tensor) -> Tensor | None:
            seen.append((name, [float(v) for v in g.numpy()]))
            return None if factor is None else g * factor

        return call

    target = x if what == "leaf" else y
    handles = [target.register_hook(hook(*each)) for each in (("a", 2.0), ("b", None), ("c", 5.0))]
    (y * 3.0).sum().backward(retain_graph=True)
    assert seen == [("a", [3.0, 3.0]), ("b", [6.0, 6.0]), ("c", [6.0, 6.0])]
    assert grad(x) == [30.0, 30.0]
    seen.clear()
    handles[0].remove()
    handles[0].remove()
    (y * 3.0).sum().backward()
    assert seen == [("b", [3.0, 3.0]), ("c", [3.0, 3.0])]
    assert grad(x) == [45.0, 45.0]


def test_a_hook_may_take_itself_off(device: str) -> None:
    x = leaf(device, 1.0)
    calls: list[int] = []

    def once(g: Tensor) -> None:
        calls.append(1)
        handle.remove()

    handle = x.register_hook(once)
    x.register_hook(lambda g: calls.append(2))
    for _ in range(2):
        (x * 1.0).sum().backward()
    assert calls == [1, 2, 2]


def test_what_a_hook_keeps_does_not_change(device: str) -> None:
    """Gradients are added in place; the tensor that a hook was given is not what they are added to."""
    x = leaf(device, 1.0)
    y = x * 1.0
    kept: list[Tensor] = []
    for target in (x, y):
        target.register_hook(kept.append)
    for _ in range(2):
        (y * 2.0).sum().backward(retain_graph=True)
    assert [g.item() for g in kept] == [2.0, 2.0, 2.0, 2.0]
    assert grad(x) == [4.0]


def test_a_hook_that_writes_its_argument_changes_no_other_gradient(device: str) -> None:
    a, b = leaf(device, 1.0), leaf(device, 1.0)
    given = alpha.tensor([1.0], device=device)
    a.register_hook(lambda g: g.mul_(10.0))
    (a + b).backward(given)
    assert (grad(a), grad(b), given.item()) == ([10.0], [1.0], 1.0)
