"""Attention: sums of values, weighted by how well their keys fit a query."""

from __future__ import annotations

import math

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.activation.softmax import softmax
from alpha.ops.array.creation import ones
from alpha.ops.array.layout import view as reshaped
from alpha.ops.indexing.where import where
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.common_dtype import BOOL, FLOAT64
from alpha.ops.kernel.options import real
from alpha.ops.matmul.matmul import matmul, products
from alpha.ops.noise.dropout import check_probability, dropout

__all__ = ["scaled_dot_product_attention"]


def added_mask(mask: Tensor, like: Tensor, hides: bool = False) -> Tensor:
    """A mask of bools as numbers that are added to scores; one of numbers as it is

    0 where it is True, else -inf; or with `hides` -inf where it is True, else 0.
    """
    if mask.dtype != BOOL:
        return mask.astype(like.dtype) if mask.dtype == FLOAT64 else mask
    zero = Tensor(like.device.zeros((), like.dtype))
    added: Tensor = where(mask, -math.inf, zero) if hides else where(mask, zero, -math.inf)
    return added


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None = None) -> Tensor:
    """softmax(scale Q K^T + mask); 0 in rows in which the mask is -inf everywhere

    query (.., L, E), key (.., S, E), mask of numbers that broadcasts to (.., L, S) -> (.., L, S)
    """
    E = query.shape[-1]
    factor = (1 / math.sqrt(E) if E else 1.0) if scale is None else scale
    scores = products(query * factor, key, transpose_b=True)
    if mask is None:
        return softmax(scores, -1)
    if not mask.shape or not mask.shape[-1]:
        return softmax(scores + mask, -1)
    dead = mask.detach().amax(-1, keepdim=True) == -math.inf
    return softmax(scores + mask.masked_fill(dead, 0.0), -1).masked_fill(dead, 0.0)


@check_arguments
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: AnyTensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale Q K^T + mask) V   query (.., L, E), key (.., S, E), value (.., S, D) -> (.., L, D)

    Batch axes broadcast. The weights (.., L, S) are kept for the gradient.

    Args:
        attn_mask: (.., L, S): bools that are True where a query may see a key, or numbers that are added to the scores.
            A query that sees no key gives 0.
        dropout_p: the probability with which a weight becomes 0; it is drawn also in evaluation.
        is_causal: query i sees the keys up to number i; not together with attn_mask.
        scale: factor of the scores, 1 / sqrt(E) by default.
        enable_gqa: the axis before L has fewer keys and values than queries, and each serves as many neighbours.

    Raises:
        ShapeError: the shapes do not fit.
        ValueError: attn_mask together with is_causal, or dropout_p is no probability.
    """
    name = "scaled_dot_product_attention"
    check_probability(name, dropout_p, "dropout_p")
    factor = None if scale is None else real(name, "scale", scale)
    shapes = f"(query {query.shape}, key {key.shape}, value {value.shape})"
    if (
        min(query.ndim, key.ndim, value.ndim) < 2
        or query.shape[-1] != key.shape[-1]
        or key.shape[-2] != value.shape[-2]
    ):
        raise ShapeError(f"{name}: query (.., L, E), key (.., S, E) and value (.., S, D) are needed  {shapes}")
    if enable_gqa:
        key, value = _for_each_query(name, query, key), _for_each_query(name, query, value)
    if is_causal and attn_mask is not None:
        raise ValueError(f"{name}: attn_mask and is_causal=True exclude each other")
    L, S = query.shape[-2], key.shape[-2]
    mask = attn_mask
    if is_causal:
        mask = ones(L, S, dtype=BOOL, device=query.device).tril()
    if mask is not None:
        mask = added_mask(mask, query)
    weights = attention_weights(query, key, mask, factor)
    return matmul(dropout(weights, dropout_p), value)


def _for_each_query(operator: str, query: Tensor, x: Tensor) -> Tensor:
    """Each key, or value, as often as there are queries for it   x (.., H, S, E) -> (.., queries, S, E)"""
    if query.ndim < 3 or x.ndim < 3 or query.shape[-3] % max(1, x.shape[-3]):
        raise ShapeError(
            f"{operator}: the number of queries must be a multiple of that of keys and values with enable_gqa  "
            f"(query {query.shape}, key or value {x.shape})"
        )
    *batch, H, S, E = x.shape
    if query.shape[-3] == H:
        return x
    times = query.shape[-3] // H
    return reshaped(x.unsqueeze(-3).expand(*batch, H, times, S, E), (*batch, H * times, S, E))
