"""Attention with several heads, under PyTorch's name, arguments and names of parameters."""

from __future__ import annotations

from alpha.errors import ShapeError
from alpha.module import Module, Parameter
from alpha.nn import functional as F
from alpha.nn import init
from alpha.nn.layers import Linear
from alpha.ops.attention import added_mask, attention_weights
from alpha.ops.dropout import check_probability
from alpha.ops.options import integer
from alpha.tensor import Tensor

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention of num_heads heads, between linear layers

    query (L, N, embed_dim), key (S, N, kdim), value (S, N, vdim) -> (L, N, embed_dim), weights (N, L, S); N comes first
    with batch_first, and may be left out.

    Args:
        dropout: probability with which a weight becomes 0 in training.
        bias: whether the linear layers have one.
        add_bias_kv: add a key and a value that are trained.
        add_zero_attn: add a key and a value that are 0.
        kdim, vdim: features of keys and values, embed_dim by default.

    Attributes:
        in_proj_weight: (3 embed_dim, embed_dim), xavier uniform; with a kdim or vdim of another number q_proj_weight,
            k_proj_weight and v_proj_weight in its place.
        in_proj_bias: (3 embed_dim,), 0, or None.
        out_proj: the last linear layer.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
    ) -> None:
        name = "MultiheadAttention"
        E = self.embed_dim = integer(name, "embed_dim", embed_dim, least=1)
        self.num_heads = integer(name, "num_heads", num_heads, least=1)
        if E % self.num_heads:
            raise ValueError(f"{name}: embed_dim={E} is no multiple of num_heads={num_heads}")
        check_probability(name, dropout, "dropout")
        self.kdim = E if kdim is None else integer(name, "kdim", kdim, least=1)
        self.vdim = E if vdim is None else integer(name, "vdim", vdim, least=1)
        self.dropout, self.add_zero_attn, self.batch_first = float(dropout), add_zero_attn, batch_first
        packed = self.kdim == self.vdim == E
        shapes = {"in": (3 * E, E)} if packed else {"q": (E, E), "k": (E, self.kdim), "v": (E, self.vdim)}
        weights = {part: Parameter(init.xavier_uniform(shape)) for part, shape in shapes.items()}
        self.in_proj_weight, self.q_proj_weight = weights.get("in"), weights.get("q")
        self.k_proj_weight, self.v_proj_weight = weights.get("k"), weights.get("v")
        self.in_proj_bias = Parameter(init.zeros((3 * E,))) if bias else None
        self.out_proj = Linear(E, E, bias=bias)
        if self.out_proj.bias is not None:
            self.out_proj.bias = Parameter(init.zeros((E,)))
        self.bias_k = Parameter(init.xavier_normal((1, 1, E))) if add_bias_kv else None
        self.bias_v = Parameter(init.xavier_normal((1, 1, E))) if add_bias_kv else None

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The result, and the weights, or None without need_weights.

        Args:
            key_padding_mask: (N, S): bools that are True for keys that are left out, or numbers added to their scores.
            attn_mask: (L, S) or (N num_heads, L, S): bools that are True where a query may not see a key, or numbers.
                With both masks, a query that sees no key gives 0.
            average_attn_weights: False gives the weights of each head, (N, num_heads, L, S).
            is_causal: says that attn_mask is causal, and so changes nothing; attn_mask must be given.
        """
        self._check(query, key, value, key_padding_mask, attn_mask)
        if is_causal and attn_mask is None:
            raise ValueError("MultiheadAttention: is_causal=True says what attn_mask is; give attn_mask")
        q, k, v = self._projected(query, key, value)
        k, v, added = self._with_more_keys(k, v)
        mask = self._mask(key_padding_mask, attn_mask, q, added)
        weights = F.dropout(attention_weights(q, k, mask), self.dropout, self.training)
        heads = F.matmul(weights, v)  # (N, H, L, E / H)
        N, _, L, _ = heads.shape
        first, order = ((N, L), (0, 2, 1, 3)) if self.batch_first else ((L, N), (2, 0, 1, 3))
        y: Tensor = self.out_proj(heads.permute(*order).reshape(*first, self.embed_dim))
        if need_weights and average_attn_weights:
            weights = weights.mean(1)
        if query.ndim == 2:
            y, weights = y.reshape(*query.shape), weights.reshape(*weights.shape[1:])
        return y, weights if need_weights else None

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """Queries, keys and values after their linear layers, each (N, H, length, E / H)."""
        E = self.embed_dim
        bias = self.in_proj_bias
        if self.in_proj_weight is not None and query is key is value:  # one product for all three
            return self._heads(F.linear(query, self.in_proj_weight, bias), 3)
        weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        if self.in_proj_weight is not None:
            weights = F.split(self.in_proj_weight, E)  # type: ignore[assignment]
        biases = (None, None, None) if bias is None else F.split(bias, E)
        return [
            self._heads(F.linear(x, weight, b), 1)[0]  # type: ignore[arg-type]
            for x, weight, b in zip((query, key, value), weights, biases, strict=True)
        ]

    def _heads(self, x: Tensor, parts: int) -> list[Tensor]:
        """The features as parts and heads   x (.., parts E), N first or second -> `parts` of (N, H, length, E / H)"""
        first, second = (1, *x.shape[:-1]) if x.ndim == 2 and self.batch_first else (*x.shape[:-1], 1)[:2]
        split = x.reshape(first, second, parts, self.num_heads, self.embed_dim // self.num_heads)
        order = (2, 0, 3, 1, 4) if self.batch_first else (2, 1, 3, 0, 4)
        return list(split.permute(*order).unbind(0))

    def _with_more_keys(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, int]:
        """The keys and values with those that are trained, and those that are 0; and how many these are."""
        N, H, _, D = k.shape
        keys, values = [k], [v]
        for bias, found in ((self.bias_k, keys), (self.bias_v, values)):
            if bias is not None:
                found.append(bias.reshape(1, H, 1, D).expand(N, H, 1, D))
        if self.add_zero_attn:
            zero = Tensor(k.device.zeros((N, H, 1, D), k.dtype))
            keys.append(zero)
            values.append(zero)
        return (k, v, 0) if len(keys) == 1 else (F.cat(keys, 2), F.cat(values, 2), len(keys) - 1)

    def _mask(self, padding: Tensor | None, mask: Tensor | None, q: Tensor, added: int) -> Tensor | None:
        """Both masks as numbers that are added to scores (N, H, L, S); each query sees the `added` last keys."""
        N, H, L, _ = q.shape
        total = None
        if padding is not None:
            total = added_mask(padding, q, hides=True).reshape(-1, 1, 1, padding.shape[-1])
        if mask is not None:
            part = added_mask(mask, q, hides=True)
            part = part if mask.ndim == 2 else part.reshape(N, H, L, mask.shape[-1])
            total = part if total is None else total + part
        return F.pad(total, (0, added)) if total is not None and added else total

    def _check(self, query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None) -> None:
        """`ShapeError` if the shapes do not fit each other or the layer."""
        for name, x in (("query", query), ("key", key), ("value", value)):
            if not isinstance(x, Tensor):
                raise TypeError(f"MultiheadAttention: {name} is a {type(x).__name__}, a Tensor is needed")
        shapes = f"(query {query.shape}, key {key.shape}, value {value.shape})"
        batch, length = (0, 1) if self.batch_first else (1, 0)
        if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
            raise ShapeError(f"MultiheadAttention: all of 3 axes, or of 2 without a batch, are needed  {shapes}")
        features = query.shape[-1], key.shape[-1], value.shape[-1]
        if features != (self.embed_dim, self.kdim, self.vdim):
            raise ShapeError(
                f"MultiheadAttention: {self.embed_dim}, {self.kdim} and {self.vdim} features are needed  {shapes}"
            )
        one = query.ndim == 2
        N = 1 if one else query.shape[batch]
        L, S = (x.shape[0 if one else length] for x in (query, key))
        if key.shape[:-1] != value.shape[:-1] or (not one and key.shape[batch] != N):
            raise ShapeError(f"MultiheadAttention: lengths or batches differ  {shapes}")
        if padding is not None and padding.shape != ((S,) if one else (N, S)):
            raise ShapeError(f"MultiheadAttention: key_padding_mask {padding.shape} does not fit  {shapes}")
        if mask is not None and mask.shape not in ((L, S), (N * self.num_heads, L, S)):
            raise ShapeError(
                f"MultiheadAttention: attn_mask {mask.shape} is neither {(L, S)} nor {(N * self.num_heads, L, S)}"
            )

    def extra_repr(self) -> str:
        own = {"dropout": 0.0, "add_zero_attn": False, "batch_first": False}
        changed = [f"{name}={getattr(self, name)}" for name, usual in own.items() if getattr(self, name) != usual]
        changed += [f"{name}={n}" for name in ("kdim", "vdim") if (n := getattr(self, name)) != self.embed_dim]
        changed += ["bias=False"] if self.in_proj_bias is None else []
        changed += ["add_bias_kv=True"] if self.bias_k is not None else []
        return ", ".join([f"{self.embed_dim}, {self.num_heads}", *changed])
