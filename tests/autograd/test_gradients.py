"""`alpha.grad`: the values and the rules of `torch.autograd.grad`, and that it leaves everything else alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import Function, GradientError, ShapeError, Tensor, nn
from alpha.ops.kernel.elementwise import add


def leaf(device: str, *values: float) -> Tensor:
    return alpha.tensor(list(values), requires_grad=True, device=device)


def values(tensor: Tensor | None) -> list[float]:
    assert tensor is not None
    assert not tensor.requires_grad
    return [float(value) for value in tensor.numpy().reshape(-1)]


def test_leaves_and_results_of_operators(device: str) -> None:
    x, w = leaf(device, 1.0, 2.0), leaf(device, 3.0, 4.0)
    y = x * w
    dx, dy, dw = alpha.grad((y * y).sum(), [x, y, w])
    assert (values(dx), values(dy), values(dw)) == ([18.0, 64.0], [6.0, 16.0], [6.0, 32.0])
    assert x.grad is w.grad is y.grad is None


def test_several_outputs_are_summed(device: str) -> None:
    x = leaf(device, 1.0, 2.0)
    y = x * 2.0
    given = alpha.tensor([1.0, 10.0], device=device)
    (dx,) = alpha.grad([y, y.sum(), x], x, [given, None, given])
    assert values(dx) == [5.0, 32.0]


def test_an_output_may_be_an_input(device: str) -> None:
    x = leaf(device, 1.0, 2.0)
    y = x * 2.0
    given = alpha.tensor([1.0, 10.0], device=device)
    dy, dx = alpha.grad(y, (y, x), given)
    assert (values(dy), values(dx)) == ([1.0, 10.0], [2.0, 20.0])
    assert dy is not None
    dy.add_(1.0)  # has memory of its own
    assert values(given) == [1.0, 10.0]


def test_gradients_share_no_memory(device: str) -> None:
    """The gradient of a reshape is the memory of the one that came in."""
    x = leaf(device, 1.0, 2.0)
    y = x * 1.0
    z = y.reshape(2, 1)
    dy, dz = alpha.grad((z * 3.0).sum(), [y, z])
    assert dy is not None
    dy.add_(1.0)
    assert values(dz) == [3.0, 3.0]


class Watched(Function):
    """X + W, which notes which gradients were wanted."""

    wanted: list[tuple[bool, ...]] = []  # noqa: RUF012

    def forward(self, X: Any, W: Any) -> Any:
        self.save(X, W)
        return add(X, W)

    def backward(self, dY: Any) -> Any:
        self.wanted.append(self.needs_input_grad)
        return dY, dY


def test_only_what_lies_between_runs(device: str) -> None:
    Watched.wanted.clear()
    x, w, v = leaf(device, 1.0), leaf(device, 2.0), leaf(device, 3.0)
    y = Watched.apply(x, w)
    z = Watched.apply(y, v)
    met: list[str] = []
    hooks = [tensor.register_hook(lambda grad: met.append("hook")) for tensor in (y, w)]
    alpha.grad(z, v, retain_graph=True)
    assert not met
    for hook in hooks:
        hook.remove()
    alpha.grad(z, x, retain_graph=True)
    assert Watched.wanted == [(False, True), (True, False), (True, False)]
    Watched.wanted.clear()
    z.backward()
    assert Watched.wanted == [(True, True), (True, True)]  # as before
    assert [values(tensor.grad) for tensor in (x, w, v)] == [[1.0], [1.0], [1.0]]


def test_the_graph_is_freed_unless_it_is_retained(device: str) -> None:
    x = leaf(device, 3.0)
    y = x * x
    assert values(alpha.grad(y, x, retain_graph=True)[0]) == [6.0]
    assert values(alpha.grad(y, x)[0]) == [6.0]
    with pytest.raises(GradientError, match="the graph was freed"):
        alpha.grad(y, x)


def test_an_unused_input(device: str) -> None:
    x, other = leaf(device, 3.0), leaf(device, 1.0, 2.0)
    y = x * 2.0
    with pytest.raises(GradientError, match=r"no output depends on input 1 \(shape \(2,\)\)"):
        alpha.grad(y, [x, other])
    assert alpha.grad(x * 2.0, other, allow_unused=True) == (None,)
    assert values(alpha.grad(x * 2.0, other, materialize_grads=True)[0]) == [0.0, 0.0]


def test_hooks_of_inputs_run_and_those_of_others_do_not(device: str) -> None:
    x, w = leaf(device, 1.0), leaf(device, 2.0)
    met = []
    x.register_hook(lambda grad: met.append("x"))
    w.register_hook(lambda grad: grad * 10.0)
    y = x * w
    y.register_hook(lambda grad: grad * 3.0)
    dy, dw = alpha.grad(y * 1.0, [y, w])
    assert (values(dy), values(dw), met) == ([3.0], [30.0], [])


@pytest.mark.parametrize("target", [lambda x: x, lambda x: x * 2.0], ids=["leaf", "result"])
def test_what_a_hook_returns_is_copied(device: str, target: Any) -> None:
    kept, asked = alpha.tensor([5.0], device=device), target(leaf(device, 1.0))
    asked.register_hook(lambda grad: kept)
    (found,) = alpha.grad((asked * 3.0).sum(), asked)
    assert found is not None
    found.mul_(2.0)
    assert (values(found), values(kept)) == ([10.0], [5.0])


def test_an_inplace_result(device: str) -> None:
    x = leaf(device, 1.0, 2.0)
    y = x * 2.0
    y.add_(x)
    dx, dy = alpha.grad((y * y).sum(), [x, y])
    assert (values(dx), values(dy)) == ([18.0, 36.0], [6.0, 12.0])


@pytest.mark.slow
def test_a_network_gives_the_bits_of_backward(device: str) -> None:
    alpha.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).to(device)
    x = alpha.tensor(alpha.core.rng.normal((2, 6, 6, 3)), device=device, requires_grad=True)
    parameters = list(model.parameters())
    found = alpha.grad(F.cross_entropy(model(x), alpha.tensor([0, 2], device=device)), [x, *parameters])
    F.cross_entropy(model(x), alpha.tensor([0, 2], device=device)).backward()
    for tensor, grad in zip([x, *parameters], found, strict=True):
        assert tensor.grad is not None
        assert grad is not None
        np.testing.assert_array_equal(grad.numpy(), tensor.grad.numpy())


def test_errors(device: str) -> None:
    x, plain = leaf(device, 1.0, 2.0), alpha.tensor([1.0], device=device)
    y = x * 2.0
    with pytest.raises(ValueError, match="create_graph=True is not offered"):
        alpha.grad(y.sum(), x, create_graph=True)
    with pytest.raises(GradientError, match=r"grad_outputs\[0\] is needed for an output of 2 elements"):
        alpha.grad(y, x)
    with pytest.raises(ShapeError, match=r"grad_outputs\[0\] has shape \(1,\)"):
        alpha.grad(y, x, plain)
    with pytest.raises(ValueError, match="2 grad_outputs for 1 outputs"):
        alpha.grad(y, x, [plain, plain])
    with pytest.raises(GradientError, match=r"inputs\[1\] \(shape \(1,\)\) does not require a gradient"):
        alpha.grad(y.sum(), [x, plain])
    with pytest.raises(GradientError, match=r"outputs\[0\] \(shape \(1,\)\) does not require a gradient"):
        alpha.grad(plain, x)
    with pytest.raises(TypeError, match=r"inputs\[0\] is a float"):
        alpha.grad(y.sum(), [1.0])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="inputs is empty"):
        alpha.grad(y.sum(), [])
    with pytest.raises(ValueError, match="contradicts"):
        alpha.grad(y.sum(), x, materialize_grads=True, allow_unused=False)


@pytest.mark.torch
def test_what_pytorch_gives() -> None:
    torch = pytest.importorskip("torch")
    given = np.random.default_rng(0).normal(size=(3, 4))

    def found(library: Any, grad: Any) -> list[Any]:
        x = library.tensor(given, requires_grad=True)
        y = library.sin(x)
        z = (y * x).sum()
        return [grad.numpy() for grad in grad([z, y.sum()], [x, y], [library.tensor(2.0, dtype=x.dtype), None])]

    dtype = alpha.tensor(given).dtype
    assert dtype == np.float64
    for ours, theirs in zip(found(alpha, alpha.grad), found(torch, torch.autograd.grad), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_inside_a_captured_step() -> None:
    try:
        alpha.get_device("cuda")
    except alpha.AlphaError as error:
        pytest.skip(str(error))
    x = leaf("cuda", 1.0, 2.0)

    def step(scale: Tensor) -> Tensor:
        (dx,) = alpha.grad((x * x * scale).sum(), x)
        assert dx is not None
        return dx

    captured = alpha.capture(step, strict=True)
    for number in range(5):
        scale = alpha.tensor([float(number), 1.0], device="cuda")
        assert values(captured(scale)) == [2.0 * number, 4.0]


def test_backward_of_several_tensors(device: str) -> None:
    """One walk, so that a graph which they share is walked once."""
    x = alpha.tensor([1.0, 2.0], device=device, requires_grad=True)
    shared = x * x
    first, second = shared.sum(), shared * 3.0
    alpha.autograd.backward([first, second], [None, alpha.tensor([1.0, 10.0], device=device)])
    np.testing.assert_array_equal(x.grad.numpy(), [2 + 6, 4 + 120])  # type: ignore[union-attr]
    x.grad = None
    loss = (x * x).sum()
    alpha.autograd.backward(loss, retain_graph=True)
    alpha.autograd.backward(loss)
    np.testing.assert_array_equal(x.grad.numpy(), [4, 8])  # type: ignore[attr-defined]
    assert alpha.autograd.grad is alpha.grad


def test_what_backward_refuses(device: str) -> None:
    x = alpha.tensor([1.0, 2.0], device=device, requires_grad=True)
    y = x * 2.0
    one = alpha.ones(2, device=device)
    with pytest.raises(GradientError, match=r"backward: grad_tensors\[0\] is needed for an output of 2 elements"):
        alpha.autograd.backward(y)
    with pytest.raises(ValueError, match="backward: 2 grad_tensors for 1 tensors"):
        alpha.autograd.backward(y, [one, one])
    with pytest.raises(ShapeError, match=r"backward: grad_tensors\[0\] has shape \(1,\)"):
        alpha.autograd.backward(y, one[:1])
    with pytest.raises(GradientError, match=r"backward: tensors\[1\] .* does not require a gradient"):
        alpha.autograd.backward([y, one], [one, one])
    with pytest.raises(ValueError, match="backward: create_graph and inputs are not offered"):
        alpha.autograd.backward(y, one, create_graph=True)
    with pytest.raises(ValueError, match="backward: create_graph and inputs are not offered"):
        alpha.autograd.backward(y, one, inputs=x)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="has no attribute 'gradcheck'"):
        alpha.autograd.gradcheck  # type: ignore[attr-defined]  # noqa: B018
