"""The reductions besides sums, means, products and extremes, and further functions along an axis."""

from __future__ import annotations

import numpy as np
from argument_table import changes

import alpha.nn.functional as F
from rows.arrays import MATRIX, drawn
from rows.functions import MORE, TIES, function

GAPS = np.where(TIES > 1, np.float32(np.nan), MATRIX)
FUNCTIONS = [
    *(
        function(f, {"x": GAPS}, x=changes(GAPS + 1), dim=changes(0), keepdim=changes(True), dtype=changes("float64"))
        for f in (F.nansum, F.nanmean)
    ),
    function(F.aminmax, {"x": MATRIX}, x=MORE, dim=changes(1), keepdim=changes(True)),
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
        for f in (F.var_mean, F.std_mean)
    ),
    function(F.median, {"x": MATRIX}, x=MORE, dim=changes(1), keepdim=changes(True, dim=1)),
    function(F.nanmedian, {"x": GAPS}, x=changes(GAPS + 1), dim=changes(1), keepdim=changes(True, dim=1)),
    function(F.kthvalue, {"x": MATRIX, "k": 2}, x=MORE, k=changes(3), dim=changes(0), keepdim=changes(True)),
    *(
        function(
            f,
            {"x": MATRIX, "q": 0.3},
            x=MORE,
            q=changes(0.7),
            dim=changes(1),
            keepdim=changes(True),
            interpolation=changes("lower"),
        )
        for f in (F.quantile, F.nanquantile)
    ),
    *(function(f, {"x": MATRIX, "dim": 0}, x=MORE, dim=changes(1)) for f in (F.cummax, F.cummin, F.logcumsumexp)),
    function(
        F.diff,
        {"x": MATRIX},
        x=changes(MATRIX * 2),
        n=changes(2),
        dim=changes(0),
        prepend=changes(drawn(6, 2)),
        append=changes(drawn(6, 1)),
    ),
]
