"""Constructor arguments are readable attributes, and what is written to them has PyTorch's effect or is refused."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows.every import LAYERS
from rows.kinds import LayerRow
from trials import trials

import alpha
from alpha import nn

# arguments whose values are in the parameters or the parts that follow from them, or that mean nothing
WITHOUT = {"bias", "add_bias_kv", "size_average", "reduce", "args", "kwargs", "_random_samples"}
WITHOUT |= {"min_value", "max_value", "_weight", "_freeze"}
OF_PARTS = ("TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer", "TransformerEncoder")
OF_PARTS += ("TransformerDecoder",)
NAMES = {("PairwiseDistance", "p"): "norm"}  # PyTorch's, of the attribute
OPERATORS = {  # whose layout a layer has
    "CrossEntropyLoss": "cross_entropy",
    "NLLLoss": "nll_loss",
    "GroupNorm": "group_norm",
    "LocalResponseNorm": "local_response_norm",
    "Upsample": "interpolate",
    "PixelShuffle": "pixel_shuffle",
    "PixelUnshuffle": "pixel_unshuffle",
    "ChannelShuffle": "channel_shuffle",
    "PReLU": "prelu",
}
# what is random, or no image: compared with a layer of Alpha that was made with the value that is written
BY_THEMSELVES = ("Dropout", "RReLU", "Fractional", "Unfold", "Fold", "CTCLoss")
# arguments of other layers; include_last_offset of PyTorch reads on behind the last offset
RANDOM = ("dropout", "include_last_offset")
# what PyTorch passes over, and Alpha refuses; with momentum=None the number of batches before is not known
REFUSED = {
    "input_size": ("RNNCell", "GRUCell", "LSTMCell"),
    "nonlinearity": ("RNN",),
    "num_channels": ("GroupNorm",),
    "in_features": ("AdaptiveLogSoftmaxWithLoss",),
    "cutoffs": ("AdaptiveLogSoftmaxWithLoss",),
    "scale_grad_by_freq": ("Embedding", "EmbeddingBag"),
    "sparse": ("Embedding", "EmbeddingBag"),
    "momentum": ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"),
    "padding": ("Conv1d", "Conv2d", "Conv3d"),
    "kernel_size": ("Conv1d", "Conv2d", "Conv3d"),
    "dilation": ("Conv1d", "Conv2d", "Conv3d"),
}
# what PyTorch refuses, and Alpha takes: one number for all axes
TAKEN = {"padding": ("ConvTranspose", "Pad")}


def attribute(row: LayerRow, argument: str) -> str:
    return NAMES.get((row.name, argument), argument)


def default(row: LayerRow, argument: str) -> Any:
    return row.usual.get(argument, inspect.signature(row.layer).parameters[argument].default)


@pytest.mark.parametrize("row", LAYERS, ids=lambda row: row.name)
def test_constructor_arguments_are_attributes(row: LayerRow) -> None:
    """Each attribute has the name and the value of the argument, in `vars`, where a captured step looks for changes."""
    with trials() as trial:
        for argument, one in row.arguments.items():
            if argument in WITHOUT or row.name in OF_PARTS:
                continue
            values = [default(row, argument)] + ([] if one.refused else [one.value])
            for value in values:
                given = {**row.usual, **one.given, **(one.together if value is one.value else {}), argument: value}
                with trial(argument, value):
                    found = vars(row.layer(**given))[attribute(row, argument)]
                    if isinstance(value, np.ndarray):
                        np.testing.assert_array_equal(found.numpy(), value)
                    elif isinstance(value, list):
                        assert [*found][: len(value)] == value
                    elif argument not in ("kdim", "vdim", "stride"):  # whose None is another argument
                        assert found == value or (isinstance(found, tuple) and set(found) == {value})


# -- with PyTorch ----------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value as PyTorch takes it."""
    torch = pytest.importorskip("torch")
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.astype(np.float64) if value.dtype.kind == "f" else value.copy())
    if value is nn.functional.relu:
        return torch.nn.functional.relu
    return tuple(value) if isinstance(value, list) else value


def own(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return alpha.tensor(value.astype(np.float64) if value.dtype.kind == "f" else value)
    return tuple(value) if isinstance(value, list) else value


class Side:
    """A layer of Alpha or of PyTorch in float64, and what a call of it changes."""

    def __init__(self, row: LayerRow, settings: dict[str, Any], theirs: bool) -> None:
        import parity_compare as compare
        import torch

        self.row, self.theirs, self.compare = row, theirs, compare
        key = OPERATORS.get(row.name, row.name.lower().replace("transpose", "_transpose"))
        self.layout = compare.Layout("" if row.name.startswith(BY_THEMSELVES) else key)
        alpha.manual_seed(3)
        kind = getattr(torch.nn, row.name) if theirs else row.layer
        self.layer = kind(**{name: (plain if theirs else own)(value) for name, value in settings.items()}).double()
        self.zero = torch.zeros(row.inputs[0].shape)

    def write(self, name: str, value: Any) -> None:
        setattr(self.layer, name, (plain if self.theirs else own)(value))

    def orders(self) -> list[Any]:
        """Orders of the axes by which each input is turned around."""
        import torch

        given = [torch.from_numpy(array) for array in self.row.inputs]
        return [self.layout.of_argument(place, value, self.zero) for place, value in enumerate(given)]

    def call(self, training: bool) -> list[np.ndarray]:
        """Results, gradients of the inputs and running statistics, with Alpha's axes."""
        alpha.manual_seed(5)
        self.layer.train(training)
        leaves = []
        for place, (array, order) in enumerate(zip(self.row.inputs, self.orders(), strict=True)):
            turned = np.ascontiguousarray(self.compare.back(array, order)) if self.theirs else array
            leaves.append((plain if self.theirs else own)(turned))
            if turned.dtype.kind == "f" and place not in self.row.constants:
                leaves[-1].requires_grad_(True)
        made = self.compare.leaves(self.layer(*[leaf * 1 if leaf.requires_grad else leaf for leaf in leaves]))
        made = [result for result in made if result is not None]
        sums = [(result * result).sum() for result in made if result.requires_grad]
        if sums:
            sum(sums).backward()
        of_classes = self.layout.key in self.compare.OF_CLASSES
        found = [(x, None if of_classes else self.layout.of_image(x.ndim)) for x in made]
        found += [(x.grad, order) for x, order in zip(leaves, self.orders(), strict=True) if x.grad is not None]
        found += [(b, None) for name, b in sorted(self.layer.named_buffers()) if name.startswith("running")]
        if not self.theirs:
            return [x.numpy() for x, _ in found]
        return [self.compare.forth(x.detach().numpy().copy(), order) for x, order in found]


def outcome(call: Callable[[], Any]) -> Any:
    """Result of a call, or its error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call()
    except Exception as error:
        return error


def check(row: LayerRow, settings: dict[str, Any], argument: str, value: Any, seen: bool) -> None:
    """Write the value to both; `seen`: after a batch of training."""
    by_itself = row.name.startswith(BY_THEMSELVES) or row.name.endswith("Dropout") or argument in RANDOM
    name = attribute(row, argument)
    mine, other = outcome(lambda: Side(row, settings, False)), None
    if isinstance(mine, ValueError):
        return  # settings that do not go together
    if by_itself:
        other = outcome(lambda: Side(row, {**settings, argument: value}, False))
        states = [] if isinstance(other, Exception) else [side.layer.state_dict() for side in (mine, other)]
        if len({str([(name, value.shape) for name, value in state.items()]) for state in states}) == 1:
            other.layer.load_state_dict(states[0])
    else:
        other = Side(row, settings, True)
        mine.layer.load_state_dict(other.layer.state_dict(), layout="NCHW")
    for side in (mine, other) if seen else ():
        if isinstance(outcome(lambda side=side: side.call(True)), Exception):
            return
    mine.write(name, value)
    if not by_itself:
        other.write(name, value)
    for training in (True, False):
        expected = other if isinstance(other, Exception) else outcome(lambda t=training: other.call(t))
        found = outcome(lambda t=training: mine.call(t))
        if isinstance(found, Exception):
            said = f"{type(found).__name__}: {found}"
            assert isinstance(found, (ValueError, TypeError, IndexError)), said
            assert isinstance(expected, Exception) or row.name in REFUSED.get(argument, ()), said
            return
        if isinstance(expected, Exception):
            taken = any(part in row.name for part in TAKEN.get(argument, ()))
            assert taken, f"PyTorch refuses: {str(expected)[:200]}"
            return
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9, err_msg=f"training={training}")


def kept(row: LayerRow) -> list[str]:
    """The arguments that PyTorch's layer keeps as attributes which are neither parameters nor parts."""
    import torch

    torch.set_num_threads(1)
    layer = getattr(torch.nn, row.name)(**{name: plain(value) for name, value in row.usual.items()})
    names = [name for name in row.arguments if hasattr(layer, attribute(row, name))]
    parts = (torch.nn.Parameter, torch.nn.Module)
    return [n for n in names if n not in WITHOUT and not isinstance(getattr(layer, attribute(row, n)), parts)]


COMPARED = [
    row for row in LAYERS if not row.own and not row.name.startswith(("Lazy", "TransformerEnc", "TransformerDec"))
]
COMPARED += [row for row in LAYERS if row.name in ("TransformerEncoderLayer", "TransformerDecoderLayer")]


@pytest.mark.torch
@pytest.mark.parametrize("row", COMPARED, ids=lambda row: row.name)
def test_a_written_attribute_has_pytorchs_effect(row: LayerRow) -> None:
    pytest.importorskip("torch")
    still = {"dropout": 0.0} if "Transformer" in row.name else {}
    with trials() as trial, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for argument in kept(row):
            one = row.arguments[argument]
            values = [one.value, *(settings[argument] for settings, _ in row.shapes if argument in settings)]
            usual = {**row.usual, **one.given, **still}
            tried = [(usual, value) for value in values]
            tried += [
                ({**usual, **still, **settings}, one.value) for settings, _ in row.shapes if settings != row.usual
            ]
            if not one.refused:
                tried += [({**usual, **one.together, argument: value}, default(row, argument)) for value in values]
            for settings, value in tried:
                for seen in (False, True)[: 1 + row.name.startswith(("BatchNorm", "InstanceNorm"))]:
                    with trial(settings, f"{argument}={value}", seen):
                        check(row, settings, argument, value, seen)


@pytest.mark.torch
@pytest.mark.parametrize("row", COMPARED, ids=lambda row: row.name)
def test_attributes_have_pytorchs_values(row: LayerRow) -> None:
    """Plain ones: numbers, flags, words and tuples of them, also of the same type."""
    torch = pytest.importorskip("torch")
    kind = getattr(torch.nn, row.name)
    with trials() as trial, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for argument in kept(row):
            one, usual = row.arguments[argument], dict(row.usual)
            given = {**usual, **one.given, **one.together, argument: one.value}
            for settings in (usual, *([] if one.refused else [given]), *(settings for settings, _ in row.shapes)):
                theirs = getattr(kind(**{n: plain(v) for n, v in settings.items()}), attribute(row, argument))
                with trial(settings, argument):
                    mine = getattr(row.layer(**{n: own(v) for n, v in settings.items()}), attribute(row, argument))
                    if isinstance(theirs, (int, float, str, tuple, list, type(None))):
                        assert (mine, type(mine)) == (theirs, type(theirs))
