"""Programs that train a network and write its weights, for what optimizers keep beside weights.

`WAYS` has the ways in which weights may be written between two steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from conv2d_cases import hopper
from helpers import choosing

import alpha
from alpha import Tensor, nn, optim
from alpha.nn import functional as F
from alpha.nn import utils
from alpha.ops.conv2d.magnitudes import MAGNITUDE
from alpha.ops.conv2d.problem import Configuration
from alpha.ops.kernel.casts import COPY
from alpha.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from alpha.runtime.registry import standing_in
from beside.checks import nothing_beside, values_of

PRECISIONS = {"bf16": COPY, "float32": MAGNITUDE}
LARGE = 2.0**20  # a factor with which the magnitude of before lets fp16 terms overflow


def scaled(v: Configuration) -> bool:
    return "sm90_fp16x3" in v.name


@contextmanager
def computing(precision: str) -> Iterator[None]:
    """A precision; in float32 on Hopper, with kernels that need the magnitudes of their operands."""
    with alpha.precision(precision), ExitStack() as stack:
        if precision == "float32":
            stack.enter_context(standing_in(hopper()))
            stack.enter_context(choosing(scaled))
        yield


def drawn(seed: int, *shape: int) -> Tensor:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return alpha.tensor(values / 8, device="cuda")


@dataclass
class Parts:
    """The objects that a step names, and no others, since a captured step depends on all that it reaches."""

    net: nn.Module
    optimizer: optim.Optimizer
    second: optim.Optimizer

    @property
    def weights(self) -> list[Tensor]:
        return [p for p in self.net.parameters() if p.ndim > 1]


Step = Callable[[Parts, Tensor, Tensor], Tensor]  # its loss


def passes(parts: Parts, x: Tensor, y: Tensor) -> Tensor:
    loss = F.cross_entropy(parts.net(x), y)
    parts.optimizer.zero_grad()
    loss.backward()
    return loss


def trains(parts: Parts, x: Tensor, y: Tensor) -> Tensor:
    loss = passes(parts, x, y)
    parts.optimizer.step()
    return loss


class Program:
    """A network of two convolutions and a linear layer, and a step that trains it.

    Args:
        captured: whether the step is captured.
        step: what it does.
        updates: whether the program makes the update, and not the step.

    Attributes:
        seen: losses and predictions, in their order.
        beside: the kinds of values that lie beside each weight after the first steps.
    """

    beside: list[list[str]]

    def __init__(self, captured: bool, step: Step = trains, updates: bool = False) -> None:
        alpha.manual_seed(1)
        channels = 8 if alpha.get_precision() == "bf16" else 64
        first, second = (nn.Conv2d(channels, channels, 3, padding=1, bias=bias) for bias in (True, False))
        self.net = nn.Sequential(first, nn.ReLU(), second, nn.Flatten(), nn.Linear(4 * channels, 5)).to("cuda")
        self.x, self.y = drawn(0, 2, 2, 2, channels), alpha.tensor([1, 3], device="cuda")
        parameters = list(self.net.parameters())
        self.optimizer, self.updates = optim.Adam(parameters, lr=1e-3), updates
        self.parts = parts = Parts(self.net, self.optimizer, optim.SGD(parameters, lr=1e-3, momentum=0.9))
        self.other: Any = None
        self.seen: list[np.ndarray] = []

        def call(x: Tensor, y: Tensor) -> Tensor:
            return step(parts, x, y)

        self.step = alpha.capture(call) if captured else call

    @property
    def weights(self) -> list[Tensor]:
        return self.parts.weights

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.seen.append(self.step(self.x, self.y).numpy())
            if self.updates:
                self.optimizer.step()

    def predict(self) -> None:
        with alpha.no_grad():
            self.seen.append(self.net(self.x).numpy())

    def backward(self) -> None:
        F.cross_entropy(self.net(self.x), self.y).backward()

    def run(self, way: Callable[[Program], Any]) -> list[np.ndarray]:
        """Train, write the weights in some way, and go on, twice; all that was seen, and the weights."""
        self.train(4)
        self.beside = [list(values_of(weight)) for weight in self.weights]
        for predicts in (False, True):
            way(self)
            if predicts:
                self.predict()
            self.train(1)
        self.predict()
        return [*self.seen, *(p.numpy() for p in self.net.parameters())]


def compare(
    precision: str, way: Callable[[Program], Any], step: Step = trains, updates: bool = False, keeps: bool = True
) -> None:
    """Eager and captured steps give the bits of the program that computes each value where it needs it.

    Args:
        step, updates: of the program.
        keeps: whether a value must lie beside the filters after the first steps.
    """
    with nothing_beside(), computing(precision):
        wanted = Program(False, step, updates).run(way)
    for captured in (False, True):
        with computing(precision):
            program = Program(captured, step, updates)
            found = program.run(way)
        assert not keeps or program.beside[:2] == 2 * [[PRECISIONS[precision].name]]
        assert len(found) == len(wanted)
        for mine, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(mine, other)
        if captured:
            assert program.step.graphs, program.step.why_not  # type: ignore[attr-defined]


# -- ways in which weights are written ---------------------------------------------------------------------------------


def of_weights(write: Callable[[Tensor], Any]) -> Callable[[Program | Parts], None]:
    """A way that writes each weight under `no_grad`."""

    def way(parts: Program | Parts) -> None:
        with alpha.no_grad():
            for weight in parts.weights:
                write(weight)

    return way


def loaded(program: Program) -> None:
    state = program.net.state_dict()
    program.net.load_state_dict({name: value * 0.5 for name, value in state.items()})


def resumed(program: Program) -> None:
    """The state of now, saved, and taken after other steps."""
    weights, state = program.net.state_dict(), program.optimizer.state_dict()
    weights = {name: value.numpy() for name, value in weights.items()}
    program.train(2)
    program.net.load_state_dict(weights)
    program.optimizer.load_state_dict(state)


def replaced(program: Program) -> None:
    """Other parameters in the place of all, and an optimizer that has them."""
    for module in program.net.modules():
        if isinstance(getattr(module, "weight", None), nn.Parameter):
            module.weight = nn.Parameter(module.weight * 0.5)  # type: ignore[attr-defined]
    program.optimizer.param_groups.clear()
    program.optimizer.state.clear()
    program.optimizer.add_param_group({"params": list(program.net.parameters())})


def exchanged(program: Program) -> None:
    """The first and the second convolution exchange their memory, and what lies beside it."""
    first, second = program.net[0].weight, program.net[2].weight
    kept = first.data
    first.data = second.data
    second.data = kept


def held_by_another_library(weight: Tensor) -> None:
    """Written by numpy through DLPack, again and again, without any sign of it."""
    if os.environ.get("ALPHA_CUDA_DRIVER", "pycuda") != "emulated":
        pytest.skip("numpy does not read memory of a GPU")
    numpys = np.from_dlpack(weight.detach())
    alpha.synchronize()
    numpys *= np.float32(0.5)


def stepped_by(make: Callable[[list[Tensor]], optim.Optimizer]) -> Callable[[Program], None]:
    def way(program: Program) -> None:
        other = make(program.weights)
        program.backward()
        other.step()
        other.zero_grad()

    return way


def by_closure(program: Program) -> None:
    """LBFGS, whose evaluations write the weights between forward passes."""
    other = optim.LBFGS(program.weights, lr=0.1, max_iter=3)

    def closure() -> Tensor:
        other.zero_grad()
        loss = F.cross_entropy(program.net(program.x), program.y)
        loss.backward()
        return loss

    other.step(closure)
    other.zero_grad()


class Own(optim.Optimizer):
    """An optimizer of the program."""

    @alpha.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-0.01)


def another_captured_step(program: Program) -> None:
    """Weights that another graph writes; it is kept, so that it is replayed."""
    if program.other is None:
        weights = program.weights

        def shrink(factor: Tensor) -> Tensor:
            with alpha.no_grad():
                for weight in weights:
                    weight.mul_(factor)
            return factor * 1.0

        program.other = alpha.capture(shrink)
    for _ in range(4):
        program.other(alpha.full((), 0.9, device="cuda"))


def averaged(program: Program) -> None:
    """The weights of the network as an average of others, in place."""
    other = Program(False)
    mean = AveragedModel(other.net, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    mean.module = program.net
    mean.update_parameters(other.net)
    mean.update_parameters(other.net)


def swapped(program: Program) -> None:
    """A prediction with the average of the weights, which are taken back afterwards."""
    mean = AveragedModel(program.net)
    mean.update_parameters(program.net)
    own = {name: value.clone() for name, value in program.net.state_dict().items()}
    program.net.load_state_dict({name: value * 0.5 for name, value in mean.module.state_dict().items()})
    program.predict()
    program.net.load_state_dict(own)


def frozen(program: Program) -> None:
    """Steps in which one weight is not trained, and is written by hand."""
    weight = program.weights[0]
    weight.requires_grad_(False)
    weight.grad = None
    program.train(2)
    weight.mul_(0.5)
    program.train(2)
    weight.requires_grad_(True)


def accumulated(program: Program) -> None:
    """Several forward passes for one update, and a write between two of them."""
    for _ in range(2):
        program.backward()
        of_weights(lambda weight: weight.mul_(0.5))(program)
    program.optimizer.step()
    program.optimizer.zero_grad()


def cut_off(program: Program) -> None:
    """A step whose kernel is refused after the weights of the first group are updated."""
    weights = program.weights
    other = optim.SGD([{"params": [weight]} for weight in weights], lr=0.1)
    program.backward()
    driver, launched = alpha.get_device("cuda").driver, []  # type: ignore[attr-defined]
    launch = driver.launch

    def fails(*args: Any) -> None:
        launched.append(args)
        if len(launched) == 2:
            raise alpha.DeviceError("cut off")
        launch(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "launch", fails)
        with pytest.raises(alpha.DeviceError, match="cut off"):
            other.step()
    program.optimizer.zero_grad()


def in_another_precision(program: Program) -> None:
    """Updates for which nobody asks for anything."""
    with alpha.precision("tf32" if alpha.get_precision() == "bf16" else "bf16"):
        program.train(3)


def moved(program: Program) -> None:
    program.net.to("cpu")
    with alpha.no_grad():
        for weight in program.weights:
            weight.mul_(0.5)
    program.net.to("cuda")
    program.optimizer.reset()


def initialised(weight: Tensor) -> None:
    alpha.manual_seed(5)
    nn.init.kaiming_uniform_(weight)


# Ways in which the weights of a network may be written between two steps.
WAYS: dict[str, Callable[[Program], Any]] = {
    "nothing": lambda _: None,
    "mul_": of_weights(lambda weight: weight.mul_(LARGE**0.25)),
    "by .data": of_weights(lambda weight: weight.data.mul_(0.5)),
    "by detach": of_weights(lambda weight: weight.detach().copy_(weight * 0.5)),
    "by a view": of_weights(lambda weight: weight.reshape(-1).clamp_(-0.01, 0.01)),
    "by rows": of_weights(lambda weight: weight[:1].fill_(0.125)),
    "by a part": of_weights(lambda weight: weight[:, 1:2].mul_(0.5)),
    "at an index": of_weights(lambda weight: weight.__setitem__((slice(None), 0), 0.25)),
    "other memory": of_weights(lambda weight: setattr(weight, "data", weight.data * 0.5)),
    "other memory, written": of_weights(lambda w: (setattr(w, "data", w.data * 0.5), w.data.mul_(0.5))),
    "a vector of all": lambda program: utils.vector_to_parameters(
        utils.parameters_to_vector(program.net.parameters()).detach() * 0.5, program.net.parameters()
    ),
    "a longer optimizer": stepped_by(lambda weights: optim.SGD(weights, lr=0.01)),
    "an optimizer without a kernel": stepped_by(lambda weights: Own(weights, {"lr": 0.1})),
    "Muon": stepped_by(lambda weights: optim.Muon(weights, lr=0.01)),
    "Adafactor": stepped_by(lambda weights: optim.Adafactor(weights, lr=0.01)),
    "LBFGS": by_closure,
    "another library": of_weights(held_by_another_library),
    "nn.init": of_weights(initialised),
    **{
        way.__name__: way
        for way in (loaded, resumed, replaced, exchanged, another_captured_step, averaged, swapped, frozen)
    },
    **{way.__name__: way for way in (accumulated, cut_off, in_another_precision, moved)},
}
