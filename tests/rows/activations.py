"""The activations."""

from __future__ import annotations

from argument_table import changes, refused

import alpha.nn.functional as F
from alpha import nn
from rows.kinds import ActivationRow

INPLACE = changes(True, "memory")
NEGATIVE_SIDE = (0.0, -0.3, 0.01, 1.0, 1.7, -2.0, 1e-40, float("inf"))  # as a slope; in place if it is not negative

ACTIVATIONS = [
    ActivationRow(F.relu, nn.ReLU, {"inplace": INPLACE}, limits=(0, 1e4)),
    ActivationRow(
        F.leaky_relu,
        nn.LeakyReLU,
        {"negative_slope": changes(0.3), "inplace": INPLACE},
        settings=[{"negative_slope": 0.2}, {"negative_slope": 1.5}],
        special=[
            *({"negative_slope": p} for p in NEGATIVE_SIDE),
            *({"negative_slope": p, "inplace": True} for p in NEGATIVE_SIDE if p >= 0),
        ],
        any_number=True,
    ),
    ActivationRow(
        F.elu,
        nn.ELU,
        {"alpha": changes(0.5), "inplace": INPLACE},
        settings=[{"alpha": 1.5}, {}],
        special=[
            *({"alpha": p} for p in NEGATIVE_SIDE),
            *({"alpha": p, "inplace": True} for p in NEGATIVE_SIDE if p >= 0),
        ],
        any_number=True,
    ),
    ActivationRow(
        F.gelu, nn.GELU, {"approximate": changes("tanh")}, settings=[{}, {"approximate": "tanh"}], limits=(0, 1e4)
    ),
    ActivationRow(F.sigmoid, nn.Sigmoid, {}, limits=(0, 1)),
    ActivationRow(
        F.softplus,
        nn.Softplus,
        {"beta": changes(2.0), "threshold": changes(0.5)},
        settings=[{}, {"beta": 2.0, "threshold": 1.0}],
        special=[{"beta": b, "threshold": t} for b in (1.0, 3.0, 0.1, -1.0) for t in (20.0, 1.0, 0.0, -1.0, 50.0)],
        limits=(0, 1e4),
        any_number=True,
    ),
    ActivationRow(F.tanh, nn.Tanh, {}, limits=(-1, 1)),
    ActivationRow(
        F.hardtanh,
        nn.Hardtanh,
        {
            "min_val": changes(-0.5),
            "max_val": changes(0.5),
            "inplace": INPLACE,
            "min_value": refused("0"),
            "max_value": refused("0"),
        },
        settings=[{}, {"min_val": -2.03, "max_val": 0.53}],
        any_number=True,
    ),
    ActivationRow(F.relu6, nn.ReLU6, {"inplace": INPLACE}, limits=(0, 6)),
    ActivationRow(F.hardswish, nn.Hardswish, {"inplace": INPLACE}, limits=(0, 1e4)),
    ActivationRow(F.hardsigmoid, nn.Hardsigmoid, {"inplace": INPLACE}, limits=(0, 1), coarse=("float64",)),
    ActivationRow(
        F.softshrink, nn.Softshrink, {"lambd": changes(0.1)}, settings=[{}, {"lambd": 0.23}], any_number=True
    ),
    ActivationRow(
        F.hardshrink, nn.Hardshrink, {"lambd": changes(0.1)}, settings=[{}, {"lambd": 0.23}], any_number=True
    ),
    ActivationRow(F.silu, nn.SiLU, {"inplace": INPLACE}, limits=(0, 1e4)),
    ActivationRow(F.mish, nn.Mish, {"inplace": INPLACE}, limits=(0, 1e4)),
    ActivationRow(F.logsigmoid, nn.LogSigmoid, {}, limits=(-1e4, 0), coarse=("bfloat16",)),
    ActivationRow(F.softsign, nn.Softsign, {}, coarse=("bfloat16",)),
    ActivationRow(F.tanhshrink, nn.Tanhshrink, {}, coarse=("bfloat16",)),
    ActivationRow(F.selu, nn.SELU, {"inplace": INPLACE}),
    ActivationRow(
        F.celu,
        nn.CELU,
        {"alpha": changes(0.5), "inplace": INPLACE},
        settings=[{}, {"alpha": 1.5}],
        special=[{"alpha": 0.3}, {"alpha": -2.0}, {"alpha": 1.7, "inplace": True}],
        coarse=("float64",),
        any_number=True,
    ),
]
