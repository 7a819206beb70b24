"""The losses."""

from __future__ import annotations

from typing import Any

import numpy as np
from argument_table import Row, changes, refused

import alpha.nn.functional as F
from alpha import nn
from rows.arrays import LABELS, MATRIX
from rows.kinds import LossRow

_generator = np.random.default_rng(1)  # of this file, so that the numbers depend on no other rows


def normal(*shape: int) -> np.ndarray:
    return _generator.standard_normal(shape).astype(np.float32)


REDUCTIONS = ("mean", "sum", "none")
OTHER = normal(6, 5)
WEIGHT = np.abs(normal(6, 5)) + 0.1
PROBABLE = 1 / (1 + np.exp(-normal(6, 5)))
SIGNS = np.where(normal(6, 5) > 0, 1, -1).astype(np.float32)
SEVERAL = np.array(
    [[0, 3, -1, 1, 1], [2, -1, 0, 0, 0], [4, 1, 0, 2, 3], [-1] * 5, [3, -1, -1, -1, -1], [1, 0, -1, 4, 4]]
)
OLD: dict[str, Row] = {"size_average": refused(True), "reduce": refused(True)}
REDUCTION: dict[str, Row] = {**OLD, "reduction": changes("sum")}


def each(*settings: dict[str, Any], reductions: tuple[str, ...] = REDUCTIONS) -> list[dict[str, Any]]:
    """All settings with all reductions."""
    return [{"reduction": reduction, **others} for reduction in reductions for others in settings or ({},)]


LOSSES = [
    LossRow(
        F.cross_entropy,
        nn.CrossEntropyLoss,
        (MATRIX, LABELS),
        {
            "weight": changes(WEIGHT[0]),
            "size_average": refused(True),
            "ignore_index": changes(0),
            "reduce": refused(True),
            "reduction": changes("sum"),
            "label_smoothing": changes(0.1),
        },
        each(
            {"label_smoothing": 0.0},
            {"label_smoothing": 0.1},
            {"weight": WEIGHT[0]},
            {"label_smoothing": 0.1, "weight": WEIGHT[0], "ignore_index": 2},
        ),
        constants=("weight",),
    ),
    LossRow(
        F.nll_loss,
        nn.NLLLoss,
        (MATRIX, LABELS),
        {
            "weight": changes(WEIGHT[0]),
            "size_average": refused(True),
            "ignore_index": changes(0),
            "reduce": refused(True),
            "reduction": changes("sum"),
        },
        each({}, {"weight": WEIGHT[0]}, {"ignore_index": 4, "weight": WEIGHT[0]}),
        constants=("weight",),
    ),
    LossRow(
        F.l1_loss,
        nn.L1Loss,
        (MATRIX, OTHER),
        {**REDUCTION, "weight": changes(WEIGHT)},
        each({}, {"weight": WEIGHT}),
        constants=("weight",),
    ),
    LossRow(
        F.mse_loss,
        nn.MSELoss,
        (MATRIX, OTHER),
        {**REDUCTION, "weight": changes(WEIGHT)},
        each({}, {"weight": WEIGHT}),
        constants=("weight",),
    ),
    LossRow(
        F.smooth_l1_loss,
        nn.SmoothL1Loss,
        (MATRIX, OTHER),
        {**REDUCTION, "beta": changes(0.5)},
        each({}, {"beta": 0.3}, {"beta": 0.0}),
    ),
    LossRow(
        F.huber_loss,
        nn.HuberLoss,
        (MATRIX, OTHER),
        {"reduction": changes("sum"), "delta": changes(0.5), "weight": changes(WEIGHT)},
        each({}, {"delta": 0.3}, {"weight": WEIGHT, "delta": 2.0}),
        constants=("weight",),
    ),
    LossRow(
        F.binary_cross_entropy,
        nn.BCELoss,
        (PROBABLE, PROBABLE[::-1].copy()),
        {"weight": changes(WEIGHT), **REDUCTION},
        each({}, {"weight": WEIGHT}, {"weight": WEIGHT[0]}, {"weight": WEIGHT[:, :1]}),
        constants=("weight",),
    ),
    LossRow(
        F.binary_cross_entropy_with_logits,
        nn.BCEWithLogitsLoss,
        (4 * MATRIX, PROBABLE),
        {"weight": changes(WEIGHT), **REDUCTION, "pos_weight": changes(WEIGHT[0])},
        each({}, {"weight": WEIGHT[0]}, {"pos_weight": WEIGHT[0]}, {"weight": WEIGHT, "pos_weight": WEIGHT}),
        constants=("weight", "pos_weight"),
    ),
    LossRow(
        F.kl_div,
        nn.KLDivLoss,
        (np.log(PROBABLE), PROBABLE[::-1].copy()),
        {**REDUCTION, "log_target": changes(True)},
        each({}, {"log_target": True}, reductions=(*REDUCTIONS, "batchmean")),
    ),
    LossRow(
        F.hinge_embedding_loss,
        nn.HingeEmbeddingLoss,
        (np.abs(MATRIX), SIGNS),
        {"margin": changes(0.5), **REDUCTION},
        each({}, {"margin": 0.3}),
        constants=("target",),
    ),
    LossRow(F.soft_margin_loss, nn.SoftMarginLoss, (5 * MATRIX, SIGNS), REDUCTION, each(), ("target",)),
    LossRow(
        F.gaussian_nll_loss,
        nn.GaussianNLLLoss,
        (MATRIX, OTHER, WEIGHT),
        {"full": changes(True), "eps": changes(0.5), "reduction": changes("sum")},
        each({}, {"full": True, "eps": 0.05}),
    ),
    LossRow(
        F.poisson_nll_loss,
        nn.PoissonNLLLoss,
        (WEIGHT, 4 * PROBABLE),
        {
            "log_input": changes(False),
            "full": changes(True),
            "size_average": refused(True),
            "eps": changes(0.5, log_input=False),
            "reduce": refused(True),
            "reduction": changes("sum"),
        },
        each({}, {"full": True}, {"log_input": False, "eps": 0.1}),
    ),
    LossRow(
        F.multi_margin_loss,
        nn.MultiMarginLoss,
        (MATRIX, LABELS),
        {"p": changes(2), "margin": changes(0.5), "weight": changes(WEIGHT[0]), **REDUCTION},
        each({}, {"p": 2, "margin": 0.3}, {"weight": WEIGHT[0]}),
        constants=("weight",),
    ),
    LossRow(F.multilabel_margin_loss, nn.MultiLabelMarginLoss, (MATRIX, SEVERAL), REDUCTION, each()),
    LossRow(
        F.multilabel_soft_margin_loss,
        nn.MultiLabelSoftMarginLoss,
        (MATRIX, PROBABLE),
        {"weight": changes(WEIGHT[0]), **REDUCTION},
        each({}, {"weight": WEIGHT[0]}),
        constants=("weight",),
    ),
    LossRow(
        F.triplet_margin_with_distance_loss,
        nn.TripletMarginWithDistanceLoss,
        (MATRIX, OTHER, PROBABLE),
        {
            "distance_function": changes(lambda a, b: (a - b).abs().sum(-1)),
            "margin": changes(0.5),
            "swap": changes(True, margin=5.0),
            "reduction": changes("sum"),
        },
        each({"margin": 5.0}, {"swap": True, "margin": 3.0}),
    ),
    LossRow(
        F.margin_ranking_loss,
        nn.MarginRankingLoss,
        (MATRIX, OTHER, SIGNS),
        {"margin": changes(0.5), **REDUCTION},
        each({}, {"margin": 0.3}),
    ),
    LossRow(
        F.cosine_embedding_loss,
        nn.CosineEmbeddingLoss,
        (MATRIX, OTHER, SIGNS[:, 0].copy()),
        {"margin": changes(-0.5), **REDUCTION},
        each({}, {"margin": -0.3}),
        constants=("target",),
    ),
    LossRow(
        F.triplet_margin_loss,
        nn.TripletMarginLoss,
        (MATRIX, OTHER, PROBABLE),
        {
            "margin": changes(0.5),
            "p": changes(1.0),
            "eps": changes(0.1),
            "swap": changes(True, margin=5.0),
            **REDUCTION,
        },
        each({"margin": 5.0}, {"p": 1.0}, {"p": 3.0, "eps": 0.1}, {"swap": True, "margin": 3.0}),
    ),
]
