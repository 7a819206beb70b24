"""ViT-Ti (Touvron et al. 2021), the smallest vision transformer; torchvision has none of its size."""

from __future__ import annotations

from alpha.models.torchvision.vision_transformer import VisionTransformer


def vit_tiny(
    num_classes: int = 1000, image_size: int = 224, patch_size: int = 16, dropout: float = 0.0
) -> VisionTransformer:
    """ViT-Ti, 5,717,416 parameters   (N, image_size, image_size, 3) -> (N, num_classes)

    Images of 32x32 with patches of 4 are sequences of 64 patches.
    """
    return VisionTransformer(image_size, patch_size, 12, 3, 192, 768, dropout, num_classes=num_classes)
