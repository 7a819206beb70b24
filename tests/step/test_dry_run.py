"""A dry run lists what the step launches, and leaves everything as it was."""

from __future__ import annotations

import copy
import functools
import gc
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import choosing, python_calls

import alpha
import alpha.nn.functional as F
from alpha import nn
from alpha.core.numerics import PRECISIONS
from alpha.errors import DeviceError, DryRunError
from alpha.ops.kernel.tables.chunk_tables import CONSTANTS
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver
from alpha.runtime.cuda.planning.driver_dry import DryDevice, DryDriver, Launch
from alpha.runtime.recording import active
from alpha.step.dry_arguments import shaped
from alpha.step.sources.code import globals_in

ARCHS = ("sm_75", "sm_80", "sm_90a")
BATCH = 64
COUNT = 0  # a global of the steps below
KEPT: alpha.Tensor | None = None  # another one
SCALE = 1.0


class Net(nn.Module):
    """Convolutions, batch normalisation, pools, dropout and linear layers, large enough for tensor cores."""

    def __init__(self) -> None:
        self.conv1 = nn.Conv2d(3, 64, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(2)
        self.body = nn.Sequential(nn.Conv2d(64, 64, 3, 2, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True))
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(64 * 4 * 4, 10)
        self.calls = 0

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        self.calls += 1
        y = self.body(self.pool(F.relu(self.bn1(self.conv1(x)))))
        return self.fc(self.drop(y.flatten(1)))


class Program:
    """A network, an optimizer and a step."""

    def __init__(self, device: Any = "cpu", net: Callable[[], nn.Module] = Net) -> None:
        alpha.manual_seed(3)
        self.net = net().to(device)
        self.optimizer = alpha.optim.Adam(self.net.parameters(), lr=0.01)
        self.x = alpha.tensor(np.zeros((BATCH, 16, 16, 3), np.float32), device=device)
        self.y = alpha.tensor(np.zeros(BATCH, np.int32), device=device)

    def step(self, x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        loss = F.cross_entropy(self.net(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


class Silent(EmulatedDriver):
    """The emulated driver with its memory; it notes launches and does not compute them."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[Launch] = []

    compile, load, function, launch = DryDriver.compile, DryDriver.load, DryDriver.function, DryDriver.launch  # type: ignore[assignment]


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], CudaDevice]]:
    devices: list[CudaDevice] = []

    def make(arch: str) -> CudaDevice:
        monkeypatch.setenv("ALPHA_ARCH", arch)
        devices.append(CudaDevice(Silent()))
        return devices[-1]

    yield make
    for device in devices:
        device.close()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("arch", ARCHS)
def test_the_launches_are_those_of_the_step(silent: Callable[[str], CudaDevice], arch: str, precision: str) -> None:
    """The first step and a later one, in order, with grids, blocks, shared memory and macros."""
    device = silent(arch)
    program = Program(device)
    launched: list[Launch] = device.driver.launches  # type: ignore[attr-defined]
    with alpha.precision(precision):
        for _ in range(2):
            run = alpha.dry_run(program.step, program.x, program.y, gpu=device)
            elsewhere = alpha.dry_run(program.step, program.x, program.y, gpu=arch)
            launched.clear()
            program.step(program.x, program.y)
            assert [step.launch for step in run.launches] == launched
            assert [step.launch for step in elsewhere.launches] == launched
            assert len(launched) > 30
            assert run.units == tuple(dict.fromkeys(launch.unit for launch in launched))
            assert run.devices == {device}


def test_a_gpu_that_is_not_there_has_a_network_of_the_cpu() -> None:
    """The kernels for any GPU can be known on any machine."""
    program = Program()
    with choosing(lambda v: "sm90" in v.name):
        units = {arch: alpha.dry_run(program.step, program.x, program.y, gpu=arch).units for arch in ARCHS}
    assert len(set(units.values())) == 3
    assert any(source == "conv2d/conv_v2/sm90.cu" for source, _ in units["sm_90a"])
    known = "use 'cuda', the GPU of this machine, or the architecture of another one: 'sm_75', 'sm_80', .*'sm_120'"
    for gpu in ("cpu", "sm_70", "sm_1", "H100", 90, (9, 0)):
        with pytest.raises(
            DeviceError, match=rf"dry_run: gpu={re.escape(repr(gpu))} is no GPU that Alpha knows: {known}"
        ):
            alpha.dry_run(program.step, program.x, program.y, gpu=gpu)  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match=f"dry_run: cpu is no GPU: {known}"):
        alpha.dry_run(program.step, program.x, program.y, gpu=alpha.get_device("cpu"))


def test_phases_and_layers() -> None:
    program = Program()
    run = alpha.dry_run(program.step, program.x, program.y, gpu="sm_80")
    phases = [step.phase for step in run.launches]
    assert phases == sorted(phases, key=["forward", "backward", "update"].index)
    of_phase = {
        phase: list(dict.fromkeys(step.layer for step in run.launches if step.phase == phase)) for phase in set(phases)
    }
    layers = ["conv1", "bn1", "Net", "pool", "body.0", "body.1", "drop", "fc"]  # body.1 computes body.2, too
    assert of_phase["forward"] == [*layers, ""]
    layers.remove("Net")  # whose ReLU has no launch in the backward pass: the pool computes its gradient, too
    assert [layer for layer in of_phase["backward"] if layer] == layers[::-1]
    assert of_phase["update"] == [""]
    for step in run.launches:
        if step.launch.entry == "conv_v2_sm80":
            assert (step.phase, step.layer) == ("forward", "body.0")
        if step.launch.source.startswith("batchnorm/"):
            assert step.layer in ("bn1", "body.1")
    lines = run.describe().splitlines()
    assert lines[0].startswith(f"{len(run.launches)} launches ({phases.count('forward')} forward, ")
    assert lines[0].endswith(f"{len(run.units)} compiled files on dry sm_80")
    assert len(lines) == 1 + len(run.launches)
    (line,) = [line for line in lines if ":conv_v2_sm80 " in line]
    assert re.match(r"forward   body\.0 +\d+\.\d{4} ms  conv2d/conv_v2/sm80\.cu:conv_v2_sm80 BM=", line)
    assert "  grid " in line
    assert line.endswith(" bytes")


def test_several_networks_have_names_of_their_own() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.Linear(4, 4)

        def forward(self, x: alpha.Tensor) -> dict[str, list[alpha.Tensor]]:
            return {"y": [self.layer(x)]}

    one, two = Pair(), nn.Linear(4, 4)
    run = alpha.dry_run(lambda x: two(one(x)["y"][0]).sum().backward(), shaped((8, 4)), gpu="sm_80")
    assert {step.layer for step in run.launches if step.phase == "backward"} == {"", "Pair.layer", "Linear"}


def _small(width: int, name: str = "") -> nn.Module:
    """A sequence of two layers with weights, or an object of a class of this name with one."""
    if not name:
        return nn.Sequential(nn.Linear(width, 9), nn.Tanh(), nn.Linear(9, width))
    kind = type(name, (nn.Module,), {"forward": lambda self, x: self.fc(x)})
    made = kind()
    made.fc = nn.Linear(width, width)
    return made


NETWORKS: dict[str, tuple[Callable[[], list[nn.Module]], set[str]]] = {
    "one": (lambda: [_small(8)], {"0", "2"}),
    "two of one class": (
        lambda: [_small(8), _small(8)],
        {"Sequential.0", "Sequential.2", "Sequential-2.0", "Sequential-2.2"},
    ),
    "three without parts, and another": (
        lambda: [nn.Linear(8, 8), nn.Linear(8, 8), _small(8, "Net"), nn.Linear(8, 8)],
        {"Linear", "Linear-2", "Net.fc", "Linear-3"},
    ),
    "equal names of classes and parts": (
        lambda: [_small(8, "G"), _small(8, "D"), _small(8, "G")],
        {"G.fc", "D.fc", "G-2.fc"},
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_layer_has_one_name_in_profiles_dry_runs_and_plans(name: str) -> None:
    """A layer of each of several models has its weights, its gradients and its products under one name of its own."""
    make, names = NETWORKS[name]
    models = make()

    def step(x: alpha.Tensor) -> None:
        for model in models:
            x = model(x)
        x.mean().backward()

    x = alpha.rand(4, 8)
    plan = alpha.memory_plan(step, x, gpu="sm_90a")
    for kind in ("parameters", "gradients"):
        assert {share.layer for share in plan.shares if share.kind == kind} == names
    plain = {share.layer for share in plan.shares} - names - {""}
    assert all(layer.rpartition(".")[2] == "1" for layer in plain)  # of a Tanh, which has no weights
    run = alpha.dry_run(step, x, gpu="sm_90a")
    with alpha.profile() as p:
        step(x)
    for events in (run.report.events, p.events):
        assert {event.layer for event in events if event.work.flop} == names
    sizes = {layer: sum(s.nbytes for s in plan.shares if (s.kind, s.layer) == ("parameters", layer)) for layer in names}
    assert len(set(sizes.values())) == 1


def test_names_follow_the_order_of_calls() -> None:
    """The first model that is called has the plain name, wherever the step keeps it."""
    late, early = nn.Linear(8, 9), nn.Linear(9, 8)

    def step(x: alpha.Tensor) -> None:
        late(early(x)).mean().backward()

    plan = alpha.memory_plan(step, alpha.rand(2, 9), gpu="sm_90a")
    run = alpha.dry_run(step, alpha.rand(2, 9), gpu="sm_90a")
    assert [layer for layer in dict.fromkeys(s.layer for s in run.launches) if layer] == ["Linear", "Linear-2"]
    assert plan.when == "the backward pass of Linear-2"


def test_a_model_behind_one_that_is_gone_is_another_one() -> None:
    with alpha.profile() as p:
        for _ in range(3):
            nn.Linear(4, 4)(alpha.ones(2, 4))
            gc.collect()
    assert {event.layer for event in p.events if event.work.flop} == {"Linear", "Linear-2", "Linear-3"}


# -- nothing changes -------------------------------------------------------------------------------


def everything(program: Program) -> dict[str, Any]:
    """State that a step could change, values and identities."""
    found: dict[str, Any] = {"modules": [(id(m), dict(vars(m))) for m in program.net.modules()]}
    found["tensors"] = [
        (id(t), id(t.array), t.requires_grad, t._grad, t._node, t._version.value, t._version.recorded, dict(t._hooks))
        for _, t in program.net.named_tensors()
    ]
    found["values"] = {name: value.tobytes() for name, value in program.net.state_dict().numpy().items()}
    found["optimizer"] = copy.copy(program.optimizer.param_groups[0]), len(program.optimizer.state)
    found["drawn"] = alpha.get_rng_state(), random.getstate(), np.random.get_state()[1].tobytes()  # type: ignore[index]
    found["mode"] = alpha.get_precision(), alpha.is_grad_enabled(), active()
    return found


@pytest.mark.parametrize("steps", [0, 1])
def test_everything_is_left_as_it_was(device: str, steps: int) -> None:
    program = Program(
        device, lambda: nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Dropout(0.5), nn.Linear(768, 9))
    )
    seen: list[Any] = []
    program.net.register_forward_hook(lambda module, args, output: seen.append(output))
    next(iter(program.net.parameters())).register_hook(lambda grad: seen.append(grad))
    counts = {"calls": 0}
    total = np.zeros(3)
    generator = np.random.default_rng(0)
    calls = 0

    def step(x: alpha.Tensor, y: alpha.Tensor) -> None:
        global COUNT
        nonlocal calls
        calls += 1
        COUNT += 1
        counts["calls"] += 1
        total[1] += generator.normal() + random.random() + np.random.rand()
        program.net.eval()
        alpha.set_precision("bf16")
        program.step(x, y)
        x.zero_grad()
        y.array = x.array

    for _ in range(steps):
        program.step(program.x, program.y)
        seen.clear()
    before, state = everything(program), generator.bit_generator.state
    CONSTANTS.clear()  # a table of the dry run could take the place of one from an earlier test
    allocated = alpha.memory_stats(device).allocations
    given = program.x.array, program.y.array
    run = alpha.dry_run(step, program.x, program.y, gpu="sm_80")
    assert len(run.launches) > 10
    assert everything(program) == before
    assert (program.x.array, program.y.array) == given
    assert alpha.memory_stats(device).allocations == allocated
    assert generator.bit_generator.state == state
    assert (seen, counts, list(total), calls, COUNT) == ([], {"calls": 0}, [0, 0, 0], 0, 0)
    assert alpha.get_device(device) is program.x.device


@pytest.mark.slow
def test_it_is_cheap() -> None:
    model = alpha.models.resnet34()
    optimizer = alpha.optim.Adam(model.parameters())

    def step(x: alpha.Tensor, y: alpha.Tensor) -> None:
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    runs: list[Any] = []
    X, Y = shaped((512, 32, 32, 3)), shaped((512,), np.int32)
    calls = sum(python_calls(lambda: runs.append(alpha.dry_run(step, X, Y, gpu="sm_90a"))).values())
    assert len(runs[0].launches) > 400
    assert calls < 1000 * len(runs[0].launches), calls


# -- what a step may be ----------------------------------------------------------------------------


def steps(program: Program) -> dict[str, Callable[..., Any]]:
    def plain(x: alpha.Tensor, y: alpha.Tensor) -> Any:
        return program.step(x, y)

    def with_factor(factor: float, x: alpha.Tensor, y: alpha.Tensor, *, scale: float = SCALE) -> Any:
        return program.step(x, y)

    def recursive(x: alpha.Tensor, y: alpha.Tensor, depth: int = 2) -> Any:
        return recursive(x, y, depth - 1) if depth else again(x, y)

    again = alpha.capture(plain)
    return {
        "function": plain,
        "partial": functools.partial(with_factor, 2.0, scale=3.0),
        "captured": again,
        "recursive": recursive,
        "decorated": alpha.precision("float32")(alpha.memory_mode("fast")(plain)),
        "decorated, captured": alpha.capture(alpha.memory_mode("fast")(plain)),
        "captured, decorated": alpha.precision("float32")(again),
    }


@pytest.mark.parametrize(
    "name", ["function", "partial", "captured", "recursive", "decorated", "decorated, captured", "captured, decorated"]
)
def test_functions_of_every_kind(name: str) -> None:
    program = Program(net=lambda: nn.Sequential(nn.Flatten(), nn.Linear(768, 10)))
    expected = alpha.dry_run(program.step, program.x, program.y, gpu="sm_80")
    run = alpha.dry_run(steps(program)[name], program.x, program.y, gpu="sm_80")
    assert run.launches == expected.launches


def test_a_module_and_a_shape() -> None:
    net = Net()
    run = alpha.dry_run(net, (BATCH, 16, 16, 3), gpu="sm_80")
    assert {step.phase for step in run.launches} == {"forward", "backward"}
    with alpha.no_grad():
        forward = alpha.dry_run(net, (BATCH, 16, 16, 3), gpu="sm_80")
    assert {step.phase for step in forward.launches} == {"forward"}
    assert forward.launches == run.launches[: len(forward.launches)]
    evaluated = alpha.dry_run(net.eval(), (BATCH, 16, 16, 3), gpu="sm_80")
    assert {step.phase for step in evaluated.launches} == {"forward"}
    assert len(evaluated.launches) < len(forward.launches)  # no dropout
    called = alpha.dry_run(net, shaped((BATCH, 16, 16, 3)), gpu="sm_80")
    assert called.launches == evaluated.launches


def test_tensors_that_share_memory_share_it_in_the_copy() -> None:
    device = DryDevice.of("sm_80")
    whole = alpha.tensor(np.zeros((8, 4), np.float32), device=device)
    parts = whole[:4], whole[4:]
    found: list[Any] = []

    class Seen:
        """Record of arrays that is not copied, because it is a class."""

        note = staticmethod(found.append)

    def step(a: alpha.Tensor, b: alpha.Tensor) -> None:
        Seen.note((a.array, b.array))

    alpha.dry_run(step, *parts, gpu="sm_80")
    ((a, b),) = found
    assert a.block is b.block
    assert (a.offset, b.offset) == (0, 64)
    assert a.device is not device


def test_tensors_of_one_array_have_one_array_in_the_copy() -> None:
    x = alpha.tensor(np.zeros((4, 4), np.float32))
    other = x.detach()
    found: list[bool] = []

    class Seen:
        note = staticmethod(found.append)

    alpha.dry_run(lambda: Seen.note(x.array is other.array), gpu="sm_80")
    assert found == [True]


def keeps(x: alpha.Tensor) -> None:
    global KEPT
    KEPT = x * 2.0


def reads() -> alpha.Tensor:
    return KEPT * 3.0  # type: ignore[operator]


def test_a_global_that_one_function_writes_is_seen_by_another() -> None:
    run = alpha.dry_run(lambda x: (keeps(x), reads()), shaped((4,)), gpu="sm_80")
    assert len(run.launches) == 2
    assert KEPT is None


def test_large_arrays_of_numpy_are_not_copied_and_not_written() -> None:
    table = np.zeros(1 << 20)
    run = alpha.dry_run(lambda x: x * float(table[5]), shaped((4,)), gpu="sm_80")
    assert len(run.launches) == 1

    def writes(x: alpha.Tensor) -> None:
        table[0] = 1

    with pytest.raises(DryRunError, match="ValueError: assignment destination is read-only"):
        alpha.dry_run(writes, shaped((4,)), gpu="sm_80")
    table[0] = 2


# -- what cannot be dry-run ------------------------------------------------------------------------


WEIGHT = alpha.tensor(np.ones(4, np.float32))


class Hidden:
    """Reaches a tensor that is not copied with it."""

    def times(self, x: alpha.Tensor) -> alpha.Tensor:
        return x * WEIGHT

    def written(self, x: alpha.Tensor) -> None:
        globals()["".join(reversed("THGIEW"))].add_(1.0)


def test_what_cannot_be_dry_run_says_why() -> None:
    generator = (number for number in range(3))
    x = shaped((4,))
    for step, why in {
        (lambda x: x.sum().item()): rf"DeviceError: values are read on the host, at {__file__}:\d+, but nothing",
        (lambda x: x.numpy()): "values are read on the host",
        (lambda x: 1 if x.sum() > 0 else 2): "values are read on the host",
        (lambda x: next(generator)): "TypeError: cannot pickle 'generator' object",
        (lambda x: 1 / 0): "<lambda> cannot be dry-run: ZeroDivisionError: division by zero",
        (lambda x: x @ x.reshape(2, 2)[:1]): "ShapeError: matmul",
        Hidden().times: r"times cannot be dry-run: it reaches the tensor WEIGHT through a class or a module, which are",
    }.items():
        before = alpha.get_rng_state()
        with pytest.raises(DryRunError, match=why):
            alpha.dry_run(step, x, gpu="sm_80")
        assert alpha.get_rng_state() == before
        assert active() is None
    assert next(generator) == 0


class Unshown:
    """A key that must not be shown."""

    def __repr__(self) -> str:
        raise AssertionError("a key was shown")


@pytest.mark.parametrize("kind", [lambda: alpha.ones(2), Unshown])
def test_keys_of_any_kind_are_not_shown(kind: Callable[[], Any]) -> None:
    """Showing a tensor would read its values, for which a step waits."""
    held = {kind(): alpha.ones(3), "name": {kind(): {kind()}}}
    assert len(alpha.dry_run(lambda x: x * next(iter(held.values())), shaped((3,)), gpu="sm_80").launches) == 1


def test_the_real_device_does_nothing_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor that nobody could have known of is left alone, too."""
    device = alpha.get_device("cuda")
    monkeypatch.setitem(globals(), "WEIGHT", alpha.tensor(np.ones(4, np.float32), device=device))
    weight = WEIGHT
    with pytest.raises(DryRunError, match="launch: a dry run computes nothing on the GPU"):
        alpha.dry_run(Hidden().written, shaped((4,)), gpu=device)
    np.testing.assert_array_equal(weight.numpy(), np.ones(4))
    assert alpha.get_device("cuda") is device
    Hidden().written(weight)
    np.testing.assert_array_equal(weight.numpy(), np.full(4, 2.0))


def test_a_step_that_asks_for_the_device_gets_the_dry_one() -> None:
    device = alpha.get_device("cuda")

    def step(values: Any) -> None:
        assert isinstance(alpha.get_device("cuda"), DryDevice)
        x = alpha.tensor(values, device="cuda")
        alpha.synchronize("cuda")
        (x + x).to("cuda")

    run = alpha.dry_run(step, np.zeros(5, np.float32), gpu=device)
    assert [step.launch.entry for step in run.launches] == ["map"]
    assert alpha.get_device("cuda") is device


def test_a_dry_run_needs_no_file_of_its_own(tmp_path: Path) -> None:
    """An open file is not copied, so nothing is written into it twice."""
    with (tmp_path / "log").open("w") as log:

        def step(x: alpha.Tensor) -> None:
            log.write("a step")

        with pytest.raises(DryRunError, match=r"TypeError: cannot pickle '(_io\.)?TextIOWrapper'"):
            alpha.dry_run(step, shaped((4,)), gpu="sm_80")
    assert (tmp_path / "log").read_text() == ""


# -- names --------------------------------------------------------------------------------------------

head: nn.Module | None = None  # a global with the name of an attribute of the module below


class Headed(nn.Module):
    def __init__(self) -> None:
        self.head = nn.Linear(4, 2)

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        return self.head(x)


def test_an_attribute_is_not_the_global_of_its_name() -> None:
    """`self.head` names no global, also if the program keeps the model itself in one of that name."""
    global head
    head = Headed()
    try:
        assert alpha.dry_run(head, (3, 4), gpu="sm_90a").launches
    finally:
        head = None


def test_which_globals_code_may_read() -> None:
    def reads() -> Any:
        return COUNT, [SCALE for _ in range(2)], lambda: BATCH

    def names_only(net: Any) -> Any:
        net.head, net.COUNT = 1, 2
        return net.SCALE

    def by_text() -> Any:
        return globals()["KEPT"]

    def writes() -> None:
        global COUNT
        COUNT = 1

    assert globals_in(reads) >= {"COUNT", "SCALE", "BATCH"}
    assert not globals_in(names_only)
    assert "KEPT" in globals_in(by_text)
    assert "COUNT" in globals_in(writes)
