"""Parts of tensors that are views of its memory, and are written: `h[0] += 1` on a recorded tensor."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import GradientError, Tensor

X = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4)
Y = (np.arange(12.0, dtype=np.float32)[::-1].reshape(3, 4) - 4) / 3


def numbers(zeros: Any, x: Any, y: Any) -> Any:
    h = x * 1
    h[0] += 1
    h[1:] *= 3
    h[...] *= 2
    h[2] -= 0.5
    h[1] /= 4
    h[0] **= 2
    return h


def tensors(zeros: Any, x: Any, y: Any) -> Any:
    h = x * 1
    h[0] += y[1]
    h[1:] *= y[:2]
    h[2] /= y[0] + 9
    h[:, 0] += y[:, 1]
    h[1, 1:3] -= y[0, 1:3]
    return h


def into_constants(zeros: Any, x: Any, y: Any) -> Any:
    h = zeros(3, 4)
    h[0] += y[1]
    h[1] += x[0] * 2
    h[1] *= y[2]
    return h


def parts_of_parts(zeros: Any, x: Any, y: Any) -> Any:
    h = x * 1
    h[0][1:] *= y[0][1:]
    h[1:][0][2] += y[2][2]
    h[1:][1].mul_(y[1])
    h[0][1:][1:].add_(y[1][2:])
    return h * y


def a_named_part(zeros: Any, x: Any, y: Any) -> Any:
    h = x * 1
    v = h[0]
    v += y[0]
    v *= 3
    return h * y + v * h[1]


def methods_in_place(zeros: Any, x: Any, y: Any) -> Any:
    h = x * y
    h[0].zero_()
    h[1].fill_(y[0, 0])
    h[2, 1:].copy_(y[1, 1:])
    h[0, :2].clamp_(-1, 1)
    return h * x


def elements(zeros: Any, x: Any, y: Any) -> Any:
    h = (x * 1).reshape(4, 3) * 1
    h[0, 0] += y[1, 1]
    h[3] += h[2]
    return h


CASES = (numbers, tensors, into_constants, parts_of_parts, a_named_part, methods_in_place, elements)


def run(case: Callable[..., Any], lib: Any, **where: Any) -> list[np.ndarray]:
    """The result, and the gradients of x and y."""
    x, y = (lib.tensor(values, requires_grad=True, **where) for values in (X, Y))
    h = case(lambda *size: lib.zeros(*size, **where), x, y)
    (h * h).sum().backward()
    return [h.detach().cpu().numpy(), *(np.zeros(1) if t.grad is None else t.grad.cpu().numpy() for t in (x, y))]


@pytest.mark.torch
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_values_and_gradients_are_pytorchs(device: str, case: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")
    for found, wanted in zip(run(case, alpha, device=device), run(case, torch), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-5)


def recorded(device: str) -> tuple[Tensor, Tensor]:
    x = alpha.tensor(X, device=device, requires_grad=True)
    return x, x * 1.0


def test_a_product_with_a_part_of_itself(device: str) -> None:
    x, h = recorded(device)
    h[0] *= h[1]
    h.sum().backward()
    wanted = np.ones_like(X)
    wanted[0], wanted[1] = X[1], X[0] + 1
    np.testing.assert_array_equal(x.grad.numpy(), wanted)  # type: ignore[union-attr]


def test_the_part_is_written_once(device: str) -> None:
    """The assignment that follows `h[0] += 1` finds the part in its place."""
    _, h = recorded(device)
    h[0] += 1
    assert h._version.value == 1
    z = alpha.zeros(2, 3, device=device, dtype="int64")
    z[1] += 4
    assert z.tolist() == [[0, 0, 0], [4, 4, 4]]
    assert z._version.value == 1
    z[1] = z[0]
    assert z.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_other_views_are_refused_after_the_write(device: str) -> None:
    _, h = recorded(device)
    row, flat = h[1], h.reshape(12)
    h[0] += 1
    for view in (row, flat):
        with pytest.raises(GradientError, match=r"wrote the base of a view"):
            view.sum()
        with pytest.raises(GradientError, match=r"wrote the base of a view"):
            view.add_(1.0)
    h[1].sum().backward()


def test_what_was_saved_is_guarded(device: str) -> None:
    _, h = recorded(device)
    loss = (h * h).sum()
    h[0] += 1
    with pytest.raises(GradientError, match=r"Multiply: .* written in place by x \+= number"):
        loss.backward()
    v = h[1]
    v.exp_()
    h[1] += 1
    with pytest.raises(GradientError, match=r"ExponentialInPlace: .* written in place by x \+= number"):
        h.sum().backward()


def test_leaves_are_refused_and_views_of_another_kind_written(device: str) -> None:
    x, h = recorded(device)
    with pytest.raises(GradientError, match=r"x \+= number: a leaf tensor that requires a gradient"):
        x[0] += 1
    np.testing.assert_array_equal(x.numpy(), X)
    with alpha.no_grad():
        x[0] += 1
        h[0] += 1  # is not recorded, as any other write here
    np.testing.assert_array_equal(x.numpy()[0], X[0] + 1)
    np.testing.assert_array_equal(h.numpy()[0], X[0] + 1)
    part = h.reshape(12)[3:]  # of a view that is gone
    part += 1
    with pytest.raises(GradientError, match=r"x \+= number wrote the base of a view"):
        h.sum()
    x, h = recorded(device)
    flat = h.reshape(12)
    flat[4:] *= 3
    flat.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [[1] * 4, [3] * 4, [3] * 4])  # type: ignore[union-attr]
    with pytest.raises(GradientError, match=r"wrote the base of a view"):
        h.sum()
    for view in (recorded(device)[1].chunk(3)[0], recorded(device)[1].unbind()[1]):
        view.add_(1.0)
    x, h = recorded(device)
    first, second = h.chunk(3)[:2]
    first.add_(1.0)
    with pytest.raises(GradientError, match=r"x \+= number wrote the base of a view"):
        second.sum()


def test_a_part_of_memory_that_was_replaced(device: str) -> None:
    x = alpha.tensor(X, device=device)
    y = alpha.tensor(Y[0], device=device, requires_grad=True)
    v = x[0]
    x.data = alpha.zeros_like(x)
    v += y
    assert x.sum().item() == 0
    assert not x.requires_grad
    x[0] = v
    np.testing.assert_allclose(x.numpy()[0], X[0] + Y[0])


def test_a_part_keeps_no_tensor() -> None:
    _, h = recorded("cpu")
    h[0] += 1
    part, gone = h[0], weakref.ref(h)
    gc.disable()
    try:
        del h
        assert gone() is None
    finally:
        gc.enable()
    assert part.shape == (4,)


def test_in_a_checkpointed_function(device: str) -> None:
    ends = []
    for wrapped in (False, True):
        x, y = (alpha.tensor(values, device=device, requires_grad=True) for values in (X, Y))
        result = alpha.checkpoint(tensors, None, x, y) if wrapped else tensors(None, x, y)
        result.square().sum().backward()
        ends.append([x.grad.numpy(), y.grad.numpy()])  # type: ignore[union-attr]
    np.testing.assert_array_equal(ends[0][0], ends[1][0])
    np.testing.assert_array_equal(ends[0][1], ends[1][1])
