"""A captured step gives the bits of the step itself, whatever the program does between two calls."""

from __future__ import annotations

import copy
import gc
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from rows.optimizers import OPTIMIZERS

import alpha
import alpha.nn.functional as F
from alpha import nn
from alpha.errors import CaptureError, CaptureWarning, DeviceError
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.graphs import CudaRecording, StepValues
from alpha.step import captured
from alpha.step import replay as replay_module
from alpha.step.watch import Watch

SCALE = 1.0  # a global of the programs below
Step = Callable[..., Any]
Wrap = Callable[[Step], Any]

pytestmark = pytest.mark.usefixtures("cuda")


class Net(nn.Module):
    """A convolution, batch normalisation, dropout and a linear layer."""

    def __init__(self) -> None:
        self.conv = nn.Conv2d(4, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(8, 5)
        self.scale = 1.0
        self.calls = 0

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        y = F.leaky_relu(self.norm(self.conv(x))).reshape(len(x), -1, 8).mean(dim=1)
        return self.fc(self.drop(y)) * self.scale


class Program:
    """A network with its optimizer, and a step that trains it."""

    def __init__(self, wrap: Wrap, optimizer: Any = alpha.optim.Adam, **options: Any) -> None:
        alpha.manual_seed(3)
        self.rng = np.random.default_rng(5)
        self.net = Net().to("cuda")
        trained = [p for p in self.net.parameters() if p.ndim == 2 or optimizer is not alpha.optim.Muon]
        self.optimizer = optimizer(trained, **{"lr": 0.01, **options})
        self.losses: list[alpha.Tensor] = []
        net, opt = self.net, self.optimizer

        def step(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
            loss = F.cross_entropy(net(x), y) * SCALE
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss

        self.step = wrap(step)

    def data(self, batch: int = 3) -> tuple[alpha.Tensor, alpha.Tensor]:
        x = self.rng.standard_normal((batch, 5, 4, 4), dtype=np.float32)
        return alpha.tensor(x, device="cuda"), alpha.tensor(self.rng.integers(0, 5, batch), device="cuda")

    def run(self, steps: int = 6, batch: int = 3) -> None:
        for _ in range(steps):
            self.losses.append(self.step(*self.data(batch)))

    def state(self) -> dict[str, np.ndarray]:
        """All that a step may change."""
        found = {f"net {name}": value for name, value in self.net.state_dict().numpy().items()}
        for index, slots in self.optimizer.state_dict()["state"].items():
            found |= {f"optimizer {index} {name}": np.asarray(value) for name, value in slots.items()}
        for name, parameter in self.net.named_parameters():
            if parameter.grad is not None:
                found[f"gradient {name}"] = parameter.grad.numpy()
        found |= {f"loss {index}": loss.numpy() for index, loss in enumerate(self.losses)}
        found["stream"] = np.asarray(alpha.get_rng_state()["stream"])
        return found


class Owner:
    """An object with a captured method."""

    def __init__(self) -> None:
        self.factor = 2.0

    @alpha.capture
    def times(self, x: alpha.Tensor) -> alpha.Tensor:
        return x * self.factor


def same(program: Callable[[Wrap], Program]) -> Any:
    """The captured step of a program whose results are those of the plain one."""
    plain = program(lambda step: step).state()
    with warnings.catch_warnings():
        warnings.simplefilter("error", CaptureWarning)
        done = program(alpha.capture)
    found = done.state()
    assert found.keys() == plain.keys()
    for name, expected in plain.items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)
    return done.step


# -- the same bits ------------------------------------------------------------------------------------


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
    global SCALE
    SCALE = 3.0


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
    globals()["SCALE"] = 1.0


@pytest.mark.usefixtures("scale")
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_between_two_calls_is_not_missed(change: str) -> None:
    def program(wrap: Wrap) -> Program:
        globals()["SCALE"] = 1.0
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


# -- what is held is not overwritten -----------------------------------------------------------------


def test_results_and_gradients_that_are_held_stay() -> None:
    def program(wrap: Wrap) -> Program:
        p = Program(wrap)
        for _ in range(7):
            p.run(1)
            assert p.net.fc.weight.grad is not None
            p.losses.append(p.net.fc.weight.grad)
        return p

    same(program)


def test_the_result_of_one_is_the_argument_of_another() -> None:
    first, second = alpha.capture(lambda x: x * 2.0), alpha.capture(lambda y: y + 1.0)
    for turn in range(8):
        x = alpha.tensor(np.full(4, float(turn), np.float32), device="cuda")
        y = first(x)
        np.testing.assert_array_equal(second(y).numpy(), np.full(4, 2.0 * turn + 1))
        np.testing.assert_array_equal(y.numpy(), np.full(4, 2.0 * turn))
    assert len(first.graphs) == len(second.graphs) == 1


def test_an_argument_that_is_returned_is_that_of_the_call() -> None:
    step = alpha.capture(lambda x: (x, x + 1.0))
    kept = [step(alpha.tensor([float(turn)], device="cuda"))[0] for turn in range(6)]
    assert [tensor.item() for tensor in kept] == [0, 1, 2, 3, 4, 5]


# -- what cannot be captured -------------------------------------------------------------------------


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
    "item": (lambda p: lambda x, y: x * x.sum().item(), r"values are read on the host, at .*test_capture.py:\d+"),
    "numpy": (lambda p: lambda x, y: alpha.tensor(x.numpy() * 2, device="cuda"), "values are read on the host, at "),
    "branch": (lambda p: lambda x, y: branch(x), r"values are read on the host, at .*test_capture.py:\d+"),
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


# -- memory ------------------------------------------------------------------------------------------


def test_memory_of_graphs_is_counted_and_given_back(cuda: CudaDevice) -> None:
    before = alpha.memory_stats("cuda")
    p = Program(alpha.capture)
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
    p = Program(alpha.capture)
    p.run(5)
    p.losses.clear()
    del p
    gc.collect()
    cuda.graphs.close_dropped()
    assert cuda.scratch.stats().live == 0
    assert not cuda.graphs._open


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
