"""Obstacles to a capture are named, and the step runs as usual: hooks, values on the host, random numbers, drivers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from captured_programs import Program, Step, Wrap, same

import alpha
import alpha.nn.functional as F
from alpha.errors import CaptureError, CaptureWarning, DeviceError
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.step.capturing import captured
from alpha.step.sources.ran import Ran

pytestmark = pytest.mark.usefixtures("cuda")


def with_hook(p: Program) -> Step:
    p.net.fc.register_forward_hook(lambda module, args, output: None)
    return lambda x, y: p.net(x)


def with_pre_hook(p: Program) -> Step:
    p.net.fc.register_forward_pre_hook(lambda module, args: None)
    return lambda x, y: p.net(x)


def with_tensor_hook(p: Program) -> Step:
    p.net.fc.weight.register_hook(lambda grad: None)
    return p.step


def with_counter(p: Program) -> Step:
    def step(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        p.net.calls += 1
        return p.net.fc(x.reshape(-1, 4)[:, None] if False else x.reshape(-1, 8)) * 1.0

    return step


def with_list(p: Program) -> Step:
    seen: list[Any] = []

    def step(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        seen.append(x * 2.0)
        return x + 1.0

    return step


def with_generator(p: Program) -> Step:
    rng = np.random.default_rng(0)
    return lambda x, y: x * float(rng.random())


def with_schedule(p: Program) -> Step:
    schedule = alpha.optim.CosineAnnealingLR(p.optimizer, 10)

    def step(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        schedule.step()
        return x * 1.0

    return step


def with_requires_grad(p: Program) -> Step:
    def step(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        return (x * 2.0).sum()

    return lambda x, y: captured.capture(step)(alpha.tensor(x.numpy(), device="cuda", requires_grad=True), y)


def branch(x: alpha.Tensor) -> alpha.Tensor:
    return x * 2.0 if x.sum() > 0 else x


OBSTACLES: dict[str, tuple[Callable[[Program], Step], str]] = {
    "item": (
        lambda p: lambda x, y: x * x.sum().item(),
        r"values are read on the host, at .*test_capture_obstacles.py:\d+",
    ),
    "numpy": (lambda p: lambda x, y: alpha.tensor(x.numpy() * 2, device="cuda"), "values are read on the host, at "),
    "branch": (lambda p: lambda x, y: branch(x), r"values are read on the host, at .*test_capture_obstacles.py:\d+"),
    "print": (lambda p: lambda x, y: (repr(x), x * 1.0)[1], "values are read on the host, at "),
    "upload": (lambda p: lambda x, y: x * alpha.tensor(2.0, device="cuda"), r"host values are copied .*py:\d+"),
    "wait": (lambda p: lambda x, y: (alpha.synchronize("cuda"), x * 1.0)[1], "the host waits for the device, at "),
    "hook of a module": (with_hook, "fc has a hook"),
    "hook before a module": (with_pre_hook, "fc has a hook"),
    "hook of a tensor": (with_tensor_hook, "has a hook"),
    "counter": (with_counter, "it changes .*calls|it changes p"),
    "list": (with_list, "it changes seen"),
    "numpy's random numbers": (lambda p: lambda x, y: x * float(np.random.rand()), "numpy.random"),
    "Python's random numbers": (lambda p: lambda x, y: x * random.random(), "Python's random"),
    "a generator": (with_generator, "a generator on the host"),
    "schedule": (with_schedule, "it changes schedule"),
    "seed": (lambda p: lambda x, y: (alpha.manual_seed(1), x * 1.0)[1], "random numbers are seeded, at "),
    "writes an argument": (lambda p: lambda x, y: x.mul_(2.0), "it writes an argument in place"),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_an_obstacle_is_named_and_the_step_runs_as_usual(name: str) -> None:
    make, message = OBSTACLES[name]

    def results(wrap: Wrap) -> list[np.ndarray]:
        random.seed(1)
        np.random.seed(1)
        p = Program(lambda step: step)
        step = wrap(make(p))
        return [step(*p.data()).numpy() for _ in range(4)]

    plain = results(lambda step: step)
    with pytest.warns(CaptureWarning, match=message) as warned:
        found = results(alpha.capture)
    assert len([w for w in warned if w.category is CaptureWarning]) == 1
    assert warned[0].filename == __file__
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_array_equal(a, b)
    p = Program(lambda step: step)
    strict = alpha.capture(strict=True)(make(p))
    with pytest.raises(CaptureError, match=message):
        [strict(*p.data()) for _ in range(4)]


def test_an_argument_that_requires_a_gradient() -> None:
    for calls in (0, 6):  # of another tensor before, the last of which are replays
        step = alpha.capture(lambda x: (x * 2.0).sum())
        for _ in range(calls):
            step(alpha.tensor([1.0, 2.0], device="cuda"))
        x = alpha.tensor([1.0, 2.0], device="cuda", requires_grad=True)
        with pytest.warns(CaptureWarning, match="an argument requires a gradient"):
            step(x).backward()
        assert x.grad is not None
        assert x.grad.numpy().tolist() == [2, 2]


def test_numbers_that_change_at_each_call() -> None:
    """Each number is another graph; of a number that always changes there is none."""
    step = alpha.capture(lambda x, factor: x * factor)
    x = alpha.tensor([1.0, 2.0], device="cuda")
    for turn in range(60):
        assert step(x, float(turn)).numpy().tolist() == [turn, 2.0 * turn]
        assert step(x, 0.5).numpy().tolist() == [0.5, 1.0]
    assert len(step.graphs) <= captured.MOST_GRAPHS


def test_what_changes_at_each_call_is_named() -> None:
    x, turns = alpha.tensor([1.0, 2.0], device="cuda"), [0]

    def calls(step: Step) -> None:
        for _ in range(40):
            turns[0] += 1
            assert step(x).numpy().tolist() == [turns[0], 2.0 * turns[0]]

    step = alpha.capture(lambda x: x * float(turns[0]))
    with pytest.warns(CaptureWarning, match=r"gets other arguments at each call, .*; turns\[0\]: \d+ became \d+"):
        calls(step)
    assert step.graphs == []


def test_memory_that_lives_longer_in_every_second_call_is_named() -> None:
    """The launches are the same, but no plan of the memory holds for the next call."""
    x, turns = alpha.tensor([1.0, 2.0], device="cuda"), [0]

    def program(x: alpha.Tensor) -> alpha.Tensor:
        kept: alpha.Tensor | None = x * 2.0
        if turns[0] % 2:
            kept = None
        y = x + 1.0
        del kept
        return y * 1.0

    step = alpha.capture(program)

    def calls() -> None:
        for _ in range(40):
            turns[0] += 1
            assert step(x).numpy().tolist() == [2, 3]

    with pytest.warns(CaptureWarning, match=r"array 1 that it asks for, of \d+ bytes, is dropped before array [23] in"):
        calls()
    assert step.graphs == []


def test_code_that_is_new_in_each_call_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such code runs where no value on the host tells of it, as a finalizer does."""
    x, counts = alpha.tensor([1.0, 2.0], device="cuda"), itertools.count()
    monkeypatch.setattr(Ran, "count", property(lambda ran: next(counts)))
    step = alpha.capture(lambda x: x * 2.0)

    def calls() -> None:
        for _ in range(40):
            assert step(x).numpy().tolist() == [2, 4]

    with pytest.warns(CaptureWarning, match="runs as usual: it runs code that the captures before it did not run"):
        calls()
    assert step.graphs == []


def test_what_changes_without_an_effect_is_named_too() -> None:
    """No graph is ever right again, so there is no sense in capturing."""
    x, turns = alpha.tensor([1.0, 2.0], device="cuda"), [0]

    def calls(step: Step) -> None:
        for _ in range(40):
            turns[0] += 1
            assert step(x).numpy().tolist() == [2, 4]

    step = alpha.capture(lambda x: x * (2.0 if turns[0] else 0.0))
    with pytest.warns(CaptureWarning, match=r"changes from call to call: turns\[0\]: \d+ became \d+"):
        calls(step)
    assert step.graphs == []


@pytest.mark.slow
def test_kinds_of_calls_that_come_once_cost_no_memory() -> None:
    x = alpha.tensor(np.ones(1000, np.float32), device="cuda")
    step = alpha.capture(lambda x, factor: x * factor)
    live = []
    for sign in (1.0, -1.0):
        for turn in range(2 * captured.MOST_KINDS):
            step(x, sign * turn)
        live.append(alpha.memory_stats("cuda").live)
    assert live[1] <= live[0] + 1000


def test_a_capture_that_the_driver_refuses_runs_as_usual(cuda: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    step, x = alpha.capture(lambda x: x * 2.0), alpha.tensor([1.0], device="cuda")
    step(x)

    def fail() -> None:
        raise DeviceError("spoilt")

    monkeypatch.setattr(cuda.driver, "end_capture", fail)
    with pytest.warns(CaptureWarning, match="the driver cannot capture it: spoilt"):
        assert [step(x).item() for _ in range(3)] == [2.0] * 3


@pytest.mark.slow
def test_an_obstacle_that_comes_later_gives_the_right_result_too() -> None:
    """The second shape alone reads a value, so the capture of it fails and the call runs as usual."""

    def program(wrap: Wrap) -> Program:
        p = Program(wrap)
        train = p.step

        @wrap
        def step(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
            loss = F.cross_entropy(p.net(x), y)
            p.optimizer.zero_grad()
            loss.backward()
            p.optimizer.step()
            return loss * loss.item() if len(x) == 2 else loss

        p.step = step
        p.run(5)
        p.run(3, batch=2)
        p.run(3)
        del train
        return p

    with pytest.warns(CaptureWarning, match="values are read on the host"):
        found = program(alpha.capture).state()
    for name, expected in program(lambda step: step).state().items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 3, 6])
def test_an_error_in_a_step_reaches_the_caller_and_nothing_is_lost(at: int) -> None:
    def program(wrap: Wrap) -> Program:
        p = Program(wrap)
        fail: list[bool] = [False]
        train = p.step.captured_function if isinstance(p.step, captured.Captured) else p.step

        @wrap
        def step(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
            if fail[0]:
                raise ZeroDivisionError
            return train(x, y)

        p.step = step
        for turn in range(9):
            fail[0] = turn == at
            if fail[0]:
                with pytest.raises(ZeroDivisionError):
                    p.run(1)
            else:
                p.run(1)
        return p

    same(program)


def test_a_hyper_parameter_that_means_nothing_changes_nothing() -> None:
    p = Program(alpha.capture)
    p.run(5)
    before = p.state()
    p.optimizer.param_groups[0]["lr"] = float("nan")
    with pytest.raises(ValueError, match=r"lr=nan is not finite"):
        p.run(1)
    found = p.state()
    for name in before:
        np.testing.assert_array_equal(found[name], before[name], err_msg=name)


def test_without_capture_it_runs_and_says_so_once(cuda: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda.driver, "why_no_capture", "cuda-bindings is missing", raising=False)
    step = alpha.capture(lambda x: x * 2.0)
    x = alpha.tensor([1.0], device="cuda")
    with pytest.warns(CaptureWarning, match="cuda-bindings is missing") as warned:
        assert [step(x).item() for _ in range(4)] == [2.0] * 4
    assert len(warned) == 1
    with pytest.raises(CaptureError, match="cuda-bindings is missing"):
        alpha.capture(strict=True)(lambda x: x * 2.0)(x)


def test_on_the_cpu_the_function_itself_runs() -> None:
    calls = []
    step = alpha.capture(lambda x: (calls.append(0), x * 2.0)[1])
    x = alpha.tensor([1.0])
    assert [step(x).item() for _ in range(5)] == [2.0] * 5
    assert len(calls) == 5
