"""Instance and local response normalisation, similarities, windows as rows."""

from __future__ import annotations

import numpy as np
from argument_table import changes

import alpha.nn.functional as F
from alpha import nn
from rows.arrays import IMAGE, MATRIX, SEQUENCE, VOLUME, drawn, normal
from rows.kinds import FunctionRow, LayerRow

WINDOWS = {
    "kernel_size": changes((3, 2)),
    "dilation": changes((2, 1)),
    "padding": changes((0, 1)),
    "stride": changes((2, 1)),
}
ROWS = normal(2, 12, 4)  # twelve windows of four pixels, for every row below
FOLDED = {"output_size": (4, 5), "kernel_size": 2}
FOLDS = {
    "output_size": changes((5, 4)),
    "kernel_size": changes((1, 4), output_size=(3, 7)),
    "dilation": changes((1, 2), output_size=(7, 5), stride=(1, 2)),
    "padding": changes((0, 1), output_size=(7, 5), stride=(1, 3)),
    "stride": changes((2, 1), output_size=(5, 7), stride=(1, 2)),
}
SQUARE = normal(6, 6)
PARTS = {"dim": changes(1), "sizes": changes((3, -1))}
RESPONSE = {"alpha": changes(0.5), "beta": changes(0.5), "k": changes(2.0)}
DISTANCE = {"p": changes(1.0), "eps": changes(0.5), "keepdim": changes(True)}
# logarithms of 3 classes at 5 times, labels, and the lengths of both
READ = {
    "log_probs": drawn(5, 2, 3),
    "targets": np.array([[1, 1], [1, 1]]),
    "input_lengths": np.array([5, 4]),
    "target_lengths": np.array([2, 1]),
}
CTC = {"blank": changes(2), "reduction": changes("sum"), "zero_infinity": changes(True, input_lengths=np.array([1, 1]))}
FUNCTIONS = [
    FunctionRow(
        F.ctc_loss,
        READ,
        {
            "log_probs": changes(READ["log_probs"] * 2),
            "targets": changes(np.array([[1, 2], [2, 1]])),
            "input_lengths": changes(np.array([4, 4])),
            "target_lengths": changes(np.array([1, 2])),
            **CTC,
        },
        constants=("targets", "input_lengths", "target_lengths"),
    ),
    FunctionRow(
        F.instance_norm,
        {"x": IMAGE, "running_mean": np.zeros(3, np.float32), "running_var": np.ones(3, np.float32)},
        {
            "x": changes(IMAGE * IMAGE),
            "running_mean": changes(np.full(3, 0.5, np.float32)),
            "running_var": changes(np.full(3, 2.0, np.float32)),
            "weight": changes(normal(3)),
            "bias": changes(normal(3)),
            "use_input_stats": changes(False),
            "momentum": changes(0.3),
            "eps": changes(0.5),
        },
    ),
    FunctionRow(
        F.local_response_norm, {"x": IMAGE, "size": 2}, {"x": changes(IMAGE + 1), "size": changes(3), **RESPONSE}
    ),
    FunctionRow(
        F.cosine_similarity,
        {"x1": MATRIX, "x2": normal(6, 5)},
        {"x1": changes(-MATRIX), "x2": changes(normal(6, 5)), "dim": changes(0), "eps": changes(9.0)},
    ),
    FunctionRow(
        F.pairwise_distance,
        {"x1": MATRIX, "x2": normal(6, 5)},
        {"x1": changes(-MATRIX), "x2": changes(normal(6, 5)), **DISTANCE},
    ),
    FunctionRow(F.unfold, {"x": IMAGE, "kernel_size": 2}, {"x": changes(IMAGE + 1), **WINDOWS}),
    FunctionRow(F.fold, {"x": ROWS, **FOLDED}, {"x": changes(ROWS + 1), **FOLDS}),
    FunctionRow(F.unflatten, {"x": SQUARE, "dim": 0, "sizes": (2, 3)}, {"x": changes(SQUARE + 1), **PARTS}),
]
LAYERS = [
    *(
        LayerRow(
            kind,
            [x],
            {"num_features": 3},
            {
                "num_features": changes(4, "error", affine=True),
                "eps": changes(0.5),
                "momentum": changes(0.3, track_running_stats=True),
                "affine": changes(True),
                "track_running_stats": changes(True),
                "bias": changes(False, affine=True),
            },
            [({"num_features": 3, "affine": True}, x.shape), ({"num_features": 3}, x.shape)],
        )
        for kind, x in ((nn.InstanceNorm1d, SEQUENCE), (nn.InstanceNorm2d, IMAGE), (nn.InstanceNorm3d, VOLUME))
    ),
    LayerRow(
        nn.LocalResponseNorm, [IMAGE], {"size": 2}, {"size": changes(3), **RESPONSE}, [({"size": 2}, IMAGE.shape)]
    ),
    LayerRow(
        nn.CosineSimilarity,
        [MATRIX, normal(6, 5)],
        {},
        {"dim": changes(0), "eps": changes(9.0)},
        [({}, (6,)), ({"dim": -2}, (5,))],
    ),
    LayerRow(nn.PairwiseDistance, [MATRIX, normal(6, 5)], {}, DISTANCE, [({}, (6,)), ({"keepdim": True}, (6, 1))]),
    LayerRow(
        nn.Unfold,
        [IMAGE],
        {"kernel_size": 2},
        WINDOWS,
        [({"kernel_size": 2}, (2, 24, 12)), ({"kernel_size": (3, 2), "padding": 1, "stride": (2, 1)}, (2, 24, 18))],
    ),
    LayerRow(
        nn.CTCLoss,
        list(READ.values()),
        {},
        {name: CTC[name] for name in ("blank", "reduction")} | {"zero_infinity": changes(True, "repr")},
        [({}, ()), ({"reduction": "none"}, (2,))],
        constants=(1, 2, 3),
    ),
    LayerRow(nn.Fold, [ROWS], FOLDED, FOLDS, [(FOLDED, (2, 4, 5, 1))]),
    LayerRow(
        nn.Unflatten,
        [SQUARE],
        {"dim": 0, "unflattened_size": (2, 3)},
        {"dim": PARTS["dim"], "unflattened_size": PARTS["sizes"]},
        [({"dim": 1, "unflattened_size": (2, -1)}, (6, 2, 3))],
    ),
]
