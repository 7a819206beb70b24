"""The arrays that each batch normalisation keeps in training, by the memory mode (alpha/autograd/memory_mode.py).

One training pass of a copy of the model records it, with the layers computed together as in a step.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from alpha.autograd.function import Function
from alpha.autograd.grad_mode import enable_grad
from alpha.core.nested import tensors_in
from alpha.core.rng import get_rng_state, set_rng_state
from alpha.core.tensor import Tensor
from alpha.module.module import Module
from alpha.ops.normalization.batch_norm import BatchNorm
from alpha.ops.normalization.batch_norm_pool import BatchNormPool

# again: the output is computed again, or both are
BOTH, INPUT, OUTPUT, AGAIN, NEITHER = "both", "input", "output", "input, again", "again"


def kept_sides(model: Module, arguments: tuple[Tensor, ...]) -> dict[str, str]:
    """BOTH, INPUT, OUTPUT, AGAIN or NEITHER for each batch normalisation, by the name of the layer.

    BOTH are its input, which it keeps, and its output, which another layer keeps. A layer without a weight, and one
    that is called several times and keeps different arrays, have no entry.

    Raises:
        ShapeError, ValueError: training cannot run on the arguments, for example on a batch of one value for each
            channel.
        TypeError: the model cannot be copied.
    """
    trained = copy.deepcopy(model).train()
    for parameter in trained.parameters():
        parameter.requires_grad = parameter.dtype.kind == "f"
    names = {id(parameter): name.rpartition(".")[0] for name, parameter in trained.named_parameters()}
    state = get_rng_state()
    try:
        with enable_grad():
            output = trained(*arguments)
    finally:
        set_rng_state(state)
    found: dict[str, set[str]] = {}
    for node in _nodes(output):
        if isinstance(node, (BatchNorm, BatchNormPool)) and id(node.edges[1]) in names:
            found.setdefault(names[id(node.edges[1])], set()).add(_side(node))
    return {name: sides.pop() for name, sides in found.items() if len(sides) == 1}


def _side(node: BatchNorm | BatchNormPool) -> str:
    if node._again is not None and 0 in node._again:
        return OUTPUT if node.output_is_kept else NEITHER
    if isinstance(node, BatchNormPool):
        return INPUT
    if node.keeps_output:
        return OUTPUT
    if node._remade() is not None:
        return AGAIN
    return BOTH if node.output_is_kept else INPUT


def _nodes(output: Any) -> Iterator[Function]:
    """The nodes of the graph behind the tensors of a result."""
    stack: list[Any] = [tensor._node for tensor in tensors_in(output)]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if isinstance(node, Function) and node.id not in seen:
            seen.add(node.id)
            yield node
            stack += node.edges
