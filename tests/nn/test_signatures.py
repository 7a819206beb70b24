"""Positional arguments of layers and functions have PyTorch's order and defaults; all others are keywords.

PyTorch's are in tests/golden/pytorch_signatures.json, so that the tests do not depend on the installed version. After
an operator or a layer was added, `python tests/nn/test_signatures.py` writes the file anew.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "support")]
from rows.every import FUNCTIONS, LAYERS
from trials import trials

import alpha.nn.functional as F
from alpha import nn

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

Stated = dict[str, Any]
FILE = Path(__file__).parents[1] / "golden" / "pytorch_signatures.json"
HELD = json.loads(FILE.read_text()) if FILE.is_file() else {"version": "", "signatures": {}}
VERSION: str = HELD["version"]  # of PyTorch; another one may have other arguments
SIGNATURES: dict[str, Stated] = HELD["signatures"]
of_that_version = pytest.mark.skipif(
    torch is None or not torch.__version__.startswith(f"{VERSION}."), reason=f"needs PyTorch {VERSION}"
)
STATED = re.compile(r"[^(]*[(](.*)[)](?: ->|\n)")  # the arguments, in the first line of a docstring
# arguments of PyTorch's that Alpha has no place for
NEVER = {"device", "dtype", "out", "_stacklevel"}
OPERANDS = {"x": "input", "a": "input", "b": "other"}
WITHOUT = {"nn.Module", "nn.Sequential", "nn.StateDict", "nn.Parameter", "nn.Buffer"}
WITHOUT |= {"nn.UninitializedParameter", "nn.UninitializedBuffer"}
WITHOUT |= {f"nn.{row.name}" for row in LAYERS if row.own} | {f"F.{row.name}" for row in FUNCTIONS if row.own}


class Written:
    """Functions that dispatch by an argument, and so have no one signature: from PyTorch's documentation."""

    def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False): ...
    def max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False): ...
    def max_pool3d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False): ...
    def fractional_max_pool2d(
        input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
    ): ...
    def fractional_max_pool3d(
        input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
    ): ...
    def adaptive_max_pool1d(input, output_size, return_indices=False): ...
    def adaptive_max_pool2d(input, output_size, return_indices=False): ...
    def adaptive_max_pool3d(input, output_size, return_indices=False): ...
    def sum(input, dim=None, keepdim=False): ...
    def mean(input, dim=None, keepdim=False): ...
    def squeeze(input, dim=None): ...
    def max(input, dim=None, keepdim=False): ...
    def min(input, dim=None, keepdim=False): ...
    def all(input, dim=None, keepdim=False): ...
    def any(input, dim=None, keepdim=False): ...
    def argmax(input, dim=None, keepdim=False): ...
    def sort(input, dim=-1, descending=False, stable=False): ...
    def argsort(input, dim=-1, descending=False, stable=False): ...
    def prod(input, dim=None, keepdim=False): ...
    def where(condition, input=None, other=None): ...
    def masked_fill(input, mask, value): ...
    def clamp(input, min=None, max=None): ...
    def clip(input, min=None, max=None): ...
    def scaled_dot_product_attention(
        query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False
    ): ...
    def amax(input, dim=None, keepdim=False): ...
    def amin(input, dim=None, keepdim=False): ...
    def norm(input, p="fro", dim=None, keepdim=False): ...
    def cosine_similarity(x1, x2, dim=1, eps=1e-8): ...
    def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False): ...
    def aminmax(input, *, dim=None, keepdim=False): ...
    def rsub(input, other): ...
    def true_divide(input, other): ...
    def clamp_min(input, min): ...
    def clamp_max(input, max): ...
    def lerp(input, end, weight): ...
    def nansum(input, dim=None, keepdim=False): ...
    def nanmean(input, dim=None, keepdim=False): ...
    def var(input, dim=None, unbiased=None, keepdim=False): ...  # the form with unbiased
    def std(input, dim=None, unbiased=None, keepdim=False): ...
    def var_mean(input, dim=None, unbiased=None, keepdim=False): ...
    def std_mean(input, dim=None, unbiased=None, keepdim=False): ...
    def median(input, dim=None, keepdim=False): ...
    def nanmedian(input, dim=None, keepdim=False): ...
    def split(tensor, split_size_or_sections, dim=0): ...
    def bernoulli(input, p=None): ...
    def index_fill(input, dim, index, value): ...
    def index_put(input, indices, values, accumulate=False): ...
    def masked_scatter(input, mask, source): ...
    def split_with_sizes(input, split_sizes, dim=0): ...
    def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None): ...
    def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None): ...


class WrittenLayers:
    """Layers whose constructors take anything: from PyTorch's documentation."""

    def RNN(
        input_size,
        hidden_size,
        num_layers=1,
        nonlinearity="tanh",
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
    ): ...
    def GRU(input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False): ...
    def LSTM(
        input_size,
        hidden_size,
        num_layers=1,
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        proj_size=0,
    ): ...


WRITTEN: dict[str, Callable[..., Any]] = {n: f for n, f in vars(Written).items() if inspect.isfunction(f)}
NAMES = [f"nn.{n}" for n in nn.__all__ if inspect.isclass(getattr(nn, n))] + [f"F.{n}" for n in F.__all__]


def pytorchs(name: str) -> Callable[..., Any] | None:
    """PyTorch's callable of the same name, or what its documentation says of it."""
    kind, _, own = name.partition(".")
    if kind == "nn":
        return vars(WrittenLayers).get(own) or getattr(torch.nn, own, None)
    return WRITTEN.get(own) or getattr(torch.nn.functional, own, None) or getattr(torch, own, None)


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    if inspect.isclass(function) and function.__init__ is not torch.nn.Module.__init__:
        return list(inspect.signature(function.__init__).parameters.values())[1:]
    if inspect.isclass(function):
        return []
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:  # it is compiled, and its docstring begins with its signature
        names: dict[str, Any] = {}
        exec(f"def stated({STATED.match(function.__doc__.strip())[1]}): ...", names)
        return list(inspect.signature(names["stated"]).parameters.values())


def stated(name: str) -> Stated | None:
    """PyTorch's arguments, as the file has them; None if the installed PyTorch has none of this name."""
    twin = pytorchs(name)
    if twin is None:
        return None
    theirs = [p for p in parameters(twin) if p.name not in NEVER]
    positional = [p for p in theirs if p.kind is p.POSITIONAL_OR_KEYWORD]
    return {
        "positional": {p.name: default_of(p) for p in positional},
        "others": sorted({p.kind.name for p in theirs} & {"VAR_POSITIONAL", "VAR_KEYWORD"}),
    }


def default_of(parameter: inspect.Parameter) -> Any:
    """A default as JSON has it: of a function its name, of what has none an empty list."""
    default = parameter.default
    if default is parameter.empty:
        return []
    return json.loads(json.dumps(getattr(default, "__name__", default)))


SUBJECTS = [name for name in NAMES if name not in WITHOUT]


def test_what_has_no_twin_is_known() -> None:
    assert set(SUBJECTS) == SIGNATURES.keys(), f"python tests/nn/{Path(__file__).name} writes the file anew"


@pytest.mark.parametrize("name", SUBJECTS)
def test_positional_arguments_are_pytorchs(name: str) -> None:
    kind, _, own = name.partition(".")
    ours = list(inspect.signature(getattr({"nn": nn, "F": F}[kind], own)).parameters.values())
    positional = [p for p in ours if p.kind is p.POSITIONAL_OR_KEYWORD]
    expected, any_others = SIGNATURES[name]["positional"], SIGNATURES[name]["others"]
    names = ["input" if n == "tensor" and not i else OPERANDS.get(n, n) for i, n in enumerate(expected)]
    assert [OPERANDS.get(p.name, p.name) for p in positional] == names
    for mine, default in zip(positional, expected.values(), strict=True):
        assert default_of(mine) == default, mine.name
    assert all(p.kind is p.KEYWORD_ONLY or p.kind.name in any_others for p in ours[len(positional) :])


@of_that_version
def test_the_file_has_what_pytorch_says() -> None:
    with trials() as trial:
        for name in SUBJECTS:
            with trial(name):
                assert stated(name) == SIGNATURES[name], f"python tests/nn/{Path(__file__).name} writes the file anew"


# the stand-ins of these have other arguments than the documentation
OTHERWISE = ("where", "max_pool3d", "rsub", "bernoulli", "split_with_sizes")


@of_that_version
@pytest.mark.parametrize(("name", "twin"), [i for i in WRITTEN.items() if i[0] not in OTHERWISE])
def test_the_written_signatures_are_those_that_pytorch_overrides(name: str, twin: Callable[..., Any]) -> None:
    """PyTorch lists a stand-in for each function; it may leave out the last arguments."""
    overrides = torch.overrides.get_testing_overrides()
    function = getattr(torch.nn.functional, name, None) or getattr(torch, name)
    names = [n for n in inspect.signature(overrides[function]).parameters if n not in NEVER]
    assert list(inspect.signature(twin).parameters)[: len(names)] == names


if __name__ == "__main__":
    version = ".".join(torch.__version__.split(".")[:2])
    held = {"version": version, "signatures": {name: found for name in SUBJECTS if (found := stated(name))}}
    FILE.write_text(json.dumps(held, separators=(",", ":")).replace('},"', '},\n"') + "\n")
