"""Programs whose steps are captured, and the check that a captured step gives the bits of the step itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import alpha
import alpha.nn.functional as F
from alpha import nn
from alpha.errors import CaptureWarning

SCALE = 1.0  # a global of the programs below
Step = Callable[..., Any]
Wrap = Callable[[Step], Any]


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
