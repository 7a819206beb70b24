"""The first layer's kernels on tensor cores: every edge of their tiles, and how accurate they are."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import prod

import conv2d_reference as reference
import ml_dtypes
import numpy as np
import pytest
from conv2d_cases import arrays_of, reordered

import alpha
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.ops.conv2d import direct
from alpha.ops.conv2d.plan import compute, plan_configuration
from alpha.ops.conv2d.problem import FORWARD, WEIGHT, Configuration, ConvProblem, Target
from alpha.ops.conv2d.select import time_model
from alpha.ops.conv2d.select.choose import choose
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import ConvShape, conv_shape

ROWS = [v for v in CONFIGURATIONS if v.name.startswith("direct") and not v.is_ffma]
LIMITS = {"float32": 1e-6, "tf32": 5e-4, "bf16": 4e-3}  # bf16: Y is rounded to 8 bits
ANY_AMPERE = Target("cuda", (8, 0), 108)


def stem(
    N: int,
    size: tuple[int, int],
    C: tuple[int, int],
    filter_: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
) -> ConvShape:
    return conv_shape("test", (N, *size, C[0]), (C[1], *filter_, C[0]), stride, padding)


SHAPES = {
    "cifar": stem(2, (32, 32), (3, 64), (3, 3), padding=(1, 1)),
    "cifar, 7x7 in steps of 2": stem(3, (32, 32), (3, 64), (7, 7), (2, 2), (3, 3)),
    "odd widths": stem(2, (13, 11), (3, 24), (3, 3), padding=(1, 1)),
    "one channel": stem(3, (28, 28), (1, 32), (5, 5)),
    "two channels, more than a block of filters": stem(1, (9, 17), (2, 136), (3, 5), (1, 2), (2, 1)),
    "four channels, half a block of K": stem(1, (10, 10), (4, 72), (5, 5), (2, 3), (2, 2)),
    "padding beyond the filter": stem(2, (3, 2), (3, 8), (2, 2), padding=(4, 5)),
    "one column": stem(2, (40, 1), (3, 16), (3, 1), padding=(1, 0)),
    "one pixel": stem(1, (1, 1), (1, 64), (1, 1)),
    "a long row": stem(1, (4, 300), (3, 64), (3, 3), padding=(1, 1)),
    "more images than blocks": stem(300, (6, 6), (3, 8), (3, 3), padding=(1, 1)),
    "the largest filter": stem(1, (24, 24), (3, 64), (7, 7), padding=(3, 3)),
    "channels that no 16 bytes hold": stem(2, (5, 6), (3, 7), (3, 3), padding=(1, 1)),
}


def operands(row: Configuration, s: ConvShape) -> tuple[np.ndarray, np.ndarray]:
    """Images of the size of pixels and small gradients, as the row takes them."""
    rng = np.random.default_rng(0)
    second, scale = (s.W, 0.1) if row.operator == FORWARD else (s.Y, 1e-6)
    dtype = ml_dtypes.bfloat16 if row.precision == "bf16" else np.float32
    first, other = 100 * rng.standard_normal(s.X), scale * rng.standard_normal(second)
    return first.astype(dtype), other.astype(dtype)


def run(row: Configuration, s: ConvShape, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    device = alpha.get_device("cuda")
    return device.download(compute(row, device.upload(first), device.upload(second), s))


def exact(row: Configuration, s: ConvShape, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    formula = reference.forward if row.operator == FORWARD else reference.backward_weight
    return formula(first.astype(np.float64), second.astype(np.float64), s)


def relative_error(value: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(value.astype(np.float64) - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("row", ROWS, ids=lambda v: v.name)
@pytest.mark.parametrize("name", SHAPES)
def test_equals_the_formula(row: Configuration, name: str) -> None:
    s = SHAPES[name]
    if not row.supports(s, ANY_AMPERE):
        assert (s.OC, row.operator) == (7, WEIGHT), f"{row.name} cannot compute {s}"
        return
    first, second = operands(row, s)
    value, expected = run(row, s, first, second), exact(row, s, first, second)
    assert value.dtype == (np.float32 if row.operator == WEIGHT else first.dtype)
    assert value.shape == expected.shape
    assert relative_error(value, expected) < LIMITS[row.precision]


@pytest.mark.parametrize("row", ROWS, ids=lambda v: v.name)
def test_two_runs_agree_bit_for_bit(row: Configuration) -> None:
    s = SHAPES["more images than blocks"]
    first, second = operands(row, s)
    once, other = run(row, s, first, second), reordered("sm_80")
    twice = other.download(compute(row, other.upload(first), other.upload(second), s))
    assert once.tobytes() == twice.tobytes()


def test_images_of_any_magnitude() -> None:
    """Each block scales its own rows to fp16: an image with huge pixels does not round the others away."""
    row = next(v for v in ROWS if v.name == "direct_sm80_fp16x3")
    s = stem(3, (8, 8), (3, 16), (3, 3), padding=(1, 1))
    first, second = operands(row, s)
    first *= np.array([1e30, 1, 1e-30], np.float32).reshape(3, 1, 1, 1)
    value, expected = run(row, s, first, second), exact(row, s, first, second)
    for image in range(3):
        assert relative_error(value[image], expected[image]) < LIMITS["float32"]


def test_choice_by_precision() -> None:
    s = replace(SHAPES["cifar, 7x7 in steps of 2"], N=512)
    maths = {"float32": ("fp16x3", "tf32x3"), "tf32": ("fp16", "tf32"), "bf16": ("bf16", "bf16")}
    for precision, (forward, weight) in maths.items():
        assert choose(FORWARD, s, ANY_AMPERE, precision).name == f"direct_sm80_{forward}"
        assert choose(WEIGHT, s, ANY_AMPERE, precision).name == f"direct_weight_sm80_{weight}"
    turing = Target("cuda", (7, 5), 40)
    assert choose(FORWARD, s, turing).name == "direct_ffma"
    assert choose(WEIGHT, s, turing).name == "direct_weight_ffma"


HOPPER = Target("cuda", (9, 0), 132, 227 << 10, name="NVIDIA H200")


@pytest.mark.parametrize("row", [v for v in CONFIGURATIONS if v.name.startswith("direct")], ids=lambda v: v.name)
def test_a_row_that_one_block_computes_takes_as_long_alone(row: Configuration) -> None:
    """Sequences have one row, so few of them leave SMs idle: two images take no longer than one."""
    one, two, many = (stem(N, (1, 1000), (1, 32), (1, 7), padding=(0, 3)) for N in (1, 2, 1320))
    cycles = [time_model.work_of(row, s, HOPPER).products for s in (one, two, many)]
    assert cycles[0] == cycles[1]
    assert cycles[2] == pytest.approx(10 * cycles[0])
    assert time_model.work_of(row, two, HOPPER).active == 2 / 132


def test_few_long_rows_are_no_work_for_a_block_per_row() -> None:
    s = stem(16, (1, 16000), (1, 32), (1, 7), padding=(0, 3))
    for operator in (FORWARD, WEIGHT):
        for precision in ("tf32", "bf16"):
            assert not choose(operator, s, HOPPER, precision).name.startswith("direct")


@pytest.mark.parametrize("row", [v for v in CONFIGURATIONS if v.name.startswith("direct_weight")], ids=lambda v: v.name)
def test_partial_sums_have_a_limit(row: Configuration) -> None:
    """The limit is that of the other kernels: 64 MiB, however many blocks fit the GPU."""
    s, few = (stem(64, (8, 8), (3, OC), (5, 5), padding=(2, 2)) for OC in (1 << 14, 64))
    dtype = BFLOAT16 if row.precision == "bf16" else FLOAT32
    for shape in (s, few):
        made = plan_configuration(ConvProblem(WEIGHT, shape, row.precision, dtype=dtype), row, HOPPER)
        parts = made.workspaces["part"].shape[0]
        assert parts * 4 * prod(shape.W) <= 64 << 20
        assert parts >= (2 if shape is s else 64)


def test_all_blocks_of_a_launch_run_at_a_time() -> None:
    """A launch has no more blocks than the shared memory of all SMs holds: a second wave would be half empty."""
    shapes = [
        stem(64, (224, 224), (3, 64), (3, 3), padding=(1, 1)),
        stem(64, (512, 512), (3, 64), (7, 7), (2, 2), (3, 3)),
        stem(256, (128, 128), (3, 64), (3, 3), padding=(1, 1)),
    ]
    for target in (HOPPER, Target("cuda", (8, 0), 108, 163 << 10), Target("cuda", (8, 6), 84, 99 << 10)):
        for row, s in itertools.product(ROWS, shapes):
            if not row.supports(s, target):
                continue
            problem = ConvProblem(row.operator, s, row.precision, dtype=arrays_of(row))
            made = plan_configuration(problem, row, target)
            launch = next(x for x in made.launches if x.entry.startswith("direct_"))
            blocks = -(-launch.grid[0] // target.num_sms)
            taken = blocks * (launch.shared_bytes + direct.STATIC_BYTES + 1024)
            assert blocks == 1 or taken <= target.shared_bytes + 1024, (row.name, s, target)
