"""Gradients of weights run beside the rest of a captured step, and nothing changes but its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from conv2d_cases import hopper

import alpha
import alpha.nn.functional as F
from alpha import nn
from alpha.core.numerics import PRECISIONS
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver
from alpha.runtime.cuda.emulated.emulated_capture import ORDERS, Capture
from alpha.runtime.cuda.graphs import CudaRecording
from alpha.step.dry import in_place_of_the_gpu

LATE, EARLY = ORDERS[0], ORDERS[-1]
Step = Callable[[alpha.Tensor, alpha.Tensor], alpha.Tensor]


class Block(nn.Module):
    """A residual block of half as large maps, whose input two convolutions take."""

    def __init__(self) -> None:
        self.first = nn.Conv2d(16, 32, 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(32)
        self.second = nn.Conv2d(32, 32, 3, padding=1)
        self.last = nn.BatchNorm2d(32)
        self.shortcut = nn.Conv2d(16, 32, 1, 2)

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        y = F.leaky_relu(self.norm(self.first(x)))
        return F.relu(self.last(self.second(y)) + self.shortcut(x))


class Twice(nn.Module):
    """The same filter for two convolutions, so that its gradient is a sum."""

    def __init__(self) -> None:
        self.conv = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        return F.relu(self.conv(F.relu(self.conv(x))))


class Scaled(nn.Module):
    """A filter that is computed, so that its gradient goes on to what it is computed from."""

    def __init__(self) -> None:
        self.direction = nn.Parameter(alpha.randn(16, 3, 3, 16) / 12)
        self.length = nn.Parameter(alpha.ones(16, 1, 1, 1))

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        return F.relu(F.conv2d(x, self.direction * self.length, None, 1, 1))


def network(*middle: nn.Module, C: int = 16) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
        *(*middle, nn.Conv2d(C, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5)),
    )


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "residual": lambda: network(Block(), C=32),
    "rectifiers": lambda: network(nn.Conv2d(16, 16, 3, padding=1), nn.LeakyReLU(0.25), nn.MaxPool2d(2)),
    "transposed": lambda: network(nn.ConvTranspose2d(16, 16, 3, padding=1), nn.MaxPool2d(2)),
    "a filter twice": lambda: network(Twice(), nn.MaxPool2d(2)),
    "a filter that is not trained": lambda: network(
        nn.Conv2d(16, 16, 3, padding=1).requires_grad_(False), nn.MaxPool2d(2)
    ),
    "a computed filter": lambda: network(Scaled(), nn.MaxPool2d(2)),
}


Update = Callable[[Callable[[], alpha.Tensor], nn.Module, Any], alpha.Tensor]


def keep_gradients(compute: Callable[[], alpha.Tensor], model: nn.Module, optimizer: Any) -> alpha.Tensor:
    """Two backward passes, whose gradients are added."""
    optimizer.zero_grad()
    loss = compute()
    (loss * 0.5).backward(retain_graph=True)
    loss.backward()
    optimizer.step()
    return loss


def clip(compute: Callable[[], alpha.Tensor], model: nn.Module, optimizer: Any) -> alpha.Tensor:
    optimizer.zero_grad()
    loss = compute()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    return loss


def plainly(compute: Callable[[], alpha.Tensor], model: nn.Module, optimizer: Any) -> alpha.Tensor:
    optimizer.zero_grad()
    loss = compute()
    loss.backward()
    optimizer.step()
    return loss


def twice(compute: Callable[[], alpha.Tensor], model: nn.Module, optimizer: Any) -> alpha.Tensor:
    """Two updates in one step, the second by gradients that are added to those of the first, and an average."""
    plainly(compute, model, optimizer)
    loss = compute()
    loss.backward()
    optimizer.step()
    with alpha.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.99)
    return loss


def trained(
    on: CudaDevice,
    make: Callable[[], nn.Module],
    wrap: Callable[[Step], Any],
    precision: str,
    update: Update = plainly,
    optimize: Callable[[nn.Module], Any] = lambda model: alpha.optim.Adam(model.parameters(), lr=0.01),
) -> dict[str, np.ndarray]:
    """All weights and losses after some steps."""
    alpha.manual_seed(1)
    model = make().to(on)
    optimizer = optimize(model)
    rng = np.random.default_rng(2)
    batches = [
        (
            alpha.tensor(rng.standard_normal((4, 8, 8, 3), np.float32), device=on),
            alpha.tensor(rng.integers(0, 5, 4), device=on),
        )
        for _ in range(5)
    ]

    def step(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        return update(lambda: F.cross_entropy(model(x), y), model, optimizer)

    wrapped = wrap(step)
    with alpha.precision(precision):
        losses = [wrapped(*batch).numpy() for batch in batches]
    if wrapped is not step:
        assert wrapped.graphs
    return {**model.state_dict().numpy(), "losses": np.array(losses)}


def assert_same(on: CudaDevice, *args: Any, **options: Any) -> None:
    """The captured step has the bits of the plain one, whether what runs beside it runs early or late."""
    make, precision = args
    plain = trained(on, make, lambda step: step, precision, **options)
    emulated = isinstance(on.driver, EmulatedDriver)
    for preferred in (LATE, EARLY) if emulated else (None,):
        with patch.object(on.driver, "preferred", preferred) if emulated else nullcontext():
            found = trained(on, make, alpha.capture, precision, **options)
        for name, expected in plain.items():
            np.testing.assert_array_equal(found[name], expected, err_msg=f"{name}, {preferred}")


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Capture[Any]]:
    """The recordings of captures on the emulated driver."""
    found: list[Capture[Any]] = []
    ordered = Capture.ordered

    def noted(capture: Capture[Any], preferred: Sequence[int]) -> Any:
        found.append(capture)
        return ordered(capture, preferred)

    monkeypatch.setattr(Capture, "ordered", noted)
    return found


@pytest.mark.parametrize("precision", PRECISIONS)
def test_gradients_of_weights_run_beside(cuda: CudaDevice, recorded: list[Capture[Any]], precision: str) -> None:
    """Each may run before the gradient of X, but not in tf32, and after what follows it."""
    if not isinstance(cuda.driver, EmulatedDriver):
        pytest.skip("asks the emulated driver for its order")
    trained(cuda, NETWORKS["residual"], alpha.capture, precision)
    names = {place: name for place, (_, (_, name, _)) in recorded[-1].ordered(LATE)}
    early, late = ([place for place, _ in recorded[-1].ordered(order)] for order in (EARLY, LATE))
    layers = [place for place, name in sorted(names.items()) if name.startswith("ks_deconv")]
    assert len(layers) == 5
    for dX in layers:
        dW = next(place for place in range(dX, len(names)) if names[place].startswith("sk_dilated"))
        behind = next(place for place in range(dW, len(names)) if names[place] in ("map", "input_gradient"))
        assert (early.index(dW) < early.index(dX)) == (precision != "tf32")
        assert late.index(behind) < late.index(dW)


@pytest.mark.parametrize("precision", ["float32", "tf32"])
@pytest.mark.parametrize("mode", ["fast", "least"])
def test_nothing_runs_beside(
    cuda: CudaDevice, recorded: list[Capture[Any]], monkeypatch: pytest.MonkeyPatch, mode: str, precision: str
) -> None:
    """The mode "least" takes no memory for gradients beside, and a benchmark does without any work beside."""
    if mode == "fast":
        monkeypatch.setattr(CudaRecording, "one_stream", True)
    with alpha.memory_mode(mode):
        trained(cuda, NETWORKS["residual"], alpha.capture, precision)
    for capture in list(recorded):  # which grows as it is asked
        places = [place for place, _ in capture.ordered(EARLY)]
        assert places == sorted(places)


IN_EACH_PRECISION = "residual"  # the others in one precision each, in turn


def cases(shift: int) -> list[tuple[str, str]]:
    """Networks and precisions; with another shift, other precisions of the networks that have one."""
    return [
        (name, precision)
        for number, name in enumerate(NETWORKS)
        for i, precision in enumerate(PRECISIONS)
        if name == IN_EACH_PRECISION or (number + shift) % 3 == i
    ]


@pytest.mark.parametrize(("name", "precision"), cases(0))
def test_a_captured_step_has_the_bits_of_the_step(cuda: CudaDevice, name: str, precision: str) -> None:
    assert_same(cuda, NETWORKS[name], precision)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "precision"), cases(1))
def test_on_hopper(name: str, precision: str) -> None:
    gpu = hopper(2)
    with in_place_of_the_gpu(gpu):
        assert_same(gpu, NETWORKS[name], precision)


@pytest.mark.parametrize("update", [keep_gradients, clip, twice])
def test_what_reads_a_gradient_waits_for_it(cuda: CudaDevice, update: Update) -> None:
    assert_same(cuda, NETWORKS["residual"], "float32", update=update)


def halves(model: nn.Module, *kinds: Any) -> list[Any]:
    """An optimizer for filters, and one for the other parameters."""
    of = [[p for p in model.parameters() if (p.ndim > 1) == filters] for filters in (True, False)]
    return [make(params) for make, params in zip(kinds, of, strict=True)]


class Two:
    """Two optimizers, one step after the other."""

    def __init__(self, optimizers: list[Any]) -> None:
        self.optimizers = optimizers

    def zero_grad(self) -> None:
        for each in self.optimizers:
            each.zero_grad()

    def step(self) -> None:
        for each in self.optimizers:
            each.step()


OPTIMIZERS: dict[str, Callable[[nn.Module], Any]] = {
    "muon and adam": lambda model: Two(halves(model, alpha.optim.Muon, alpha.optim.Adam)),
    "adafactor": lambda model: alpha.optim.Adafactor(model.parameters()),
}


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_any_optimizer(cuda: CudaDevice, optimizer: str) -> None:
    assert_same(cuda, NETWORKS["residual"], "bf16", optimize=OPTIMIZERS[optimizer])
