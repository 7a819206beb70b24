"""A captured step gives the bits of the step itself, whatever the program does between two calls."""

from __future__ import annotations

import copy
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import captured_programs
import numpy as np
import pytest
from captured_programs import Owner, Program, Wrap, same
from rows.optimizers import OPTIMIZERS

import alpha
import alpha.nn.functional as F
from alpha import nn
from alpha.errors import DeviceError
from alpha.runtime.cuda.graphs import CudaRecording, StepValues
from alpha.step.capturing import captured
from alpha.step.capturing import replay as replay_module
from alpha.step.sources.watch import Watch

pytestmark = pytest.mark.usefixtures("cuda")


# -- the same bits ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_dropout_a_schedule_and_another_batch_in_between(precision: str) -> None:
    def program(wrap: Wrap) -> Program:
        p = Program(wrap)
        schedule = alpha.optim.CosineAnnealingLR(p.optimizer, 30)
        with alpha.precision(precision):
            for turn in range(14):
                p.run(1, batch=2 if turn % 3 == 2 else 4)
                schedule.step()
        return p

    step = same(program)
    assert len(step.graphs) == 2
    assert "launches" in step.describe()


@pytest.mark.slow
def test_a_summary_beside_captured_steps_says_what_it_says_without_them() -> None:
    """The summary counts the bytes that are kept by each layer, and changes neither the steps nor the memory."""
    texts: list[str] = []

    def program(wrap: Wrap) -> Program:
        p = Program(wrap)
        for _ in range(3):
            texts.append(p.net.summary((3, 5, 4, 4)))
            live = p.net.device.memory_stats().live
            assert p.net.summary((3, 5, 4, 4)) == texts[-1]
            gc.collect()
            assert p.net.device.memory_stats().live == live
            p.run(3)
        return p

    assert len(same(program).graphs) == 1
    assert len(set(texts)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "options"),
    [*((row.kind, row.settings[-1]) for row in OPTIMIZERS), (alpha.optim.SGD, {"momentum": 0.9, "nesterov": True})],
)
def test_optimizers(optimizer: Any, options: dict[str, Any]) -> None:
    def program(wrap: Wrap) -> Program:
        p = Program(wrap, optimizer, **options)
        p.run(4)
        p.optimizer.param_groups[0]["lr"] = 0.002
        p.run(3)
        return p

    assert len(same(program).graphs) == 1


def test_a_momentum_that_becomes_zero_leaves_the_velocity_as_it_is() -> None:
    def program(wrap: Wrap) -> Program:
        p = Program(wrap, alpha.optim.SGD, momentum=0.9)
        p.run(5)
        p.optimizer.param_groups[0]["momentum"] = 0.0
        p.run(3)
        return p

    same(program)


@pytest.mark.slow
def test_two_steps_of_an_optimizer_in_one() -> None:
    """The bias corrections of the second one are those of a later step."""

    def program(wrap: Wrap) -> Program:
        p = Program(wrap)
        net, opt = p.net, p.optimizer

        def step(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
            for part in (x[:2], x[1:]):
                loss = F.cross_entropy(net(part), y[:2])
                opt.zero_grad()
                loss.backward()
                opt.step()
            return loss

        p.step = wrap(step)
        p.run(7)
        return p

    assert len(same(program).graphs) == 1


@pytest.mark.slow
def test_gradients_that_add_up_outside() -> None:
    def program(wrap: Wrap) -> Program:
        p = Program(wrap)
        net = p.net

        @wrap
        def gradient(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return loss

        for turn in range(16):
            p.losses.append(gradient(*p.data()))
            if turn % 2:
                p.optimizer.step()
                p.optimizer.zero_grad()
        p.step = gradient
        return p

    same(program)


@pytest.mark.slow
def test_evaluation_beside_training() -> None:
    def program(wrap: Wrap) -> Program:
        p = Program(wrap)
        net = p.net
        evaluate = wrap(lambda x: net(x))
        for _ in range(3):
            net.train()
            p.run(4)
            net.eval()
            with alpha.no_grad():
                p.losses += [evaluate(p.data()[0]) for _ in range(3)]
        return p

    assert len(same(program).graphs) == 1


def test_a_method_keywords_and_a_structured_result() -> None:
    class Owner:
        def __init__(self, net: nn.Module, wrap: Wrap) -> None:
            self.net = net
            self.run = wrap(self.forward)

        def forward(self, batch: dict[str, alpha.Tensor], *, scale: float) -> dict[str, Any]:
            y = self.net(batch["x"]) * scale
            return {"y": y, "both": (y.sum(), y * 2), "scale": scale, "weight": self.net.fc.weight}

    def program(wrap: Wrap) -> Program:
        p = Program(wrap)
        owner = Owner(p.net, wrap)
        for turn in range(12):
            found = owner.run({"x": p.data()[0]}, scale=0.5 if turn % 4 else 2.0)
            assert found["scale"] in (0.5, 2.0)
            p.losses += [found["y"], *found["both"], found["weight"].detach()]
        return p

    same(program)


def test_the_decorator_on_a_method_has_graphs_for_each_object() -> None:
    x = alpha.tensor([1.0, 2.0], device="cuda")
    first, second = Owner(), Owner()
    second.factor = 3.0
    for _ in range(6):
        assert first.times(x).numpy().tolist() == [2, 4]
        assert second.times(x).numpy().tolist() == [3, 6]
    assert len(first.times.graphs) == len(second.times.graphs) == 1


# -- what changes between two calls ---------------------------------------------------------------------


def freeze(p: Program) -> None:
    p.net.conv.weight.requires_grad = False
    p.optimizer.zero_grad()


def add_group(p: Program) -> None:
    p.extra = alpha.tensor(np.ones(3, np.float32), device="cuda", requires_grad=True)  # type: ignore[attr-defined]
    p.extra.grad = alpha.tensor(np.ones(3, np.float32), device="cuda")  # type: ignore[attr-defined]
    p.optimizer.add_param_group({"params": [p.extra], "lr": 0.5})  # type: ignore[attr-defined]


def load_weights(p: Program) -> None:
    p.net.load_state_dict({k: v * 0.5 for k, v in p.net.state_dict().items()}, layout="NHWC")


def change_global(_: Program) -> None:
    captured_programs.SCALE = 3.0


CHANGES: dict[str, Callable[[Program], Any]] = {
    "dropout": lambda p: setattr(p.net.drop, "p", 0.7),
    "momentum of batch normalisation": lambda p: setattr(p.net.norm, "momentum", 0.5),
    "an attribute of the network": lambda p: setattr(p.net, "scale", 0.25),
    "another layer": lambda p: setattr(p.net, "drop", nn.Identity() if hasattr(nn, "Identity") else nn.Dropout(0.0)),
    "evaluation": lambda p: p.net.eval(),
    "requires_grad": freeze,
    "a parameter group": add_group,
    "weight decay": lambda p: p.optimizer.param_groups[0].update(weight_decay=0.1),
    "betas": lambda p: p.optimizer.param_groups[0].update(betas=(0.5, 0.9)),
    "maximize": lambda p: p.optimizer.param_groups[0].update(maximize=True),
    "loaded weights": load_weights,
    "a loaded optimizer": lambda p: p.optimizer.load_state_dict(p.optimizer.state_dict()),
    "a new parameter": lambda p: setattr(p.net.fc, "bias", nn.Parameter(p.net.fc.bias.detach() * 2)),
    "a gradient": lambda p: setattr(p.net.fc.bias, "grad", p.net.fc.bias.detach() * 1),
    "no gradients": lambda p: p.optimizer.zero_grad(),
    "the seed": lambda p: alpha.manual_seed(11),
    "a global": change_global,
    "values in place": lambda p: p.net.fc.bias.detach().mul_(2),
    "a counter that the step does not read": lambda p: setattr(p.net, "calls", 5),
}


@pytest.fixture
def scale() -> Iterator[None]:
    yield
    captured_programs.SCALE = 1.0


@pytest.mark.slow
@pytest.mark.usefixtures("scale")
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_two_calls_is_not_missed(change: str) -> None:
    def program(wrap: Wrap) -> Program:
        captured_programs.SCALE = 1.0
        p = Program(wrap)
        p.run(5)
        CHANGES[change](p)
        p.run(6)
        return p

    assert same(program).graphs


def test_a_counter_that_the_step_does_not_read_costs_no_capture() -> None:
    p = Program(alpha.capture)
    p.run(5)
    (graph,) = p.step.graphs
    for _ in range(3):
        p.net.calls += 1
        p.run(1)
    assert p.step.graphs == [graph]


def test_closures_lists_and_precision() -> None:
    graphs: list[int] = []  # after each change

    def program(wrap: Wrap) -> Program:
        p = Program(wrap)
        layer, factor, weights, table = p.net.fc, 1.0, [1.0, 2.0], np.ones(2)

        @wrap
        def step(x: alpha.Tensor) -> alpha.Tensor:
            return layer(x) * factor * weights[1] * float(table[0])

        x = alpha.tensor(np.ones((2, 8), np.float32), device="cuda")

        def run() -> None:
            p.losses += [step(x) for _ in range(5)]
            if isinstance(step, captured.Captured):
                graphs.append(len(step.graphs))

        run()
        factor = 2.0
        run()
        weights[1] = 5.0
        run()
        table[0] = 3.0
        run()
        with alpha.precision("bf16"):
            run()
        with alpha.no_grad():
            run()
        p.step = step
        return p

    same(program)
    assert graphs == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "method", ["run", "train", "fit", "test", "evaluate", "epoch", "loop", "main", "start", "stop"]
)
def test_methods_of_a_program_are_not_taken_for_functions_of_alpha(method: str) -> None:
    """A method beside the step may set learning rates: what the step calls has names that no program's method has."""

    class Run:
        def __init__(self) -> None:
            self.net = nn.Linear(3, 2).to("cuda")
            self.optimizer = alpha.optim.SGD(self.net.parameters(), 0.1, momentum=0.9)
            self.captured = alpha.capture(self.step)

        def step(self, x: alpha.Tensor) -> alpha.Tensor:
            loss = self.net(x).square().sum()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            return loss

    def steps(run: Run, x: alpha.Tensor) -> None:
        for number in range(8):
            run.optimizer.param_groups[0]["lr"] = 0.1 / (number + 1)
            run.captured(x)

    setattr(Run, method, steps)
    run = Run()
    getattr(run, method)(alpha.ones(4, 3, device="cuda"))
    assert len(run.captured.graphs) == 1


def test_a_learning_rate_that_the_step_reads_itself() -> None:
    def program(wrap: Wrap) -> Program:
        p = Program(wrap)
        group, weight = p.optimizer.param_groups[0], p.net.fc.weight.detach()
        optimizer = p.optimizer

        @wrap
        def step(x: alpha.Tensor) -> alpha.Tensor:
            return (x * weight) * optimizer.param_groups[0]["lr"]

        for turn in range(15):
            group["lr"] = 0.5 if turn < 8 else 0.25
            p.losses.append(step(alpha.tensor(np.ones(8, np.float32), device="cuda")))
        p.step = step
        return p

    assert same(program).graphs


def test_keys_of_a_dict_and_values_on_the_cpu() -> None:
    def program(wrap: Wrap) -> Program:
        p = Program(wrap)
        table, factor = {"double": 1.0}, alpha.tensor([2.0])
        step = wrap(lambda x: x * (2.0 if "double" in table else 3.0) * factor.item())
        x = alpha.tensor([1.0, 2.0], device="cuda")
        p.losses += [step(x) for _ in range(6)]
        table["triple"] = table.pop("double")
        p.losses += [step(x) for _ in range(6)]
        factor.mul_(5.0)
        p.losses += [step(x) for _ in range(6)]
        p.step = step
        return p

    assert len(same(program).graphs) == 3


def test_a_copied_object_captures_anew() -> None:
    x, first = alpha.tensor([1.0], device="cuda"), Owner()
    [first.times(x) for _ in range(5)]
    second = copy.deepcopy(first)
    second.factor = 3.0
    assert not second.times.graphs
    assert [second.times(x).item() for _ in range(5)] == [3.0] * 5
    assert first.times(x).item() == 2.0


def test_a_replay_looks_at_what_has_not_changed_without_a_call_per_object() -> None:
    """A step of 2 ms is over on a slow host before Python has looked at a few hundred objects one by one."""
    net = nn.Sequential(*(nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(20))).to("cuda")
    optimizer = alpha.optim.Adam(net.parameters(), lr=0.01)

    def step(x: alpha.Tensor) -> None:
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()

    step(alpha.tensor(np.ones((2, 2), np.float32), device="cuda"))
    watch = Watch(step, {})
    calls: list[str] = []
    for _ in range(2):  # at the first time some values are equal, but not the same
        optimizer._count([(group, []) for group in optimizer.param_groups])
        calls.clear()
        sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None)
        try:
            assert watch.change() == ""
        finally:
            sys.setprofile(None)
    assert len(list(net.parameters())) == 40
    assert len(calls) < 40 + 40, calls  # one per parameter of the optimizer, and few more
    net[3].extra = 1
    assert watch.change() != ""


# -- planted faults: what the tests above would see -------------------------------------------------------


def test_a_forgotten_update_of_the_values_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(wrap: Wrap) -> Program:
        p = Program(wrap)
        p.run(8)
        return p

    monkeypatch.setattr(StepValues, "write", lambda self: None)
    with pytest.raises(AssertionError):
        same(program)


@pytest.mark.skipif("os.environ.get('ALPHA_CUDA_DRIVER') != 'emulated'", reason="a GPU forgives it")
def test_a_stale_address_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that did not hold the memory of a parameter, replayed though the parameter was replaced."""
    use = CudaRecording.use

    def forget(self: CudaRecording, arrays: Any) -> None:
        use(self, arrays)
        self.held.clear()

    monkeypatch.setattr(CudaRecording, "use", forget)
    p = Program(alpha.capture)
    p.run(6)
    monkeypatch.setattr(replay_module.Replay, "change", lambda self, arguments: "")
    for kind in p.step._kinds.values():
        for replay in kind.replays:
            replay.watch = None  # type: ignore[assignment]
    p.net.conv.weight.array = p.net.conv.weight.array.device.copy(p.net.conv.weight.array)
    with pytest.raises(DeviceError, match="freed allocation"):
        p.run(1)
