"""Muon on filters, and on stacks of small matrices, which share their launches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import assert_close

import alpha
from alpha import nn, optim
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.optim.muon import MuonNumbers, muon_stack, muon_update, stacks
from alpha.runtime.recording import StepValue

SHAPES = [
    (5, 2, 2, 3),
    (9, 4),
    (4, 3, 3, 4),
    (8, 7),
    (4, 6),
    (3, 1, 1, 3),
]  # wide and tall ones, some with packs of four


def arrays(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES]


def trained(device: str, values: list[np.ndarray], precision: str = "float32", **options: Any) -> list[np.ndarray]:
    """The parameters after three steps."""
    parameters = [nn.Parameter(alpha.tensor(value, device=device)) for value in values]
    optimizer = optim.Muon(parameters, lr=0.1, ns_steps=3, **options)
    for step in range(3):
        for parameter, gradient in zip(parameters, arrays(1 + step), strict=True):
            parameter.grad = alpha.tensor(gradient.reshape(parameter.shape), device=device)
        with alpha.precision(precision):
            optimizer.step()
    return [parameter.numpy() for parameter in parameters]


def test_a_filter_is_the_matrix_of_its_rows(device: str) -> None:
    filters = trained(device, arrays(0))
    matrices = trained(device, [value.reshape(len(value), -1) for value in arrays(0)])
    for a, b in zip(filters, matrices, strict=True):
        np.testing.assert_array_equal(a.reshape(b.shape), b)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "error"), [("tf32", 2e-3), ("bf16", 0.05)])
@pytest.mark.parametrize("options", [{}, {"fixed_norm": True, "nesterov": False, "weight_decay": 0.5}])
def test_stacks_of_small_matrices_give_what_single_ones_give(
    precision: str, error: float, options: dict[str, Any]
) -> None:
    for a, b in zip(
        trained("cuda", arrays(0), precision, **options), trained("cpu", arrays(0), **options), strict=True
    ):
        assert np.abs(a - b).max() < error


def test_small_matrices_of_one_orientation_share_a_stack() -> None:
    shapes = [(64, 216), (64, 576), (256, 576), (256, 2304), (256, 2304), (256, 2304)]
    assert stacks(shapes, together=True) == [[3, 4, 5, 2, 1, 0]]
    assert stacks(shapes, together=False) == [[3], [4], [5], [2], [1], [0]]
    assert stacks([(10, 20), (20, 10), (30, 10)], together=True) == [[2, 1], [0]]
    assert stacks([(2048, 2048), (2048, 2048), (9, 9)], together=True) == [[0], [1], [2]]
    assert stacks([(1024, 1024)] * 6, together=True) == [[0, 1, 2, 3], [4, 5]]


def test_steps_of_stacks_are_few_launches() -> None:
    parameters = [nn.Parameter(value) for value in arrays(0)]
    optimizer = optim.Muon(parameters, ns_steps=3)

    def step() -> None:
        for parameter in parameters:
            parameter.grad = alpha.ones_like(parameter)
        optimizer.step()

    with alpha.precision("bf16"):
        listed = alpha.dry_run(step, gpu="sm_90a").describe()
    kernels = ["norms", "stack", *["matmul_sm80", "matmul_sm80", "map", "matmul_sm80", "map"] * 3]
    found = [line.split(":")[1].split()[0] for line in listed.splitlines() if line.startswith("update")]
    assert found == [*kernels, *kernels, "muon", "muon"]  # of wide matrices and of tall ones


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16])
@pytest.mark.parametrize("columns", [16, 17])
def test_matrices_lie_in_a_stack_with_zeros_beside_them(dtype: Any, columns: int) -> None:
    """A matrix of 400 x 60 elements has two chunks."""
    shapes = [(400, 60), (3, columns), (7, 4), (2, 2, 8)]
    rng = np.random.default_rng(0)
    v, g = ([rng.standard_normal(shape).astype(np.float32) for shape in shapes] for _ in range(2))
    v[3][:], g[3][:] = 0, 1e-3  # whose norm is less than eps
    device = alpha.get_device("cuda")
    expected = muon_stack(v, g, (400, 64), 0.25, 0.75, 0.1, FLOAT32)
    result = muon_stack([*map(device.upload, v)], [*map(device.upload, g)], (400, 64), 0.25, 0.75, 0.1, dtype)
    assert_close(device.download(result), expected.astype(dtype), 4)
    for x, shape in zip(expected, shapes, strict=True):
        rows, length = shape[0], int(np.prod(shape[1:]))
        assert not x[rows:].any()
        assert not x[:, length:].any()
    assert np.linalg.norm(expected[0]) == pytest.approx(1)
    assert np.linalg.norm(expected[3]) == pytest.approx(np.sqrt(32) * 0.75e-3 / 0.1)


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16])
def test_an_update_from_a_stack(dtype: Any) -> None:
    shapes = [(400, 60), (3, 17), (7, 2, 2), (4, 4)]
    rng = np.random.default_rng(0)
    w, g, v = ([rng.standard_normal(shape).astype(np.float32) for shape in shapes] for _ in range(3))
    w[3][:] = 0  # which has no norm
    X = rng.standard_normal((4, 400, 64)).astype(dtype)
    device = alpha.get_device("cuda")
    there = [[*map(device.upload, values)] for values in (w, g, v)]
    numbers = StepValue.fixed(MuonNumbers(0.1, 0.9))
    muon_update(*there, device.upload(X), [1.0, 2.0, 0.5, 1.0], 0.75, True, numbers)
    muon_update(w, g, v, X.astype(np.float32), [1.0, 2.0, 0.5, 1.0], 0.75, True, numbers)
    for given, expected in zip(there, (w, g, v), strict=True):
        for a, b in zip(given, expected, strict=True):
            assert_close(device.download(a), b, 8)
