"""Arguments at the ends of their intervals are taken or refused as PyTorch does; what differs is written here."""

from __future__ import annotations

import copy
import inspect
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
from rows.every import FUNCTIONS
from rows.kinds import FunctionRow, LayerRow
from test_written_attributes import BY_THEMSELVES, COMPARED, RANDOM, Side, own, plain
from trials import trials

NUMBERS = (-1.0, -1e-3, 0.0, 0.5, 1.0, 1.001, 2.0)
INTEGERS = (-1, 0, 1, 2)
BELOW = NUMBERS[:2]
# values that Alpha alone refuses: they give NaN, or nothing at all
REFUSED: dict[str, tuple[float, ...]] = {
    "eps": BELOW,
    "layer_norm_eps": BELOW,
    "dropout": BELOW,
    "dropout_p": BELOW,
    "label_smoothing": BELOW,
    "tau": (*BELOW, 0.0),
    "out_features": (0,),
    "hidden_size": (0,),
    "embedding_dim": (0,),
    "dim_feedforward": (0,),
    "output_size": (0,),
    "padding": (-1,),
    "kernel_size": (-1, 0),
    "n": (-1,),
    "min_val": (1.001, 2.0),
    "TripletMarginLoss p": (0.0,),
    "triplet_margin_loss p": (0.0,),
    "logit eps": (*BELOW, 1.0, 1.001, 2.0),
}
# values that PyTorch alone refuses; its fractional pools of volumes need one element more than their windows do
TAKEN: dict[str, tuple[float, ...]] = {
    "batch_norm eps": (0.0,),
    "BatchNorm1d eps": (0.0,),
    "BatchNorm2d eps": (0.0,),
    "BatchNorm3d eps": (0.0,),
    "fractional_max_pool3d kernel_size": (2,),
    "fractional_max_pool3d output_size": (2,),
    "FractionalMaxPool3d kernel_size": (2,),
    "FractionalMaxPool3d output_size": (2,),
    "native_channel_shuffle groups": (2,),
}
WITHOUT = {"negative_slope"}  # of convolutions, which PyTorch does not have
NO_IMAGES = {"fold", "unfold"}  # whose rows are no inputs of PyTorch's


def ends(row: LayerRow | FunctionRow, argument: str, usual: Any) -> tuple[float, ...]:
    values = [row.arguments[argument].value, usual]
    if any(isinstance(value, (bool, np.ndarray)) for value in values):
        return ()
    if any(isinstance(value, (float, np.floating)) for value in values):
        return NUMBERS
    whole = [value for value in values if isinstance(value, (int, tuple))]
    return INTEGERS if whole and all(isinstance(n, int) for n in np.ravel(np.array(whole[0])).tolist()) else ()


def taken(call: Any) -> bool | None:
    """True if a call is taken, False if it is refused, None if the signature does not take it."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            call()
    except TypeError:
        return None
    except Exception:
        return False
    return True


def compare(row: LayerRow | FunctionRow, argument: str, end: float, mine: bool | None, theirs: bool | None) -> None:
    names = f"{row.name} {argument}", argument
    if theirs is None:
        return
    if any(end in REFUSED.get(name, ()) for name in names) and not mine:
        return
    if any(end in TAKEN.get(name, ()) for name in names) and mine:
        return
    assert bool(mine) == theirs, "PyTorch takes it" if theirs else "PyTorch refuses it"


# the parts of transformers have the same arguments
ROWS = [row for row in COMPARED if not row.name.startswith(("Fold", "Unfold", "Transformer"))]


@pytest.mark.torch
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_layers(row: LayerRow) -> None:
    """Made, and called in training and in evaluation; results are equal unless they are random."""
    pytest.importorskip("torch")
    signature = inspect.signature(row.layer).parameters
    with trials() as trial:
        for argument, one in row.arguments.items():
            usual = row.usual.get(argument, signature[argument].default)
            for end in ends(row, argument, usual) if argument not in WITHOUT else ():
                settings = {**row.usual, **one.given, **one.together, argument: end}
                found: list[Any] = []
                theirs, mine = (taken(partial(result, row, settings, side, found)) for side in (True, False))
                with trial(argument, end):
                    compare(row, argument, end, mine, theirs)
                    if theirs and mine and not is_random(row.name) and argument not in RANDOM:
                        for a, b in zip(found[1], found[3], strict=True):
                            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-7)


def is_random(name: str) -> bool:
    return name.startswith(BY_THEMSELVES) or name.endswith("Dropout")


def result(row: LayerRow, settings: dict[str, Any], theirs: bool, found: list[Any]) -> None:
    """Append the state of a layer and its results; Alpha's has the state that is found first."""
    side = Side(row, settings, theirs)
    if not theirs and found:
        side.layer.load_state_dict(found[0], layout="NCHW")
    state = copy.deepcopy(side.layer.state_dict())
    found += [state, [*side.call(True), *side.call(False)]]


@pytest.mark.slow
@pytest.mark.torch
def test_functions() -> None:
    import parity_compare
    import torch

    with trials() as trial:
        for row in FUNCTIONS:
            function = getattr(torch.nn.functional, row.name, None) or getattr(torch, row.name, None)
            if row.own or function is None or row.name in NO_IMAGES:
                continue
            layout, signature = parity_compare.Layout(row.name), inspect.signature(row.function).parameters
            for argument, one in row.arguments.items():
                usual = row.usual.get(argument, signature[argument].default)
                for end in ends(row, argument, usual) if argument not in WITHOUT else ():
                    settings = {**row.usual, **one.given, **one.together, argument: end}
                    mine = taken(partial(row.function, **arguments(settings)))
                    theirs = taken(partial(called, function, signature, settings, layout))
                    with trial(row.name, argument, end):
                        compare(row, argument, end, mine, theirs)


def arguments(settings: dict[str, Any]) -> dict[str, Any]:
    def tensor(value: Any) -> Any:
        return [own(part) for part in value] if isinstance(value, list) and value else own(value)

    return {name: tensor(value) if isinstance(value, (list, np.ndarray)) else value for name, value in settings.items()}


def called(function: Any, signature: Any, settings: dict[str, Any], layout: Any) -> Any:
    """PyTorch's function: tensors by position, as far as they come first, and the others by name."""
    import parity_compare
    import torch

    by_place: list[Any] = []
    by_name: dict[str, Any] = {}
    first = None
    for name in [name for name in signature if name in settings]:
        value = settings[name]
        if isinstance(value, np.ndarray):
            value = plain(value)
            first = torch.zeros(value.shape) if first is None else first
            order = layout.of_argument(name if by_place else 0, value, first)
            value = torch.from_numpy(np.ascontiguousarray(parity_compare.back(value.numpy(), order)))
        elif isinstance(value, list) and value and isinstance(value[0], np.ndarray):
            value = [plain(part) for part in value]
        if isinstance(value, (torch.Tensor, list)) and not by_name:
            by_place.append(value)
        else:
            by_name[name] = value
    return function(*by_place, **by_name)
