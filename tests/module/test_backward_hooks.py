"""Hooks that see the gradients of a module's call, compared with PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import GradientError, Tensor, nn

X = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]], np.float32)
Y = np.array([[2.0, 1.0, -1.0], [3.0, 0.25, 2.0]], np.float32)


def mixed(base: type) -> Any:
    """A module of two arguments and two outputs, for Alpha or PyTorch."""

    class Mixed(base):  # type: ignore[misc]
        def forward(self, x: Any, factor: float, y: Any) -> Any:
            return x * y * factor, (x + y).exp()

    return Mixed()


def numbers(gradients: tuple[Any, ...]) -> list[Any]:
    return [None if g is None else g.detach().cpu().numpy().copy() for g in gradients]


def both(device: str, run: Callable[[Any, Any, Any, Any], None]) -> tuple[list[Any], list[Any]]:
    """Logs of a program with Alpha and with PyTorch, and the gradients of its leaves at the end."""
    torch = pytest.importorskip("torch")
    logs = []
    for lib, base, where in ((alpha, nn.Module, {"device": device}), (torch, torch.nn.Module, {})):
        log: list[Any] = []
        x, y = (lib.tensor(values, requires_grad=True, **where) for values in (X, Y))
        run(mixed(base), log, x, y)
        log += numbers((x.grad, y.grad))
        logs.append(log)
    return logs[0], logs[1]


def equal(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        if b is None or isinstance(b, str):
            assert a == b if isinstance(b, str) else a is None
        else:
            np.testing.assert_allclose(a, b, rtol=1e-5)


def watch_all(module: Any, log: list[Any], x: Any, y: Any) -> None:
    module.register_full_backward_hook(lambda m, i, o: log.extend(["in", *numbers(i), "out", *numbers(o)]))
    module.register_full_backward_pre_hook(lambda m, o: log.extend(["pre", *numbers(o)]))
    first, second = module(x * 1, 2.0, y * 1)
    (first * 3 + second).sum().backward()


def watch_one_output(module: Any, log: list[Any], x: Any, y: Any) -> None:
    module.register_full_backward_hook(lambda m, i, o: log.extend([*numbers(i), *numbers(o)]))
    module(x, 2.0, y)[1].sum().backward()


def change_all(module: Any, log: list[Any], x: Any, y: Any) -> None:
    module.register_full_backward_pre_hook(lambda m, o: (o[0] * 10, o[1] * 0.5))
    module.register_full_backward_hook(lambda m, i, o: (i[0] * 2, None, i[2] * 3 + o[0]))
    module.register_full_backward_hook(lambda m, i, o: log.extend(numbers(i)))
    first, second = module(x, 2.0, y)
    (first * second).sum().backward()


def several_calls(module: Any, log: list[Any], x: Any, y: Any) -> None:
    handle = module.register_full_backward_hook(lambda m, i, o: log.extend([*numbers(i), *numbers(o)]))
    a, b = module(x, 0.5, y)
    c, d = module(a, 2.0, b)
    loss = (c + d).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    handle.remove()
    module(x, 1.0, y)[0].sum().backward()


PROGRAMS = (watch_all, watch_one_output, change_all, several_calls)


@pytest.mark.torch
@pytest.mark.parametrize("run", PROGRAMS, ids=lambda run: run.__name__)
def test_hooks_see_what_pytorchs_see(device: str, run: Callable[[Any, Any, Any, Any], None]) -> None:
    equal(*both(device, run))


def test_a_first_layer(device: str) -> None:
    """Nothing flows back to its argument; the hook sees the gradient of the output nonetheless."""
    layer = nn.Linear(3, 2).to(device)
    seen: list[Any] = []
    layer.register_full_backward_hook(lambda m, i, o: seen.append((m, i, o[0].numpy())))
    layer(alpha.tensor(X, device=device)).sum().backward()
    module, inputs, output = seen.pop()
    assert module is layer
    assert inputs == (None,)
    np.testing.assert_array_equal(output, np.ones((2, 2)))
    with alpha.no_grad():
        layer(alpha.tensor(X, device=device))
    assert not seen


def test_an_argument_that_needs_no_gradient(device: str) -> None:
    x, y = (alpha.tensor(values, device=device) for values in (X, Y))
    module, log = mixed(nn.Module), []
    module.register_full_backward_hook(lambda m, i, o: log.extend([*numbers(i), *numbers(o)]))
    module(x, 2.0, y.requires_grad_())[0].sum().backward()
    equal(log, [None, None, X * 2, np.ones_like(X), None])


def test_a_hook_may_keep_and_write_what_it_is_given(device: str) -> None:
    x = alpha.tensor(X, device=device, requires_grad=True)
    layer, kept = nn.Tanh(), []

    def hook(module: nn.Module, grad_input: Any, grad_output: Any) -> None:
        kept.extend([grad_input[0], grad_output[0]])
        grad_input[0].zero_()

    layer.register_full_backward_hook(hook)
    y = layer(x)
    (y.sum() + x.sum()).backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 - np.tanh(X) ** 2, rtol=1e-5, atol=1e-6)  # type: ignore[union-attr]
    assert kept[0].numpy().any() == 0
    np.testing.assert_array_equal(kept[1].numpy(), np.ones_like(X))


def test_a_hooked_layer_is_computed_by_itself(device: str) -> None:
    """A convolution in front of a batch normalisation has its own call if a hook sees it."""
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU()).to(device)
    x = alpha.tensor(np.random.default_rng(0).standard_normal((2, 5, 5, 2)).astype(np.float32), device=device)
    x.requires_grad_()
    net(x).sum().backward()
    assert x.grad is not None
    wanted, x.grad = x.grad.numpy(), None
    shapes: list[Any] = []
    for layer in net:
        layer.register_full_backward_hook(lambda m, i, o: shapes.append((type(m).__name__, i[0].shape, o[0].shape)))
        assert layer.is_hooked
    net(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-4, atol=1e-5)  # type: ignore[attr-defined]
    small, large = (2, 3, 3, 3), (2, 5, 5, 2)
    assert shapes == [("ReLU", small, small), ("BatchNorm2d", small, small), ("Conv2d", large, small)]


def test_what_is_refused(device: str) -> None:
    x = alpha.tensor(X, device=device, requires_grad=True)
    layer = nn.Identity()
    handle = layer.register_full_backward_hook(lambda m, i, o: (o[0], o[0]))
    with pytest.raises(TypeError, match="Identity: a backward hook returned 2 values for the 1 of grad_input"):
        layer(x).sum().backward()
    with pytest.raises(TypeError, match=r"Identity: with a backward hook it returns a Tensor or a tuple .* not a dict"):
        layer({"x": x})
    with pytest.raises(GradientError, match=r"a view \(ModulePassage\) in the graph cannot be written in place"):
        layer(x).add_(1.0)
    handle.remove()
    layer.register_full_backward_hook(lambda m, i, o: o[0].sum())
    with pytest.raises(alpha.ShapeError, match=r"ModuleGate: the gradient of input 0 has shape \(\)"):
        layer(x).sum().backward()


def test_gradients_by_grad(device: str) -> None:
    x = alpha.tensor(X, device=device, requires_grad=True)
    layer: nn.Module = nn.Tanh()
    layer.register_full_backward_hook(lambda m, i, o: (i[0] * 2,))
    (found,) = alpha.grad(layer(x * 1.0).sum(), x)
    assert isinstance(found, Tensor)
    np.testing.assert_allclose(found.numpy(), 2 * (1 - np.tanh(X) ** 2), rtol=1e-4, atol=1e-6)
