"""Linear, bilinear, embedding, dropout and flattening layers under PyTorch's names; images are NHWC.

Convolutions are in `convolution.py`, pools in `pooling.py`, normalisations in `normalization.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from alpha.core import rng
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Module, Parameter
from alpha.nn import functional as F
from alpha.nn import init
from alpha.nn.init import reset_table, reset_uniform
from alpha.ops.array.axes import lengths_of
from alpha.ops.kernel.function_layer import FunctionLayer, function_layer
from alpha.ops.kernel.options import integer, only_offered, real
from alpha.ops.matmul.embedding import padding_row
from alpha.ops.matmul.embedding_bag import check_mode
from alpha.ops.noise.dropout import probability

__all__ = ["Bilinear", "Dropout", "Embedding", "EmbeddingBag", "Flatten", "Identity", "Linear", "Unflatten"]


class Linear(Module):
    """Y = X W^T + b   (..., in_features) -> (..., out_features)

    Attributes:
        weight: (out_features, in_features), kaiming uniform.
        bias: (out_features,) or None.

    Examples:
        >>> import alpha
        >>> layer = alpha.nn.Linear(4, 2)
        >>> layer(alpha.ones(3, 4)).shape, layer.weight.shape
        ((3, 2), (2, 4))
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.in_features = integer("Linear", "in_features", in_features, least=1)
        self.out_features = integer("Linear", "out_features", out_features, least=1)
        self.weight = Parameter(init.kaiming_uniform((self.out_features, self.in_features)))
        self.register_parameter(
            "bias", Parameter(init.bias_uniform((self.out_features,), self.in_features)) if bias else None
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def reset_parameters(self) -> None:
        """Draw the parameters anew, in place."""
        reset_uniform(self.in_features, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """y_o = x1^T W_o x2 + b_o   (..., in1_features), (..., in2_features) -> (..., out_features)

    Attributes:
        weight: (out_features, in1_features, in2_features), uniform within 1 / sqrt(in1_features).
        bias: (out_features,) or None.
    """

    bias: Parameter | None

    def __init__(self, in1_features: int, in2_features: int, out_features: int, bias: bool = True) -> None:
        self.in1_features = integer("Bilinear", "in1_features", in1_features, least=1)
        self.in2_features = integer("Bilinear", "in2_features", in2_features, least=1)
        self.out_features = integer("Bilinear", "out_features", out_features, least=1)
        shape = (self.out_features, self.in1_features, self.in2_features)
        self.weight = Parameter(init.bias_uniform(shape, self.in1_features))
        drawn = Parameter(init.bias_uniform((self.out_features,), self.in1_features)) if bias else None
        self.register_parameter("bias", drawn)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def reset_parameters(self) -> None:
        """Draw the parameters anew, in place."""
        reset_uniform(self.in1_features, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in1_features}, {self.in2_features}, {self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """Rows of a table, one for each word or class   (...) of int64 or int32 -> (..., embedding_dim)

    Args:
        padding_idx: a row that is 0 at first and whose gradient is 0.
        max_norm, norm_type: as of `embedding`.
        scale_grad_by_freq, sparse: only False is offered.
        _weight, _freeze: only None and False are offered; a table of one's own comes with `from_pretrained`.

    Attributes:
        weight: (num_embeddings, embedding_dim), N(0, 1).

    Examples:
        >>> import alpha
        >>> alpha.nn.Embedding(100, 8)(alpha.tensor([[1, 2, 3]])).shape
        (1, 3, 8)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: None = None,
        _freeze: bool = False,
    ) -> None:
        only_offered("Embedding", scale_grad_by_freq=(scale_grad_by_freq, False), sparse=(sparse, False))
        only_offered("Embedding", _weight=(_weight, None), _freeze=(_freeze, False))
        self.num_embeddings = integer("Embedding", "num_embeddings", num_embeddings, least=1)
        self.embedding_dim = integer("Embedding", "embedding_dim", embedding_dim, least=1)
        self.padding_idx = padding_idx
        self.max_norm = None if max_norm is None else real("Embedding", "max_norm", max_norm)
        self.norm_type = real("Embedding", "norm_type", norm_type)
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        values = rng.normal((self.num_embeddings, self.embedding_dim), 0.0, 1.0)
        if padding_idx is not None:
            self.padding_idx = padding_row("Embedding", padding_idx, self.num_embeddings)
            values[self.padding_idx] = 0
        self.weight = Parameter(values)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """An embedding with the given table (R, C), which is not trained if `freeze`."""
        if embeddings.ndim != 2:
            raise ShapeError(f"Embedding: embeddings (R, C) are needed  (embeddings {embeddings.shape})")
        rows, features = embeddings.shape
        made = cls(rows, features, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        made.weight = Parameter(embeddings, requires_grad=not freeze)
        return made

    def forward(self, x: Tensor) -> Tensor:
        options = self.scale_grad_by_freq, self.sparse
        return F.embedding(x, self.weight, self.padding_idx, self.max_norm, self.norm_type, *options)

    def reset_parameters(self) -> None:
        """Draw the parameters anew, in place."""
        reset_table(self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        norm = "" if self.max_norm is None else f", max_norm={self.max_norm}, norm_type={self.norm_type}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}{norm}"


@function_layer(F.dropout, p=probability)
class Dropout(FunctionLayer):
    """Zero each element with probability p in training, scale the rest by 1 / (1 - p).

    Args:
        p: in [0, 1].
        inplace: write the result into x.

    Examples:
        >>> import alpha
        >>> layer = alpha.nn.Dropout(0.5).eval()
        >>> layer(alpha.ones(3)).tolist()
        [1.0, 1.0, 1.0]
    """

    p: float = 0.5
    inplace: bool = False

    def forward(self, x: Tensor, activation: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """`activation`: see `F.dropout`."""
        return F.dropout(x, self.p, self.training, self.inplace, activation=activation)


@function_layer(F.flatten)
class Flatten(FunctionLayer):
    """(D0, .., Dk) -> the same with the axes from start_dim to end_dim as one

    Examples:
        >>> import alpha
        >>> alpha.nn.Flatten()(alpha.ones(8, 4, 4, 16)).shape
        (8, 256)
    """

    start_dim: int = 1
    end_dim: int = -1


@function_layer(F.unflatten, unflattened_size=partial(lengths_of, least=-1))
class Unflatten(FunctionLayer):
    """One axis as several   (.., D, ..) -> (.., *unflattened_size, ..); one of the lengths may be -1"""

    dim: int
    unflattened_size: Sequence[int]

    def forward(self, x: Tensor) -> Tensor:
        return F.unflatten(x, self.dim, self.unflattened_size)


class Identity(Module):
    """Y = X, in place of a layer that a model leaves out   (...) -> the same

    It takes the arguments of any layer, and ignores them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        return x


class EmbeddingBag(Module):
    """The sum, mean or maximum of rows of a table, for each bag   (B, L), or (N,) and (B,), -> (B, embedding_dim)

    Args:
        max_norm, norm_type, mode, include_last_offset, padding_idx: as of `embedding_bag`; the row padding_idx is 0 at
            first.
        scale_grad_by_freq, sparse: only False is offered.
        _weight: only None is offered; a table of one's own comes with `from_pretrained`.

    Attributes:
        weight: (num_embeddings, embedding_dim), N(0, 1).
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> None:
        only_offered("EmbeddingBag", scale_grad_by_freq=(scale_grad_by_freq, False), sparse=(sparse, False))
        only_offered("EmbeddingBag", _weight=(_weight, None))
        self.num_embeddings = integer("EmbeddingBag", "num_embeddings", num_embeddings, least=1)
        self.embedding_dim = integer("EmbeddingBag", "embedding_dim", embedding_dim, least=1)
        self.max_norm = None if max_norm is None else real("EmbeddingBag", "max_norm", max_norm)
        self.norm_type = real("EmbeddingBag", "norm_type", norm_type)
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        check_mode("EmbeddingBag", mode)
        self.mode, self.include_last_offset, self.padding_idx = mode, bool(include_last_offset), padding_idx
        values = rng.normal((self.num_embeddings, self.embedding_dim), 0.0, 1.0)
        if padding_idx is not None:
            self.padding_idx = padding_row("EmbeddingBag", padding_idx, self.num_embeddings)
            values[self.padding_idx] = 0
        self.weight = Parameter(values)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """Bags of the rows of the given table (R, C), which is not trained if `freeze`."""
        if embeddings.ndim != 2:
            raise ShapeError(f"EmbeddingBag: embeddings (R, C) are needed  (embeddings {embeddings.shape})")
        rows, features = embeddings.shape
        made = cls(
            rows,
            features,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            include_last_offset=include_last_offset,
            padding_idx=padding_idx,
        )
        made.weight = Parameter(embeddings, requires_grad=not freeze)
        return made

    def forward(self, x: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            x,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )

    def reset_parameters(self) -> None:
        """Draw the parameters anew, in place."""
        reset_table(self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        norm = "" if self.max_norm is None else f", max_norm={self.max_norm}, norm_type={self.norm_type}"
        last = ", include_last_offset=True" if self.include_last_offset else ""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}{norm}{last}{padding}"
