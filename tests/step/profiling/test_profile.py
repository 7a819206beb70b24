"""A profile has each launch once, eager and captured, with its layer and its work, and changes nothing."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import python_calls

import alpha
import alpha.nn.functional as F
from alpha import nn
from alpha.core.primitive import _HOMES
from alpha.data import ArrayDataset, DataLoader
from alpha.errors import ConfigError, DeviceError
from alpha.runtime import recording
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.step import Profile
from alpha.step.profiling.events import Limits
from alpha.train import Trainer

BATCH = 4
Step = Callable[..., alpha.Tensor]


class Net(nn.Module):
    """A convolution joined with its batch normalisation, a branch, dropout and a linear layer."""

    def __init__(self) -> None:
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        y = self.body(x)
        return self.fc(self.drop((y + x).flatten(1)))


def program(device: str, captured: bool = False) -> tuple[Net, Step]:
    """A network and a training step of it, always the same."""
    alpha.manual_seed(3)
    net = Net().to(device)
    optimizer = alpha.optim.Adam(net.parameters(), lr=0.01)

    def step(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return net, alpha.capture(step) if captured else step


def batch(device: str) -> tuple[alpha.Tensor, alpha.Tensor]:
    images = np.random.default_rng(0).standard_normal((BATCH, 4, 4, 8)).astype(np.float32)
    return alpha.tensor(images, device=device), alpha.tensor(np.arange(BATCH, dtype=np.int32), device=device)


def weights(net: Net) -> list[np.ndarray[Any, Any]]:
    return [value.numpy() for value in net.state_dict().values()]


def labels(p: Profile) -> list[tuple[str, str, str, str]]:
    """Phase, layer, operator and kernel of what the layers have asked for, in order."""
    return [(e.phase, e.layer, e.operator, e.kernel) for e in p.events if e.phase and e.kind in ("kernel", "operator")]


def run(device: str, captured: bool, profiled: bool, steps: int = 5) -> tuple[list[Any], Profile | None]:
    """Weights after some steps, the last one under a profile or not."""
    net, step = program(device, captured)
    x, y = batch(device)
    for _ in range(steps - 1):
        step(x, y)
    if not profiled:
        step(x, y)
        return weights(net), None
    with alpha.profile() as p:
        step(x, y)
    return weights(net), p


@pytest.fixture(scope="module")
def eager() -> Profile:
    """The profile of one eager step on cuda."""
    _, p = run("cuda", captured=False, profiled=True)
    assert p is not None
    return p


def test_each_launch_of_an_eager_step_has_its_layer(cuda: CudaDevice, eager: Profile) -> None:
    """The same launches in the same order as those of a dry run."""
    _, step = program("cuda")
    for _ in range(2):  # as in the profile, there are gradients already
        step(*batch("cuda"))
    dry = alpha.dry_run(step, *batch("cuda"), gpu=cuda)
    assert [(s.phase, s.layer, s.launch.entry) for s in dry.launches] == [
        (phase, layer, asked.entry) for (phase, layer, *_), asked in zip(labels(eager), kernels(eager), strict=True)
    ]
    layers = {e.layer for e in eager.events}
    assert {"body.0", "body.1", "drop", "fc", "Net", ""} == layers
    assert {phase for phase, *_ in labels(eager)} == {"forward", "backward", "update"}
    assert eager.unseen == 0
    assert eager.explained == 1


def kernels(p: Profile) -> list[recording.Asked]:
    """The launches that a profile has heard of."""
    return [asked for asked in p._order if isinstance(asked, recording.Asked) and asked.kind == "kernel"]


@pytest.mark.slow
@pytest.mark.parametrize("begun", ["before", "after"])
def test_a_captured_step_has_the_lines_of_an_eager_one(cuda: CudaDevice, eager: Profile, begun: str) -> None:
    """A graph may have been captured before the profile began, or within it."""
    plain, _ = run("cuda", captured=True, profiled=False)
    if begun == "before":
        changed, p = run("cuda", captured=True, profiled=True)
        assert p is not None
        assert all(event.captured for event in p.events if event.phase and event.kind == "kernel")
        assert labels(p) == labels(eager)
    else:
        net, step = program("cuda", captured=True)
        with alpha.profile() as p:
            for _ in range(5):
                step(*batch("cuda"))
        changed = weights(net)
        once, counts = Counter(labels(eager)), Counter(labels(p))
        assert {label: count for label, count in counts.items() if label in once} == {k: 5 * n for k, n in once.items()}
        assert {event.captured for event in p.events} == {False, True}
    assert p.unseen == 0
    assert p.explained == 1
    for a, b in zip(plain, changed, strict=True):
        np.testing.assert_array_equal(a, b)


def test_results_are_the_same(device: str) -> None:
    plain, _ = run(device, captured=False, profiled=False)
    changed, p = run(device, captured=False, profiled=True)
    for a, b in zip(plain, changed, strict=True):
        np.testing.assert_array_equal(a, b)
    assert p is not None
    assert {event.layer for event in p.events} >= {"body.0", "body.1", "fc"}


def test_times_add_up(device: str) -> None:
    net, _ = program(device)
    x, _ = batch(device)
    net(x)
    with alpha.profile() as p:
        net(x)
    starts = [event.start_ms for event in p.events]
    assert starts == sorted(starts)
    assert all(event.ms > 0 for event in p.events)
    assert all(0 <= event.start_ms <= event.start_ms + event.ms <= p.total_ms for event in p.events)
    assert sum(event.ms for event in p.events) + p.idle_ms == pytest.approx(p.total_ms)
    for by in ("layer", "operator", "kernel", "phase"):
        rows = p.rows(by)
        assert sum(row.ms for row in rows) == pytest.approx(p.busy_ms)
        assert sum(row.calls for row in rows) == len(p.events)
        assert [row.ms for row in rows] == sorted((row.ms for row in rows), reverse=True)
        lines = p.table(by, most=2, steps=3).splitlines()
        assert all(len(line) <= 80 for line in lines)
        assert [by, "calls", "ms"] in [line.split()[:3] for line in lines]  # behind a title of one line or more
        assert lines[-2].startswith("all ")
        assert re.fullmatch(r"explained: 100\.0% of [0-9.,]+ ms, [0-9.]+% busy", lines[-1])
    assert str(p) == p.table("layer")


def test_the_work_of_launches(eager: Profile) -> None:
    """Products of a convolution without those that meet padding; bytes of an update and of an elementwise operator."""
    size = BATCH * 4 * 4
    rows = {row.name: row for row in eager.rows("operator")}
    for operator in ("conv2d_forward", "conv2d_backward_weight"):
        assert rows[operator].flop + rows[operator].skipped == 2 * size * 8 * 9 * 8
        assert rows[operator].read >= 4 * size * 8
    # of 12 taps of each axis that a padding of 1 has, 10 meet the map
    assert rows["conv2d_forward"].flop == 2 * BATCH * 10**2 * 8 * 8
    parameters = sum(p.size for p in Net().parameters())
    update = rows["adam"]
    assert (update.read, update.written) == (16 * parameters, 12 * parameters)
    added = [event for event in eager.events if event.layer == "Net" and event.operator == "add"]
    assert (added[0].work.read, added[0].work.written) == (8 * size * 8, 4 * size * 8)
    assert all(event.bytes_ms > 0 for event in added)
    products = next(event for event in eager.events if event.operator == "conv2d_forward" and event.work.flop)
    assert products.products_ms > 0


def test_products_of_the_cpu() -> None:
    x, w = alpha.ones(2, 6, 6, 4), alpha.ones(8, 3, 3, 4)
    with alpha.profile() as p:
        F.conv2d(x, w, padding=1)
        alpha.ones(5, 7) @ alpha.ones(7, 3)
    works = {event.operator: event.work for event in p.events}
    assert works["matmul_batch"].flop == 2 * 5 * 7 * 3
    assert works["conv2d_forward"].flop == 2 * 2 * 16**2 * 4 * 8
    assert works["conv2d_forward"].skipped == 2 * 2 * (18**2 - 16**2) * 4 * 8
    assert works["conv2d_forward"].written == 4 * 2 * 36 * 8


def test_a_captured_function_of_the_cpu_beside_a_gpu(cuda: CudaDevice) -> None:
    """The first call is noted for a capture, and the profile hears of it all the same."""
    _, step = program("cpu", captured=True)
    with alpha.profile() as p:
        step(*batch("cpu"))
    assert {event.layer for event in p.events} >= {"body.0", "body.1", "fc"}
    assert p.title.startswith("cpu, ")


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("plan", [alpha.dry_run, alpha.memory_plan], ids=["dry_run", "memory_plan"])
def test_a_plan_within_a_profile_is_not_heard(device: str, plan: Callable[..., Any], lazy: bool) -> None:
    """The profile is that of the program's device, with what was done there alone."""
    net, x = nn.Sequential(nn.Linear(4, 4), nn.LazyLinear(4) if lazy else nn.ReLU()).to(device), alpha.ones(2, 4)

    @alpha.capture
    def step(x: alpha.Tensor) -> alpha.Tensor:
        net(x).sum().backward()
        return x

    x = x.to(device)
    with alpha.profile() as p:
        x + 1
        plan(step, x, gpu="sm_90a")
        x + 1
    assert [event.operator for event in p.events if event.kind in ("kernel", "operator")] == 2 * ["affine"]
    assert p.unseen == 0
    assert p.title.startswith("cpu, " if device == "cpu" else alpha.get_device("cuda").properties.name)


class Own(alpha.optim.Optimizer):
    """An optimizer of a program's own, with a step as in PyTorch."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else closure()
        with alpha.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter.sub_(parameter.grad * self.param_groups[0]["lr"])
        return loss


@pytest.mark.parametrize("how", ["before", "closure", "named closure"])
@pytest.mark.parametrize("make", [Own, alpha.optim.SGD, alpha.optim.LBFGS])
def test_an_update_is_what_the_optimizer_does_itself(device: str, make: Callable[..., Any], how: str) -> None:
    """The passes of its closure are those that they are without one."""
    alpha.manual_seed(3)
    net = nn.Linear(4, 4).to(device)
    optimizer, x = make(net.parameters(), lr=0.1), alpha.ones(2, 4, device=device)

    def closure() -> alpha.Tensor:
        optimizer.zero_grad()
        loss = (net(x) ** 2).sum()
        loss.backward()
        return loss

    if how == "before" and make is alpha.optim.LBFGS:
        pytest.skip("LBFGS needs a closure")
    with alpha.profile() as expected:
        closure()
    with alpha.profile() as p:
        if how == "before":
            closure()
            optimizer.step()
        else:
            optimizer.step(closure) if how == "closure" else optimizer.step(closure=closure)
    passes = [label for label in labels(expected) if label[0] in ("forward", "backward")]
    found = [label for label in labels(p) if label[0] != "update"]
    assert found[: len(passes)] == passes
    if make is not alpha.optim.LBFGS:  # which calls it several times
        assert found == passes
    assert {phase for phase, *_ in labels(p)} == {"forward", "backward", "update"}
    assert all(not layer for phase, layer, *_ in labels(p) if phase == "update")


def test_what_a_step_is_given_beside_its_closure_stays_what_it_is() -> None:
    """An argument at the place of a closure that is asked for by name, or one that cannot be called, is none."""

    class Named(Own):
        def step(self, *numbers: float, closure: Any = None) -> Any:  # type: ignore[override]
            return numbers, closure

    optimizer = Named(nn.Linear(4, 4).parameters())
    assert optimizer.step(1, 2, 3) == ((1, 2, 3), None)
    assert optimizer.step(1, closure="text") == ((1,), "text")


def test_an_error_leaves_nothing_behind(device: str) -> None:
    before = dict(_HOMES)
    x = alpha.ones(2, device=device)
    p = alpha.profile()

    def fails() -> None:
        with p:
            (x + 1) / 0
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert len(p.events) == 2
    assert recording.state.profile is recording.state.listener is None
    assert before == _HOMES
    count = len(p.events)
    x + 1
    assert len(p.events) == count
    with alpha.profile() as again:
        x + 1
    assert len(again.events) == 1


def test_one_profile_at_a_time() -> None:
    with alpha.profile() as p:
        with pytest.raises(RuntimeError, match="another profile is running"), alpha.profile():
            pass
        alpha.ones(2) + 1
    assert len(p.events) == 1
    with pytest.raises(RuntimeError, match="this profile has run"), p:
        pass
    with pytest.raises(ConfigError, match="by='time' is none of 'layer', 'operator', 'kernel', 'phase'"):
        p.table("time")
    with pytest.raises(ConfigError, match="steps=0 is less than 1"):
        p.table(steps=0)


def test_within_a_captured_step(cuda: CudaDevice) -> None:
    @alpha.capture(strict=True)
    def step(x: alpha.Tensor) -> alpha.Tensor:
        with alpha.profile():
            return x + 1

    with pytest.raises(RuntimeError, match="put it around the captured step, not into it"):
        step(alpha.ones(2, device="cuda"))


def test_without_times_of_kernels(cuda: CudaDevice, eager: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stamps in the stream take their place; a replay is one line."""

    def refuse() -> str:
        raise DeviceError("no times of kernels by CUPTI (No module named 'cupti'): pip install \"alpha-cks[profile]\"")

    monkeypatch.setattr(cuda.driver, "begin_times", refuse)
    _, p = run("cuda", captured=False, profiled=True)
    assert p is not None
    assert labels(p) == labels(eager)
    assert "from one launch to the next, for there are no times of kernels by CUPTI" in p.title
    assert 'pip install "alpha-cks[profile]"' in p.title
    assert sum(event.ms for event in p.events) <= p.total_ms
    _, p = run("cuda", captured=True, profiled=True)
    assert p is not None
    (replay,) = [event for event in p.events if event.kind == "replay"]
    assert re.fullmatch(r"replayed step of \d+ launches", replay.operator)
    assert replay.work.flop == sum(event.work.flop for event in eager.events)
    assert str(p)


def test_a_trainer_is_profiled(cuda: CudaDevice) -> None:
    alpha.manual_seed(0)
    net = Net().to("cuda")
    images = np.zeros((24, 4, 4, 8), np.float32)
    loader = DataLoader(ArrayDataset(images, np.arange(24, dtype=np.int32) % 10), BATCH)
    trainer = Trainer(net, alpha.optim.SGD(net.parameters(), lr=0.1), "cuda", capture=True)
    trainer.train_epoch(loader)
    with alpha.profile() as p:
        trainer.train_epoch(loader)
    if "no times of kernels" in p.title:
        pytest.skip("the launches of a replayed step are told apart by CUPTI")
    assert Counter(event.kernel for event in p.events)["sgd"] == 6
    assert all(event.captured for event in p.events if event.kernel == "sgd")
    assert {event.layer for event in p.events} >= {"body.0", "body.1", "fc"}
    assert p.unseen == 0
    taken = [event.work for event in p.events if event.kernel == "take_entries" and event.work.written > 100]
    images_read, numbers = BATCH * 4 * 4 * 8 * 4, BATCH * 4  # of a batch, and not of the whole data set
    assert {(work.read, work.written) for work in taken} == {(images_read + numbers, images_read)}


def test_a_trace_for_perfetto(eager: Profile, tmp_path: Path) -> None:
    """The fields that the Trace Event Format asks for, and rows for phases, layers and kernels."""
    eager.save_trace(tmp_path / "step.json")
    found = json.loads((tmp_path / "step.json").read_text())
    assert set(found) == {"traceEvents", "displayTimeUnit"}
    assert found["displayTimeUnit"] in ("ms", "ns")
    rows = {e["tid"]: e["args"]["name"] for e in found["traceEvents"] if e["name"] == "thread_name"}
    *above, stream = rows.values()
    assert above == ["phases", "layers"]
    assert re.fullmatch(r"stream \d+", stream)
    complete = [e for e in found["traceEvents"] if e["ph"] == "X"]
    assert len(complete) + sum(e["ph"] == "M" for e in found["traceEvents"]) == len(found["traceEvents"])
    for event in complete:
        assert {"name", "ph", "ts", "dur", "pid", "tid"} <= set(event)
        assert event["ts"] >= 0
        assert event["dur"] >= 0
    of_row = {name: [e["name"] for e in complete if e["tid"] == row] for row, name in rows.items()}
    assert of_row["phases"] == ["forward", "backward", "update"]
    assert of_row["layers"][:2] == ["body.0", "body.1"]
    assert of_row[stream] == [event.operator for event in eager.events]


def test_ranges_of_nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    nvtx = pytest.importorskip("nvtx")
    ranges: list[str] = []
    monkeypatch.setattr(nvtx, "push_range", lambda name: ranges.append(name))
    monkeypatch.setattr(nvtx, "pop_range", lambda: ranges.append("end"))
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with alpha.profile(nvtx=True):
        net(alpha.ones(1, 2, 2)).sum().backward()
    forward = ["Sequential", "0", "end", "1", "end", "end"]
    assert ranges == [*forward, "backward", "end"]


def test_without_nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "nvtx", None)
    with pytest.raises(DeviceError, match=r"needs the package nvtx: pip install .*\[profile\]"):
        alpha.profile(nvtx=True)


def test_predicted_times_of_a_dry_run() -> None:
    _, step = program("cpu")
    run = alpha.dry_run(step, *batch("cpu"), gpu="sm_90a")
    assert len(run.report.events) == len(run.launches)
    assert all(event.ms > 0 for event in run.report.events)
    lines = run.table("operator").splitlines()
    assert lines[0] == "dry sm_90a, times predicted by Alpha's model"
    assert lines[-1].startswith("all ")
    assert not any(line.startswith("explained") for line in lines)
    assert all(len(line) <= 80 for line in lines)
    rows = {row.name: row for row in run.report.rows("operator")}
    assert rows["conv2d_forward"].skipped > 0
    assert re.search(r"^forward +body\.0 +[0-9.]+ ms  conv2d/", run.describe(), re.MULTILINE)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_no_launch_is_predicted_above_the_limits(precision: str) -> None:
    """Gradients of inputs take first steps here, which read arrays that the model of convolutions does not count."""
    layers = [layer for _ in range(4) for layer in (nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU())]
    net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), *layers)
    with alpha.precision(precision):
        run = alpha.dry_run(lambda x: net(x).sum().backward(), alpha.empty(256, 64, 64, 3), gpu="sm_90a")
    limits, sources = Limits(run.properties), []
    for launch, event in zip(run.launches, run.report.events, strict=True):
        sources.append(launch.launch.source)
        assert event.ms >= limits.bytes_ms(launch.asked.work), launch
        assert event.ms >= limits.products_ms(launch.asked.work), launch
    assert "conv2d/ks_deconv/sm90_first_step.cu" in sources


def test_python_calls_without_a_profile() -> None:
    """Nothing is called for it: a module is called as before."""
    layer, x = nn.Identity(), alpha.ones(2)
    calls = python_calls(lambda: layer(x))
    assert not [name for name in calls if name.co_filename.endswith(("/recording.py", "/profile.py", "/host_times.py"))]
