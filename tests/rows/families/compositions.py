"""Functions that are other names, or are composed of other functions."""

from __future__ import annotations

import numpy as np
from argument_table import Row, changes

import alpha.nn.functional as F
from rows.arrays import MATRIX, drawn
from rows.functions import MORE, SHARES, TIES, function
from rows.kinds import FunctionRow

VECTOR, OTHER = drawn(5), drawn(5)
TRIPLES = drawn(3, 3)
BATCH, RIGHT = drawn(2, 3, 4), drawn(2, 4, 5)
ABOVE = MATRIX * MATRIX + np.float32(1.1)
WITHIN = np.tanh(MATRIX).astype(np.float32)
FACTORS = {"beta": changes(2.0), "alpha": changes(3.0)}
COUNTS = np.array([2, 1, 3, 1, 1])
CUTS = "indices_or_sections"
AREA = {"x": changes(OTHER), "dx": changes(np.float32(2.0)), "dim": changes(0)}
FUNCTIONS = [
    # other names
    *(function(f, {"x": MATRIX}, x=MORE) for f in (F.negative, F.fix, F.arcsinh, F.arctan, F.adjoint, F.msort)),
    *(function(f, {"x": WITHIN}, x=changes(WITHIN * 0.5)) for f in (F.arccos, F.arcsin, F.arctanh)),
    function(F.arccosh, {"x": ABOVE}, x=changes(ABOVE + 1)),
    function(F.arctan2, {"x": MATRIX, "other": MATRIX[::-1].copy()}, x=MORE, other=changes(MATRIX[::-1] + 1)),
    *(
        function(f, {"x": TIES, "other": TIES[0].copy()}, x=changes(-TIES), other=changes(TIES[1].copy()))
        for f in (F.greater, F.greater_equal, F.less, F.less_equal, F.not_equal)
    ),
    FunctionRow(F.ger, {"x": VECTOR, "vec2": OTHER}, {"x": changes(OTHER), "vec2": changes(VECTOR)}),
    FunctionRow(F.vdot, {"x": VECTOR, "other": OTHER}, {"x": changes(OTHER), "other": changes(VECTOR)}),
    FunctionRow(F.row_stack, {"tensors": [MATRIX, MATRIX]}, {"tensors": changes([MATRIX, MATRIX + 1])}),
    FunctionRow(
        F.split_with_sizes,
        {"x": drawn(4, 4), "split_sizes": (1, 3)},
        {"x": changes(drawn(4, 4)), "split_sizes": changes((2, 2)), "dim": changes(1)},
    ),
    # copies of parts
    FunctionRow(
        F.select_scatter,
        {"x": TRIPLES, "src": drawn(3), "dim": 0, "index": 1},
        {"x": changes(TRIPLES + 1), "src": changes(drawn(3)), "dim": changes(1), "index": changes(2)},
    ),
    FunctionRow(
        F.slice_scatter,
        {"x": drawn(4, 4), "src": drawn(2, 4), "dim": 0, "start": 1, "end": 3},
        {
            "x": changes(drawn(4, 4)),
            "src": changes(drawn(2, 4)),
            "dim": Row(1, together={"src": drawn(4, 2)}),
            "start": Row(0, together={"end": 2}),
            "end": Row(4, together={"start": 2}),
            "step": Row(2, together={"start": 0, "end": 4}),
        },
    ),
    FunctionRow(
        F.diagonal_scatter,
        {"x": drawn(3, 3, 3), "src": drawn(3, 3)},
        {
            "x": changes(drawn(3, 3, 3)),
            "src": changes(drawn(3, 3)),
            "offset": Row(1, together={"src": drawn(3, 2)}),
            "dim1": changes(2),
            "dim2": changes(2),
        },
    ),
    FunctionRow(
        F.narrow_copy,
        {"x": MATRIX, "dim": 0, "start": 1, "length": 2},
        {"x": MORE, "dim": changes(1), "start": changes(2), "length": changes(3)},
    ),
    FunctionRow(F.diagflat, {"x": TRIPLES}, {"x": changes(TRIPLES + 1), "offset": changes(-1)}),
    *(
        FunctionRow(
            f, {"x": x, "indices_or_sections": 2}, {"x": changes(x + 1), "indices_or_sections": changes((1, 3))}
        )
        for f, x in ((F.hsplit, drawn(3, 4)), (F.vsplit, MATRIX), (F.dsplit, BATCH))
    ),
    # products and matrices
    FunctionRow(
        F.addr,
        {"x": MATRIX, "vec1": drawn(6), "vec2": VECTOR},
        {"x": MORE, "vec1": changes(drawn(6)), "vec2": changes(OTHER), **FACTORS},
    ),
    FunctionRow(
        F.addbmm,
        {"x": VECTOR, "batch1": BATCH, "batch2": RIGHT},
        {"x": changes(OTHER), "batch1": changes(BATCH + 1), "batch2": changes(RIGHT + 1), **FACTORS},
    ),
    FunctionRow(F.matrix_power, {"x": TRIPLES, "n": 3}, {"x": changes(TRIPLES + 1), "n": changes(5)}),
    FunctionRow(
        F.cov,
        {"x": MATRIX},
        {
            "x": changes(MATRIX * 2),
            "correction": changes(0.0),
            "fweights": changes(COUNTS),
            "aweights": changes(SHARES[0].copy()),
        },
    ),
    FunctionRow(F.corrcoef, {"x": MATRIX}, {"x": changes(MATRIX[::-1].copy())}),
    FunctionRow(F.vander, {"x": VECTOR}, {"x": changes(OTHER), "N": changes(3), "increasing": changes(True)}),
    # integrals and norms
    *(
        FunctionRow(f, {"y": MATRIX[:5].copy()}, {"y": changes(MATRIX[1:] + 1), **AREA})
        for f in (F.trapezoid, F.trapz, F.cumulative_trapezoid)
    ),
    FunctionRow(
        F.dist,
        {"x": MATRIX, "other": MATRIX[::-1].copy()},
        {"x": MORE, "other": changes(MATRIX[::-1] + 1), "p": changes(1.0)},
        any_number=True,
    ),
    FunctionRow(
        F.renorm,
        {"x": MATRIX, "p": 2.0, "dim": 0, "maxnorm": 1.0},
        {"x": changes(MATRIX * 0.3), "p": changes(1.0), "dim": changes(1), "maxnorm": changes(0.5)},
    ),
]
