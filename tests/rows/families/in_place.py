"""The functions that write their result into x."""

from __future__ import annotations

from typing import Any

from argument_table import changes

import alpha.nn.functional as F
from rows.arrays import IMAGE
from rows.kinds import FunctionRow

X: dict[str, Any] = {"x": IMAGE}
OTHER: dict[str, Any] = {"x": changes(IMAGE + 1)}
SLOPES: dict[str, Any] = {"lower": changes(0.2), "upper": changes(0.6), "training": changes(True)}
BOUNDS: dict[str, Any] = {"min_val": changes(-0.25), "max_val": changes(0.25)}
AT: dict[str, Any] = {"threshold": changes(0.5), "value": changes(-1.0)}
FUNCTIONS = [
    FunctionRow(F.relu_, X, OTHER),
    FunctionRow(F.leaky_relu_, X, {**OTHER, "negative_slope": changes(0.2)}, any_number=True),
    FunctionRow(F.elu_, X, {**OTHER, "alpha": changes(0.5)}, any_number=True),
    FunctionRow(F.selu_, X, OTHER),
    FunctionRow(F.celu_, X, {**OTHER, "alpha": changes(0.5)}, any_number=True),
    FunctionRow(F.hardtanh_, X, {**OTHER, **BOUNDS}, any_number=True),
    FunctionRow(F.threshold_, {**X, "threshold": 0.1, "value": 0.05}, {**OTHER, **AT}, any_number=True),
    FunctionRow(F.rrelu_, X, {**OTHER, **SLOPES}),
]
