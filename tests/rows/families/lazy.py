"""The lazy layers: their rows are those of the plain ones, without the number of input channels."""

from __future__ import annotations

import inspect
from typing import Any

from argument_table import changes

from alpha import nn
from rows import layers
from rows.families import neighbours
from rows.kinds import LayerRow

COUNTED = ("in_features", "in_channels", "num_features")
PLAIN = {row.layer: row for row in (*layers.LAYERS, *neighbours.LAYERS)}
OTHERWISE = {"affine": changes(False), "track_running_stats": changes(False)}  # what is True by default here


def lazy(kind: Any) -> LayerRow:
    def without(settings: Any) -> dict[str, Any]:
        return {name: value for name, value in settings.items() if name not in COUNTED}

    row = PLAIN[kind.cls_to_become]
    rows = without(row.arguments) | (OTHERWISE if "affine" in row.arguments else {})
    order = list(inspect.signature(kind).parameters)
    arguments = {name: rows[name] for name in sorted(rows, key=order.index)}
    shapes = [(without(settings), shape) for settings, shape in row.shapes]
    return LayerRow(kind, row.inputs, without(row.usual), arguments, shapes)


LAYERS = [
    lazy(nn.LazyLinear),
    lazy(nn.LazyConv1d),
    lazy(nn.LazyConv2d),
    lazy(nn.LazyConv3d),
    lazy(nn.LazyConvTranspose1d),
    lazy(nn.LazyConvTranspose2d),
    lazy(nn.LazyConvTranspose3d),
    lazy(nn.LazyBatchNorm1d),
    lazy(nn.LazyBatchNorm2d),
    lazy(nn.LazyBatchNorm3d),
    lazy(nn.LazyInstanceNorm1d),
    lazy(nn.LazyInstanceNorm2d),
    lazy(nn.LazyInstanceNorm3d),
]
