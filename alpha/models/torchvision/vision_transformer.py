"""Vision transformers (Dosovitskiy et al. 2021): an image as a sequence of patches."""

from __future__ import annotations

from alpha import nn
from alpha.core import rng
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.models.torchvision.pretrained import Weights, with_weights
from alpha.ops.array.joining import cat

__all__ = ["VisionTransformer", "vit_b_16"]

EPS = 1e-6  # of the layer norms


def _mlp(hidden_dim: int, mlp_dim: int, dropout: float) -> nn.Sequential:
    """Two linear layers with GELU between them   (N, L, hidden_dim) -> the same"""
    first, second = nn.Linear(hidden_dim, mlp_dim), nn.Linear(mlp_dim, hidden_dim)
    return nn.Sequential(first, nn.GELU(), nn.Dropout(dropout), second, nn.Dropout(dropout))


class EncoderBlock(nn.Module):
    """Attention and two linear layers, each behind a norm and added to its input   (N, L, hidden_dim) -> the same"""

    def __init__(self, num_heads: int, hidden_dim: int, mlp_dim: int, dropout: float, attention_dropout: float) -> None:
        self.ln_1 = nn.LayerNorm(hidden_dim, EPS)
        self.self_attention = nn.MultiheadAttention(hidden_dim, num_heads, attention_dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = nn.LayerNorm(hidden_dim, EPS)
        self.mlp = _mlp(hidden_dim, mlp_dim, dropout)

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        x = x + self.dropout(self.self_attention(y, y, y, need_weights=False)[0])
        return x + self.mlp(self.ln_2(x))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """Places added to the patches, then blocks and a norm   (N, L, hidden_dim) -> the same"""

    def __init__(self, length: int, hidden_dim: int, dropout: float, blocks: list[EncoderBlock]) -> None:
        self.pos_embedding = nn.Parameter(rng.normal((1, length, hidden_dim), 0.0, 0.02))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleDict({f"encoder_layer_{i}": block for i, block in enumerate(blocks)})
        self.ln = nn.LayerNorm(hidden_dim, EPS)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(x + self.pos_embedding.astype(x.dtype))
        for block in self.layers.values():
            x = block(x)
        return self.ln(x)  # type: ignore[no-any-return]


class VisionTransformer(nn.Module):
    """A class token and the patches of an image through an encoder, and a linear layer for the token

    (N, image_size, image_size, 3) -> (N, num_classes)

    Args:
        image_size, patch_size: height and width of images and of patches; an image is a whole number of patches.
        num_layers: blocks of the encoder.
        hidden_dim: features of a patch; mlp_dim: those between the linear layers of a block.
        dropout, attention_dropout: probabilities behind each layer, and of the weights of the attention.
    """

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        num_classes: int = 1000,
    ) -> None:
        if image_size % patch_size:
            raise ValueError(f"VisionTransformer: image_size={image_size} is no multiple of patch_size={patch_size}")
        self.image_size, self.patch_size, self.hidden_dim = image_size, patch_size, hidden_dim
        self.conv_proj = nn.Conv2d(3, hidden_dim, patch_size, patch_size)
        self.class_token = nn.Parameter(nn.init.zeros((1, 1, hidden_dim)))
        blocks = [EncoderBlock(num_heads, hidden_dim, mlp_dim, dropout, attention_dropout) for _ in range(num_layers)]
        self.encoder = Encoder((image_size // patch_size) ** 2 + 1, hidden_dim, dropout, blocks)
        self.heads = nn.ModuleDict({"head": nn.Linear(hidden_dim, num_classes)})

    def forward(self, x: Tensor) -> Tensor:
        size = self.image_size
        if x.ndim != 4 or x.shape[1:] != (size, size, 3):
            raise ShapeError(f"VisionTransformer: x (N, {size}, {size}, 3) is needed  (x {x.shape})")
        patches = self.conv_proj(x).reshape(len(x), -1, self.hidden_dim)
        token = self.class_token.expand(len(x), 1, self.hidden_dim)
        y = self.encoder(cat([token.astype(patches.dtype), patches], 1))
        return self.heads["head"](y[:, 0])  # type: ignore[no-any-return]


def vit_b_16(
    num_classes: int = 1000, image_size: int = 224, dropout: float = 0.0, *, weights: Weights = None
) -> VisionTransformer:
    """ViT-B/16, 86,567,656 parameters   (N, image_size, image_size, 3) -> (N, num_classes)"""
    return with_weights(VisionTransformer(image_size, 16, 12, 12, 768, 3072, dropout, num_classes=num_classes), weights)
