"""The losses."""

from __future__ import annotations

import numpy as np
from argument_table import changes, refused

import alpha
import alpha.nn.functional as F
from alpha import nn
from rows.arrays import LABELS, MATRIX
from rows.kinds import LossRow

LOSSES = [
    LossRow(
        F.cross_entropy,
        nn.CrossEntropyLoss,
        (MATRIX, LABELS),
        {
            "weight": refused(alpha.tensor(np.ones(5, np.float32))),
            "size_average": refused(True),
            "ignore_index": changes(0),
            "reduce": refused(True),
            "reduction": changes("sum"),
            "label_smoothing": changes(0.1),
        },
        settings=[
            {"reduction": reduction, "label_smoothing": smoothing}
            for reduction in ("mean", "sum", "none")
            for smoothing in (0.0, 0.1)
        ],
    )
]
