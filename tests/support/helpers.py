"""Helpers of the operator tests: gradients by central difference, comparison with PyTorch, kernels compiled quickly."""

from __future__ import annotations

import gc
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from _pytest.mark import ParameterSet

import alpha
from alpha import Function, Tensor
from alpha.errors import OutOfMemoryError
from alpha.ops.conv2d import launch
from alpha.ops.conv2d.problem import INPUT, Configuration, MathMode
from alpha.ops.conv2d.select import choose
from alpha.runtime.arena.arena import Arena, Block

Spec = Any  # a shape (standard normal numbers) or the array itself


def compiled_quickly() -> AbstractContextManager[object]:
    """Emulated drivers that are made within compile kernels in half the time, also outside of pytest."""
    return patch.dict(os.environ, ALPHA_EMULATED_OPTIMIZE="1")


def python_calls(function: Callable[[], object]) -> Counter[CodeType]:
    """Number of calls of each Python function in a call of `function`: its cost, whatever else the machine does."""
    counts: Counter[CodeType] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            counts[frame.f_code] += 1

    gc.collect()  # so that no finalizer of an earlier test runs within
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return counts


@contextmanager
def failing_allocation(number: int) -> Iterator[list[int]]:
    """The so-manieth block that is asked for inside finds no memory, on any device; the list has one size per block."""
    asked: list[int] = []

    def allocate(arena: Arena, nbytes: int) -> Block:
        asked.append(nbytes)
        if len(asked) == number:
            raise OutOfMemoryError(f"out of memory: block {number} of the test")
        return usual(arena, nbytes)

    usual = Arena.allocate
    with patch.object(Arena, "allocate", allocate):
        yield asked


@contextmanager
def choosing(wanted: Callable[[Configuration], bool]) -> Iterator[None]:
    """Convolutions take the first configuration of the table that is wanted and can compute them, if there is one.

    For rules of a kernel that is not the fastest at a test's size.
    """
    usual = choose._best

    def best(rows: list[Configuration], *others: Any) -> Configuration:
        return next(filter(wanted, rows), None) or usual(rows, *others)

    def forget() -> None:
        choose._choose.cache_clear()
        launch._cached_plan.cache_clear()
        launch._cached_needs.cache_clear()
        launch._cached_needs_of_gradient.cache_clear()

    with patch.object(choose, "_best", best):
        forget()
        try:
            yield
        finally:
            forget()


def sample_names(rows: Iterable[Configuration]) -> set[str]:
    """The smallest tile of each kernel in each precision and with each kind of operands."""
    smallest: dict[object, Configuration] = {}
    for row in sorted(rows, key=tile_area):
        kinds = tuple(value for value in row.tile.values() if isinstance(value, str))
        make = row.base.make if row.base else None
        smallest.setdefault((row.operator, row.make, make, row.precision, kinds, reads_weight(row)), row)
    return {row.name for row in smallest.values()}


def reads_weight(row: Configuration) -> bool:
    """True for KS-deconv on wgmma in bfloat16 with whole boxes of 64 input channels, which reads W as it is."""
    return (row.operator, row.math) == (INPUT, MathMode.BF16) and "BLOCKS" in row.tile and row.tile["BN"] % 64 == 0


def tile_area(row: Configuration) -> int:
    return math.prod(row.tile.get(side, 1) for side in ("BM", "BN"))


def sample_of(rows: Iterable[Configuration]) -> list[ParameterSet]:
    """Rows of the table of convolutions; one of each kernel and precision is without the marker `gate`."""
    ordered = list(rows)
    sample = sample_names(ordered)
    return [pytest.param(row, id=row.name, marks=() if row.name in sample else pytest.mark.gate) for row in ordered]


def half_of(parameters: Iterable[ParameterSet], first: int = 0) -> list[ParameterSet]:
    """The parameters without the marker `gate`, and every second one of the others from number `first` on.

    For rules of which each row needs kernels of its own, beside one that is tried with all rows. ALPHA_GATE=all: all.
    """
    ordered = list(parameters)
    others = [parameter for parameter in ordered if parameter.marks]
    kept = others if os.environ.get("ALPHA_GATE") == "all" else others[first::2]
    return [parameter for parameter in ordered if not parameter.marks or parameter in kept]


def smallest_of(rows: Iterable[Configuration]) -> list[ParameterSet]:
    """The rows of `sample_of` without the marker `gate`, for rules that do not depend on the tile."""
    return [row for row in sample_of(rows) if not row.marks]


def first_of(*cases: Any) -> list[ParameterSet]:
    """Cases of one rule as parameters: the first one, and the others with the marker `gate`."""
    return [pytest.param(case, id=str(case), marks=pytest.mark.gate if i else ()) for i, case in enumerate(cases)]


def values(specs: Sequence[Spec], seed: int = 0) -> list[np.ndarray]:
    """float64 arrays: random ones for shapes, the others as they are."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s) if isinstance(s, tuple) else np.asarray(s, float) for s in specs]


def positive(*shape: int) -> np.ndarray:
    """Numbers in [0.5, 2]."""
    return np.random.default_rng(1).uniform(0.5, 2.0, shape)


def apart(*shape: int) -> np.ndarray:
    """Distinct numbers at least 0.05 apart and away from 0: no maximum changes within a step."""
    count = int(np.prod(shape))
    steps = np.random.default_rng(2).permutation(count) - count // 2
    return ((steps + 0.5) * 0.1).reshape(shape)


def check_gradient(function: Callable[..., Tensor], *specs: Spec, step: float = 1e-5) -> None:
    """<gradient, v> of <function, g> against its central difference along v, in float64 on the cpu."""
    arrays = values(specs)
    leaves = [alpha.tensor(a, requires_grad=True) for a in arrays]
    y = function(*leaves)
    rng = np.random.default_rng(3)
    g = rng.standard_normal(y.shape)
    y.backward(alpha.tensor(np.asarray(g)))
    directions = [rng.standard_normal(a.shape) for a in arrays]
    ours = 0.0
    for leaf, v in zip(leaves, directions, strict=True):
        assert leaf.grad is not None
        assert leaf.grad.shape == leaf.shape
        ours += float((leaf.grad.numpy() * v).sum())
    ends = [
        function(*(alpha.tensor(a + s * v) for a, v in zip(arrays, directions, strict=True))) for s in (step, -step)
    ]
    difference = float(((ends[0].numpy() - ends[1].numpy()) * g).sum()) / (2 * step)
    scale = max(abs(ours), abs(difference), 1e-3)
    assert abs(ours - difference) <= 1e-6 * scale, f"gradient {ours:.12g}, central difference {difference:.12g}"


def assert_close(value: np.ndarray, exact: np.ndarray, length: int = 1, what: str = "") -> None:
    """float32 `value` within the rounding of sums of `length` terms, a random walk, of the largest number."""
    assert value.shape == exact.shape, f"{what}: shape {value.shape}, expected {exact.shape}"
    exact = exact.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(value), np.isnan(exact), err_msg=what)
    finite = np.isfinite(exact)
    scale = max(1.0, float(np.abs(exact[finite]).max(initial=0.0)))
    tolerance = float(np.finfo(np.float32).eps) * (16 + 4 * length**0.5) * scale
    np.testing.assert_allclose(value, exact, rtol=0, atol=tolerance, equal_nan=True, err_msg=what)


def check_torch(
    function: Callable[..., Tensor], torch_function: Callable[..., Any], *specs: Spec, device: str, length: int = 64
) -> None:
    """Value and gradients in float32 on `device` against PyTorch's in float64."""
    torch = pytest.importorskip("torch")
    arrays = [a.astype(np.float32) for a in values(specs)]
    ours = [alpha.tensor(a, requires_grad=True, device=device) for a in arrays]
    theirs = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in arrays]
    y, expected = function(*ours), torch_function(*theirs)
    assert_close(y.numpy(), expected.detach().numpy(), length, "value")
    g = np.random.default_rng(4).standard_normal(y.shape).astype(np.float32)
    y.backward(alpha.tensor(np.asarray(g), device=device))
    expected.backward(torch.tensor(g.astype(np.float64)))
    for index, (x, twin) in enumerate(zip(ours, theirs, strict=True)):
        assert x.grad is not None
        assert_close(x.grad.numpy(), twin.grad.numpy(), length, f"gradient of argument {index}")


def check_equal_torch(ours: Callable[..., Any], theirs: Callable[..., Any], device: str, *arrays: np.ndarray) -> None:
    """Compare a function that moves numbers with PyTorch: equal values, and gradients but for the rounding of sums."""
    torch = pytest.importorskip("torch")
    xs = [alpha.tensor(array, device=device, requires_grad=True) for array in arrays]
    twins = [torch.tensor(array, requires_grad=True) for array in arrays]
    y, expected = ours(*xs), theirs(*twins)
    np.testing.assert_array_equal(y.numpy(), expected.detach().numpy())
    g = np.random.default_rng(3).standard_normal(y.shape).astype(np.float32)
    y.backward(alpha.tensor(np.asarray(g), device=device))
    expected.backward(torch.tensor(g))
    for x, twin in zip(xs, twins, strict=True):
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), twin.grad.numpy(), rtol=1e-5, atol=1e-6)


def nodes_of(y: Tensor) -> list[Function]:
    """The operators that the gradient of y passes."""
    found: dict[int, Function] = {}
    following: list[Any] = [y._node]
    while following:
        node = following.pop()
        if isinstance(node, Function) and node.id not in found:
            found[node.id] = node
            following += node.edges
    return list(found.values())


def normal_numbers(*shape: int) -> np.ndarray:
    """Normal numbers of float32, the same in each call."""
    return np.random.default_rng(2).standard_normal(shape).astype(np.float32)


def nchw(function: Callable[..., Any]) -> Callable[..., Any]:
    """A PyTorch function of images, on NHWC tensors."""

    def on_nhwc(x: Any, *others: Any) -> Any:
        return function(x.permute(0, 3, 1, 2), *others).permute(0, 2, 3, 1)

    return on_nhwc
