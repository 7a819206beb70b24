"""Batch normalisations as part of the convolutions before them, in a whole network."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from alpha.autograd.grad_mode import no_grad
from alpha.core.nested import map_tensors
from alpha.core.numerics import precision
from alpha.core.tensor import Tensor
from alpha.module.module import Module
from alpha.nn.batchnorm import BatchNorm2d
from alpha.nn.containers import Sequential
from alpha.nn.convolution import Conv2d
from alpha.nn.joined_calls import Folded, computes
from alpha.nn.layers import Identity
from alpha.nn.utils.fusion import fuse_conv_bn_eval
from alpha.ops.convolution.conv_arguments import slope_of

TOLERANCE = 1e-4  # of the largest output; rounding is about 1e-6 of it


class Pair(NamedTuple):
    """A convolution, the normalisation of its result, and the activation that this is called with."""

    conv: Module
    norm: Module
    activation: Any


@dataclass
class _Calls:
    """Calls that a forward makes.

    Attributes:
        count: how often each module was called, by its id.
        made: the convolution that has made a tensor, with the tensor, so that no other one gets its id.
        pairs: convolutions and normalisations of their results.
    """

    count: Counter[int] = field(default_factory=Counter)
    made: dict[int, tuple[Module, Tensor]] = field(default_factory=dict)
    pairs: list[Pair] = field(default_factory=list)


def fold_batch_norms(model: Module, x: Tensor) -> tuple[Module, int]:
    """A copy of a model in evaluation, whose batch normalisations are part of the convolutions before them.

    Which normalisation follows which convolution is seen in a call of the model with x. One that adds a shortcut stays
    as it is, because its kernel computes the sum and the activation, too. An activation behind one that is folded is
    computed by the convolution. The copy is tried with x: if its outputs differ by more than rounding, as of a model
    that uses the result of a convolution twice, the copy is one without any folding.

    Args:
        model: any module; it is left as it is.
        x: an input of it, on its device.

    Returns:
        The copy, and how many normalisations are folded.
    """
    made = copy.deepcopy(model).eval()
    with no_grad(), precision("float32"):
        expected = made(x)
        pairs = _pairs(made, x)
        folded = copy.deepcopy(made)
        twins = dict(zip(map(id, made.modules()), folded.modules(), strict=True))
        for pair in pairs:
            _replace(folded, Pair(*(twins.get(id(part), part) for part in pair)))
        if pairs and not _alike(expected, folded(x)):
            return made, 0
    return folded, len(pairs)


def _pairs(model: Module, x: Tensor) -> list[Pair]:
    """Convolutions and the norms of their results that can be folded, each called once in a forward of x."""
    calls = _Calls()
    changed: list[tuple[Module, type[Module]]] = []
    try:
        for module in list(model.modules()):
            kind = type(module)
            if kind in (Conv2d, BatchNorm2d) and computes(module, kind) and not _hooks(module):
                changed.append((module, kind))
                module.__class__ = _watched(kind, calls)
        model(x)
    finally:
        for module, kind in changed:
            module.__class__ = kind
    return [
        pair
        for pair in calls.pairs
        if calls.count[id(pair.conv)] == calls.count[id(pair.norm)] == 1
        and getattr(pair.conv, "negative_slope", 1) == 1
        and (pair.activation is None or _slope(pair.activation) is not None)
    ]


def _hooks(module: Module) -> bool:
    return bool(module._pre_hooks or module._forward_hooks or module._backward_hooks or module._backward_pre_hooks)


def _slope(activation: Any) -> float | None:
    """The slope of an activation that a convolution computes; None if it computes no such one."""
    return None if isinstance(activation, Module) and _hooks(activation) else slope_of(activation)


def _watched(kind: type[Module], calls: _Calls) -> type[Module]:
    """A class like `kind`, whose calls are noted."""

    def call(module: Any, x: Tensor, *more: Any) -> Any:
        calls.count[id(module)] += 1
        result = kind.__call__(module, x, *more)
        if kind is Conv2d:
            calls.made[id(result)] = module, result
            return result
        conv, _ = calls.made.get(id(x), (None, None))
        _, residual, activation = (*more, None, None, None)[:3]
        if conv is not None and residual is None and not module.uses_batch:
            calls.pairs.append(Pair(conv, module, activation))
        return result

    return type(kind.__name__, (kind,), {"__call__": call})


def _replace(model: Module, pair: Pair) -> None:
    """Put the convolution that computes all in the place of the first, and the other ones out of the way."""
    fused: Any = fuse_conv_bn_eval(pair.conv, pair.norm)  # type: ignore[arg-type]
    if pair.activation is not None:
        fused.negative_slope = _slope(pair.activation)
    for parent in list(model.modules()):
        children = list(parent._named_parts())
        for place, (name, child) in enumerate(children):
            if child is pair.conv:
                setattr(parent, name, fused)
            elif child is pair.norm:
                setattr(parent, name, Folded(pair.activation))
                if type(parent) is Sequential and pair.activation is None and children[place - 1][1] is pair.conv:
                    _take_activation(parent, children[place + 1 : place + 2], fused)


def _take_activation(parent: Module, behind: list[tuple[str, Module]], fused: Any) -> None:
    """Let the convolution compute the activation behind it, if there is one that it can compute."""
    for name, activation in behind:
        if (slope := _slope(activation)) is not None:
            fused.negative_slope = slope
            setattr(parent, name, Identity())


def _alike(expected: Any, found: Any) -> bool:
    """True if the tensors of two results are equal but for rounding."""
    first, second = _arrays(expected), _arrays(found)
    return len(first) == len(second) and all(
        a.shape == b.shape and np.allclose(a, b, rtol=0, atol=TOLERANCE * max(1e-30, np.abs(a).max(initial=0)))
        for a, b in zip(first, second, strict=True)
    )


def _arrays(result: Any) -> list[Any]:
    found: list[Any] = []
    map_tensors(result, lambda t: found.append(t.float().numpy()))
    return found
