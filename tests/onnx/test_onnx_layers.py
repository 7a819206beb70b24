"""Export of every layer and function of alpha.nn: right for each of its arguments, or refused by its name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from onnx_runs import LIMIT, difference, other_numbers
from rows.every import FUNCTIONS, LAYERS
from rows.kinds import FunctionRow, LayerRow, each
from trials import trials

import alpha
from alpha import ExportError, nn
from alpha.onnx.recorder import tensors_in

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

# with their usual arguments; most losses have no rule, for they are of training
REFUSED_TEXT = """
    AdaptiveLogSoftmaxWithLoss EmbeddingBag Fold FractionalMaxPool2d FractionalMaxPool3d MaxUnpool1d MaxUnpool2d
    MaxUnpool3d Unfold
    BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CrossEntropyLoss HingeEmbeddingLoss HuberLoss KLDivLoss L1Loss
    MSELoss MarginRankingLoss MultiLabelMarginLoss NLLLoss SmoothL1Loss SoftMarginLoss TripletMarginLoss
    TripletMarginWithDistanceLoss
"""
REFUSED = set(REFUSED_TEXT.split())


def settings(row: Any) -> Iterator[dict[str, Any]]:
    """The usual arguments, and each other value of one of them."""
    yield dict(row.usual)
    for name, argument in row.arguments.items():
        if not argument.refused:
            yield {**row.usual, **argument.given, **argument.together, name: argument.value}


def exports(model: Any, arrays: list[np.ndarray]) -> bool:
    """True if a model is exported, and right; False if it is refused by an error that names an operator or a layer."""
    try:
        proto = alpha.onnx.export(model, tuple(map(alpha.tensor, arrays)), batch_axis=None)
    except ExportError as error:
        if re.match(
            r"onnx\.export: ((the forward failed|the operator \w+ of|a tensor|an axis|.* reads values of) .*)",
            str(error),
        ):
            return False
        raise
    assert difference(model, proto, [other_numbers(array) for array in arrays]) < 2 * LIMIT
    return True


@pytest.mark.parametrize("row", LAYERS, ids=lambda row: row.name)
def test_layers(row: LayerRow) -> None:
    arrays = [np.asarray(value) for value in row.inputs if isinstance(value, np.ndarray)]
    with trials() as trial:
        for number, arguments in enumerate(settings(row)):
            with suppress(Exception):  # a value that does not fit is an error of the layer, which is tested elsewhere
                alpha.manual_seed(0)
                model = row.layer(**arguments)
                model(*map(alpha.tensor, arrays))
                with trial(arguments):
                    found = exports(model, arrays)
                    assert number or found is not (row.name in REFUSED)


def test_refused_layers_are_layers() -> None:
    assert {row.name for row in LAYERS} >= REFUSED
    assert all(hasattr(nn, name) for name in REFUSED)


@pytest.mark.slow
def test_functions() -> None:
    """Functions with their usual arguments, each tensor an input of its own."""
    ran = 0
    with trials() as trial:
        for row in FUNCTIONS:
            function, tensors = of_tensors(row)
            with trial(row.name):
                ran += bool(tensors) and exports(function, list(tensors.values()))
    assert ran > 250, ran


def of_tensors(row: FunctionRow) -> tuple[Any, dict[str, np.ndarray]]:
    """A function of the tensors among the usual arguments, and their arrays."""
    tensors = {name: value for name, value in row.usual.items() if isinstance(value, np.ndarray)}
    others = {name: each(alpha.tensor, value) for name, value in row.usual.items() if name not in tensors}

    def function(*given: Any) -> Any:
        result = row.function(**dict(zip(tensors, given, strict=True)), **others)
        return result if tensors_in(result) else alpha.tensor(result)

    return function, tensors
