"""A captured step that finds no memory leaves everything as before; what a cleared step gives back."""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import Any

import captured_programs
import numpy as np
import pytest
from helpers import failing_allocation

import alpha
import alpha.nn.functional as F
from alpha import OutOfMemoryError, nn
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.device import MIB

pytestmark = pytest.mark.usefixtures("cuda")
CALLS = 6  # the last of which are replays
MOST_BLOCKS = 300  # that a call asks for
TABLES = 16 * 6 * 7 * 8  # bytes of tables of the optimizer, which are kept for later captures
Results = dict[str, np.ndarray]


class Program:
    """A step that trains, with dropout, running statistics, a loss that is held, and a result that is an argument."""

    def __init__(self, accumulate: bool = False) -> None:
        alpha.manual_seed(3)
        self.net = net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3)).to("cuda")
        self.optimizer = optimizer = alpha.optim.Adam(net.parameters(), lr=0.01)
        self.held: list[Any] = []
        self.draw = np.random.default_rng(5)

        @alpha.capture
        def step(x: alpha.Tensor, y: alpha.Tensor) -> tuple[alpha.Tensor, alpha.Tensor]:
            loss = F.cross_entropy(net(x), y)
            if not accumulate:
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss, x

        self.step = step

    def data(self) -> tuple[alpha.Tensor, alpha.Tensor]:
        x = self.draw.standard_normal((5, 4), dtype=np.float32)
        return alpha.tensor(x, device="cuda"), alpha.tensor(self.draw.integers(0, 3, 5), device="cuda")

    def found(self) -> Results:
        """All that a step changes."""
        found = {f"net {name}": value for name, value in self.net.state_dict().items()}
        for index, slots in self.optimizer.state_dict()["state"].items():
            found |= {f"optimizer {index} {name}": np.asarray(value) for name, value in slots.items()}
        for name, p in self.net.named_parameters():
            found[f"version of {name}"] = np.asarray(p._version.value)
            if p.grad is not None:
                found[f"gradient of {name}"] = p.grad.numpy()
        found |= {f"held {index}": tensor.numpy() for index, tensor in enumerate(self.held)}
        found["stream"] = np.asarray(alpha.get_rng_state()["stream"])
        return found


def assert_same(found: Results, expected: Results, note: str) -> None:
    assert found.keys() == expected.keys(), note
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=f"{note}: {name}")


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [False, True])
def test_a_call_that_finds_no_memory_leaves_everything_as_before(cuda: CudaDevice, accumulate: bool) -> None:
    """Each block of each call is missing once; then the call is made again."""

    def calls(fail: bool) -> tuple[list[Results], Program, list[int]]:
        program, results, failures = Program(accumulate), [], []
        for call in range(CALLS + 3 * accumulate):
            arguments = program.data()
            before = program.found()
            live = stable_live(cuda)
            number, result = 1 if fail and call else MOST_BLOCKS, None  # the first call runs as usual
            while result is None:
                with failing_allocation(number), suppress(OutOfMemoryError):
                    result = program.step(*arguments)
                if result is None:
                    failures.append(call)
                    note = f"call {call} without block {number}"
                    assert_same(program.found(), before, note)
                    assert stable_live(cuda) <= live + TABLES, note
                number += 1
            program.held.extend(result)
            program.held += [program.net[0].weight.grad, program.net[3].bias.grad.reshape(3, 1)]
            results.append(program.found())
        return results, program, failures

    expected, *_ = calls(False)
    found, program, failures = calls(True)
    assert set(failures) == set(range(1, CALLS + 3 * accumulate))
    assert program.step.graphs
    for call, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert_same(a, b, f"after call {call}")


@pytest.mark.slow
def test_a_limit_of_memory_below_what_a_call_needs(cuda: CudaDevice) -> None:
    """Each call is tried with more and more memory; what does not fit is as if it had not been called."""

    def calls(limited: bool) -> tuple[list[Results], int, Any]:
        alpha.manual_seed(3)
        draw = np.random.default_rng(5)
        net = nn.Module()
        net.scale = nn.Parameter(alpha.tensor(draw.standard_normal(MIB // 2, dtype=np.float32), device="cuda"))
        optimizer = alpha.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

        @alpha.capture
        def step(x: alpha.Tensor) -> alpha.Tensor:
            y = x * net.scale
            for _ in range(2):
                y = y.tanh() * x
            loss = y.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        found: list[Results] = []
        failures, losses = 0, []
        for call in range(2 * CALLS):
            x = alpha.tensor(draw.standard_normal(MIB // 2, dtype=np.float32), device="cuda")
            before, tight = found[-1] if found else {}, limited and 0 < call < CALLS  # the first call runs as usual
            if tight:  # which gives memory other addresses, so that there is no graph yet
                alpha.empty_cache("cuda")
            limit, loss = alpha.memory_stats("cuda").reserved, None
            while loss is None:
                alpha.set_memory_limit(limit if tight else None, "cuda")
                try:
                    loss = step(x)
                except OutOfMemoryError:
                    failures += 1
                finally:
                    alpha.set_memory_limit(None, "cuda")
                if loss is None:
                    state = net.state_dict() | {f"momentum {i}": s["velocity"] for i, s in velocities(optimizer)}
                    assert_same(state, before, f"call {call} with {limit / MIB} MiB")
                limit += 2 * MIB
            losses.append(loss)
            found.append(net.state_dict() | {f"momentum {i}": s["velocity"] for i, s in velocities(optimizer)})
        found.append({"losses": np.array([loss.item() for loss in losses])})
        return found, failures, step

    expected, none, _ = calls(False)
    found, failures, step = calls(True)
    assert none == 0
    assert failures
    assert step.graphs
    for a, b in zip(found, expected, strict=True):
        assert_same(a, b, "after a call")


def velocities(optimizer: alpha.optim.Optimizer) -> Any:
    return optimizer.state_dict()["state"].items()


def test_a_capture_that_finds_no_memory_gives_its_copies_of_the_arguments_back(cuda: CudaDevice) -> None:
    program = Program()
    program.step(*program.data())
    cuda.memory.clear_scratch()
    arguments = program.data()
    live = stable_live(cuda)
    with failing_allocation(3), suppress(OutOfMemoryError):  # after those of both arguments
        program.step(*arguments)
    assert stable_live(cuda) == live


def test_a_replay_asks_for_no_memory_for_gradients_that_it_replaces() -> None:
    """Gradients that the program holds are moved, and they alone."""
    program = Program()
    for _ in range(CALLS):
        program.step(*program.data())

    def asked() -> int:
        arguments = program.data()
        with failing_allocation(0) as blocks:
            program.step(*arguments)
        return len(blocks)

    assert asked() == 0
    held = program.net[0].weight.grad
    values = held.numpy()
    assert asked() == 1
    np.testing.assert_array_equal(held.numpy(), values)
    assert asked() == 0


def stable_live(cuda: CudaDevice) -> int:
    gc.collect()
    return cuda.arena.stats().live + cuda.scratch.stats().live


@pytest.mark.slow
@pytest.mark.parametrize("dropped", [False, True])
def test_a_result_that_is_held_keeps_no_memory_of_graphs(cuda: CudaDevice, dropped: bool) -> None:
    """A result keeps neither the memory of a step which is cleared, nor that of one which the program has dropped."""
    alpha.empty_cache("cuda")
    x = alpha.tensor(np.arange(MIB, dtype=np.float32), device="cuda")

    def function(x: alpha.Tensor) -> alpha.Tensor:
        for _ in range(6):
            x = x.exp() / 2.0 + x.sqrt()
        return x.sum()

    step = alpha.capture(function)
    held = [step(x) for _ in range(CALLS)]
    assert step.graphs
    values = [tensor.item() for tensor in held]
    assert cuda.scratch.stats().reserved > 10 * MIB
    assert cuda.scratch.stats().live > 0
    if dropped:
        del step
        gc.collect()
        alpha.empty_cache("cuda")
    else:
        step.clear()
    assert cuda.scratch.stats().reserved == 0
    assert [tensor.item() for tensor in held] == values


def test_without_room_for_a_result_that_is_held_the_memory_around_it_stays(cuda: CudaDevice) -> None:
    step = alpha.capture(lambda x: x * 2.0)
    x = alpha.tensor(np.arange(1000, dtype=np.float32), device="cuda")
    held = [step(x) for _ in range(CALLS)][-1]
    with failing_allocation(1):
        step.clear()
    assert cuda.scratch.stats().live > 0
    np.testing.assert_array_equal(held.numpy(), 2.0 * np.arange(1000))


def test_memory_of_a_graph_stays_when_the_device_is_short(cuda: CudaDevice) -> None:
    step = alpha.capture(lambda x: (x * 2.0 + 1.0) * 3.0)
    x = alpha.tensor(np.arange(5000, dtype=np.float32), device="cuda")
    kept = [step(x).numpy() for _ in range(6)]
    assert step.graphs
    cuda.memory.clear_scratch()
    held = cuda.scratch.stats().reserved
    cuda.scratch.trim()
    assert cuda.scratch.stats().reserved == held > 0
    np.testing.assert_array_equal(step(x).numpy(), kept[0])


def test_memory_of_graphs_is_counted_and_given_back(cuda: CudaDevice) -> None:
    before = alpha.memory_stats("cuda")
    p = captured_programs.Program(alpha.capture)
    p.run(5)
    p.losses.clear()
    p.optimizer.zero_grad()
    (graph,) = p.step.graphs
    held = alpha.memory_stats("cuda")
    assert graph.nbytes > 10_000
    assert held.live >= before.live + graph.nbytes
    assert held.reserved >= held.live
    assert held.peak >= held.live
    p.step.clear()
    assert alpha.memory_stats("cuda").live <= held.live - graph.nbytes
    assert cuda.scratch.stats().reserved == 0
    del p


def test_a_step_that_is_dropped_gives_its_graphs_back(cuda: CudaDevice) -> None:
    p = captured_programs.Program(alpha.capture)
    p.run(5)
    p.losses.clear()
    del p
    gc.collect()
    cuda.graphs.close_dropped()
    assert cuda.scratch.stats().live == 0
    assert not cuda.graphs._open
