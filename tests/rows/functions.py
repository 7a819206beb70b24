"""The functions that are neither activations nor losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from argument_table import Row, changes, refused, silent

import alpha.nn.functional as F
from rows.arrays import IMAGE, LABELS, MATRIX, SEQUENCE, VOLUME, drawn, normal
from rows.kinds import FunctionRow, NotedStatistics


def function(target: Callable[..., Any], usual: dict[str, Any], /, **arguments: Row) -> FunctionRow:
    return FunctionRow(target, usual, arguments)


MORE = changes(MATRIX + 1)
LONE = normal(1, 5, 1)
CONVOLUTIONS = ((1, F.conv1d, SEQUENCE, (3,)), (2, F.conv2d, IMAGE, (3, 3)), (3, F.conv3d, VOLUME, (3, 2, 2)))
TRANSPOSED = (
    (1, F.conv_transpose1d, SEQUENCE, (3,)),
    (2, F.conv_transpose2d, IMAGE, (3, 3)),
    (3, F.conv_transpose3d, VOLUME, (3, 2, 2)),
)
SHARES = 1 / (1 + np.exp(-MATRIX))  # within 0 and 1
PLACES = np.array([[3, 1, 0, 3, 2], [0, 0, 4, 3, 3]])
UNUSUAL = np.array([[0.5, np.nan, np.inf], [-np.inf, -0.0, 1.0]], np.float32)
WHOLE = np.arange(-6, 6).reshape(3, 4)
TIES = np.round(MATRIX * 2) / 2
FUNCTIONS = [
    *(
        function(
            convolution,
            {"x": x, "weight": normal(4, *filters, 3)},
            x=changes(x + 1),
            weight=changes(normal(4, *filters, 3)),
            bias=changes(normal(4)),
            stride=changes((2, 1, 1)[:rank]),
            padding=changes((1, 0, 0)[:rank]),
            dilation=changes((2, 1, 1)[:rank]),
            groups=changes(2, "error"),
            negative_slope=changes(0.25),
            **({"statistics": changes(NotedStatistics(), "statistics")} if rank == 2 else {}),
        )
        for rank, convolution, x, filters in CONVOLUTIONS
    ),
    *(
        function(
            convolution,
            {"x": x, "weight": normal(3, *filters, 4)},
            x=changes(x + 1),
            weight=changes(normal(3, *filters, 4)),
            bias=changes(normal(4)),
            stride=changes((2, 1, 1)[:rank]),
            padding=changes((1, 0, 0)[:rank]),
            output_padding=changes((1, 0, 0)[:rank], stride=2),
            groups=changes(2, "error"),
            dilation=changes((2, 1, 1)[:rank]),
            negative_slope=changes(0.25),
        )
        for rank, convolution, x, filters in TRANSPOSED
    ),
    function(
        F.batch_norm,
        {"x": IMAGE, "running_mean": np.zeros(3, np.float32), "running_var": np.ones(3, np.float32), "training": True},
        x=changes(IMAGE + 1),
        running_mean=changes(np.full(3, 0.5, np.float32)),
        running_var=changes(np.full(3, 2.0, np.float32)),
        weight=changes(normal(3)),
        bias=changes(normal(3)),
        training=changes(False),
        momentum=changes(0.3),
        eps=changes(0.5),
        statistics=changes(NotedStatistics(), "statistics"),
        residual=changes(IMAGE),
        activation=changes(F.relu),
        pool=changes(lambda x: F.max_pool2d(x, 2)),
    ),
    *(
        function(f, {"x": MATRIX, "dim": 1}, x=changes(MATRIX * 2), dim=changes(0), dtype=changes("float64"))
        for f in (F.softmax, F.log_softmax, F.softmin)
    ),
    function(
        F.layer_norm,
        {"x": IMAGE, "normalized_shape": 3},
        x=changes(IMAGE * IMAGE),
        normalized_shape=changes((5, 3)),
        weight=changes(normal(3)),
        bias=changes(normal(3)),
        eps=changes(0.5),
    ),
    function(
        F.rms_norm,
        {"x": IMAGE, "normalized_shape": 3},
        x=changes(IMAGE + 1),
        normalized_shape=changes((5, 3)),
        weight=changes(normal(3)),
        eps=changes(0.5),
    ),
    function(
        F.group_norm,
        {"x": IMAGE, "num_groups": 1},
        x=changes(IMAGE * IMAGE),
        num_groups=changes(3),
        weight=changes(normal(3)),
        bias=changes(normal(3)),
        eps=changes(0.5),
    ),
    FunctionRow(
        F.threshold,
        {"x": IMAGE, "threshold": 0.1, "value": 0.05},
        {
            "x": changes(IMAGE + 1),
            "threshold": changes(0.5),
            "value": changes(-1.0),
            "inplace": changes(True, "memory"),
        },
        any_number=True,
    ),
    function(
        F.prelu, {"x": IMAGE, "weight": normal(3)}, x=changes(IMAGE + 1), weight=changes(np.full(1, 0.3, np.float32))
    ),
    function(
        F.rrelu,
        {"x": IMAGE},
        x=changes(IMAGE + 1),
        lower=changes(0.2),
        upper=changes(0.6),
        training=changes(True),
        inplace=changes(True, "memory"),
    ),
    function(F.glu, {"x": IMAGE[..., :2].copy()}, x=changes(IMAGE[..., 1:].copy()), dim=changes(0)),
    function(
        F.dropout,
        {"x": IMAGE},
        x=changes(IMAGE + 1),
        p=changes(0.25),
        training=changes(False),
        inplace=changes(True, "memory"),
        activation=changes(F.relu),
    ),
    function(
        F.add,
        {"x": MATRIX, "other": MATRIX},
        x=changes(MATRIX + 1),
        other=changes(MATRIX + 1),
        alpha=changes(2.0),
        activation=changes(F.relu),
    ),
    function(F.mul, {"x": MATRIX, "other": MATRIX}, x=changes(MATRIX + 1), other=changes(MATRIX + 1)),
    function(
        F.bmm,
        {"x": drawn(2, 3, 4), "mat2": drawn(2, 4, 5)},
        x=changes(drawn(2, 3, 4) + 1),
        mat2=changes(drawn(2, 4, 5) + 1),
    ),
    function(F.matmul, {"x": MATRIX, "other": MATRIX.T.copy()}, x=changes(MATRIX + 1), other=changes(MATRIX.T + 1)),
    function(
        F.linear,
        {"x": MATRIX, "weight": normal(3, 5)},
        x=changes(MATRIX + 1),
        weight=changes(normal(3, 5)),
        bias=changes(normal(3)),
    ),
    function(F.flatten, {"x": IMAGE}, x=changes(IMAGE + 1), start_dim=changes(1), end_dim=changes(2)),
    function(F.reshape, {"x": MATRIX, "shape": (30,)}, x=changes(MATRIX + 1), shape=changes((5, 6))),
    function(F.transpose, {"x": MATRIX, "dim0": 0, "dim1": 0}, x=changes(MATRIX + 1), dim0=changes(1), dim1=changes(1)),
    function(F.swapaxes, {"x": MATRIX, "axis0": 0, "axis1": 0}, x=MORE, axis0=changes(1), axis1=changes(1)),
    function(F.permute, {"x": IMAGE, "dims": (0, 3, 1, 2)}, x=changes(IMAGE + 1), dims=changes((3, 2, 1, 0))),
    function(
        F.movedim,
        {"x": IMAGE, "source": 1, "destination": 3},
        x=changes(IMAGE + 1),
        source=changes(0),
        destination=changes(2),
    ),
    function(F.squeeze, {"x": LONE}, x=changes(LONE + 1), dim=changes(0)),
    function(F.unsqueeze, {"x": MATRIX, "dim": 0}, x=MORE, dim=changes(2)),
    function(F.tile, {"x": MATRIX, "dims": (2,)}, x=MORE, dims=changes((3, 1))),
    function(F.flip, {"x": MATRIX, "dims": 0}, x=MORE, dims=changes((0, 1))),
    function(F.roll, {"x": MATRIX, "shifts": 1}, x=MORE, shifts=changes(2), dims=changes(1)),
    function(F.rot90, {"x": MATRIX}, x=MORE, k=changes(2), dims=changes((1, 0))),
    function(F.cat, {"tensors": [MATRIX, MATRIX]}, tensors=changes([MATRIX, MATRIX + 1]), dim=changes(1)),
    function(F.stack, {"tensors": [MATRIX, MATRIX]}, tensors=changes([MATRIX, MATRIX + 1]), dim=changes(1)),
    function(
        F.split,
        {"x": MATRIX, "split_size_or_sections": 2},
        x=MORE,
        split_size_or_sections=changes((2, 4)),
        dim=changes(1),
    ),
    function(F.chunk, {"x": MATRIX, "chunks": 2}, x=MORE, chunks=changes(3), dim=changes(1)),
    function(F.unbind, {"x": MATRIX}, x=MORE, dim=changes(1)),
    FunctionRow(
        F.pad,
        {"x": MATRIX, "pad": (1, 2)},
        {"x": MORE, "pad": changes((2, 1)), "mode": changes("reflect"), "value": changes(2.0)},
        any_number=True,
    ),
    *(
        function(f, {"x": values}, x=changes(values * 0.9))
        for values, functions in (
            (MATRIX, (F.abs, F.ceil, F.exp2, F.expm1, F.erf, F.square, F.reciprocal, F.sin, F.cos, F.tan, F.atan)),
            (MATRIX, (F.sinh, F.cosh, F.asinh, F.deg2rad, F.rad2deg, F.frac, F.positive)),
            (2.5 * MATRIX, (F.floor, F.trunc)),
            (SHARES, (F.log2, F.log10, F.log1p, F.rsqrt, F.asin, F.acos, F.atanh)),
            (SHARES + 1.5, (F.acosh,)),
        )
        for f in functions
    ),
    function(F.sign, {"x": MATRIX}, x=changes(-MATRIX)),
    function(F.round, {"x": MATRIX}, x=changes(-MATRIX), decimals=changes(1)),
    *(
        FunctionRow(f, {"x": SHARES}, {"x": changes(SHARES * 0.9)}, own="of Dragon-Alpha")
        for f in (F.sec, F.csc, F.cot)
    ),
    FunctionRow(
        F.half_sin, {"x": MATRIX}, {"x": MORE, "amplitude": changes(2.0)}, own="2 A |sin x| - A, of Dragon-Alpha"
    ),
    *(function(f, {"x": TIES}, x=changes(-TIES), dim=changes(1), keepdim=changes(True, dim=1)) for f in (F.max, F.min)),
    *(
        function(f, {"x": TIES}, x=changes(-TIES), dim=changes(1), keepdim=changes(True))
        for f in (F.amax, F.amin, F.argmax, F.argmin)
    ),
    *(
        function(f, {"x": TIES}, x=changes(TIES * 0 + value), dim=changes(1), keepdim=changes(True))
        for f, value in ((F.all, 1), (F.any, 0))
    ),
    function(F.prod, {"x": MATRIX}, x=MORE, dim=changes(0), keepdim=changes(True, dim=0), dtype=changes("float64")),
    *(
        function(
            f,
            {"x": MATRIX},
            x=changes(MATRIX * 2),
            dim=changes(0),
            unbiased=changes(False),
            keepdim=changes(True),
            correction=changes(0.0),
        )
        for f in (F.var, F.std)
    ),
    *(
        function(f, {"x": TIES}, x=changes(-TIES), dim=changes(0), descending=changes(True), stable=silent(True))
        for f in (F.sort, F.argsort)
    ),
    function(
        F.topk,
        {"x": TIES, "k": 2},
        x=changes(-TIES),
        k=changes(3),
        dim=changes(0),
        largest=changes(False),
        sorted=silent(False),
    ),
    function(F.cumsum, {"x": MATRIX, "dim": 0}, x=MORE, dim=changes(1), dtype=changes("float64")),
    function(F.cumprod, {"x": MATRIX, "dim": 0}, x=MORE, dim=changes(1), dtype=changes("float64")),
    function(F.logsumexp, {"x": MATRIX, "dim": 0}, x=MORE, dim=changes(1), keepdim=changes(True)),
    *(
        function(
            f,
            {"x": MATRIX, "dim": 0, "index": PLACES, **more},
            x=MORE,
            dim=changes(1),
            index=changes(PLACES[:, ::-1].copy()),
            **rows,
        )
        for f, more, rows in ((F.gather, {}, {}), (F.scatter_add, {"src": MATRIX}, {"src": MORE}))
    ),
    function(
        F.index_add,
        {"x": drawn(5, 5), "dim": 0, "index": np.array([1, 0, 1, 2, 1]), "source": drawn(5, 5)},
        x=changes(drawn(5, 5) + 1),
        dim=changes(1),
        index=changes(np.array([1, 0, 3, 2, 1])),
        source=changes(drawn(5, 5) + 1),
        alpha=changes(2.0),
    ),
    FunctionRow(
        F.scatter,
        {"x": MATRIX, "dim": 0, "index": PLACES, "src": 1.0},
        {
            "x": MORE,
            "dim": changes(1),
            "index": changes(PLACES[:, ::-1].copy()),
            "src": changes(3.0),
            "reduce": changes("add"),
        },
        any_number=True,
    ),
    function(
        F.take_along_dim,
        {"x": MATRIX, "indices": PLACES[:1].copy()},
        x=MORE,
        indices=changes(PLACES[1:2].copy()),
        dim=changes(0),
    ),
    function(
        F.index_select, {"x": MATRIX, "dim": 0, "index": PLACES[0]}, x=MORE, dim=changes(1), index=changes(PLACES[1])
    ),
    function(
        F.embedding,
        {"x": PLACES, "weight": drawn(6, 3)},
        x=changes(PLACES[:1].copy()),
        weight=changes(drawn(6, 3)),
        padding_idx=changes(3),
        max_norm=changes(np.float32(0.5)),  # None is no wrong number
        norm_type=changes(1.0, max_norm=0.5),
        scale_grad_by_freq=refused(True),
        sparse=refused(True),
    ),
    FunctionRow(
        F.scaled_dot_product_attention,
        {"query": drawn(2, 4, 5, 3), "key": drawn(2, 4, 6, 3), "value": drawn(2, 4, 6, 2)},
        {
            "query": changes(drawn(2, 4, 5, 3)),
            "key": changes(drawn(2, 4, 6, 3)),
            "value": changes(drawn(2, 4, 6, 2)),
            "attn_mask": changes(MATRIX.T > 0),
            "dropout_p": changes(0.25),
            "is_causal": changes(True),
            "scale": changes(np.float32(0.3)),  # None is no wrong number
            "enable_gqa": changes(True, "error", query=drawn(5, 3), key=drawn(6, 3)),
        },
    ),
    function(
        F.bilinear,
        {"input1": drawn(6, 4), "input2": MATRIX, "weight": drawn(3, 4, 5)},
        input1=changes(drawn(6, 4)),
        input2=MORE,
        weight=changes(drawn(3, 4, 5)),
        bias=changes(drawn(3)),
    ),
    function(F.nonzero, {"x": TIES}, x=changes(TIES * 0 + 1), as_tuple=changes(True)),
    FunctionRow(
        F.nan_to_num,
        {"x": UNUSUAL},
        {"x": changes(-UNUSUAL), "nan": changes(0.5), "posinf": changes(2.0), "neginf": changes(-3.0)},
        any_number=True,
    ),
    *(function(f, {"x": MATRIX, "other": MATRIX + 1}, x=MORE, other=changes(-MATRIX)) for f in (F.atan2, F.hypot)),
    *(function(f, {"x": MATRIX}, x=MORE, diagonal=changes(1)) for f in (F.tril, F.triu)),
    FunctionRow(
        F.norm,
        {"x": MATRIX},
        {"x": MORE, "p": changes(1.0), "dim": changes(0), "keepdim": changes(True), "dtype": changes("float64")},
        any_number=True,
    ),
    FunctionRow(
        F.where,
        {"condition": MATRIX > 0, "x": MATRIX, "other": MATRIX + 1},  # a call without both: ops/indexing/test_where.py
        {"condition": changes(MATRIX > 1), "x": MORE, "other": changes(MATRIX)},
    ),
    FunctionRow(
        F.masked_fill,
        {"x": MATRIX, "mask": MATRIX > 0, "value": 1.0},
        {"x": MORE, "mask": changes(MATRIX > 1), "value": changes(3.0)},
        any_number=True,
    ),
    *(
        function(f, {"x": MATRIX, "other": SHARES}, x=MORE, other=changes(SHARES + 1))
        for f in (F.floor_divide, F.remainder)
    ),
    *(
        function(f, {"x": WHOLE, "other": WHOLE[1]}, x=changes(WHOLE + 1), other=changes(WHOLE[2]))
        for f in (F.bitwise_and, F.bitwise_or, F.bitwise_xor, F.bitwise_left_shift, F.bitwise_right_shift)
    ),
    *(
        function(f, {"x": WHOLE, "other": WHOLE[1] > 0}, x=changes(0 * WHOLE), other=changes(WHOLE[1] == 0))
        for f in (F.logical_and, F.logical_or, F.logical_xor)
    ),
    *(function(f, {"x": WHOLE}, x=changes(WHOLE + 1)) for f in (F.bitwise_not, F.logical_not)),
    FunctionRow(
        F.normalize,
        {"x": MATRIX},
        {"x": MORE, "p": changes(1.0), "dim": changes(0), "eps": changes(9.0)},
        any_number=True,
    ),
    *(
        function(f, {"x": TIES, "other": MATRIX}, x=changes(-TIES), other=changes(-MATRIX))
        for f in (F.maximum, F.minimum)
    ),
    *(
        FunctionRow(
            f, {"x": MATRIX, "min": -1.0}, {"x": MORE, "min": changes(0.5), "max": changes(0.8)}, any_number=True
        )
        for f in (F.clamp, F.clip)
    ),
    FunctionRow(
        F.normalize_pixels,
        {"x": LABELS.astype(np.uint8)},
        {"x": changes(np.arange(6, dtype=np.uint8))},
        own="uint8 images to scaled floats in one pass",
    ),
    function(
        F.sum, {"x": MATRIX}, x=changes(MATRIX + 1), dim=changes(0), keepdim=changes(True), dtype=changes("float64")
    ),
    function(
        F.mean, {"x": MATRIX}, x=changes(MATRIX + 1), dim=changes(1), keepdim=changes(True), dtype=changes("float64")
    ),
]
