"""The elementwise functions that follow from names of signs, checks of elements, and further ones of two or three."""

from __future__ import annotations

import numpy as np
from argument_table import changes, silent

import alpha.nn.functional as F
from rows.arrays import MATRIX, drawn
from rows.functions import MORE, SHARES, TIES, UNUSUAL, WHOLE, function
from rows.kinds import FunctionRow

OTHER = MATRIX[::-1].copy()
NEAR = np.where(np.arange(6)[:, None] < 3, MATRIX, MATRIX * np.float32(1.1))
BOTH = {"x": MATRIX, "other": OTHER}
FUNCTIONS = [
    function(F.neg, {"x": MATRIX}, x=MORE),
    function(F.absolute, {"x": MATRIX}, x=MORE),
    function(F.sgn, {"x": MATRIX}, x=changes(-MATRIX)),
    *(
        FunctionRow(f, BOTH, {"x": MORE, "other": changes(OTHER + 1), "alpha": changes(2.0)}, any_number=True)
        for f in (F.sub, F.subtract, F.rsub)
    ),
    *(function(f, BOTH, x=MORE, other=changes(OTHER + 1)) for f in (F.multiply, F.true_divide)),
    *(function(f, BOTH, x=MORE, other=changes(OTHER + 1), rounding_mode=changes("floor")) for f in (F.div, F.divide)),
    *(
        function(f, {"x": SHARES, "exponent": OTHER}, x=changes(SHARES + 1), exponent=changes(OTHER + 1))
        for f in (F.pow, F.float_power)
    ),
    *(
        function(f, {"x": TIES, "other": TIES[0].copy()}, x=changes(-TIES), other=changes(TIES[1].copy()))
        for f in (F.eq, F.ne, F.lt, F.le, F.gt, F.ge)
    ),
    FunctionRow(F.clamp_min, {"x": MATRIX, "min": -1.0}, {"x": MORE, "min": changes(0.5)}, any_number=True),
    FunctionRow(F.clamp_max, {"x": MATRIX, "max": 1.0}, {"x": MORE, "max": changes(0.5)}, any_number=True),
    function(F.isfinite, {"x": UNUSUAL}, x=changes(np.ones_like(UNUSUAL))),
    *(function(f, {"x": UNUSUAL}, x=changes(MATRIX[:2, :3].copy())) for f in (F.isinf, F.isposinf, F.isneginf)),
    function(F.signbit, {"x": UNUSUAL}, x=changes(-UNUSUAL)),
    function(F.count_nonzero, {"x": TIES}, x=changes(TIES * 0), dim=changes(1)),
    function(
        F.isclose,
        {
            "x": np.where(MATRIX > 1, np.float32(np.nan), MATRIX),
            "other": np.where(MATRIX > 1, np.float32(np.nan), NEAR),
        },
        x=changes(MATRIX + 2),
        other=changes(MATRIX + 2),
        rtol=changes(0.5),
        atol=changes(0.5),
        equal_nan=changes(True),
    ),
    function(
        F.isin,
        {"elements": TIES, "test_elements": TIES[0].copy()},
        elements=changes(TIES + 9),
        test_elements=changes(TIES[0] + 9),
        assume_unique=silent(True),
        invert=changes(True),
    ),
    *(
        function(f, {"x": np.where(TIES > 1, np.float32(np.nan), TIES), "other": OTHER}, x=MORE, other=changes(MATRIX))
        for f in (F.fmax, F.fmin)
    ),
    function(F.fmod, {"x": MATRIX * 3, "other": SHARES}, x=MORE, other=changes(SHARES + 1)),
    *(
        function(f, {"x": WHOLE, "other": WHOLE[1]}, x=changes(WHOLE + 1), other=changes(WHOLE[2]))
        for f in (F.gcd, F.lcm)
    ),
    function(F.copysign, BOTH, x=MORE, other=changes(-OTHER)),
    function(F.heaviside, {"x": TIES, "values": OTHER}, x=changes(-TIES), values=changes(OTHER + 1)),
    *(function(f, BOTH, x=MORE, other=changes(OTHER + 1)) for f in (F.logaddexp, F.logaddexp2)),
    function(F.xlogy, {"x": MATRIX, "other": SHARES}, x=MORE, other=changes(SHARES + 1)),
    FunctionRow(F.logit, {"x": SHARES}, {"x": changes(SHARES * 0.9), "eps": changes(np.float32(0.3))}),
    *(function(f, {"x": MATRIX}, x=MORE) for f in (F.erfc, F.sinc)),
    FunctionRow(
        F.lerp,
        {"x": MATRIX, "end": OTHER, "weight": 0.25},
        {"x": MORE, "end": changes(OTHER + 1), "weight": changes(0.75)},
        any_number=True,
    ),
    *(
        function(
            f,
            {"x": MATRIX, "tensor1": OTHER, "tensor2": SHARES},
            x=MORE,
            tensor1=changes(OTHER + 1),
            tensor2=changes(SHARES + 1),
            value=changes(2.0),
        )
        for f in (F.addcmul, F.addcdiv)
    ),
    function(F.ldexp, {"x": MATRIX, "other": drawn(6, 5)}, x=MORE, other=changes(drawn(6, 5))),
]
