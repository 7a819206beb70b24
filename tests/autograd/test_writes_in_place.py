"""Writes in place between forward and backward: what was saved is guarded, and views and leaves are refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import Function, GradientError, Tensor, nn
from alpha.ops.kernel.elementwise import multiply


def leaf(device: str, *values: float) -> Tensor:
    return alpha.tensor(list(values), requires_grad=True, device=device)


def grad(x: Tensor) -> list[float]:
    assert x.grad is not None
    return [float(value) for value in x.grad.numpy().reshape(-1)]


def test_an_in_place_write_of_a_saved_tensor_names_both_operators(device: str) -> None:
    x = leaf(device, 1.0, 2.0)
    y = x * 1.0
    loss = (y * y).sum()
    y.add_(1.0)
    with pytest.raises(GradientError, match=r"Multiply: .* written in place by x \+= number \(version 1,"):
        loss.backward()


def test_a_write_through_a_view_or_detached_counts(device: str) -> None:
    for alias in (lambda t: t.detach(), lambda t: t.detach().reshape(2, 1)):
        x = leaf(device, 1.0, 2.0)
        y = x * 1.0
        loss = (y * y).sum()
        alias(y).add_(1.0)
        with pytest.raises(GradientError, match=r"written in place by x \+= number"):
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
    with pytest.raises(GradientError, match=r"x \+= number: a leaf .* or no_grad\(\)"):
        x.add_(1.0)
    with alpha.no_grad():
        x.add_(1.0)
    assert x.item() == 2.0


WAYS = {
    "x += number": lambda x: x.__iadd__(1),
    "x -= number": lambda x: x.sub_(1.0),
    "x *= number": lambda x: x.mul_(2),
    "x /= number": lambda x: x.div_(2),
    "x += y": lambda x: x.add_(x.detach()),
    "x -= y": lambda x: x.__isub__(x.detach()),
    "x *= y": lambda x: x.mul_(x.detach()),
    "x /= y": lambda x: x.div_(x.detach()),
    "x[..] = value": lambda x: x.__setitem__(0, 1.0),
    "relu_": lambda x: alpha.nn.functional.relu(x, inplace=True),
}


@pytest.mark.parametrize("way", WAYS)
def test_errors_name_an_operator_in_place_as_a_user_writes_it(device: str, way: str) -> None:
    x = leaf(device, 1.0, 2.0)
    with pytest.raises(
        GradientError, match=rf"^{re.escape(way)}: a leaf .* an operator that gives a new tensor, or no_"
    ):
        WAYS[way](x)
    y = x * 1.0
    loss = (y * y).sum()
    WAYS[way](y)
    with pytest.raises(GradientError, match=rf"written in place by {re.escape(way)} \(version 1"):
        loss.backward()


def test_a_view_is_written_in_place_and_its_base_is_refused(device: str) -> None:
    x = leaf(device, 1.0, 2.0)
    base = x * 2.0
    view, other = base.reshape(2, 1), base.reshape(1, 2)
    F.relu(view.sub_(3.0), inplace=True)
    view.sum().backward()
    assert grad(x) == [0.0, 2.0]
    assert base.tolist() == [0.0, 1.0]
    for stale in (base, other):
        with pytest.raises(GradientError, match=r"relu_ wrote the base of a view .* in place through another tensor"):
            stale.sum()
    with pytest.raises(GradientError, match=r"x \+= number: a view \(Reshape\) of a leaf tensor"):
        x.reshape(2, 1).add_(1.0)
    assert x.tolist() == [1.0, 2.0]
    view = x.reshape(2, 1)
    with alpha.no_grad():
        view.add_(1.0)
    assert x.tolist() == [2.0, 3.0]


def test_layers_in_place_after_layers_that_give_views(device: str) -> None:
    """Gradients are as of a copy, if nn.ReLU(inplace=True) follows a Linear of three axes, or a Flatten."""
    alpha.manual_seed(0)
    x3, image = alpha.randn(2, 5, 6, device=device), alpha.randn(2, 4, 4, 6, device=device)
    for layer, x in (
        (nn.Linear(6, 3), x3),
        (nn.Flatten(), image * 1),
        (nn.Unflatten(1, (1, 5)), x3 * 1),
        (nn.Conv2d(6, 3, 3), image[0]),
        (nn.MultiheadAttention(6, 2), x3),
        (nn.MaxPool1d(2), x3 * 1),
    ):
        layer.to(device)
        found = []
        for inplace in (False, True):
            x.requires_grad, x.grad = True, None
            y = layer(x, x, x)[0] if isinstance(layer, nn.MultiheadAttention) else layer(x * 1)
            nn.LeakyReLU(0.1, inplace)(y).square().sum().backward()
            assert x.grad is not None
            found.append(x.grad.numpy())
        np.testing.assert_array_equal(found[0], found[1])


def test_a_view_taken_before_a_recorded_write_is_refused(device: str) -> None:
    """The node of the view leads past the write, so the gradient of the view would be wrong."""
    x = leaf(device, 1.0, 2.0)
    y = x * 2.0
    before = y.reshape(2, 1)
    y.mul_(3.0)
    with pytest.raises(GradientError, match=r"x \*= number wrote the base of a view \(Reshape\)"):
        before.sum()
    y.reshape(2, 1).sum().backward()
    assert grad(x) == [6.0, 6.0]


def test_each_recorded_write_counts(device: str) -> None:
    """A view that knows of the first one does not know of the second, and a write that is not recorded undoes none."""
    y = leaf(device, 1.0, 2.0) * 2.0
    views = [y.reshape(2, 1)]
    y.mul_(3.0)
    views.append(y.reshape(2, 1))
    y.mul_(5.0)
    for _ in range(2):
        for view in views:
            with pytest.raises(
                GradientError, match=r"x \*= number wrote the base of a view|x \+= number wrote the base"
            ):
                view.sum()
        with alpha.no_grad():
            y.add_(1.0)


@pytest.mark.parametrize("write", ["base", "view"])
def test_a_recorded_write_that_another_tensor_does_not_know_of(device: str, write: str) -> None:
    """The other tensor, which was not in the graph either, would lose the gradient after the write without a word."""
    x = leaf(device, 1.0, 2.0)
    base = alpha.tensor([0.0, 0.0], device=device)
    view = base.reshape(2, 1)
    written, other = (base, view) if write == "base" else (view, base)
    written.add_(x.reshape(written.shape))
    with pytest.raises(GradientError, match=r"x \+= y wrote the memory of a tensor in place through another"):
        other.sum()
    written.sum().backward()
    assert grad(x) == [1.0, 1.0]


def test_a_stale_view_does_not_start_a_backward(device: str) -> None:
    x = leaf(device, 1.0, 2.0)
    y = x * 2.0
    before = y.reshape(2, 1)
    y.mul_(3.0)
    with pytest.raises(GradientError, match=r"backward: x \*= number wrote the base of a view"):
        before.backward(alpha.tensor([[1.0], [1.0]], device=device))
    assert x.grad is None


def test_a_detached_tensor_follows_recorded_writes(device: str) -> None:
    x = leaf(device, 1.0, 2.0)
    y = x * 2.0
    constant = y.detach()
    y.mul_(3.0)
    assert constant.sum().item() == 18.0


KEEPERS: dict[str, Any] = {  # operators whose gradient reads their output
    "exp": lambda y: y.exp(),
    "sqrt": lambda y: y.sqrt(),
    "1 / x": lambda y: 1 / y,
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "sigmoid": F.sigmoid,
    "tanh": F.tanh,
    "conv2d": lambda y: F.conv2d(y.reshape(1, 2, 2, 1), kernel(y, 1, 1, 1, 1), None, 1, 0, negative_slope=0.1),
    "conv_transpose2d": lambda y: F.conv_transpose2d(
        y.reshape(1, 2, 2, 1), kernel(y, 1, 1, 1, 1), None, 1, 0, 0, negative_slope=0.1
    ),
}


def kernel(like: Tensor, *shape: int) -> Tensor:
    return alpha.tensor(np.ones(shape, np.float32), device=like.device)


@pytest.mark.parametrize("name", KEEPERS)
def test_an_output_that_is_saved_is_guarded(device: str, name: str) -> None:
    x = leaf(device, 1.0, 2.0, 3.0, 4.0)
    KEEPERS[name](x).sum().backward()
    y = KEEPERS[name](x)
    loss = y.sum()
    y.detach().add_(1.0)
    with pytest.raises(GradientError, match=r"written in place by x \+= number"):
        loss.backward()


INPUTS: dict[str, Any] = {  # operators whose gradient reads an input
    "mul": lambda y: y * y.detach(),
    "div": lambda y: 2.0 / (y * 1.0) + kernel(y, 4) / y,
    "elu": F.elu,
    "softplus": F.softplus,
    "pow": lambda y: y**3,
    "tensor pow": lambda y: kernel(y, 4) ** y,
    "log": lambda y: y.log(),
    "gelu": F.gelu,
    "matmul": lambda y: y.reshape(2, 2) @ y.reshape(2, 2),
    "linear": lambda y: F.linear(y.reshape(2, 2), y.reshape(2, 2)),
    "a reshaped copy of none": lambda y: Flat.apply(y),
}


class Flat(Function):
    """Y = X^2 with half its gradient, keeping X under another shape: the guard knows the memory, not the object."""

    def forward(self, *arrays: Any, **options: Any) -> Any:
        self.save(arrays[0].reshape(-1))
        return multiply(arrays[0], arrays[0])

    def backward(self, dY: Any) -> Any:
        (X,) = self.saved
        return multiply(X, dY)


@pytest.mark.parametrize("name", INPUTS)
def test_an_input_that_is_saved_is_guarded(device: str, name: str) -> None:
    x = leaf(device, 1.0, 2.0, 3.0, 4.0)
    y = x * 1.0
    loss = INPUTS[name](y).sum()
    y.detach().add_(1.0)
    with pytest.raises(GradientError, match=r"written in place by x \+= number"):
        loss.backward()
