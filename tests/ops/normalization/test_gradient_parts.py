"""Gradients of batch normalisation that come in two parts, which its kernels add up on their way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from launch_log import observed_launches
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha import Tensor, nn
from alpha.autograd.engine import _Walk
from alpha.ops.normalization.batch_norm import BatchNorm
from alpha.utils.checkpoint import checkpoint

RNG = np.random.default_rng(0)
SHAPE = (4, 5, 6, 12)
X, OTHER, ONE, TWO = (RNG.standard_normal(SHAPE).astype(np.float32) for _ in range(4))
NUMBERS = RNG.uniform(0.5, 2.0, (4, 12)).astype(np.float32)  # mean, variance, weight, bias
Norm = Callable[..., Tensor]
Program = Callable[[Tensor, Norm], list[Tensor]]


def on(device: Any, array: np.ndarray) -> Tensor:
    return alpha.tensor(array, device=device)


def norm(x: Tensor, training: bool = True, **more: Any) -> Tensor:
    mean, var, weight, bias = (on(x.device, number) for number in NUMBERS)
    return F.batch_norm(x, mean, var, weight, bias, training, **more)


def residual(x: Tensor) -> Tensor:
    return x * 0.5 + on(x.device, OTHER).astype(x.dtype)


KINDS: dict[str, Norm] = {
    "training": norm,
    "evaluation": lambda x: norm(x, False),
    "with a rectifier": lambda x: norm(x, activation=F.relu),
    "with a leaky one": lambda x: norm(x, activation=nn.LeakyReLU(0.25)),
    "with a bound": lambda x: norm(x, activation=nn.ReLU6()),
    "with a residual": lambda x: norm(x, residual=residual(x)),
    "with both": lambda x: norm(x, activation=nn.LeakyReLU(0.25), residual=residual(x)),
    "with a kept residual": lambda x: norm(x, activation=nn.LeakyReLU(0.25), residual=norm(x * 0.5)),
    "behind a rectifier": lambda x: norm(F.leaky_relu(x, 0.25)),
}


def two_users(x: Tensor, norm: Norm) -> list[Tensor]:
    y = norm(x)
    (F.relu(y) * on(x.device, ONE) + y * on(x.device, TWO)).sum().backward()
    return []


def three_users(x: Tensor, norm: Norm) -> list[Tensor]:
    y = norm(x)
    (y * on(x.device, ONE) + y * on(x.device, TWO) + y * y).sum().backward()
    return []


def a_second_pass(x: Tensor, norm: Norm) -> list[Tensor]:
    y = norm(x)
    loss = (F.relu(y) * on(x.device, ONE) + y * on(x.device, TWO)).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    return []


def a_checkpoint(x: Tensor, norm: Norm) -> list[Tensor]:
    y = checkpoint(norm, x, use_reentrant=False)
    z = checkpoint(lambda y: F.relu(y) * 2.0, y, use_reentrant=False)
    (z * on(x.device, ONE) + y * on(x.device, TWO)).sum().backward()
    return []


def a_hook(x: Tensor, norm: Norm) -> list[Tensor]:
    y = norm(x)
    seen: list[Tensor] = []
    y.register_hook(seen.append)
    (y * on(x.device, ONE) + y * on(x.device, TWO)).sum().backward()
    return seen


def a_hook_that_comes_late(x: Tensor, norm: Norm) -> list[Tensor]:
    """Registers it after the last part has come, by a hook of a tensor between."""
    y = norm(x)
    seen: list[Tensor] = []
    between = on(x.device, OTHER).requires_grad_() * 3.0  # newer than y, older than what uses it

    def late(_: Tensor) -> None:
        y.register_hook(seen.append)

    between.register_hook(late)
    (y * on(x.device, ONE) * between.sum() + y * on(x.device, TWO)).sum().backward()
    assert seen
    return seen


def one_that_stays(x: Tensor, norm: Norm) -> list[Tensor]:
    y = norm(x)
    y.retain_grad()
    (y * on(x.device, ONE) + y * on(x.device, TWO)).sum().backward()
    assert y.grad is not None
    return [y.grad]


def one_that_is_asked_for(x: Tensor, norm: Norm) -> list[Tensor]:
    y = norm(x)
    loss = (y * on(x.device, ONE) + y * on(x.device, TWO)).sum()
    found = alpha.autograd.grad(loss, [y, x])
    return [grad for grad in found if grad is not None]


def a_pass_that_begins_there(x: Tensor, norm: Norm) -> list[Tensor]:
    y = norm(x)
    alpha.autograd.backward([(y * on(x.device, ONE)).sum(), y], [None, on(x.device, TWO).astype(y.dtype)])
    return []


def a_pass_that_begins_there_twice(x: Tensor, norm: Norm) -> list[Tensor]:
    y = norm(x)
    one, two, three = (on(x.device, part).astype(y.dtype) for part in (ONE, TWO, OTHER))
    alpha.autograd.backward([(y * one).sum(), y, y], [None, two, three])
    return []


def a_user_without_a_gradient(x: Tensor, norm: Norm) -> list[Tensor]:
    y = norm(x)
    (y * on(x.device, ONE) + y.detach() * on(x.device, TWO)).sum().backward()
    return []


def a_user_that_is_left_out(x: Tensor, norm: Norm) -> list[Tensor]:
    """A loss that nobody walks has used the result, too."""
    y = norm(x)
    aside = (y * y).sum()
    (y * on(x.device, ONE) + y * on(x.device, TWO)).sum().backward()
    return [aside.detach()]


def a_slice_that_is_added_in_place(x: Tensor, norm: Norm) -> list[Tensor]:
    y = norm(x)
    (y[:, 1:4].sum() + (y * on(x.device, ONE)).sum() + (y * on(x.device, TWO)).sum()).backward()
    return []


def the_same_gradient_twice(x: Tensor, norm: Norm) -> list[Tensor]:
    y = norm(x)
    ((y + y) * on(x.device, ONE)).sum().backward()
    return []


PROGRAMS: dict[Program, int] = {  # the number of gradients that come in parts
    two_users: 1,
    three_users: 1,
    a_second_pass: 2,
    a_checkpoint: 1,
    a_hook: 0,
    a_hook_that_comes_late: 1,
    one_that_stays: 0,
    one_that_is_asked_for: 0,
    a_pass_that_begins_there: 1,
    a_pass_that_begins_there_twice: 1,
    a_user_without_a_gradient: 0,
    a_user_that_is_left_out: 0,
    a_slice_that_is_added_in_place: 1,
    the_same_gradient_twice: 1,
}


@pytest.fixture
def deferred(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Answers to whether a batch normalisation adds up the part that comes, one for each part behind the first."""
    told: list[bool] = []
    asked = _Walk._is_last_part

    def noted(walk: _Walk, *given: Any) -> bool:
        told.append(asked(walk, *given))
        return told[-1]

    monkeypatch.setattr(_Walk, "_is_last_part", noted)
    return told


def results(program: Program, norm: Norm, device: str, dtype: Any = np.float32) -> list[np.ndarray]:
    """The gradient of x, and what the program returns."""
    x = alpha.tensor(X, device=device, dtype=dtype, requires_grad=True)
    found = program(x, norm)
    own = [] if x.grad is None else [x.grad]
    return [tensor.astype(np.float32).numpy() for tensor in (*found, *own)]


def added_before(program: Program, norm: Norm, dtype: Any = np.float32) -> list[np.ndarray]:
    """The results on a GPU where gradients are added up before the batch normalisation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchNorm, "takes_parts", False)
        return results(program, norm, "cuda", dtype)


@pytest.mark.parametrize("mode", ["fast", "balanced", "least"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_sum_in_the_kernel_is_the_same(program: Program, mode: str, deferred: list[bool]) -> None:
    """Bit for bit in float32, whatever the sign of a rectifier is from, and as on the CPU."""
    with trials() as trial, alpha.memory_mode(mode):
        for kind, normalize in KINDS.items():
            with trial(kind):
                deferred.clear()
                found = results(program, normalize, "cuda")
                assert sum(deferred) == PROGRAMS[program]
                for mine, before in zip(found, added_before(program, normalize), strict=True):
                    np.testing.assert_array_equal(mine, before)
                for mine, own in zip(found, results(program, normalize, "cpu"), strict=True):
                    np.testing.assert_allclose(mine, own, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16(kind: str, deferred: list[bool]) -> None:
    """A sum that is not rounded is nearer to that of float32 than one that is."""
    found = results(two_users, KINDS[kind], "cuda", alpha.bfloat16)
    assert sum(deferred) == 1
    exact = results(two_users, KINDS[kind], "cpu")
    before = added_before(two_users, KINDS[kind], alpha.bfloat16)
    for mine, other, own in zip(found, before, exact, strict=True):
        assert np.abs(mine - own).mean() <= 1.05 * np.abs(other - own).mean()


def test_the_pass_of_the_addition_is_gone() -> None:
    """A block of a residual network in float32 has one launch less."""

    def entries() -> list[str]:
        with observed_launches(alpha.get_device("cuda")) as log:
            results(two_users, KINDS["with both"], "cuda")
        return [launched.entry for launched in log]

    new = entries()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchNorm, "takes_parts", False)
        old = entries()
    assert len(old) == len(new) + 1
    assert old.count("map") == new.count("map") + 1
