"""The functions and layers that drop whole channels or images, and alpha dropout."""

from __future__ import annotations

from argument_table import changes

import alpha.nn.functional as F
from alpha import nn
from rows.arrays import IMAGE, SEQUENCE, VOLUME, normal
from rows.kinds import FunctionRow, LayerRow

TIMM = "of timm"
MANY = normal(16, 3, 2)  # so many images that some are kept
P = {"p": changes(0.75)}
IN_PLACE = changes(True, "memory")
FUNCTIONS = [
    *(
        FunctionRow(function, {"x": x}, {"x": changes(x + 1), **P, "training": changes(False), "inplace": IN_PLACE})
        for function, x in ((F.dropout1d, SEQUENCE), (F.dropout2d, IMAGE), (F.dropout3d, VOLUME))
    ),
    *(
        FunctionRow(
            function,
            {"x": IMAGE, "training": True},
            {"x": changes(IMAGE + 1), **P, "training": changes(False), "inplace": IN_PLACE},
        )
        for function in (F.alpha_dropout, F.feature_alpha_dropout)
    ),
    FunctionRow(
        F.drop_path,
        {"x": MANY, "drop_prob": 0.5, "training": True},
        {
            "x": changes(MANY + 1),
            "drop_prob": changes(0.25),
            "training": changes(False),
            "scale_by_keep": changes(False),
        },
        own=TIMM,
    ),
]
LAYERS = [
    *(
        LayerRow(layer, [x], {}, {**P, "inplace": IN_PLACE}, [({}, x.shape)])
        for layer, x in (
            (nn.Dropout1d, SEQUENCE),
            (nn.Dropout2d, IMAGE),
            (nn.Dropout3d, VOLUME),
            (nn.AlphaDropout, IMAGE),
            (nn.FeatureAlphaDropout, IMAGE),
        )
    ),
    LayerRow(
        nn.DropPath,
        [MANY],
        {"drop_prob": 0.5},
        {"drop_prob": changes(0.25), "scale_by_keep": changes(False)},
        [({"drop_prob": 0.5}, MANY.shape)],
        TIMM,
    ),
]
