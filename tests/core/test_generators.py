"""alpha.Generator: random numbers that follow from a seed of their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import DataError, Generator, Tensor
from alpha.data import DataLoader, RandomSampler, TensorDataset, random_split

DRAWS: dict[str, Callable[[str, Any], Tensor]] = {
    "rand": lambda device, g: alpha.rand(2, 3, device=device, generator=g),
    "randn": lambda device, g: alpha.randn(2, 3, device=device, generator=g),
    "randint": lambda device, g: alpha.randint(0, 1000, (6,), device=device, generator=g),
    "randperm": lambda device, g: alpha.randperm(20, device=device, generator=g),
    "normal of numbers": lambda device, g: alpha.normal(1.0, 2.0, (6,), device=device, generator=g),
    "normal": lambda device, g: alpha.normal(alpha.zeros(6, device=device), 2.0, generator=g),
    "bernoulli": lambda device, g: alpha.bernoulli(alpha.full((40,), 0.5, device=device), generator=g),
    "multinomial": lambda device, g: alpha.multinomial(alpha.ones(40, device=device), 10, generator=g),
    "multinomial, replaced": lambda device, g: alpha.ones(40, device=device).multinomial(10, True, generator=g),
    "normal_": lambda device, g: alpha.zeros(6, device=device).normal_(0, 2, generator=g),
    "uniform_": lambda device, g: alpha.zeros(6, device=device).uniform_(0, 2, generator=g),
    "random_": lambda device, g: alpha.zeros(6, device=device).random_(9, generator=g),
    "bernoulli_": lambda device, g: alpha.zeros(40, device=device).bernoulli_(generator=g),
    "exponential_": lambda device, g: alpha.zeros(6, device=device).exponential_(generator=g),
    "geometric_": lambda device, g: alpha.zeros(6, device=device).geometric_(0.1, generator=g),
    "cauchy_": lambda device, g: alpha.zeros(6, device=device).cauchy_(generator=g),
    "log_normal_": lambda device, g: alpha.zeros(6, device=device).log_normal_(generator=g),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_follow_from_the_seed_alone(device: str, name: str) -> None:
    draw = DRAWS[name]
    alpha.manual_seed(1)
    before = alpha.get_rng_state()
    g = Generator(device).manual_seed(5)
    first, second = draw(device, g).numpy(), draw(device, g).numpy()
    assert not np.array_equal(first, second)
    assert alpha.get_rng_state() == before  # that of the program is left alone
    alpha.rand(3)
    g.manual_seed(5)
    np.testing.assert_array_equal(draw(device, g).numpy(), first)
    state = g.get_state()
    np.testing.assert_array_equal(draw(device, g).numpy(), second)
    g.set_state(state)
    np.testing.assert_array_equal(draw(device, g).numpy(), second)
    assert not np.array_equal(draw(device, Generator().manual_seed(6)).numpy(), first)
    alpha.manual_seed(5)
    np.testing.assert_array_equal(draw(device, None).numpy(), first)  # as the program's own from the same seed


def test_both_devices_draw_the_same() -> None:
    for name, draw in DRAWS.items():
        if not name.startswith(("normal", "log_normal_", "randn", "exponential_", "cauchy_")):  # sin, log and exp round
            on_cpu, on_cuda = (draw(device, Generator(device).manual_seed(5)) for device in ("cpu", "cuda"))
            np.testing.assert_array_equal(on_cpu.numpy(), on_cuda.numpy(), err_msg=name)


def test_seeds() -> None:
    g = Generator()
    assert (g.initial_seed(), g.device.name) == (67280421310721, "cpu")
    assert g.manual_seed(-1) is g
    assert g.initial_seed() == -1
    assert g.get_state() == {"seed": 2**64 - 1, "stream": 0}
    assert type(g.manual_seed(np.int64(3)).initial_seed()) is int  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="manual_seed: seed is a float, a whole number is needed"):
        g.manual_seed(1.0)  # type: ignore[arg-type]
    for name, draw in DRAWS.items():
        operator = re.split("[ ,]", name)[0]
        with pytest.raises(TypeError, match=rf"^{operator}: generator is a int, an alpha\.Generator or None is needed"):
            draw("cpu", 3)


def test_data_take_one_for_a_seed() -> None:
    def orders(g: Generator) -> list[Any]:
        parts = [[part.indices.tolist() for part in random_split(range(20), [12, 8], generator=g)] for _ in range(2)]
        loader = DataLoader(TensorDataset(alpha.arange(20)), batch_size=20, shuffle=True, generator=g)
        epochs = [batch[0].tolist() for _ in range(2) for batch in loader]
        return [*parts, *epochs, list(RandomSampler(range(20), generator=g))]

    first = orders(Generator().manual_seed(3))
    assert orders(Generator().manual_seed(3)) == first
    assert orders(Generator().manual_seed(4)) != first
    assert len({str(order) for order in first}) == len(first)
    with pytest.raises(DataError, match="seed=2 and generator= are both given"):
        RandomSampler(range(3), seed=2, generator=Generator())


def test_checkpoint_draws_once() -> None:
    g = Generator().manual_seed(3)
    x = alpha.ones(4, requires_grad=True)
    y = alpha.checkpoint(lambda x: x * alpha.rand(4, generator=g), x)
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), y.numpy())
    assert g.get_state()["stream"] == 1


def test_a_captured_step_refuses_one() -> None:
    g = Generator("cuda").manual_seed(3)

    @alpha.capture
    def step(x: Tensor) -> Tensor:
        return x + alpha.rand(3, device="cuda", generator=g)

    with pytest.warns(alpha.CaptureWarning, match="random numbers of a Generator are drawn"):
        results = [step(alpha.zeros(3, device="cuda")).tolist() for _ in range(4)]
    g.manual_seed(3)
    assert results == [alpha.rand(3, device="cuda", generator=g).tolist() for _ in range(4)]
