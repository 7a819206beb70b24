"""Attention with several heads, under PyTorch's name, arguments and names of parameters."""

from __future__ import annotations

from alpha.core.tensor import Tensor
from alpha.module.module import Module, Parameter
from alpha.nn import init
from alpha.nn.layers import Linear
from alpha.ops.kernel.options import integer
from alpha.ops.noise.dropout import check_probability
from alpha.ops.sequence.attention import Heads, attend, shown

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
        separate = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        heads = Heads(
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight if self.in_proj_weight is not None else separate,
            self.in_proj_bias,
            (self.bias_k, self.bias_v),
            self.add_zero_attn,
            self.dropout if self.training else 0.0,
            self.batch_first,
        )
        made, weights = attend("MultiheadAttention", heads, (query, key, value), key_padding_mask, attn_mask, is_causal)
        return shown(self.out_proj(made), weights, query.ndim == 2, need_weights, average_attn_weights)

    def extra_repr(self) -> str:
        own = {"dropout": 0.0, "add_zero_attn": False, "batch_first": False}
        changed = [f"{name}={getattr(self, name)}" for name, usual in own.items() if getattr(self, name) != usual]
        changed += [f"{name}={n}" for name in ("kdim", "vdim") if (n := getattr(self, name)) != self.embed_dim]
        changed += ["bias=False"] if self.in_proj_bias is None else []
        changed += ["add_bias_kv=True"] if self.bias_k is not None else []
        return ", ".join([f"{self.embed_dim}, {self.num_heads}", *changed])
