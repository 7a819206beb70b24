"""Operators that a GPU's memory limits, on 64 MB: normalisations, softmax, reductions and elementwise ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import alpha
import alpha.nn.functional as F

ROWS, COLUMNS = 65536, 256  # 64 MB of float32
Tensors = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """An operator of both sides.

    Attributes:
        ours, theirs: of x (ROWS, COLUMNS) and y of its shape, and w, b (COLUMNS,).
        passes: how often 64 MB must be read or written at least.
        gradient: time the gradient of x, given that of the result, and not the result.
    """

    name: str
    ours: Callable[..., Any]
    theirs: Callable[[Any], Callable[..., Any]]
    passes: int
    gradient: bool = False


def _torch(name: str, *more: Any) -> Callable[[Any], Callable[..., Any]]:
    """torch.nn.functional.<name> or torch.<name> of x and more arguments."""

    def find(torch: Any) -> Callable[..., Any]:
        function = getattr(torch.nn.functional, name, None) or getattr(torch, name)
        return lambda x, y, w, b: function(x, *more)

    return find


def _layer_norm(torch: Any) -> Callable[..., Any]:
    return lambda x, y, w, b: torch.nn.functional.layer_norm(x, (COLUMNS,), w, b)


CASES = (
    Case("copy", lambda x, y, w, b: x.clone(), lambda torch: lambda x, y, w, b: x.clone(), 2),
    Case("add", lambda x, y, w, b: x + y, lambda torch: lambda x, y, w, b: x + y, 3),
    Case("relu", lambda x, y, w, b: F.relu(x), _torch("relu"), 2),
    Case("gelu", lambda x, y, w, b: F.gelu(x), _torch("gelu"), 2),
    Case("gelu, gradient", lambda x, y, w, b: F.gelu(x), _torch("gelu"), 3, gradient=True),
    Case("exp", lambda x, y, w, b: x.exp(), _torch("exp"), 2),
    Case("add of a row", lambda x, y, w, b: x + b, lambda torch: lambda x, y, w, b: x + b, 2),
    Case("softmax", lambda x, y, w, b: F.softmax(x, -1), _torch("softmax", -1), 2),
    Case("softmax, gradient", lambda x, y, w, b: F.softmax(x, -1), _torch("softmax", -1), 3, gradient=True),
    Case("log_softmax", lambda x, y, w, b: F.log_softmax(x, -1), _torch("log_softmax", -1), 2),
    Case("layer_norm", lambda x, y, w, b: F.layer_norm(x, COLUMNS, w, b), _layer_norm, 2),
    Case("layer_norm, gradient", lambda x, y, w, b: F.layer_norm(x, COLUMNS, w, b), _layer_norm, 3, gradient=True),
    Case("sum of all", lambda x, y, w, b: x.sum(), _torch("sum"), 1),
    Case("sum of rows", lambda x, y, w, b: x.sum(1), _torch("sum", 1), 1),
    Case("sum of columns", lambda x, y, w, b: x.sum(0), _torch("sum", 0), 1),
    Case("max of rows", lambda x, y, w, b: x.amax(1), _torch("amax", 1), 1),
    Case("argmax of rows", lambda x, y, w, b: x.argmax(1), _torch("argmax", 1), 1),
    Case("cumsum of rows", lambda x, y, w, b: x.cumsum(1), _torch("cumsum", 1), 2),
    Case("transpose", lambda x, y, w, b: x.T.clone(), lambda torch: lambda x, y, w, b: x.t().contiguous(), 2),
)


def drawn(seed: int = 0) -> list[np.ndarray]:
    """Arrays x, y (ROWS, COLUMNS) and w, b (COLUMNS,) of normal numbers."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, np.float32) for shape in ((ROWS, COLUMNS),) * 2 + ((COLUMNS,),) * 2]


def our_call(case: Case, tensors: Tensors) -> Callable[[], Any]:
    """Call that is timed on Alpha's side."""
    if not case.gradient:
        return lambda: case.ours(*tensors)
    x = tensors[0].detach()
    x.requires_grad = True
    result = case.ours(x, *tensors[1:])
    return lambda: alpha.grad(result, x, tensors[1], retain_graph=True)[0]


def their_call(case: Case, torch: Any, tensors: Tensors) -> Callable[[], Any]:
    """Call that is timed on PyTorch's side."""
    function = case.theirs(torch)
    if not case.gradient:
        return lambda: function(*tensors)
    x = tensors[0].detach().requires_grad_()
    result = function(x, *tensors[1:])
    return lambda: torch.autograd.grad(result, x, tensors[1], retain_graph=True)[0]
