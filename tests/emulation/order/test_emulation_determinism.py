"""The order in which blocks, warps and lanes run changes no bit: of the convolutions, of a whole training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from helpers import first_of

import alpha
from alpha import nn
from alpha.core.primitive import REGISTRY
from alpha.errors import AlphaError
from alpha.ops.conv2d.shape import conv_shape
from alpha.optim import Adam
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver

SEEDS = (1, 2, 3)
Bits = dict[str, bytes]
Run = Callable[[CudaDevice], Bits]


@pytest.fixture
def bits(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Run], list[Bits]]:
    """`bits(arch, run)`: what `run` makes on an emulated GPU, under each seed."""

    @contextmanager
    def device(arch: str, seed: int) -> Iterator[CudaDevice]:
        monkeypatch.setenv("ALPHA_ARCH", arch)
        monkeypatch.setenv("ALPHA_EMULATED_SEED", str(seed))
        try:
            on = CudaDevice(EmulatedDriver())
        except AlphaError as error:
            pytest.skip(str(error))
        yield on
        on.close()

    def run_all(arch: str, run: Run) -> list[Bits]:
        found = []
        for seed in SEEDS:
            with device(arch, seed) as on:
                found.append(run(on))
        return found

    return run_all


def assert_same(found: list[Bits]) -> None:
    first, *others = found
    for seed, other in zip(SEEDS[1:], others, strict=True):
        differing = [name for name in first if first[name] != other[name]]
        assert not differing, f"seeds {SEEDS[0]} and {seed} differ in {', '.join(differing)}"


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("arch", first_of("sm_80", "sm_75", "sm_90a"))
@pytest.mark.parametrize(("N", "size", "IC", "OC"), [(64, 4, 64, 64), (64, 2, 128, 128), (5, 7, 3, 20)])
def test_convolutions(bits: Callable[[str, Run], list[Bits]], arch: str, N: int, size: int, IC: int, OC: int) -> None:
    s = conv_shape("test", (N, size, size, IC), (OC, 3, 3, IC), (1, 1), (1, 1))

    def run(on: CudaDevice) -> Bits:
        X, W, dY = (on.upload(normal(*shape)) for shape in (s.X, s.W, s.Y))
        results = {
            "Y": REGISTRY["conv2d_forward"](X, W, s),
            "dX": REGISTRY["conv2d_backward_input"](dY, W, s),
            "dW": REGISTRY["conv2d_backward_weight"](X, dY, s),
        }
        return {name: on.download(array).tobytes() for name, array in results.items()}

    assert_same(bits(arch, run))


@pytest.mark.gate
def test_training_steps(bits: Callable[[str, Run], list[Bits]]) -> None:
    def run(on: CudaDevice) -> Bits:
        alpha.manual_seed(5)
        network = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.GELU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.LeakyReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(32, 10),
        ).to(on)
        optimizer = Adam(network.parameters(), lr=1e-2)
        images = alpha.tensor(normal(64, 8, 8, 3), device=on)
        labels = alpha.tensor(np.arange(64, dtype=np.int32) % 10, device=on)
        found = {}
        for step in range(2):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(images), labels)
            loss.backward()
            found[f"loss of step {step}"] = loss.numpy().tobytes()
            for name, parameter in network.named_parameters():
                assert parameter.grad is not None
                found[f"gradient of {name}, step {step}"] = parameter.grad.numpy().tobytes()
            optimizer.step()
        for name, value in network.state_dict().numpy().items():
            found[name] = np.asarray(value).tobytes()
        return found

    results = bits("sm_80", run)
    assert len(results[0]) > 20
    assert_same(results)
