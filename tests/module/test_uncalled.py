"""Methods of PyTorch's layers that a subclass may define there, and that Alpha does not call: a warning names them."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from alpha import nn

UNCALLED = [
    (nn.Module, "_apply"),
    (nn.Sequential, "_apply"),
    (nn.Conv1d, "_conv_forward"),
    (nn.Conv3d, "_conv_forward"),
    (nn.ConvTranspose2d, "_apply"),
    (nn.BatchNorm2d, "_check_input_dim"),
    (nn.MultiheadAttention, "_reset_parameters"),
    (nn.Transformer, "_reset_parameters"),
    (nn.TransformerEncoderLayer, "_sa_block"),
    (nn.TransformerDecoderLayer, "_mha_block"),
    (nn.TransformerDecoderLayer, "_ff_block"),
]


@pytest.mark.torch
@pytest.mark.parametrize(("layer", "name"), UNCALLED)
def test_a_class_that_defines_it_is_warned_of(layer: Any, name: str) -> None:
    torch = pytest.importorskip("torch")
    assert hasattr(getattr(torch.nn, layer.__name__), name)
    with pytest.warns(UserWarning, match=f"Own.{name}: Alpha's {layer.__name__} calls no {name}, PyTorch's does"):
        own = type("Own", (layer,), {name: lambda self, *args: None})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        type("Below", (own,), {})  # which defines nothing


def test_other_names_are_a_programs_own() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        type("Own", (nn.Module,), {"_conv_forward": lambda self: None, "_sa_block": lambda self: None})
        type("Conv", (nn.Conv2d,), {"forward": lambda self, x: x})
