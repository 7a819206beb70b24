"""The layer that adds up, averages or takes the largest of rows of a table, bag by bag."""

from __future__ import annotations

from alpha.core import rng
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Module, Parameter
from alpha.nn import functional as F
from alpha.nn.resetting import reset_table
from alpha.ops.kernel.options import integer, only_offered, real
from alpha.ops.matmul.embedding import check_mode, padding_row

__all__ = ["EmbeddingBag"]


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
