"""Attention of several heads between linear layers: what `MultiheadAttention` computes, and its function."""

from __future__ import annotations

from typing import Any, NamedTuple

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import expand
from alpha.ops.array.joining import cat, split
from alpha.ops.array.pad import pad
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.options import integer, only_offered
from alpha.ops.matmul.matmul import linear, matmul
from alpha.ops.noise.dropout import check_probability, dropout
from alpha.ops.sequence.attention import added_mask, attention_weights

__all__ = ["multi_head_attention_forward"]

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
