"""Gradients as a whole: accumulation, order, freeing, in-place writes, hooks, depth and memory."""

from __future__ import annotations

import gc
import re
import weakref
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import Function, GradientError, ShapeError, Tensor, nn
from alpha.ops.kernel.elementwise import add, affine, multiply


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


@pytest.mark.parametrize("hooked", [False, True])
def test_a_leaf_that_is_frozen_after_the_forward_pass_gets_no_gradient(device: str, hooked: bool) -> None:
    """As in PyTorch: what it requires when backward arrives counts; a hook sees the gradient all the same."""
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


# -- in-place writes ------------------------------------------------------------------------------


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
    """As nn.ReLU(inplace=True) after a Linear of three axes, or after a Flatten: gradients as of a copy."""
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
    """Its node leads past the write, so its gradient would be wrong."""
    x = leaf(device, 1.0, 2.0)
    y = x * 2.0
    before = y.reshape(2, 1)
    y.mul_(3.0)
    with pytest.raises(GradientError, match=r"x \*= number wrote the base of a view \(Reshape\)"):
        before.sum()
    y.reshape(2, 1).sum().backward()
    assert grad(x) == [6.0, 6.0]


@pytest.mark.parametrize("write", ["base", "view"])
def test_a_recorded_write_that_another_tensor_does_not_know_of(device: str, write: str) -> None:
    """Neither tensor was in the graph: after the write the other one would lose the gradient without a word."""
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


def test_sums_of_shared_terms(device: str) -> None:
    """(2x + 3x) + 2x, where gradients of one array meet at x and at its results."""
    x = leaf(device, 1.0, -1.0)
    ((x * 2.0 + x * 3.0) + x * 2.0).sum().backward()
    assert grad(x) == [7.0, 7.0]
    x = leaf(device, 1.0, -1.0)
    y = x * 1.0
    ((y + y) + (y + x) + y.reshape(2, 1).reshape(2)).sum().backward()
    assert grad(x) == [5.0, 5.0]


def test_a_graph_walked_twice_through_a_loss(device: str) -> None:
    """With retain_graph the second walk finds everything that the first one read unchanged."""
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
            return arrays[0] ** 3  # a numpy scalar, if X is 0-d

        def backward(self, dY: Any) -> Any:
            (X,) = self.saved
            return 3 * X**2 * dY

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
