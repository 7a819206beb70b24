"""Gradients that are an fp16 copy alone in "tf32", beside programs that see them, add to them, or walk them twice."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from launch_log import observed_launches
from reading_copies import alone, gpu_that_reads_copies

import alpha
from alpha import Tensor, nn
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.utils.checkpoint import checkpoint

SIZE = (4, 6, 5, 16)


@pytest.fixture
def cuda() -> Iterator[CudaDevice]:
    with gpu_that_reads_copies() as device:
        yield device


class Pair(nn.Module):
    """Two convolutions with a batch normalisation behind each."""

    def __init__(self) -> None:
        self.convs = nn.ModuleList([nn.Conv2d(16, 16, 3, padding=1, bias=False) for _ in range(2)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(16) for _ in range(2)])

    def rest(self, z: Tensor, w: Tensor) -> Tensor:
        """The loss from the result of the first convolution on."""
        return (self.norms[1](self.convs[1](self.norms[0](z))) * w).sum()

    def gradients(self) -> list[Tensor]:
        found = [parameter.grad for parameter in self.parameters()]
        return [grad for grad in found if grad is not None]


def nobody_else(model: Pair, x: Tensor, w: Tensor) -> list[Tensor]:
    y = nn.conv_batch_norm(model.convs[0], model.norms[0], x)
    (nn.conv_batch_norm(model.convs[1], model.norms[1], y) * w).sum().backward()
    return model.gradients()


def a_program_that_keeps_the_result(model: Pair, x: Tensor, w: Tensor) -> list[Tensor]:
    z = model.convs[0](x)
    model.rest(z, w).backward()
    return [*model.gradients(), z.detach()]


def a_second_pass(model: Pair, x: Tensor, w: Tensor) -> list[Tensor]:
    loss = model.rest(model.convs[0](x), w)
    loss.backward(retain_graph=True)
    loss.backward()
    return model.gradients()


def frozen_weights(model: Pair, x: Tensor, w: Tensor) -> list[Tensor]:
    x.requires_grad = True
    model.convs[0].weight.requires_grad = False
    model.rest(model.convs[0](x), w).backward()
    assert x.grad is not None
    return [*model.gradients(), x.grad]


def a_checkpoint(model: Pair, x: Tensor, w: Tensor) -> list[Tensor]:
    y = checkpoint(lambda x: model.norms[0](model.convs[0](x)), x, use_reentrant=False)
    z = checkpoint(lambda y: model.norms[1](model.convs[1](y)), y, use_reentrant=False)
    (z * w).sum().backward()
    return model.gradients()


def a_gradient_that_is_asked_for(model: Pair, x: Tensor, w: Tensor) -> list[Tensor]:
    z = model.convs[0](x)
    return list(alpha.autograd.grad(model.rest(z, w), [z]))


def one_that_is_asked_for_by_a_copy(model: Pair, x: Tensor, w: Tensor) -> list[Tensor]:
    z = model.convs[0](x)
    same = copy.copy(z)
    loss = model.rest(z, w)
    del z
    return list(alpha.autograd.grad(loss, [same]))


def one_that_stays(model: Pair, x: Tensor, w: Tensor) -> list[Tensor]:
    z = model.convs[0](x)
    z.retain_grad()
    model.rest(z, w).backward()
    assert z.grad is not None
    return [*model.gradients(), z.grad]


def a_hook(model: Pair, x: Tensor, w: Tensor) -> list[Tensor]:
    z, seen = model.convs[0](x), []
    loss = model.rest(z, w)
    z.register_hook(lambda grad: seen.append(grad))
    loss.backward()
    return [*model.gradients(), *seen]


def a_second_reader(model: Pair, x: Tensor, w: Tensor) -> list[Tensor]:
    z = model.convs[0](x)
    (model.rest(z, w) + (z * w).sum()).backward()
    return model.gradients()


def a_pass_that_begins_there(model: Pair, x: Tensor, w: Tensor) -> list[Tensor]:
    z = model.convs[0](x)
    alpha.autograd.backward([model.rest(z, w), z], [None, w])
    return model.gradients()


def a_write(model: Pair, x: Tensor, w: Tensor) -> list[Tensor]:
    z = model.convs[0](x)
    z.mul_(2.0)
    model.rest(z, w).backward()
    return model.gradients()


def a_transposed_convolution(model: Pair, x: Tensor, w: Tensor) -> list[Tensor]:
    transposed = nn.ConvTranspose2d(16, 16, 3, padding=1, bias=False)
    with alpha.no_grad():
        transposed.weight.copy_(alpha.tensor(model.convs[0].weight.numpy()))
    transposed = transposed.to(x.device)
    transposed = transposed.double() if x.dtype == np.float64 else transposed
    model.rest(nn.conv_batch_norm(transposed, model.norms[0], x), w).backward()
    assert transposed.weight.grad is not None
    return [*model.gradients(), transposed.weight.grad]


def a_rectifier_of_the_convolution(model: Pair, x: Tensor, w: Tensor) -> list[Tensor]:
    y = nn.conv_batch_norm(model.convs[0], model.norms[0], x, between=0.25)
    (nn.conv_batch_norm(model.convs[1], model.norms[1], y) * w).sum().backward()
    return model.gradients()


def one_whose_first_step_is_not_taken(model: Pair, x: Tensor, w: Tensor) -> list[Tensor]:
    y = nn.conv_batch_norm(model.convs[0], model.norms[0], x, between=0.25)
    loss = (nn.conv_batch_norm(model.convs[1], model.norms[1], y) * w).sum()
    return list(alpha.autograd.grad(loss, [model.convs[0].weight]))


Program = Callable[[Pair, Tensor, Tensor], list[Tensor]]
CASES: list[tuple[Program, int]] = [  # and the number of gradients that are copies alone
    (nobody_else, 2),
    (a_program_that_keeps_the_result, 2),
    (a_second_pass, 4),
    (frozen_weights, 2),
    (a_checkpoint, 2),
    (a_gradient_that_is_asked_for, 1),
    (one_that_is_asked_for_by_a_copy, 1),
    (one_that_stays, 1),
    (a_hook, 1),
    (a_second_reader, 1),
    (a_pass_that_begins_there, 1),
    (a_write, 1),
    (a_rectifier_of_the_convolution, 1),
    (one_whose_first_step_is_not_taken, 1),
    (a_transposed_convolution, 1),  # whose own gradient has a copy beside it
]


def run(program: Program, device: Any, dtype: str) -> list[np.ndarray]:
    alpha.manual_seed(0)
    model = Pair().to(device)
    rng = np.random.default_rng(1)
    x, w = (alpha.tensor(rng.standard_normal(SIZE).astype(dtype), device=device) for _ in range(2))
    return [found.numpy() for found in program(model.double() if dtype == "float64" else model, x, w)]


@pytest.mark.parametrize("mode", ["fast", "balanced", "least"])
@pytest.mark.parametrize(("program", "number"), CASES, ids=[program.__name__ for program, _ in CASES])
def test_gradients_of_programs(cuda: CudaDevice, program: Program, number: int, mode: str) -> None:
    expected = run(program, "cpu", "float64")
    with alpha.precision("tf32"), alpha.memory_mode(mode), observed_launches(cuda) as log:
        found = run(program, "cuda", "float32")
    assert alone(log) == number
    assert len(found) == len(expected)
    for values, exact in zip(found, expected, strict=True):
        assert np.linalg.norm(values - exact) < 3e-3 * np.linalg.norm(exact) + 1e-4
