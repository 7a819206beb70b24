"""alpha.Function in PyTorch's form: static forward(ctx, ..) and backward(ctx, ..) that compute with tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import Tensor
from alpha.autograd.static import METHODS, FunctionCtx
from alpha.errors import GradientError
from alpha.nn import functional as F


class Scaled(alpha.Function):
    """x * number, and a count of what backward sees"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, number: float, y: Tensor | None = None) -> Tensor:
        ctx.number = number
        ctx.save_for_backward(x, y)
        return x * number if y is None else x * y * number

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, y = ctx.saved_tensors
        if y is None:
            return grad * ctx.number, None, None
        return grad * y * ctx.number, None, grad * x * ctx.number if ctx.needs_input_grad[2] else None


class Reversed(alpha.autograd.Function):
    """The same values; the gradient with the other sign"""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.neg()


class Parts(alpha.Function):
    """Two outputs, an index, and a copy that is no part of the graph"""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        same = x.clone()
        ctx.mark_non_differentiable(same)
        return x[:1] * 2, x.argmax(), x.exp().reshape(1, -1), same

    @staticmethod
    def backward(ctx: Any, first: Tensor, index: Tensor, second: Tensor, same: Tensor) -> Tensor:
        assert (first.shape, second.shape) == ((1,), (1, 3))
        assert same.tolist() == [0, 0, 0]
        assert index.item() == 0
        grad = second.reshape(3) * 10
        grad[:1] += first * 2
        return grad


def leaf(device: str, *values: float) -> Tensor:
    return alpha.tensor(list(values), device=device, requires_grad=True)


def test_values_and_gradients(device: str) -> None:
    x, y = leaf(device, 1.0, 2.0), leaf(device, 3.0, 4.0)
    result = Scaled.apply(x, 2.0, y)
    assert result.grad_fn is not None
    assert result.grad_fn.name == "Scaled"
    (result * result.detach()).sum().backward()
    np.testing.assert_allclose(result.numpy(), [6, 16])
    np.testing.assert_allclose(x.grad.numpy(), [36, 128])
    np.testing.assert_allclose(y.grad.numpy(), [12, 64])


def test_arguments_that_want_no_gradient(device: str) -> None:
    x, y = leaf(device, 1.0, 2.0), alpha.tensor([3.0, 4.0], device=device)
    Scaled.apply(x, 2.0, y).sum().backward()
    assert x.grad.tolist() == [6, 8]
    assert y.grad is None
    assert Scaled.apply(y, 2.0).requires_grad is False
    with alpha.no_grad():
        assert Scaled.apply(x, 2.0).requires_grad is False


def test_a_view_of_the_input(device: str) -> None:
    x = leaf(device, 1.0, 2.0)
    y = x * 1
    (Reversed.apply(y) * 3).sum().backward()
    assert x.grad.tolist() == [-3, -3]


def test_several_outputs(device: str) -> None:
    x = leaf(device, 0.0, 1.0, 2.0)
    first, index, second, same = Parts.apply(x)
    assert index.item() == 2
    assert same.tolist() == [0, 1, 2]
    assert [t.requires_grad for t in (first, index, second, same)] == [True, False, True, False]
    (first.sum() * 5 + second.sum()).backward()
    assert x.grad.tolist() == [20, 10, 10]
    x.grad = None
    Parts.apply(x)[2].sum().backward()  # the gradient of an output that is not used is 0
    assert x.grad.tolist() == [10, 10, 10]


def test_gradients_that_are_not_materialized(device: str) -> None:
    class Own(alpha.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Any:
            ctx.set_materialize_grads(False)
            return x * 2, x.argmax()

        @staticmethod
        def backward(ctx: Any, grad: Tensor, index: Tensor | None) -> Tensor:
            assert index is None
            return grad * 2

    x = leaf(device, 1.0, 2.0)
    Own.apply(x)[0].sum().backward()
    assert x.grad.tolist() == [2, 2]


@pytest.mark.parametrize("materialize", [True, False])
def test_the_gradient_of_an_output_that_nobody_uses(device: str, materialize: bool) -> None:
    """None without `materialize`, also in a second pass through other outputs; else zeros, as PyTorch does."""

    class Three(alpha.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Any:
            ctx.set_materialize_grads(materialize)
            return x * 2, x.reshape(2, 1) * 3, x * 4

        @staticmethod
        def backward(ctx: Any, *grads: Tensor | None) -> Tensor:
            seen.append([None if grad is None else (grad.shape, grad.sum().item()) for grad in grads])
            return sum(grad.reshape(2) for grad in grads if grad is not None)

    x, seen = leaf(device, 1.0, 2.0), []
    shapes = (2,), (2, 1), (2,)
    outputs = Three.apply(x)
    for used in ([0], [1], [0, 2], [2, 1], [0, 1, 2]):
        sum(outputs[place].sum() for place in used).backward(retain_graph=True)
        unused = {place: (shapes[place], 0.0) if materialize else None for place in range(3)}
        assert seen.pop() == [(shapes[place], 2.0) if place in used else unused[place] for place in range(3)]
    outputs[1].backward(alpha.ones(2, 1, device=device) * 0, retain_graph=True)  # zeros that were given are zeros
    assert seen.pop()[1] == ((2, 1), 0.0)
    found = alpha.grad(outputs[2].sum(), [x])
    assert seen.pop()[0] == (((2,), 0.0) if materialize else None)
    assert found[0].tolist() == [1, 1]
    with alpha.no_grad():
        assert Three.apply(x)[1].requires_grad is False


@pytest.mark.torch
def test_what_pytorchs_ctx_has_is_honoured_or_refused() -> None:
    """Each method, and each attribute that may be written to PyTorch's, is one here, or names the method to call."""
    torch = pytest.importorskip("torch")
    methods = [name for name in dir(torch.autograd.function.FunctionCtx) if not name.startswith("_")]
    ctx = FunctionCtx((True,))
    assert [name for name in methods if not hasattr(ctx, name)] == ["mark_shared_storage"]  # which does nothing there
    base = torch.autograd.function._C._FunctionBase
    for name, method in METHODS.items():
        assert hasattr(base, name)
        with pytest.raises(AttributeError, match=rf"ctx.{name} cannot be written; call ctx.{method}\("):
            setattr(ctx, name, ())
    for mark in (ctx.save_for_backward, ctx.mark_non_differentiable):
        with pytest.raises(TypeError, match="a int is no Tensor"):
            mark(3)


def test_setup_context(device: str) -> None:
    class Own(alpha.Function):
        @staticmethod
        def forward(x: Tensor, number: int) -> Tensor:
            return x**number

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
            x, ctx.number = inputs
            ctx.save_for_backward(x, output)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            x, output = ctx.saved_tensors
            return grad * ctx.number * output / x, None

    x = leaf(device, 1.0, 2.0)
    Own.apply(x, 3).sum().backward()
    assert x.grad.tolist() == [3, 12]


def test_what_backward_returns_may_be_kept_elsewhere(device: str) -> None:
    kept = alpha.tensor([1.0, 2.0], device=device)

    class Own(alpha.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return kept

    x = leaf(device, 1.0, 2.0)
    y = x * 1
    (Own.apply(y) + Own.apply(y) + y).sum().backward()
    assert x.grad.tolist() == [3, 5]
    assert kept.tolist() == [1, 2]
    x.grad = None
    Own.apply(x).sum().backward()
    x.grad.add_(1)
    assert kept.tolist() == [1, 2]


def test_a_saved_tensor_that_was_written_is_noticed(device: str) -> None:
    x, y = leaf(device, 1.0, 2.0), alpha.tensor([3.0, 4.0], device=device)
    result = Scaled.apply(x, 2.0, y)
    y.add_(1)
    with pytest.raises(GradientError, match="Scaled: a tensor saved for backward was written in place"):
        result.sum().backward()


def test_a_graph_that_was_walked_is_freed(device: str) -> None:
    x = leaf(device, 1.0)
    result = Scaled.apply(x, 2.0).sum()
    result.backward(retain_graph=True)
    result.backward()
    assert x.grad.tolist() == [4]
    with pytest.raises(GradientError, match="freed"):
        result.backward()


def test_checkpoint_runs_it_again(device: str) -> None:
    x, y = leaf(device, 1.0, 2.0), leaf(device, 3.0, 4.0)
    alpha.checkpoint(lambda a, b: Parts.apply(alpha.cat([Scaled.apply(a, 2.0, b), a[:1]]))[2], x, y).sum().backward()
    assert x.grad.tolist() == [70, 80]
    assert y.grad.tolist() == [20, 40]


@pytest.mark.slow
def test_a_network_trains_with_a_straight_through_estimator(device: str) -> None:
    class Sign(alpha.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.sign()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            grad = grad.clone()
            grad[x.abs() > 1] = 0
            return grad

    x = leaf(device, -2.0, -0.5, 0.5, 3.0)
    F.mse_loss(Sign.apply(x), alpha.zeros(4, device=device)).backward()
    np.testing.assert_allclose(x.grad.numpy(), [0, -0.5, 0.5, 0])


def with_backward(backward: Any) -> Any:
    forward = staticmethod(lambda ctx, x, number: x * number)
    return type("Own", (alpha.Function,), {"forward": forward, "backward": staticmethod(backward)})


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        (lambda ctx, g: g, "Own: backward returned 1 gradients for the 2 arguments of forward behind ctx"),
        (lambda ctx, g: (g, None, g), "Own: backward returned 3 gradients for the 2 arguments"),
        (lambda ctx, g: (g, g), "Own: gradient 1 is a Tensor; the argument is no Tensor, so None is needed"),
        (lambda ctx, g: (g.numpy(), None), "Own: gradient 0 is a ndarray; a Tensor or None is needed"),
        (lambda ctx, g: (g.mul_(2), None), r"Own: backward wrote to its gradient in place; write to a \.clone\(\)"),
    ],
)
def test_wrong_gradients(backward: Any, message: str) -> None:
    result = with_backward(backward).apply(leaf("cpu", 1.0, 2.0), 3.0)
    with pytest.raises(GradientError, match=message):
        result.backward(alpha.ones(2))


def test_a_gradient_of_another_shape() -> None:
    result = with_backward(lambda ctx, g: (g.sum(), None)).apply(leaf("cpu", 1.0, 2.0), 3.0)
    with pytest.raises(alpha.ShapeError, match=r"Own: the gradient of input 0 has shape \(\), the tensor \(2,\)"):
        result.sum().backward()


def test_what_is_refused() -> None:
    static = staticmethod(lambda ctx, x: x * 1)
    for one, other in (("forward", "backward"), ("backward", "forward")):
        with pytest.raises(TypeError, match=f"Own: {one} is a staticmethod, {other} is not"):
            type("Own", (alpha.Function,), {one: static, other: lambda self, x: x})
    no_rule: Any = type("Own", (alpha.Function,), {"forward": static})
    result = no_rule.apply(leaf("cpu", 1.0))
    with pytest.raises(GradientError, match="Own has no backward"):
        result.backward()
    saves: Any = type("Own", (alpha.Function,), {"forward": staticmethod(lambda ctx, x: ctx.save_for_backward(3))})
    with pytest.raises(TypeError, match="save_for_backward: a int is no Tensor"):
        saves.apply(leaf("cpu", 1.0))
    dirty: Any = type("Own", (alpha.Function,), {"forward": staticmethod(lambda ctx, x: ctx.mark_dirty(x))})
    with pytest.raises(GradientError, match="mark_dirty is not offered"):
        dirty.apply(leaf("cpu", 1.0))


def test_a_captured_step_gives_the_same_bits() -> None:
    def run(captured: bool) -> list[Any]:
        layer = alpha.nn.Linear(2, 2).to("cuda")
        with alpha.no_grad():
            layer.weight.fill_(0.5)
            layer.bias.fill_(0.1)
        optimizer = alpha.optim.SGD(layer.parameters(), lr=0.1)

        def step(x: Tensor) -> Tensor:
            loss = Reversed.apply(Scaled.apply(layer(x), 2.0)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        call = alpha.capture(step, strict=True) if captured else step
        losses = [call(alpha.full((3, 2), 0.25 * i, device="cuda")).item() for i in range(5)]
        if captured:
            assert call.why_not == ""
            assert "launches" in call.describe()
        return losses

    alpha.get_device("cuda")
    assert run(True) == run(False)
