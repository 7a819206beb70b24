"""Positional arguments of layers and functions have PyTorch's order and defaults; all others are keywords."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import alpha.nn.functional as F
from alpha import nn

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

NEVER = {"device", "dtype", "out"}  # arguments of PyTorch's that Alpha has no place for
OPERANDS = {"x": "input", "a": "input", "b": "other"}
WITHOUT = {"F.normalize_pixels", "nn.Module", "nn.Sequential", "nn.StateDict", "nn.Parameter", "nn.Buffer"}


def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1): ...
def conv_transpose2d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1): ...
def max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False): ...
def avg_pool2d(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
): ...
def linear(input, weight, bias=None): ...
def softplus(input, beta=1.0, threshold=20.0): ...
def gelu(input, approximate="none"): ...
def add(input, other, *, alpha=1): ...
def mul(input, other): ...
def matmul(input, other): ...
def flatten(input, start_dim=0, end_dim=-1): ...
def reshape(input, shape): ...
def transpose(input, dim0, dim1): ...
def sum(input, dim=None, keepdim=False): ...
def mean(input, dim=None, keepdim=False): ...


# functions that are compiled, or dispatch by an argument, and so have no signature: from PyTorch's documentation
WRITTEN: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        *(conv2d, conv_transpose2d, max_pool2d, avg_pool2d, linear, softplus, gelu),
        *(add, mul, matmul, flatten, reshape, transpose, sum, mean),
    )
}
NAMES = [f"nn.{n}" for n in nn.__all__ if inspect.isclass(getattr(nn, n))] + [f"F.{n}" for n in F.__all__]


def pytorchs(name: str) -> Callable[..., Any] | None:
    """PyTorch's callable of the same name, or what its documentation says of it."""
    kind, _, own = name.partition(".")
    if kind == "nn":
        return getattr(torch.nn, own, None)
    return WRITTEN.get(own) or getattr(torch.nn.functional, own, None)


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    if inspect.isclass(function) and function.__init__ is not torch.nn.Module.__init__:
        return list(inspect.signature(function.__init__).parameters.values())[1:]
    return [] if inspect.isclass(function) else list(inspect.signature(function).parameters.values())


def test_what_has_no_twin_is_known() -> None:
    assert {name for name in NAMES if pytorchs(name) is None} <= WITHOUT


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITHOUT])
def test_positional_arguments_are_pytorchs(name: str) -> None:
    kind, _, own = name.partition(".")
    ours = list(inspect.signature(getattr({"nn": nn, "F": F}[kind], own)).parameters.values())
    twin = pytorchs(name)
    assert twin is not None
    theirs = [p for p in parameters(twin) if p.name not in NEVER]
    positional = [p for p in ours if p.kind is p.POSITIONAL_OR_KEYWORD]
    expected = [p for p in theirs if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [OPERANDS.get(p.name, p.name) for p in positional] == [p.name for p in expected]
    for mine, their in zip(positional, expected, strict=True):
        assert mine.default == their.default, mine.name
    assert all(p.kind is p.KEYWORD_ONLY for p in ours[len(positional) :])


@pytest.mark.parametrize(("name", "twin"), WRITTEN.items())
def test_the_written_signatures_are_those_that_pytorch_overrides(name: str, twin: Callable[..., Any]) -> None:
    """PyTorch lists a stand-in for each function; it may leave out the last arguments."""
    overrides = torch.overrides.get_testing_overrides()
    function = getattr(torch.nn.functional, name, None) or getattr(torch, name)
    names = [n for n in inspect.signature(overrides[function]).parameters if n not in NEVER]
    assert list(inspect.signature(twin).parameters)[: len(names)] == names
