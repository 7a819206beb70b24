"""Calls of each primitive: cases of its arguments, with which tests, the gate and the mutants run it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from rows.primitives import of_expression, of_rows

import alpha
import alpha.distributed.engines.side_by_side  # these modules have primitives that have cases here
import alpha.train.batches.device
from alpha.core.numerics import BFLOAT16
from alpha.core.primitive import REGISTRY, Primitive
from alpha.core.rng import Stream
from alpha.ops.conv2d.channel_statistics import StatisticsArguments
from alpha.ops.conv2d.shape import conv_shape
from alpha.ops.image.resampling import Resampling
from alpha.ops.image.sampling import Sampling
from alpha.ops.kernel.rectifier import GradientParts, KeptOutput, Rectified, RectifiedInput, Rectifier
from alpha.ops.kernel.rows.row_indices import NO_PLACE
from alpha.ops.kernel.views import View
from alpha.ops.noise.group_dropout import Outcome
from alpha.ops.normalization.batch_norm_pool import Columns
from alpha.ops.pooling.pool_shape import PoolShape
from alpha.optim.muon import MuonNumbers
from alpha.runtime.recording import StepValue

_rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return _rng.uniform(0.5, 2.0, shape).astype(np.float32)


def steps(*shape: int) -> np.ndarray:
    """-1, 0 and 1: equal ones among any two."""
    return _rng.integers(-1, 2, shape).astype(np.float32)


def pixels(*shape: int) -> np.ndarray:
    return _rng.integers(0, 256, shape).astype(np.uint8)


def order(length: int) -> np.ndarray:
    return _rng.permutation(length).astype(np.int32)


def places(*shape: int) -> np.ndarray:
    """Places of samples, within an image and outside of it."""
    return _rng.uniform(-1.6, 1.6, shape).astype(np.float32)


def far(*shape: int) -> np.ndarray:
    """A mean that is large against the deviation."""
    return (1000 + _rng.standard_normal(shape)).astype(np.float32)


def pool(N: int, I: tuple[int, int], C: int, F: tuple[int, int], s: int, p: int, **more: bool) -> PoolShape:
    OH, OW = ((i + 2 * p - f) // s + 1 for i, f in zip(I, F, strict=True))
    return PoolShape(N, *I, C, *F, s, s, p, p, OH, OW, **more)


MAX = pool(2, (7, 6), 4, (3, 3), 2, 1)
ODD = pool(2, (5, 7), 3, (2, 3), 2, 1)
HALVES = pool(2, (6, 8), 12, (2, 2), 2, 0)
AVERAGE = pool(2, (7, 6), 8, (3, 2), 2, 1)
INSIDE = pool(2, (7, 6), 3, (3, 2), 2, 1, count_padding=False)
ADAPTIVE = PoolShape(2, 7, 5, 8, 1, 1, 1, 1, 0, 0, 3, 2, adaptive=True)
CONV = conv_shape("test", (3, 6, 5, 4), (8, 3, 3, 4), (2, 1), (1, 1))
# several strips, segments of rows and blocks; and what only the kernels for any shape compute
DEPTHWISE = conv_shape("test", (2, 14, 13, 40), (40, 3, 2, 1), (1, 2), (2, 1), groups=40)
DILATED = conv_shape("test", (2, 9, 8, 4), (8, 2, 3, 1), (1, 2), (1, 2), groups=4, dilation=(3, 2))
SMALL_GROUPS = conv_shape("test", (2, 11, 13, 36), (36, 2, 3, 4), (1, 2), (1, 0), groups=9)
CONVOLUTIONS = CONV, DEPTHWISE, DILATED, SMALL_GROUPS

two = [(normal(7, 9), normal(7, 9))]
REPEATED = _rng.integers(0, 5, 300)
TIES = np.where(_rng.random((3, 37)) < 0.2, -0.0, _rng.integers(-3, 4, (3, 37)))
LINES = (7, 40, 3), (70, 65, 1), (5, 192, 1), (3, 768, 1), (5, 1000, 1), (2, 6145, 1)
# groups of several pixels; rows as above, with several groups, and the longest whose gradients one kernel computes
GROUPS = (5, 7, 3, 4), (5, 9, 2, 20), (70, 1, 1, 65), (70, 1, 1, 192), (9, 1, 3, 20), (5, 1, 1, 3072), (3, 1, 1, 4096)
CUBIC = Resampling("cubic", 5, 8, 5 / 8)
f32, i32, u8 = (np.dtype(t) for t in (np.float32, np.int32, np.uint8))
labels = np.array([0, 2, 4, 1, 3], np.int32)


def taps(s: PoolShape) -> tuple[np.ndarray, np.ndarray]:
    """dY, and which tap was the maximum."""
    return pooled(s)[:2]


def pooled(s: PoolShape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dY, which tap was the maximum, and the maxima."""
    X = normal(s.N, s.IH, s.IW, s.C)
    Y, index = REGISTRY["max_pool2d_forward"](X, s)
    return normal(*Y.shape), index, Y


def in_parts(R: int, C: int) -> GradientParts:
    """Two parts of a gradient (R, C), whose sum is exact in bfloat16, too."""
    dY = normal(R, C)
    return GradientParts(dY, -dY / 2)


def columns(C: int) -> Columns:
    """Mean, variance, weight and bias of C channels."""
    return Columns(normal(C), positive(C), normal(C), normal(C))


def rectified_pool(s: PoolShape, rectifier: Rectifier) -> tuple[Any, ...]:
    """Arguments of `max_pool2d_backward` for the result of a rectifier."""
    dY, index, Y = pooled(s)
    return dY, index, s, Rectified(rectifier, None, Y)


# Primitive: (arguments, keywords) of each case; the last number of a tuple after them is the length of its sums. Needed
# are only domains, periods and sizes that matter: `rows.primitives` has a case for every primitive that is not here.
CASES: dict[str, list[tuple[Any, ...]]] = {
    # periods: none, a multiple of four, an odd one, a single number; a size that is no multiple of four
    "add": [*two, (normal(6, 8), normal(8)), (normal(6, 7), normal(7)), (normal(5, 9), normal(1))],
    "multiply": [*two, (normal(2, 3, 5), normal(5))],
    "divide": [(normal(7, 9), positive(9))],
    "cross_entropy_gradient": [(np.maximum(normal(6, 8), 0), normal(1)), *two],
    "divide_number": [(positive(7, 9), {"p": 3.0})],
    "copy_arrays": [
        ([normal(*shape).astype(kind) for shape in shapes], [normal(*shape) for shape in shapes])
        for kind in (f32, BFLOAT16, np.float64)
        for shapes in (((5, 3), (0, 2), (), (16389,)),)  # one without elements, and one of several chunks
    ],
    "gradient_norm": [([normal(5, 3), normal(16389), normal()], p) for p in (1.0, 2.0, 3.5, np.inf)],
    "muon_stack": [  # a matrix of several chunks, and small ones
        (
            [normal(300, 120), normal(3, 17), normal(7, 2, 2, 8)],
            [normal(300, 120), normal(3, 17), normal(7, 2, 2, 8)],
            (300, 120),
            0.25,
            0.75,
            0.1,
            np.dtype(f32),
        )
    ],
    "muon_update": [
        (
            *([normal(300, 120), normal(3, 17)] for _ in range(3)),
            normal(2, 300, 120),
            [1.0, 2.0],
            0.75,
            fixed_norm,
            StepValue.fixed(MuonNumbers(0.1, 0.9)),
        )
        for fixed_norm in (False, True)
    ],
    "average_parameters": [
        ([normal(5, 3), normal(16389)], [normal(5, 3), normal(16389)], count, gain)
        for count, gain in (
            (None, 0.25),
            (None, 1.0),
            (np.asarray(0), 0.1),
            (np.asarray(2), 0.1),
            (np.asarray(2), -1.0),
        )
    ],
    "count_up": [(np.asarray(41),)],
    # rows of a small array, with a tile for their length and in several turns; columns; segments of both
    "running_sum": [
        *((normal(*sizes), False, sizes[1]) for sizes in ((3, 300, 1), (2, 40_000, 1), (1, 300, 5))),
        *((normal(*sizes), True, sizes[1]) for sizes in ((3, 9, 1), (2, 5, 4), (300, 64, 1))),
    ],
    "lstm_cell": [tuple(normal(3, k * 5) for k in (4, 4, 1, 4, 1, 1))],
    "lstm_cell_gradient": [tuple(normal(3, k * 5) for k in (1, 1, 4, 1, 1, 4, 1))],
    "gru_cell": [tuple(normal(3, k * 5) for k in (3, 3, 1, 4, 1))],
    "gru_cell_gradient": [tuple(normal(3, k * 5) for k in (1, 4, 1, 3, 3, 1))],
    "running_product": [(normal(3, 300, 1),), (normal(2, 5, 4),)],
    "running_product_gradient": [(normal(3, 9, 1), steps(3, 9, 1), normal(3, 9, 1))],
    "clip_gradients": [
        ([normal(5, 3), normal(16389), normal()], np.asarray(40.0, f32), 10.0, np.inf),
        ([normal(5, 3)], np.asarray(2.0, f32), 10.0, 0.5),
        ([normal(5, 3)], None, np.inf, 0.5),
    ],
    "power": [(positive(7, 9), {"p": 1.7})],
    "log_forward": [(positive(7, 9),)],
    **{name: [(positive(7, 9),)] for name in ("square", "cube", "inverse_square", "square_root", "inverse_root")},
    "root_slope": [(normal(7, 9), positive(7, 9))],
    "tensor_power": [(positive(7, 9), normal(7, 9)), (positive(7, 9), normal(9)), (normal(5, 8), np.full(1, 2.0, f32))],
    "base_slope": [(normal(7, 9), positive(7, 9), normal(9)), (normal(5, 9), positive(9), normal(1))],
    "exponent_slope": [(normal(7, 9), positive(7, 9), normal(9)), (normal(5, 9), positive(9), normal(1))],
    "compare": [
        (A, B, relation)
        for relation in ("==", "!=", "<", "<=", ">", ">=")
        for A, B in ((steps(7, 9), steps(7, 9)), (steps(300, 8), steps(8)), (steps(5, 9), steps(1)))
    ],
    "broadcast_to": [
        (normal(3, 1, 4), (2, 3, 5, 4)),
        (normal(3, 1), (3, 7)),
        (normal(1), (5, 8)),
        (normal(2, 1, 3, 1, 2, 1), (2, 2, 3, 2, 2, 5)),
        (normal(4, 3), (4, 3)),
    ],
    "wide_sum_axis1": [
        (normal(3, 33, 8), False, 33),
        (normal(300, 65, 1), True, 65),
        (normal(1, 40000, 4), True, 40000),  # rows that blocks share
        (normal(1, 60_003, 1), True, 60_003),
        (normal(2, 9000, 1), False, 9000),
    ],
    # one row and many, columns on and off a vector, long and short sums, several slabs
    "sum_axis1": [
        (normal(1, 700, 64), 700),
        (normal(1, 5000, 10), 5000),
        (normal(3, 33, 7), 33),
        (normal(300, 5, 1), 5),
        (normal(300, 65, 1), 65),  # rows with a kernel for their length, of single elements and of packs
        (normal(9, 4000, 1), 4000),
        (normal(2, 9000, 1), 9000),
        (normal(1, 40000, 4), 40000),
        (normal(1, 60_003, 1), 60_003),  # a row that blocks share, with a rest that is no pack
        (normal(2, 3, 130), 3),
        (normal(1, 1, 5), 1),
        (normal(6, 16, 36), 16),
    ],
    "channel_statistics": [
        (normal(40, 8), None, None, 0.1, 40),
        (normal(1000, 64), None, None, 0.1, 1000),
        (far(3000, 5), None, None, 0.1, 3000),
        (normal(2, 3), normal(3), positive(3), 0.1, 2),
        (normal(70, 20), normal(20), positive(20), 0.3, 70),
        (normal(3000, 40) * np.float32(4e17), None, None, 0.1, 3000),  # only the sum of all squares is infinite
    ],
    "batch_norm_apply": [
        (normal(R, C), normal(C), positive(C), normal(C), normal(C), 1e-5, residual, rectifier)
        for R, C, residual, rectifier in (
            (37, 20, None, None),
            (300, 5, None, Rectifier(0.2)),
            (300, 5, normal(300, 5), None),
            (37, 20, normal(37, 20), Rectifier()),
            (37, 20, None, Rectifier(bound=0.5)),
        )
    ],
    "batch_norm_training": [
        (normal(R, C), wanted, normal(C), normal(C), 1e-5, residual, rectifier, R)
        for R, C, wanted, residual, rectifier in (
            (70, 20, StatisticsArguments(None, None, 0.1), None, None),
            (3000, 8, StatisticsArguments(normal(8), positive(8), 0.3), None, Rectifier(0.2)),
            (300, 5, StatisticsArguments(normal(5), positive(5), 0.3), normal(300, 5), Rectifier()),
        )
    ],
    "batch_norm_pool": [
        (normal(s.N, s.IH, s.IW, s.C), columns(s.C), 1e-5, s, rectifier)
        for s in (MAX, ODD, HALVES)
        for rectifier in (None, Rectifier(), Rectifier(0.25), Rectifier(bound=0.5))
    ],
    "batch_norm_pool_gradients": [
        (*taps(s), X, columns(s.C), 1e-5, batch, s, rectifier, s.N * s.IH * s.IW)
        for s in (MAX, ODD, HALVES)
        for X, batch, rectifier in (
            (normal(s.N, s.IH, s.IW, s.C), True, None),
            (normal(s.N, s.IH, s.IW, s.C), False, Rectifier(0.25)),
            (RectifiedInput(normal(s.N, s.IH, s.IW, s.C), Rectifier(0.25)), True, Rectifier()),
        )
    ],
    "batch_norm_gradients": [
        *(
            (normal(R, C), RectifiedInput(normal(R, C), behind), normal(C), positive(C), normal(C), 1e-5, batch, own, R)
            for R, C, behind, batch, own in (
                (37, 20, Rectifier(), True, None),
                (3000, 8, Rectifier(0.25), True, Rectified(Rectifier(0.2), normal(8), None)),
                (300, 5, Rectifier(bound=0.5), True, Rectified(Rectifier(0.25), None, normal(300, 5))),
                (50, 8, Rectifier(0.25), False, None),
            )
        ),
        *(
            (normal(R, C), normal(R, C), normal(C), positive(C), normal(C), 1e-5, batch, rectified, R)
            for R, C, batch, rectified in (
                (37, 20, True, None),
                (3000, 8, True, None),
                (300, 5, True, None),
                (50, 8, False, None),
                (3000, 8, True, Rectified(Rectifier(0.2), normal(8), None)),
                (300, 5, False, Rectified(Rectifier(), normal(5), None)),
                (3000, 8, True, Rectified(Rectifier(bound=0.5), None, normal(3000, 8))),
                # a power of two, so that dZ is exact in bfloat16, too
                (300, 5, True, Rectified(Rectifier(0.25), None, normal(300, 5))),
            )
        ),
        *(
            (in_parts(R, C), X, normal(C), positive(C), normal(C), 1e-5, batch, rectified, R)
            for R, C, X, batch, rectified in (
                (37, 20, normal(37, 20), True, None),
                (3000, 8, normal(3000, 8), True, Rectified(Rectifier(0.25), normal(8), None)),
                (300, 5, normal(300, 5), False, Rectified(Rectifier(), normal(5), None)),
                (3000, 8, normal(3000, 8), True, Rectified(Rectifier(bound=0.5), None, normal(3000, 8))),
                (300, 5, RectifiedInput(normal(300, 5), Rectifier(0.25)), True, None),
            )
        ),
    ],
    "batch_norm_gradients_from_output": [
        (normal(R, C), KeptOutput(normal(R, C), residual, rectifier), positive(C), positive(C), normal(C), 1e-5, R)
        for R, C, residual, rectifier in (
            (37, 20, None, Rectifier(1.0)),
            (3000, 8, None, Rectifier(0.25)),
            (300, 5, normal(300, 5), Rectifier(0.25)),
            (3000, 8, normal(3000, 8), Rectifier(1.0)),
        )
    ]
    + [
        (in_parts(R, C), kept, positive(C), positive(C), normal(C), 1e-5, R)
        for R, C, kept in (
            (3000, 8, KeptOutput(normal(3000, 8), None, Rectifier(0.25))),
            (300, 5, KeptOutput(normal(300, 5), normal(300, 5), Rectifier(0.25))),
        )
    ],
    "batch_norm_gradients_begun": [
        (normal(R, C), normal(2, parts, C), kept, normal(C), positive(C), positive(C), bias, 1e-5)
        for R, C, parts, kept, bias in (
            (300, 5, 1, normal(300, 5), None),
            (3000, 8, 300, normal(3000, 8), None),
            (37, 20, 9, KeptOutput(normal(37, 20), None, Rectifier(0.25)), normal(20)),
            (300, 5, 3, KeptOutput(normal(300, 5), normal(300, 5), Rectifier(0.25)), normal(5)),
        )
    ],
    "conv2d_forward": [(normal(*c.X), normal(*c.W), c, 36) for c in CONVOLUTIONS],
    "conv2d_backward_input": [(normal(*c.Y), normal(*c.W), c, 72) for c in CONVOLUTIONS],
    "conv2d_backward_weight": [(normal(*c.X), normal(*c.Y), c, c.N * c.OH * c.OW) for c in CONVOLUTIONS],
    "take_pixels": [
        (pixels(9, 4, 4, 3), order(9), StepValue.fixed(2), 5),
        (pixels(7, 3, 3, 1), order(7), StepValue.fixed(0), 7),
    ],
    "take_entries": [
        *(
            (order(300).astype(kind), order(300), StepValue.fixed(3), 280)
            for kind in (np.int32, np.int64, np.uint8, np.bool_, np.float64)
        ),
        (normal(40, 3, 5), order(40), StepValue.fixed(7), 33),
        (normal(40, 8), order(40), StepValue.fixed(0), 0),
    ],
    "count_batch": [
        *(
            (np.array([1.5, 2, 7, 3, 0, 0, 0, 0, 5]), np.array(loss, f32), normal(40, 10), labels, 40, True)
            for kind in (np.int32, np.int64, np.uint8)
            for loss, most in ((1.25, 10), (np.inf, 10), (np.inf, 13))
            for labels in (np.arange(40, dtype=kind) % most,)
        ),
        (np.zeros(9), np.array(2.5, f32), normal(40, 10), np.arange(40, dtype=np.int32) % 3 - 100, 20, False),
    ],
    "dropout_apply": [
        *(
            (normal(7, n), StepValue.fixed(Stream(5, 6)), 0.3, rectifier, Z)
            for n in (8, 9)
            for rectifier in (Rectifier(0.2), Rectifier(), Rectifier(bound=0.5))
            for Z in (None, normal(7, n))
        ),
        (normal(7, 9), StepValue.fixed(Stream(12345678901234, 5)), 0.3),
        (normal(4, 8), StepValue.fixed(Stream(2**64 - 1, 2**40 + 1)), 0.9),
        (normal(3), StepValue.fixed(Stream(0, 0)), 0.5),
        (normal(3), StepValue.fixed(Stream(0, 0)), 1.0),
    ],
    "drop_groups": [  # channels in packs and not, whole images, all elements
        (normal(*shape), StepValue.fixed(Stream(2**64 - 1, 2**40 + 1)), 0.3, Outcome(1.5, 0.25, -1.0))
        for shape in ((3, 5, 8), (4, 3, 3), (5, 12, 1), (1, 1, 30))
    ],
    "resample_axis1": [
        (normal(2, rows, B), r) for r, rows in ((CUBIC, 5), (CUBIC._replace(transposed=True), 8)) for B in (8, 3)
    ],
    # images in packs and not, and a volume; each way to pad
    **{
        name: [
            (*dY, *X, places(*O, rank), *lengths, Sampling(mode, padding_mode, align_corners), 64 * taps)
            for C, I, O, mode, padding_mode, align_corners, taps in (
                (8, (5, 6), (2, 4, 3), "linear", "zeros", False, 4),
                (3, (5, 6), (2, 4, 3), "nearest", "reflection", True, 1),
                (40, (5, 6), (2, 4, 3), "cubic", "border", False, 16),
                (3, (3, 4, 5), (2, 2, 3, 2), "linear", "reflection", False, 8),
            )
            for rank in (len(I),)
            for dY, X, lengths in (
                (
                    [normal(*O, C)] if name != "sample" else [],
                    [normal(2, *I, C)] if name != "sample_taps" else [],
                    [I] if name == "sample_taps" else [],
                ),
            )
        ]
        for name in ("sample", "sample_slopes", "sample_taps")
    },
    "cast": [
        (np.arange(250, dtype=np.uint8), f32, 2 / 255, -1.0),
        (normal(5, 7) * 9, i32, 1.0, 0.0),
        (np.arange(9) + 2**40, np.dtype(np.int64), 1.0, 0.0),
        (normal(6), np.dtype(np.float64), 1.0, 0.0),
        (np.array([0.0, 2.0, -1.0], f32), np.dtype(bool), 1.0, 0.0),
        (np.array([True, False, True]), f32, 1.0, 0.0),
    ],
    # words of 4, 8 and 16 bytes, tiles of elements and of packs, a step, a flip, a repeat, a single element, none
    "read_view": [
        *(
            (X, View.whole(X.shape).permuted((0, 2, 1)))
            for X in (pixels(2, 64, 48), normal(2, 48, 64).astype(np.float64))
        ),
        *(
            (X, view)
            for X, whole in ((X, View.whole(X.shape)) for X in (normal(6, 9, 8), normal(3, 33, 70), normal(3, 64, 96)))
            for view in (
                whole.permuted((0, 2, 1)),
                whole.permuted((2, 0, 1)),
                whole.permuted((1, 0, 2)),
                whole.sliced(2, 4, 4),
                whole.sliced(2, 2, 6),
                whole.sliced(1, 8, 3, -2),
                whole.flipped(2).flipped(0),
                whole.dropped(0, 1).inserted(0, 5),
                whole.sliced(1, 0, 0),
            )
        ),
    ],
    "write_view": [
        (normal(6, 9, 8), View.whole((6, 9, 8)).sliced(1, 2, 3, 2), normal(6, 3, 8), View.whole((6, 3, 8))),
        (normal(6, 9, 8), View.whole((6, 9, 8)).flipped(2), normal(8), View.whole((8,)).broadcast((6, 9, 8))),
        (normal(5, 7), View.whole((5, 7)).dropped(1, 3), normal(1), View((5,), (0,))),
    ],
    "places": [
        (np.array([3, -1, 0]), 4, 1, None, NO_PLACE),
        (np.array([1, 0, -2]), 3, 5, np.array([4, 0, 2]), (2, 2, 7)),
        (np.array([3, 1, 0]), 4, 1, None, NO_PLACE, False),
    ],
    "take_rows": [(normal(A, 6, C), np.array([5, 0, 0, 3])) for A, C in ((1, 8), (3, 2), (2, 3))],
    "put_rows": [
        *((normal(A, 6, C), np.array([5, 0, 3]), normal(A, 3, C), True) for A, C in ((1, 8), (2, 3))),
        (normal(2, 6, 3), np.array([5, 0, 5, 5]), normal(2, 4, 3), False),
    ],
    "add_rows": [(normal(A, 6, C), REPEATED, normal(A, REPEATED.size, C)) for A, C in ((1, 8), (3, 3))],
    "reduce_rows": [
        (values(A, 6, C), REPEATED, values(A, REPEATED.size, C), fold)
        for fold in ("prod", "amax", "amin")
        for A, C, values in ((1, 8, normal), (3, 3, normal), (2, 3, lambda *n: normal(*n).astype(np.float64)))
    ],
    "search_rows": [
        (np.sort(S, 1), V, right)
        for right in (False, True)
        for S, V in (
            (TIES.astype(np.float32), normal(*TIES.shape)),
            (normal(1, 40), normal(3, 200)),
            (TIES[:1].astype(np.int64), np.arange(-3, 3).reshape(2, 3)),
            (normal(2, 7).astype(np.float64), normal(2, 5).astype(np.float64)),
        )
    ],
    "fill_range": [
        *(
            (np.zeros(n, kind), 2.0, 7.5, 0.25, both)
            for kind in (f32, np.float64)
            for n in (9, 600)
            for both in (False, True)
        ),
        (np.zeros(300, np.int64), 2**60, 0, -3, False),
        (np.zeros(30, u8), 7, 0, 2, False),
    ],
    "fill_random": [
        (np.zeros(shape, kind), StepValue.fixed(Stream(9, 4)), way, low, scale)
        for shape in ((7,), (40, 33))
        for kind, way, low, scale in (
            (f32, 0, 0.0, 1.0),
            (np.float64, 0, -2.0, 0.5),
            (f32, 1, 1.0, 3.0),
            (i32, 2, -5, 11),
            (np.int64, 2, 10, 2**32),
        )
    ],
    "sort_order": [
        (X, descending)
        for X in (TIES, TIES.astype(np.int32), TIES.astype(np.int64), TIES.astype(np.float64), normal(2, 5000))
        for descending in (False, True)
    ],
    "softmax_cross_entropy": [
        (normal(5, 7) * 9, labels, None, 0.0, -100, True, 7),
        (normal(5, 40), labels, None, 0.1, int(labels[1]), True, 40),
        (normal(5, 2100), labels.astype(np.int64), positive(2100), 0.2, int(labels[0]), True, 2100),
        (normal(5, 7), labels, positive(7), 0.0, -100, True, 7),
        (normal(5, 7), labels, positive(7), 0.0, int(labels[2]), False, 7),
        *(
            (normal(5, C), positive(5, C), w, s, -100, True, C)
            for C, w, s in ((7, None, 0.0), (2100, positive(2100), 0.1))
        ),
    ],
    # lines that are no rows; rows within a part of a warp, a warp and several warps, of whole packs and single elements
    "softmax_axis1": [(normal(*sizes) * 3, log, sizes[1]) for sizes in LINES for log in (False, True)],
    "softmax_gradient_axis1": [
        (normal(*sizes), positive(*sizes) / sizes[1], log, sizes[1]) for sizes in LINES for log in (False, True)
    ],
    "normalize_groups": [
        (normal(*n), *affine, 1e-5, centered, 16 * n[1] * n[3])
        for n in GROUPS
        for affine, centered in (((normal(n[2] * n[3]), normal(n[2] * n[3])), True), ((None, None), False))
    ],
    "normalize_groups_gradients": [
        (normal(*n), normal(*n), normal(n[0], n[2]), positive(n[0], n[2]), w, centered, 16 * n[0] * n[1] * n[3])
        for n in GROUPS
        for w, centered in ((normal(n[2] * n[3]), True), (None, False))
    ],
    # every transpose on and off a vector, a long K, a batch, one B for a batch
    "matmul_batch": [
        *(
            (normal(1, *((K, M) if a else (M, K))), normal(1, *((N, K) if b else (K, N))), a, b, K)
            for M, N, K in ((20, 36, 24), (70, 5, 33))
            for a in (False, True)
            for b in (False, True)
        ),
        (normal(1, 3, 1000), normal(1, 1000, 5), False, False, 1000),
        (normal(3, 9, 8), normal(3, 8, 12), False, False, 8),
        (normal(3, 9, 8), normal(1, 8, 12), False, False, 8),
        (normal(1, 1700, 8), normal(1, 8, 640), False, False, 8),
    ],
    "max_pool2d_forward": [(normal(s.N, s.IH, s.IW, s.C), s) for s in (MAX, ODD, ADAPTIVE)],
    "max_pool2d_backward": [
        *((*taps(s), s) for s in (MAX, ODD, ADAPTIVE)),
        *(rectified_pool(s, rectifier) for s in (MAX, ODD, ADAPTIVE) for rectifier in (Rectifier(), Rectifier(0.25))),
        rectified_pool(MAX, Rectifier(bound=0.5)),
    ],
    "max_pool2d_indices": [(taps(s)[1], s) for s in (MAX, ADAPTIVE)],
    "avg_pool2d_forward": [(normal(s.N, s.IH, s.IW, s.C), s) for s in (AVERAGE, INSIDE, ADAPTIVE)],
    "avg_pool2d_backward": [(normal(s.N, s.OH, s.OW, s.C), s) for s in (AVERAGE, INSIDE, ADAPTIVE)],
}


def run(function: Primitive, device: str, arguments: tuple[Any, ...], magnitudes: bool = False) -> list[np.ndarray]:
    """Every array that comes out: the result's, and the arguments', which may be written in place.

    `magnitudes`: also those that kernels found on the way (`DeviceArray.magnitude`).
    """
    target = alpha.get_device(device)

    def put(argument: Any) -> Any:
        if isinstance(argument, list):
            return [put(item) for item in argument]
        if isinstance(argument, (Columns, GradientParts, KeptOutput, Rectified, RectifiedInput, StatisticsArguments)):
            return type(argument)(*map(put, argument))
        return target.upload(argument) if isinstance(argument, np.ndarray) else argument

    def arrays(value: Any) -> Iterator[np.ndarray]:
        if isinstance(value, (list, tuple)):
            for item in value:
                yield from arrays(item)
        elif hasattr(value, "dtype") and hasattr(value, "nbytes") and hasattr(value, "reshape"):
            yield target.download(value)
            if magnitudes and getattr(value, "magnitude", None) is not None:
                yield target.download(value.magnitude).view(np.float32)

    keywords = arguments[-1] if isinstance(arguments[-1], dict) else {}
    positional = [put(a) for a in arguments[: len(arguments) - bool(keywords)]]
    return [*arrays(function(*positional, **keywords)), *arrays(positional)]


WITH_LENGTH = {
    "sample",
    "sample_slopes",
    "sample_taps",
    "sum_axis1",
    "wide_sum_axis1",
    "running_sum",
    "channel_statistics",
    "batch_norm_training",
    "batch_norm_gradients",
    "batch_norm_gradients_from_output",
    "batch_norm_pool_gradients",
    "softmax_cross_entropy",
    "softmax_axis1",
    "softmax_gradient_axis1",
    "normalize_groups",
    "normalize_groups_gradients",
    "matmul_batch",
    "conv2d_forward",
    "conv2d_backward_input",
    "conv2d_backward_weight",
}
CASES |= {name: of_expression(p) for name, p in REGISTRY.items() if p.expression and name not in CASES}
FOUND = {name: cases for name, cases in of_rows().items() if name not in CASES}  # of functions and optimizers
CASES |= FOUND
WITH_LENGTH |= set(FOUND)
# beside those of its functions, which are small: rows with a kernel for their length
CASES["extreme_axis1"] = [*CASES["extreme_axis1"], (normal(300, 65, 1), True, 65), (normal(9, 4000, 1), False, 4000)]
