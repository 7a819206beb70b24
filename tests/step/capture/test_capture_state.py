"""Changes that make another graph of a captured step, and what the step leaves in the program."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.errors import CaptureError, CaptureWarning
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.step.capturing import captured
from alpha.step.capturing.attempt import MOST_DOUBTS

pytestmark = pytest.mark.usefixtures("cuda")


def on_cuda(*values: float, requires_grad: bool = False) -> alpha.Tensor:
    return alpha.tensor(np.array(values, np.float32), device="cuda", requires_grad=requires_grad)


def repeated(step: Callable[..., Any], *args: Any, calls: int = 6) -> Any:
    """A captured step after so many calls that it is replayed."""
    for _ in range(calls):
        step(*args)
    assert step.graphs  # type: ignore[attr-defined]
    return step


# -- what makes another graph ---------------------------------------------------------------------------


REACHED: dict[str, Callable[[list[float]], Callable[..., alpha.Tensor]]] = {
    "a default": lambda box: lambda x, factor=box: x * factor[0],
    "a default of a keyword": lambda box: lambda x, *, factor=box: x * factor[0],
    "an argument of a partial": lambda box: functools.partial(lambda factor, x: x * factor[0], box),
    "a keyword of a partial": lambda box: functools.partial(lambda x, factor: x * factor[0], factor=box),
}


@pytest.mark.parametrize("make", REACHED.values(), ids=REACHED)
def test_a_list_that_changes_wherever_the_function_has_it_from(make: Any) -> None:
    box, x = [1.0], on_cuda(1.0)
    step = repeated(alpha.capture(make(box)), x)
    box[0] = 2.0
    assert step(x).item() == 2.0


def scaled(x: alpha.Tensor, owner: Any) -> alpha.Tensor:
    return x * owner.scale


@pytest.mark.parametrize("helper", [scaled, lambda x, owner: scaled(x, owner)])
def test_an_attribute_that_a_function_reads_which_the_step_calls(helper: Any) -> None:
    owner, x = types.SimpleNamespace(scale=1.0), on_cuda(1.0)
    step = repeated(alpha.capture(lambda x: helper(x, owner)), x)
    owner.scale = 2.0
    assert step(x).item() == 2.0


class Strange:
    """An object that answers to no name but its own."""

    scale = 2.0

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"asked for {name}")


def test_an_object_is_asked_for_no_attribute_that_it_need_not_have() -> None:
    owner = Strange()
    assert repeated(alpha.capture(lambda x: x * owner.scale), on_cuda(1.0))(on_cuda(3.0)).item() == 6.0


class Scale:
    scale = 1.0


SCALE = Scale()


def with_global(x: alpha.Tensor) -> alpha.Tensor:
    return scaled(x, SCALE)


def test_an_attribute_of_a_global_that_a_function_reads_which_the_step_calls() -> None:
    x, step = on_cuda(1.0), alpha.capture(lambda x: with_global(x))
    try:
        for SCALE.scale in (1.0, 2.0):
            assert [step(x).item() for _ in range(6)] == [SCALE.scale] * 6
    finally:
        del SCALE.scale
    assert len(step.graphs) == 2


def test_zero_and_minus_zero_are_two_numbers() -> None:
    x = on_cuda(1.0)
    step = repeated(alpha.capture(lambda x, factor: x * factor), x, 0.0)
    assert np.signbit(step(x, -0.0).item())


def test_a_count_of_steps_that_the_step_reads_itself() -> None:
    p, x = on_cuda(1.0, requires_grad=True), on_cuda(1.0)
    optimizer = alpha.optim.SGD([p], lr=1.0)
    p.grad = on_cuda(1.0)
    optimizer.step()
    step = repeated(alpha.capture(lambda x: x * float(optimizer.state[p]["step"])), x)
    optimizer.step()
    assert step(x).item() == 2.0


def test_calls_without_a_right_graph_count_only_in_a_row() -> None:
    factor, x = 0.0, on_cuda(1.0)
    step = alpha.capture(lambda x: x * factor)
    for factor in map(float, range(captured.MOST_MISSES)):
        assert [step(x).item() for _ in range(5)] == [factor] * 5  # the last ones are replays
    assert step.graphs
    assert not step.why_not


# -- what a step leaves ---------------------------------------------------------------------------------


def test_an_argument_that_is_written_is_written_at_each_call() -> None:
    x, step = on_cuda(0.0), alpha.capture(lambda x: x.add_(1.0) * 2.0)
    with pytest.warns(CaptureWarning, match="it writes an argument in place"):
        assert [step(x).item() for _ in range(4)] == [2.0, 4.0, 6.0, 8.0]
    assert x.item() == 4.0


def test_a_gradient_that_only_the_optimizer_reads() -> None:
    p = on_cuda(0.0, requires_grad=True)
    optimizer = alpha.optim.SGD([p], lr=1.0)
    p.grad = first = on_cuda(1.0)
    step = repeated(alpha.capture(lambda: optimizer.step()), calls=8)
    p.grad = on_cuda(10.0)
    step()
    assert (p.item(), first.item()) == (-18.0, 1.0)


@pytest.mark.slow
def test_a_step_that_needs_no_memory_asks_for_none(fresh: CudaDevice) -> None:
    """CUDA refuses to allocate 0 bytes."""
    p = alpha.tensor([3.0], device=fresh, requires_grad=True)
    optimizer = alpha.optim.SGD([p], lr=1.0)
    p.grad = alpha.tensor([1.0], device=fresh)
    repeated(alpha.capture(lambda: optimizer.step()), calls=5)
    assert p.tolist() == [-2.0]


def test_a_gradient_that_a_replay_adds_to_is_guarded() -> None:
    p, w, x = on_cuda(1.0, requires_grad=True), on_cuda(1.0, requires_grad=True), on_cuda(1.0)
    p.grad = on_cuda(0.0)
    step = repeated(alpha.capture(lambda x: (p * x).sum().backward()), x)
    y = w * p.grad
    step(x)
    assert p.grad.item() == 7.0
    with pytest.raises(alpha.GradientError, match="written in place by backward"):
        y.sum().backward()


def test_a_step_that_fails_leaves_the_gradient_of_before() -> None:
    p, fails = on_cuda(1.0, requires_grad=True), False

    @alpha.capture
    def step(x: alpha.Tensor) -> None:
        p.grad = None
        (p * x).sum().backward()
        if fails:
            raise ZeroDivisionError

    step(on_cuda(1.0))
    before, fails = p.grad, True
    with pytest.raises(ZeroDivisionError):
        step(on_cuda(2.0))
    assert p.grad is before


# -- the captured function itself -----------------------------------------------------------------------


class Owner:
    @alpha.capture(strict=True)
    def times(self, x: alpha.Tensor) -> alpha.Tensor:
        return x * x.sum().item()


def test_copies_and_methods_are_as_strict() -> None:
    assert copy.deepcopy(alpha.capture(strict=True)(abs)).strict
    with pytest.raises(CaptureError, match="values are read on the host"):
        Owner().times(on_cuda(1.0))


def test_a_cleared_step_is_captured_once_nothing_speaks_against_it() -> None:
    reads, x = True, on_cuda(3.0)
    step = alpha.capture(lambda x: x * x.item() if reads else x * 2.0)
    with pytest.warns(CaptureWarning, match="values are read on the host"):
        assert [step(x).item() for _ in range(MOST_DOUBTS)] == [9.0] * MOST_DOUBTS
    reads = False
    step.clear()
    assert step.why_not == ""
    assert repeated(step, x)(x).item() == 6.0
