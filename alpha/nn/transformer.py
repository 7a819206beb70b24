"""Attention with several heads and transformers (Vaswani et al. 2017) under PyTorch's names and arguments."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, ClassVar

from alpha.core import rng
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Module, Parameter
from alpha.nn import functional as F
from alpha.nn import init
from alpha.nn.containers import ModuleList
from alpha.nn.layers import Dropout, Linear
from alpha.nn.normalization import LayerNorm
from alpha.ops.array.creation import full
from alpha.ops.kernel.options import integer, real
from alpha.ops.noise.dropout import check_probability
from alpha.ops.sequence.multi_head_attention import Heads, attend, shown

__all__ = [
    "MultiheadAttention",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]


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

    Examples:
        >>> import alpha
        >>> attention = alpha.nn.MultiheadAttention(8, 2, batch_first=True)
        >>> x = alpha.rand(2, 5, 8)
        >>> attention(x, x, x)[0].shape
        (2, 5, 8)
    """

    _uncalled = ("_apply", "_reset_parameters")

    in_proj_weight: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

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
        for part in ("in", "q", "k", "v"):
            self.register_parameter(f"{part}_proj_weight", weights.get(part))
        self.register_parameter("in_proj_bias", Parameter(init.zeros((3 * E,))) if bias else None)
        self.out_proj = Linear(E, E, bias=bias)
        if self.out_proj.bias is not None:
            self.out_proj.bias = Parameter(init.zeros((E,)))
        for name in ("bias_k", "bias_v"):  # with fans of E, as PyTorch counts those of (1, 1, E)
            drawn = Parameter(rng.normal((1, 1, E), 0.0, 1 / math.sqrt(E))) if add_bias_kv else None
            self.register_parameter(name, drawn)

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


Activation = str | Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class _Layer(Module):
    """Base of the layers of encoder and decoder: attention to itself, and two linear layers with an activation."""

    _uncalled = ("_apply", "_sa_block", "_mha_block", "_ff_block")
    looks_up: ClassVar[bool] = False  # whether it also pays attention to the encoder's result

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
    ) -> None:
        name = type(self).__name__
        d_model = integer(name, "d_model", d_model, least=1)
        nhead = integer(name, "nhead", nhead, least=1)
        dim_feedforward = integer(name, "dim_feedforward", dim_feedforward, least=1)
        layer_norm_eps = real(name, "layer_norm_eps", layer_norm_eps)
        if isinstance(activation, str) and activation not in ACTIVATIONS:
            raise ValueError(f"{name}: activation={activation!r} is neither 'relu', 'gelu' nor a function")
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first)
        if self.looks_up:  # here, since the order of the parameters is PyTorch's
            self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first)
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = ACTIVATIONS[activation] if isinstance(activation, str) else activation

    def _attend(self, x: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool) -> Tensor:
        """Attention of x to itself, with dropout."""
        options = {"attn_mask": mask, "key_padding_mask": padding, "is_causal": is_causal}
        return self.dropout1(self.self_attn(x, x, x, need_weights=False, **options)[0])  # type: ignore[no-any-return]

    def _feed_forward(self, x: Tensor) -> Tensor:
        """Both linear layers of each element, with the activation and dropout between them."""
        return self.linear2(self.dropout(self.activation(self.linear1(x))))  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        name = "" if isinstance(self.activation, Module) else f"activation={self.activation.__name__}, "
        return f"{name}norm_first={self.norm_first}"


class TransformerEncoderLayer(_Layer):
    """Attention of a sequence to itself, and two linear layers

    src (S, N, d_model) -> the same; N first if batch_first

    Args:
        nhead: heads of the attention.
        dim_feedforward: features between the two linear layers.
        dropout: its probability in the attention, between the linear layers and behind both.
        activation: "relu", "gelu" or a function of a tensor.
        layer_norm_eps: the eps of the layer norms.
        norm_first: normalise before attention and linear layers, not behind them.
        bias: whether linear layers and norms have one.
    """

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """The sequence of the same shape; the masks are those of `MultiheadAttention`."""
        given = src_mask, src_key_padding_mask, is_causal
        x = src
        if self.norm_first:
            x = x + self._attend(self.norm1(x), *given)
            return x + self.dropout2(self._feed_forward(self.norm2(x)))  # type: ignore[no-any-return]
        x = self.norm1(x + self._attend(x, *given))
        return self.norm2(x + self.dropout2(self._feed_forward(x)))  # type: ignore[no-any-return]


class TransformerDecoderLayer(_Layer):
    """Attention of a sequence to itself, then to the encoder's result, and two linear layers

    tgt (T, N, d_model), memory (S, N, d_model) -> (T, N, d_model); N first if batch_first

    Args:
        nhead, dim_feedforward, ..: as of `TransformerEncoderLayer`.
    """

    looks_up = True

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__(
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias
        )
        self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.dropout3 = Dropout(dropout)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The sequence of the same shape as tgt; the masks are those of `MultiheadAttention`."""
        own = tgt_mask, tgt_key_padding_mask, tgt_is_causal
        others = memory, memory_mask, memory_key_padding_mask, memory_is_causal
        x = tgt
        if self.norm_first:
            x = x + self._attend(self.norm1(x), *own)
            x = x + self._look_up(self.norm2(x), *others)
            return x + self.dropout3(self._feed_forward(self.norm3(x)))  # type: ignore[no-any-return]
        x = self.norm1(x + self._attend(x, *own))
        x = self.norm2(x + self._look_up(x, *others))
        return self.norm3(x + self.dropout3(self._feed_forward(x)))  # type: ignore[no-any-return]

    def _look_up(
        self, x: Tensor, memory: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool
    ) -> Tensor:
        """Attention of x to the encoder's result, with dropout."""
        options = {"attn_mask": mask, "key_padding_mask": padding, "is_causal": is_causal}
        found = self.multihead_attn(x, memory, memory, need_weights=False, **options)[0]
        return self.dropout2(found)  # type: ignore[no-any-return]


class TransformerEncoder(Module):
    """num_layers copies of a layer, one after the other, and a last norm   src (S, N, d_model) -> the same

    Args:
        enable_nested_tensor, mask_check: have no effect, because there are no nested tensors.
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        self.num_layers = integer("TransformerEncoder", "num_layers", num_layers, least=1)
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(self.num_layers))
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """The sequence of the same shape; the masks are those of `MultiheadAttention`."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """num_layers copies of a layer, one after the other, and a last norm

    tgt (T, N, d_model), memory (S, N, d_model) -> (T, N, d_model)
    """

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None) -> None:
        self.num_layers = integer("TransformerDecoder", "num_layers", num_layers, least=1)
        self.layers = ModuleList(copy.deepcopy(decoder_layer) for _ in range(self.num_layers))
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The sequence of the same shape as tgt; the masks are those of `MultiheadAttention`."""
        masks = tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, bool(tgt_is_causal), memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder   src (S, N, d_model), tgt (T, N, d_model) -> (T, N, d_model); N first if batch_first

    Args:
        num_encoder_layers, num_decoder_layers: how many there are of each.
        custom_encoder, custom_decoder: modules in place of those that this one makes.
        nhead, dim_feedforward, ..: as of `TransformerEncoderLayer`. All weights of two axes are xavier uniform.
    """

    _uncalled = ("_apply", "_reset_parameters")

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: Any | None = None,
        custom_decoder: Any | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
    ) -> None:
        num_encoder_layers = integer("Transformer", "num_encoder_layers", num_encoder_layers, least=1)
        num_decoder_layers = integer("Transformer", "num_decoder_layers", num_decoder_layers, least=1)
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        norms = [LayerNorm(d_model, layer_norm_eps, bias=bias) for _ in range(2)]
        if custom_encoder is None:
            custom_encoder = TransformerEncoder(TransformerEncoderLayer(*options), num_encoder_layers, norms[0])
        if custom_decoder is None:
            custom_decoder = TransformerDecoder(TransformerDecoderLayer(*options), num_decoder_layers, norms[1])
        self.encoder, self.decoder = custom_encoder, custom_decoder
        for module in self.modules():
            for name, value in list(vars(module).items()):
                if isinstance(value, Parameter) and value.ndim > 1:
                    setattr(module, name, Parameter(init.xavier_uniform(value.shape)))

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The sequence of the same shape as tgt; the masks are those of `MultiheadAttention`."""
        for name, x in (("src", src), ("tgt", tgt)):
            if isinstance(x, Tensor) and x.shape[-1:] != (self.d_model,):
                raise ShapeError(f"Transformer: {name} {x.shape} needs d_model={self.d_model} features")
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)  # type: ignore[no-any-return]

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None) -> Tensor:
        """The causal mask of sz elements: 0 where a query may see a key, else -inf   -> (sz, sz)"""
        return full((sz, sz), -math.inf, device=device).triu(1)
