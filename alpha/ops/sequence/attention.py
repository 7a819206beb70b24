"""Attention: sums of values, weighted by how well their keys fit a query.

This file also has: attention of several heads between linear layers: what `MultiheadAttention` computes, and its
function.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.activation.softmax import softmax
from alpha.ops.array.axes import expand
from alpha.ops.array.creation import ones
from alpha.ops.array.joining import cat, split
from alpha.ops.array.layout import view as reshaped
from alpha.ops.array.pad import pad
from alpha.ops.indexing.where import where
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.operands import BOOL, FLOAT64
from alpha.ops.kernel.options import integer, only_offered, real
from alpha.ops.matmul.matmul import linear, matmul, products
from alpha.ops.noise.dropout import check_probability, dropout

__all__ = ["multi_head_attention_forward", "scaled_dot_product_attention"]


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


Three = tuple[Tensor, Tensor, Tensor]


class Heads(NamedTuple):
    """Settings between queries, keys and values and the last linear layer.

    Attributes:
        embed_dim, num_heads: features of the result, and heads that share them.
        weights: (3 embed_dim, embed_dim), or those of queries, keys and values.
        bias: (3 embed_dim,) or None.
        more: a key and a value (1, 1, embed_dim) for all queries, or None.
        add_zero_attn: a key and a value of zeros for all queries.
        dropout: probability with which a weight becomes 0.
        batch_first: N is the first axis, and not the second one.
    """

    embed_dim: int
    num_heads: int
    weights: Tensor | tuple[Tensor | None, Tensor | None, Tensor | None]
    bias: Tensor | None
    more: tuple[Tensor | None, Tensor | None]
    add_zero_attn: bool
    dropout: float
    batch_first: bool

    @property
    def features(self) -> tuple[int, int, int]:
        """Features of queries, keys and values."""
        if isinstance(self.weights, Tensor):
            return (self.embed_dim,) * 3
        q, k, v = (0 if weight is None else weight.shape[-1] for weight in self.weights)
        return q, k, v

    def project(self, x: Three) -> list[Tensor]:
        """Queries, keys and values after their linear layers, each (N, H, length, E / H)."""
        E, bias = self.embed_dim, self.bias
        if isinstance(self.weights, Tensor) and x[0] is x[1] is x[2]:  # one product for all three
            return self._split(linear(x[0], self.weights, bias), 3)
        weights: Any = split(self.weights, E) if isinstance(self.weights, Tensor) else self.weights
        biases = (None, None, None) if bias is None else split(bias, E)
        return [self._split(linear(part, weight, b), 1)[0] for part, weight, b in zip(x, weights, biases, strict=True)]

    def _split(self, x: Tensor, parts: int) -> list[Tensor]:
        """The features as parts and heads   x (.., parts E), N first or second -> `parts` of (N, H, length, E / H)"""
        first, second = (1, *x.shape[:-1]) if x.ndim == 2 and self.batch_first else (*x.shape[:-1], 1)[:2]
        apart = x.reshape(first, second, parts, self.num_heads, self.embed_dim // self.num_heads)
        order = (2, 0, 3, 1, 4) if self.batch_first else (2, 1, 3, 0, 4)
        return list(apart.permute(*order).unbind(0))

    def with_more_keys(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, int]:
        """The keys and values with those that all queries see, and how many these are."""
        N, H, _, D = k.shape
        keys, values = [k], [v]
        for more, found in zip(self.more, (keys, values), strict=True):
            if more is not None:
                found.append(expand(more.reshape(1, H, 1, D), (N, H, 1, D)))
        if self.add_zero_attn:
            zero = Tensor(k.device.zeros((N, H, 1, D), k.dtype))
            keys.append(zero)
            values.append(zero)
        return (k, v, 0) if len(keys) == 1 else (cat(keys, 2), cat(values, 2), len(keys) - 1)


def attend(
    operator: str, heads: Heads, x: Three, padding: Tensor | None, mask: Tensor | None, is_causal: bool
) -> tuple[Tensor, Tensor]:
    """The heads side by side, before the last linear layer, and their weights

    x: queries (L, N, ..), keys and values (S, N, ..) -> (L, N, embed_dim), weights (N, H, L, S)
    """
    _check(operator, heads, x, padding, mask)
    if is_causal and mask is None:
        raise ValueError(f"{operator}: is_causal=True says what attn_mask is; give attn_mask")
    q, k, v = heads.project(x)
    k, v, added = heads.with_more_keys(k, v)
    weights = dropout(attention_weights(q, k, _added_mask(padding, mask, q, added)), heads.dropout, True)
    found = matmul(weights, v)  # (N, H, L, E / H)
    N, _, L, _ = found.shape
    first, order = ((N, L), (0, 2, 1, 3)) if heads.batch_first else ((L, N), (2, 0, 1, 3))
    return found.permute(*order).reshape(*first, heads.embed_dim), weights


def shown(
    y: Tensor, weights: Tensor, one: bool, need_weights: bool, average_attn_weights: bool
) -> tuple[Tensor, Tensor | None]:
    """The result and the weights in the shapes in which they are asked for, without a batch if there is `one`."""
    if need_weights and average_attn_weights:
        weights = weights.mean(1)
    if one:
        y, weights = y.reshape(-1, y.shape[-1]), weights.reshape(*weights.shape[1:])
    return y, weights if need_weights else None


def _added_mask(padding: Tensor | None, mask: Tensor | None, q: Tensor, added: int) -> Tensor | None:
    """Both masks as numbers that are added to scores (N, H, L, S); each query sees the `added` last keys."""
    N, H, L, _ = q.shape
    total = None
    if padding is not None:
        total = added_mask(padding, q, hides=True).reshape(-1, 1, 1, padding.shape[-1])
    if mask is not None:
        part = added_mask(mask, q, hides=True)
        part = part if mask.ndim == 2 else part.reshape(N, H, L, mask.shape[-1])
        total = part if total is None else total + part
    return pad(total, (0, added)) if total is not None and added else total


def _check(operator: str, heads: Heads, x: Three, padding: Tensor | None, mask: Tensor | None) -> None:
    """`ShapeError` if the shapes do not fit each other or the weights."""
    for name, part in zip(("query", "key", "value"), x, strict=True):
        if not isinstance(part, Tensor):
            raise TypeError(f"{operator}: {name} is a {type(part).__name__}, a Tensor is needed")
    query, key, value = x
    shapes = f"(query {query.shape}, key {key.shape}, value {value.shape})"
    batch, length = (0, 1) if heads.batch_first else (1, 0)
    if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
        raise ShapeError(f"{operator}: all of 3 axes, or of 2 without a batch, are needed  {shapes}")
    q, k, v = heads.features
    if (query.shape[-1], key.shape[-1], value.shape[-1]) != (q, k, v):
        raise ShapeError(f"{operator}: {q}, {k} and {v} features are needed  {shapes}")
    one = query.ndim == 2
    N = 1 if one else query.shape[batch]
    L, S = (part.shape[0 if one else length] for part in (query, key))
    if key.shape[:-1] != value.shape[:-1] or (not one and key.shape[batch] != N):
        raise ShapeError(f"{operator}: lengths or batches differ  {shapes}")
    if padding is not None and padding.shape != ((S,) if one else (N, S)):
        raise ShapeError(f"{operator}: key_padding_mask {padding.shape} does not fit  {shapes}")
    if mask is not None and mask.shape not in ((L, S), (N * heads.num_heads, L, S)):
        raise ShapeError(f"{operator}: attn_mask {mask.shape} is neither {(L, S)} nor {(N * heads.num_heads, L, S)}")


@check_arguments
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: AnyTensor | None = None,
    need_weights: bool = True,
    attn_mask: AnyTensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: None = None,
    static_v: None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention as of `MultiheadAttention`, with weights that are given, and the weights of the attention

    query (L, N, E), key (S, N, kdim), value (S, N, vdim) -> (L, N, O), weights (N, L, S) or None; N may be left out.

    Args:
        embed_dim_to_check: E.
        in_proj_weight: (3 E, E), of queries, keys and values; None with `use_separate_proj_weight`.
        in_proj_bias: (3 E,) or None.
        bias_k, bias_v: a key and a value (1, 1, E) that all queries see, or None.
        add_zero_attn: all queries see a key and a value that are 0.
        dropout_p: probability with which a weight becomes 0 in training.
        out_proj_weight, out_proj_bias: (O, E) and (O,) or None, of the last linear layer.
        key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal: as of `MultiheadAttention.forward`.
        use_separate_proj_weight: q_proj_weight (E, E), k_proj_weight (E, kdim) and v_proj_weight (E, vdim) are used.
        static_k, static_v: only None is offered.

    Raises:
        ShapeError: the shapes do not fit each other.
        ValueError: the heads do not divide E, or weights are missing.
    """
    name = "multi_head_attention_forward"
    only_offered(name, static_k=(static_k, None), static_v=(static_v, None))
    E, H = integer(name, "embed_dim_to_check", embed_dim_to_check, 1), integer(name, "num_heads", num_heads, 1)
    check_probability(name, dropout_p, "dropout_p")
    if E % H:
        raise ValueError(f"{name}: embed_dim_to_check={E} is no multiple of num_heads={H}")
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    used = separate if use_separate_proj_weight else (in_proj_weight,)
    if any(weight is None for weight in used):
        needed = "q_, k_ and v_proj_weight are" if use_separate_proj_weight else "in_proj_weight is"
        raise ValueError(f"{name}: {needed} needed with use_separate_proj_weight={use_separate_proj_weight}")
    if (bias_k is None) != (bias_v is None):
        raise ValueError(f"{name}: bias_k and bias_v are needed together")
    weights = separate if in_proj_weight is None or use_separate_proj_weight else in_proj_weight
    p = dropout_p if training else 0.0
    heads = Heads(E, H, weights, in_proj_bias, (bias_k, bias_v), add_zero_attn, p, batch_first=False)
    made, scores = attend(name, heads, (query, key, value), key_padding_mask, attn_mask, is_causal)
    y = linear(made, out_proj_weight, out_proj_bias)
    return shown(y, scores, query.ndim == 2, need_weights, average_attn_weights)
