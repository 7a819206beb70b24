"""The plan of a step's memory equals what the device counts when the step is run."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import OutOfMemoryError, nn
from alpha.data import ArrayDataset, DataLoader
from alpha.errors import DeviceError, DryRunError
from alpha.runtime.arena.arena import Growth
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver
from alpha.runtime.cuda.planning.driver_dry import DryDriver, dry_properties
from alpha.runtime.cuda.planning.planning_device import OF_A_GPU, Growths, PlanningDevice, PlanningDriver
from alpha.runtime.registry import standing_in
from alpha.train import Trainer


class Silent(EmulatedDriver):
    """The emulated driver with its memory; it does not compute what is launched."""

    compile, load, function = DryDriver.compile, DryDriver.load, DryDriver.function  # type: ignore[assignment]

    def launch(self, *_: Any) -> None: ...


def emulated() -> CudaDevice:
    return CudaDevice(Silent())


def as_a_gpu() -> CudaDevice:
    """A device whose arenas are ranges that grow, as those of a GPU, and from which nothing is read."""
    return planning("sm_90a", OF_A_GPU)


def in_segments() -> CudaDevice:
    """A GPU without virtual memory management."""
    return planning("sm_80", (Growth.EXACT, Growth.EXACT))


def planning(arch: str, growths: Growths) -> CudaDevice:
    driver = PlanningDriver(dry_properties(arch), growths, 80_000_000_000)
    driver.readable = True
    return PlanningDevice(driver)


@pytest.fixture(params=[emulated, as_a_gpu])
def device(request: pytest.FixtureRequest) -> Iterator[CudaDevice]:
    made = request.param()
    gc.collect()
    with standing_in(made):
        yield made
    made.close()


class Convolutions(nn.Module):
    """Convolutions, batch normalisation, a residual branch, writes in place, dropout."""

    def __init__(self) -> None:
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        self.block = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16))
        self.head = nn.Sequential(nn.MaxPool2d(2), nn.Dropout(0.2), nn.Flatten(), nn.Linear(16 * 16, 10))

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        x = self.stem(x)
        return self.head(F.relu(x + self.block(x)))


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        self.stem, self.head = nn.Conv2d(3, 16, 3, padding=1), nn.Linear(16, 10)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()) for _ in range(3)])

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = alpha.checkpoint(block, x)
        return self.head(x.mean((1, 2)))


def lazy() -> nn.Module:
    return nn.Sequential(
        nn.LazyConv2d(16, 3, padding=1), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
    )


class Words(nn.Module):
    def __init__(self) -> None:
        self.embedding, self.lstm, self.head = (
            nn.Embedding(50, 24),
            nn.LSTM(24, 32, batch_first=True),
            nn.Linear(32, 10),
        )

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        return self.head(self.lstm(self.embedding(x))[0][:, -1])


class Attention(nn.Module):
    def __init__(self) -> None:
        self.embedding, self.head = nn.Embedding(50, 32), nn.Linear(32, 10)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        return self.head(self.layer(self.embedding(x)).mean(1))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], alpha.Tensor]]] = {
    "convolutions": (Convolutions, lambda batch: alpha.zeros(batch, 8, 8, 3)),
    "checkpointed": (Checkpointed, lambda batch: alpha.zeros(batch, 8, 8, 3)),
    "lazy": (lazy, lambda batch: alpha.zeros(batch, 8, 8, 3)),
    "words": (Words, lambda batch: alpha.zeros(batch, 6, dtype="int32")),
    "attention": (Attention, lambda batch: alpha.zeros(batch, 6, dtype="int32")),
}


class Program:
    """A network, its optimizer, a step and its arguments."""

    def __init__(self, name: str, captured: bool, batch: int = 48, optimizer: Any = alpha.optim.Adam) -> None:
        make, data = NETWORKS[name]
        alpha.manual_seed(2)
        self.net = make().to("cuda")
        self.optimizer = optimizer(self.net.parameters(), lr=0.01)
        self.x, self.y = data(batch).to("cuda"), alpha.zeros(batch, dtype="int32").to("cuda")
        net, optimizer = self.net, self.optimizer

        def step(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        self.step = alpha.capture(step) if captured else step


def measured(device: CudaDevice, program: Program, calls: int) -> tuple[int, int]:
    """Peak and reserved bytes after so many calls, while the program holds the last result."""
    device.reset_peak()
    result = None
    for _ in range(calls):
        result = program.step(program.x, program.y)
    stats = device.memory_stats()
    del result
    return stats.peak, stats.reserved


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_plan_is_what_the_device_counts(device: CudaDevice, name: str, captured: bool) -> None:
    program = Program(name, captured)
    plan = alpha.memory_plan(program.step, program.x, program.y)
    assert plan.captured is captured
    assert (plan.live, plan.reserved) == measured(device, program, len(plan.steps))


@pytest.mark.parametrize("device", [in_segments], indirect=True)
def test_a_gpu_without_virtual_memory(device: CudaDevice) -> None:
    test_the_plan_is_what_the_device_counts(device, "convolutions", True)


SETTINGS: dict[str, dict[str, Any]] = {
    "resident": {},
    "streamed": {"resident": False},
    "parts": {"capture": False, "accumulate": 2, "clip_norm": 1.0},
    "mean": {"ema": 0.9},
}


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_training_with_its_data(device: CudaDevice, settings: dict[str, Any]) -> None:
    alpha.manual_seed(2)
    net = Convolutions().to("cuda")
    trainer = Trainer(net, alpha.optim.Adam(net.parameters()), "cuda", **settings)
    data = ArrayDataset(np.zeros((640, 8, 8, 3), np.uint8), np.zeros(640, np.int64))
    loader = DataLoader(data, 64)
    plan = trainer.memory_plan(loader)
    trainer.machine.dry_runs = lambda *_: []  # type: ignore[method-assign]
    device.reset_peak()
    trainer.train_epoch(loader)
    stats = device.memory_stats()
    assert plan.live == stats.peak
    if not device.arena.is_isolated:  # what has arrays of its own has fewer after the epoch
        assert plan.reserved == stats.reserved


@pytest.mark.slow
@pytest.mark.parametrize(("device", "captured"), [(emulated, False), (as_a_gpu, True)], indirect=["device"])
def test_the_largest_batch_is_obeyed(device: CudaDevice, captured: bool) -> None:
    """A batch that fits runs under the limit, and one sample more does not."""
    limit = 16 * 2**20
    batch = alpha.memory_plan(*called(Program("convolutions", captured))).largest_batch(limit)
    for size, fits in ((batch, True), (batch + 1, False)):
        gc.collect()
        device.trim()
        program = Program("convolutions", captured, size)
        device.set_memory_limit(limit)
        if fits:
            measured(device, program, 6)
        else:
            with pytest.raises(OutOfMemoryError):
                measured(device, program, 6)
        device.set_memory_limit(None)
        del program


def called(program: Program) -> tuple[Any, ...]:
    return program.step, program.x, program.y


@pytest.mark.slow
def test_largest_batches_without_a_gpu() -> None:
    """Search from a batch that fits and one that does not; none fits; nothing is known of the memory."""
    net = Convolutions()
    found = [
        alpha.memory_plan(net, (batch, 8, 8, 3), gpu="sm_90a", memory=6e8).largest_batch() for batch in (64, 100_000)
    ]
    assert len(set(found)) == 1
    plan = alpha.memory_plan(net, (64, 8, 8, 3), gpu="sm_90a")
    assert plan.room is plan.fits is None
    assert plan.largest_batch(6e8 - plan.overhead) == found[0]
    assert plan.at_batch(found[0]).reserved <= 6e8 - plan.overhead < plan.at_batch(found[0] + 1).reserved
    assert plan.largest_batch(2**20) == 0
    with pytest.raises(ValueError, match=r"nothing is known of the memory of sm_90a: give limit="):
        plan.largest_batch()
    with pytest.raises(ValueError, match="no tensor with an axis among its arguments"):
        alpha.memory_plan(lambda: net, gpu="sm_90a").largest_batch(1e9)


def test_the_table() -> None:
    """Every byte of the peak has a kind, and lines are at most 80 characters long."""
    net = Convolutions()
    optimizer = alpha.optim.Adam(net.parameters())

    def step(x: alpha.Tensor, y: alpha.Tensor) -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    plan = alpha.memory_plan(step, alpha.empty(256, 8, 8, 3), alpha.zeros(256, dtype="int32"), gpu="sm_90a", memory=1e9)
    weights = sum(-(-p.array.nbytes // 512) * 512 for p in net.parameters())
    assert [plan.of_kind(kind) for kind in ("parameters", "optimizer state")] == [weights, 2 * weights]
    assert plan.of_kind("kept for backward") > plan.live / 4
    assert sum(share.nbytes for share in plan.shares) == plan.live
    assert {"stem.0", "block.0", "head.3"} < {share.layer for share in plan.shares}
    assert plan.process == plan.reserved + plan.overhead
    assert plan.fits
    text = plan.table(3)
    assert max(map(len, text.splitlines())) <= 80
    for part in (
        "captured" if plan.captured else "run as usual",
        "kept for backward",
        "others)",
        "as measured on an H200",
    ):
        assert part in text


def test_what_cannot_be_planned() -> None:
    net = Convolutions()

    def reads(x: alpha.Tensor) -> float:
        return net(x).sum().item()

    with pytest.raises(DryRunError, match=r"the memory of reads cannot be planned: .*values are read on the host"):
        alpha.memory_plan(reads, alpha.zeros(2, 8, 8, 3), gpu="sm_90a")
    with pytest.raises(DeviceError, match="memory_plan: the plan is that of a GPU, and cpu is none"):
        alpha.memory_plan(net, (2, 8, 8, 3), gpu=alpha.get_device("cpu"))
    with pytest.raises(DeviceError, match="memory_plan: gpu='cpu' is no GPU"):
        alpha.memory_plan(net, (2, 8, 8, 3), gpu="cpu")
    with pytest.raises(ValueError, match="memory=0 is no positive number of bytes"):
        alpha.memory_plan(net, (2, 8, 8, 3), gpu="sm_90a", memory=0)


@pytest.mark.slow
def test_a_plan_after_some_steps(device: CudaDevice) -> None:
    """State and gradients that are there already are not counted twice, and other arrays count."""
    program = Program("convolutions", False)
    before = alpha.memory_plan(program.step, program.x, program.y)
    other = alpha.zeros(2**20).to("cuda")
    measured(device, program, 4)
    after = alpha.memory_plan(program.step, program.x, program.y)
    assert after.of_kind("elsewhere in the program") == pytest.approx(other.array.nbytes, rel=0.01)
    assert after.live - other.array.nbytes == pytest.approx(before.live, rel=0.02)


@pytest.mark.slow
def test_planning_changes_nothing(device: CudaDevice) -> None:
    """Weights, gradients, random numbers and memory of the device stay as they are."""
    program = Program("convolutions", True)
    stats, state = device.memory_stats(), alpha.get_rng_state()
    plan = alpha.memory_plan(program.step, program.x, program.y)
    plan.at_batch(64)
    assert device.memory_stats() == stats
    np.testing.assert_array_equal(np.asarray(alpha.get_rng_state()), np.asarray(state))
    assert not program.optimizer.state
    assert all(parameter.grad is None for parameter in program.net.parameters())


class Joined(nn.Module):
    """A block of a ResNet."""

    def __init__(self, C: int, act: nn.Module) -> None:
        self.convs = nn.ModuleList([nn.Conv2d(C, C, 3, padding=1, bias=False) for _ in range(2)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(C) for _ in range(2)])
        self.act = act

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        y = nn.conv_batch_norm(self.convs[0], self.norms[0], x, self.act)
        return nn.conv_batch_norm(self.convs[1], self.norms[1], y, self.act, x)


BLOCKS: dict[str, Callable[[int, nn.Module], nn.Module]] = {
    "before": lambda C, act: nn.Sequential(nn.Conv2d(C, C, 3, padding=1), nn.BatchNorm2d(C), act),
    "behind": lambda C, act: nn.Sequential(nn.Conv2d(C, C, 3, padding=1), act, nn.BatchNorm2d(C)),
    "one tap": lambda C, act: nn.Sequential(nn.Conv2d(C, C, 1), nn.BatchNorm2d(C), act),
    "joined": Joined,
}


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("act", [nn.ReLU(), nn.LeakyReLU(0.1), nn.SiLU()], ids=lambda act: type(act).__name__)
@pytest.mark.parametrize("block", BLOCKS)
def test_no_mode_takes_more_than_a_faster_one(block: str, act: nn.Module, precision: str) -> None:
    """Copies in fp16, which are there in tf32, take the place of floats, or are dropped."""
    blocks = [BLOCKS[block](64, act) for _ in range(4)]
    net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def step(x: alpha.Tensor) -> None:
        net(x).sum().backward()
        net.zero_grad()

    live = []
    for mode in ("fast", "balanced", "least"):
        with alpha.precision(precision), alpha.memory_mode(mode):
            live.append(alpha.memory_plan(step, alpha.empty(64, 32, 32, 3), gpu="sm_90a").live)
    assert live[2] <= 1.001 * live[1]
    assert live[1] <= 1.001 * live[0]


def test_memory_modes() -> None:
    """A plan is that of the mode in force when it was made, as are other plans of it."""
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 4, 3))
    with alpha.memory_mode("least"):
        least = alpha.memory_plan(net, (256, 16, 16, 3), gpu="sm_90a")
    fast = alpha.memory_plan(net, (256, 16, 16, 3), gpu="sm_90a")
    assert (least.mode, fast.mode) == ("least", "fast")
    assert least.of_kind("kept for backward") < fast.of_kind("kept for backward")
    assert least.at_batch(256).live == least.live == fast.in_mode("least").live


class LongNames(nn.Module):
    """Layers whose names are longer than a line, or differ in the middle."""

    def __init__(self) -> None:
        for i in range(4):
            self.add_module(f"encoder_layers_{i}_inner_group", nn.Sequential(nn.Linear(64, 64)))
        self.add_module("a_very_long_name_of_a_layer_" * 5, nn.Linear(64, 64))

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        for layer in self.children():
            x = layer(x)
        return x


def test_long_names_of_layers() -> None:
    """Lines fit in 80 columns, the head has the whole name, and no two rows have the same."""
    plan = alpha.memory_plan(LongNames(), (64, 64), gpu="sm_90a")
    head, _, rows = plan.table(None).split("\n\n")
    assert max(map(len, plan.table(None).splitlines())) <= 80
    assert plan.when.split()[-1] in "".join(head.split())
    shown = [line[:22].strip() for line in rows.splitlines()]
    assert len(set(shown)) == len(shown)
    assert sum(any(f"_{i}_" in name for name in shown) for i in range(4)) == 4


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("batch", [8, 64])
def test_the_head_agrees_with_itself(captured: bool, batch: int) -> None:
    """Hold that the bytes live at the peak are the larger peak, that of the first step or that of later ones."""
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(4096, 10)
    )
    optimizer = alpha.optim.Adam(net.parameters())

    def step(x: alpha.Tensor, y: alpha.Tensor) -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    arguments = alpha.empty(batch, 16, 16, 3), alpha.zeros(batch, dtype="int32")
    plan = alpha.memory_plan(alpha.capture(step) if captured else step, *arguments, gpu="sm_90a")
    for steps in (plan.steps, plan.steps[::-1]):  # the most in a step between, at the end or at the beginning
        plan.steps = steps
        text = " ".join(str(plan).split())
        live, first, later = (
            re.search(rf"{words} ([0-9.]+)", text)
            for words in ("live at the peak", "peak of the first step", "of later ones")
        )
        assert live
        assert first
        assert later
        assert float(live[1]) == max(float(first[1]), float(later[1]))
        last = re.search(r"of the last ([0-9.]+)", text)
        assert float((last or later)[1]) == pytest.approx(steps[-1].peak / 1e6, abs=0.051)


def small_network() -> tuple[nn.Module, alpha.Tensor, alpha.Tensor]:
    net = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 10)).to("cuda")
    return net, alpha.ones(4, 512, device="cuda"), alpha.zeros(4, dtype="int32", device="cuda")


@pytest.mark.parametrize("often", [False, True])
@pytest.mark.parametrize("parts", [1, 5, 8, 17])
def test_an_optimizer_that_steps_now_and_then(device: CudaDevice, parts: int, often: bool) -> None:
    """Alone, or with another one that steps in each call."""
    net, x, y = small_network()
    other = nn.Linear(512, 10).to("cuda")
    adam, calls = alpha.optim.Adam(net.parameters()), 0
    sgd = alpha.optim.SGD(other.parameters(), 0.1, momentum=0.9) if often else None

    def step(x: alpha.Tensor, y: alpha.Tensor) -> None:
        nonlocal calls
        (F.cross_entropy(net(x), y) / parts).backward()
        if sgd is not None:
            sgd.zero_grad()
            F.cross_entropy(other(x), y).backward()
            sgd.step()
        calls += 1
        if calls % parts == 0:
            adam.step()
            adam.zero_grad()

    plan = alpha.memory_plan(step, x, y)
    assert plan.updated
    assert plan.of_kind("optimizer state") > 0
    device.reset_peak()
    for _ in range(3 * parts):
        step(x, y)
    stats = device.memory_stats()
    assert (plan.live, plan.reserved) == (stats.peak, stats.reserved)


def test_an_optimizer_that_never_steps_is_named() -> None:
    net, x, y = small_network()
    adam = alpha.optim.Adam(net.parameters())

    def step(x: alpha.Tensor, y: alpha.Tensor) -> None:
        adam.zero_grad()
        F.cross_entropy(net(x), y).backward()

    plan = alpha.memory_plan(step, x, y)
    assert not plan.updated
    assert "AN OPTIMIZER CHANGED NO PARAMETER in 64 calls" in " ".join(str(plan).split())


@pytest.mark.parametrize("keeps", ["losses", "outputs"])
def test_a_step_that_keeps_something_of_each_call(keeps: str) -> None:
    net, x, y = small_network()
    kept: list[alpha.Tensor] = []

    def step(x: alpha.Tensor, y: alpha.Tensor) -> None:
        outputs = net(x)
        loss = F.cross_entropy(outputs, y)
        kept.append(loss if keeps == "losses" else outputs.detach())
        loss.backward() if keeps == "outputs" else None

    plan = alpha.memory_plan(step, x, y, memory=80e9)
    assert plan.growth > 0
    assert plan.fits is None
    assert "MB more in use than the one before" in " ".join(str(plan).split())
    with pytest.raises(DryRunError, match="largest_batch: there is none: each call leaves"):
        plan.largest_batch()
    kept.clear()
    assert alpha.memory_plan(lambda x, y: F.cross_entropy(net(x), y).backward(), x, y, memory=80e9).growth == 0


# -- steps of several kinds -----------------------------------------------------------------------


@pytest.mark.parametrize("decorated", [alpha.memory_mode("least"), alpha.precision("bf16")], ids=["mode", "precision"])
@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_a_decorated_step_is_planned_as_it_runs(decorated: Callable[[Any], Any], captured: bool) -> None:
    """The setting is that of the thread, and no part of the step that could be copied."""
    net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 4, 3))
    x = alpha.empty(256, 16, 16, 3)

    def step(x: alpha.Tensor) -> None:
        net.zero_grad()
        net(x).sum().backward()

    plain, within = alpha.memory_plan(step, x, gpu="sm_90a"), decorated(step)
    plan = alpha.memory_plan(alpha.capture(within) if captured else within, x, gpu="sm_90a")
    assert plan.captured is captured
    assert plan.of_kind("kept for backward") < plain.of_kind("kept for backward")
    with decorated:  # type: ignore[attr-defined]
        outside = alpha.memory_plan(alpha.capture(step) if captured else step, x, gpu="sm_90a")
    assert plan.live == outside.live


def test_lazy_layers_stay_lazy(device: CudaDevice) -> None:
    """The copy of a step makes their weights in its first call, and they are known by their layers."""
    program = Program("lazy", False)
    state = alpha.get_rng_state()
    plan = alpha.memory_plan(program.step, program.x, program.y)
    assert {"0", "1", "4"} == {share.layer for share in plan.shares if share.kind == "parameters"}
    assert all(isinstance(tensor, nn.UninitializedParameter) for tensor in program.net.parameters())
    assert type(program.net[0]) is nn.LazyConv2d  # type: ignore[index]
    np.testing.assert_array_equal(np.asarray(alpha.get_rng_state()), np.asarray(state))


@pytest.mark.parametrize("own", [False, True], ids=["SGD", "own"])
def test_a_closure_makes_the_passes_of_a_plan(own: bool) -> None:
    """Arrays wait for the backward pass in the closure of an update, too."""
    net = Convolutions()

    class Own(alpha.optim.SGD):
        def step(self, closure: Callable[[], Any] | None = None) -> Any:
            return super().step(closure)

    optimizer = (Own if own else alpha.optim.SGD)(net.parameters(), lr=0.1, momentum=0.9)

    def loss(x: alpha.Tensor) -> alpha.Tensor:
        optimizer.zero_grad()
        value = net(x).sum()
        value.backward()
        return value

    def plain(x: alpha.Tensor) -> None:
        loss(x)
        optimizer.step()

    def closed(x: alpha.Tensor) -> None:
        optimizer.step(lambda: loss(x))

    x = alpha.empty(256, 8, 8, 3)
    before, plan = (alpha.memory_plan(step, x, gpu="sm_90a") for step in (plain, closed))
    assert before.of_kind("kept for backward") > 0
    assert (plan.when, set(plan.shares)) == (before.when, set(before.shares))
