"""Gradients as a whole: accumulation, order, freeing, what is given to backward, depth and memory."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import Function, GradientError, ShapeError, Tensor
from alpha.ops.kernel.elementwise import multiply


def leaf(device: str, *values: float) -> Tensor:
    return alpha.tensor(list(values), requires_grad=True, device=device)


def grad(x: Tensor) -> list[float]:
    assert x.grad is not None
    return [float(value) for value in x.grad.numpy().reshape(-1)]


@pytest.mark.slow
def test_gradients_accumulate_until_they_are_cleared(device: str) -> None:
    x = leaf(device, 1.0, 2.0)
    for _ in range(2):
        (x * x).sum().backward()
    assert grad(x) == [4.0, 8.0]
    x.zero_grad()
    (x * x).sum().backward()
    assert grad(x) == [2.0, 4.0]


@pytest.mark.slow
def test_a_tensor_used_on_several_paths(device: str) -> None:
    """d/dx of (2x)^2 + 3 (2x) + x, the inner 2x shared: 8x + 7"""
    x = leaf(device, 1.0, -2.0)
    y = x * 2.0
    (y * y + y * 3.0 + x).sum().backward()
    assert grad(x) == [15.0, -9.0]


@pytest.mark.slow
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


@pytest.mark.parametrize("hooked", [False, True])
def test_a_leaf_that_is_frozen_after_the_forward_pass_gets_no_gradient(device: str, hooked: bool) -> None:
    """PyTorch's rule: `requires_grad` counts as it is when backward arrives; a hook sees the gradient all the same."""
    p, q, r = (alpha.tensor([1.0, 2.0], device=device, requires_grad=True) for _ in range(3))
    seen: list[alpha.Tensor] = []
    if hooked:
        p.register_hook(seen.append)
    y = (p * q * r).sum()
    p.requires_grad = False
    r.requires_grad = False
    r.requires_grad = True
    y.backward(retain_graph=True)
    assert p.grad is None
    assert len(seen) == hooked
    for leaf in (q, r):
        assert leaf.grad is not None
        np.testing.assert_array_equal(leaf.grad.numpy(), [1, 4])
    q.requires_grad = False
    y.backward()
    np.testing.assert_array_equal(q.grad.numpy(), [1, 4])
    np.testing.assert_array_equal(r.grad.numpy(), [2, 8])


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
    with pytest.raises(GradientError, match=r"a gradient is needed for a tensor of 2 elements"):
        (x * 2.0).backward()
    with pytest.raises(ShapeError, match=r"backward: the gradient has shape \(3,\), the tensor \(2,\)"):
        (x * 2.0).backward(alpha.tensor([1.0, 1.0, 1.0], device=device))
    with pytest.raises(GradientError, match=r"backward: the gradient is float64 on .*, the tensor float32 on"):
        (x * 2.0).backward(alpha.tensor(np.ones(2), device=device))
    with pytest.raises(GradientError, match="does not require a gradient"):
        alpha.tensor(1.0, device=device).backward()


# -- gradients that come in -----------------------------------------------------------------------

WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "broadcasts": (lambda device: alpha.tensor([1.0], device=device), ShapeError, r"shape \(1,\), the tensor \(2,\)"),
    "too large": (lambda device: alpha.tensor([[1.0, 1.0]] * 3, device=device), ShapeError, r"shape \(3, 2\)"),
    "0-d": (lambda device: alpha.tensor(1.0, device=device), ShapeError, r"shape \(\), the tensor \(2,\)"),
    "float64": (lambda device: alpha.tensor(np.ones(2), device=device), GradientError, "is float64 on .* float32 on"),
    "int64": (lambda device: alpha.tensor([1, 1], device=device), GradientError, "is int64 on"),
    "elsewhere": (
        lambda device: alpha.tensor([1.0, 1.0], device="cuda" if device == "cpu" else "cpu"),
        GradientError,
        "is float32 on .*, the tensor float32 on",
    ),
    "an array": (lambda device: np.ones(2, np.float32), TypeError, "is a ndarray, a Tensor is needed"),
    "a list": (lambda device: [1.0, 1.0], TypeError, "is a list, a Tensor is needed"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_gradient_is_refused_at_every_way_in(device: str, name: str) -> None:
    make, error, message = WRONG[name]
    wrong = make(device)
    x = leaf(device, 1.0, 2.0)
    with pytest.raises(error, match=f"grad = ..: the gradient .*{message}"):
        x.grad = wrong
    assert x.grad is None
    with pytest.raises(error, match=f"backward: the gradient .*{message}"):
        (x * 2.0).backward(wrong)
    for target in (x, y := x * 2.0):
        handle = target.register_hook(lambda g: wrong)
        with pytest.raises(error, match=f"(a leaf|Affine): the gradient that a hook returned .*{message}"):
            y.sum().backward(retain_graph=True)
        handle.remove()

    class Own(Function):
        def forward(self, *arrays: Any, **options: Any) -> Any:
            return multiply(*arrays)

        def backward(self, dY: Any) -> Any:
            return dY, wrong.array if isinstance(wrong, Tensor) else wrong

    for second in (x, x * 2.0):
        own = Own.apply(leaf(device, 1.0, 1.0), second)
        if name == "an array" and device == "cpu":  # it is the gradient itself
            own.sum().backward()
            continue
        with pytest.raises((error, TypeError, GradientError), match="Own: the gradient of input 1"):
            own.sum().backward()
    assert x.grad is None or name == "an array"


def test_gradients_that_fit_are_taken(device: str) -> None:
    x = leaf(device, 1.0, 2.0)
    given = alpha.tensor([3.0, 4.0], device=device)
    x.grad = given
    assert x.grad is given
    (x * 2.0).sum().backward()
    assert x.grad is given
    assert grad(x) == [5.0, 6.0]
    x.grad = None
    assert x.grad is None


def test_arguments_of_backward_that_are_not_offered() -> None:
    y = leaf("cpu", 1.0) * 2.0
    with pytest.raises(ValueError, match="create_graph and inputs are not offered"):
        y.backward(None, None, True)
    with pytest.raises(ValueError, match="create_graph and inputs are not offered"):
        y.backward(inputs=[y])  # type: ignore[arg-type]


# -- memory that gradients share --------------------------------------------------------------------


def test_sums_of_shared_terms(device: str) -> None:
    """(2x + 3x) + 2x, where gradients of one array meet at x and at its results."""
    x = leaf(device, 1.0, -1.0)
    ((x * 2.0 + x * 3.0) + x * 2.0).sum().backward()
    assert grad(x) == [7.0, 7.0]
    x = leaf(device, 1.0, -1.0)
    y = x * 1.0
    ((y + y) + (y + x) + y.reshape(2, 1).reshape(2)).sum().backward()
    assert grad(x) == [5.0, 5.0]


@pytest.mark.slow
def test_a_graph_walked_twice_through_a_loss(device: str) -> None:
    """The second walk with retain_graph finds everything that the first one read unchanged."""
    rng = np.random.default_rng(0)
    x = alpha.tensor(rng.standard_normal((4, 6)).astype(np.float32), requires_grad=True, device=device)
    w = alpha.tensor(rng.standard_normal((3, 6)).astype(np.float32), requires_grad=True, device=device)
    labels = alpha.tensor([0, 1, 2, 1], device=device)
    hidden = F.gelu((x * x + 1.0).sqrt().exp().log() ** 2 / x**2.0)
    loss = F.cross_entropy(F.linear(F.relu(hidden) + F.tanh(x), w), labels)
    loss.backward(retain_graph=True)
    assert x.grad is not None
    assert w.grad is not None
    first = x.grad.numpy(), w.grad.numpy()
    x.grad = w.grad = None
    loss.backward(retain_graph=True)
    np.testing.assert_array_equal(x.grad.numpy(), first[0])  # type: ignore[attr-defined]
    np.testing.assert_array_equal(w.grad.numpy(), first[1])  # type: ignore[attr-defined]
    loss.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * first[0], rtol=1e-5)  # type: ignore[attr-defined]
    np.testing.assert_allclose(w.grad.numpy(), 2 * first[1], rtol=1e-5)  # type: ignore[attr-defined]


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
