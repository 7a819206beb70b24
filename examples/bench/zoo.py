"""The convolutions of well-known networks, as one forward pass meets them: `--cases zoo`, `depthwise`, `grouped`.

The networks are torchvision's on 224x224 images, and the U-Net of Ronneberger et al. (2015) with padding on 256x256.
Depthwise
and grouped convolutions are lists of their own. A transposed convolution is listed as the convolution whose input
gradient it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from alpha.ops.conv2d.shape import ConvShape, conv_shape

COLORS = 3  # channels of an image
IMAGE, BATCH, DEPTHWISE_BATCH = 224, 32, 64
UNET_IMAGE, UNET_BATCH = 256, 8

# pixels and channels, then the output channels of each convolution of an inception block: 1x1; 1x1 and 3x3; 1x1 and the
# paper's 5x5, which is 3x3 in torchvision; 1x1 after the pool
INCEPTION = (
    (28, 192, (64, 96, 128, 16, 32, 32)),
    (28, 256, (128, 128, 192, 32, 96, 64)),
    (14, 480, (192, 96, 208, 16, 48, 64)),
    (14, 512, (160, 112, 224, 24, 64, 64)),
    (14, 512, (128, 128, 256, 24, 64, 64)),
    (14, 512, (112, 144, 288, 32, 64, 64)),
    (14, 528, (256, 160, 320, 32, 128, 128)),
    (7, 832, (256, 160, 320, 32, 128, 128)),
    (7, 832, (384, 192, 384, 48, 128, 128)),
)
# expansion, channels, blocks, stride of the first block
INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def _conv(H: int, IC: int, OC: int, K: int = 3, S: int = 1, N: int = BATCH) -> ConvShape:
    """Square images of H pixels and filters of K, padding K // 2."""
    return conv_shape("zoo", (N, H, H, IC), (OC, K, K, IC), (S, S), (K // 2, K // 2))


def resnet50() -> Iterator[ConvShape]:
    yield _conv(IMAGE, COLORS, 64, 7, 2)
    IC, H = 64, 56
    for stage, blocks in enumerate((3, 4, 6, 3)):
        C = 64 << stage
        for block in range(blocks):
            S = 2 if stage and block == 0 else 1
            yield _conv(H, IC, C, 1)
            yield _conv(H, C, C, 3, S)
            yield _conv(H // S, C, 4 * C, 1)
            if block == 0:
                yield _conv(H, IC, 4 * C, 1, S)
            IC, H = 4 * C, H // S


def googlenet() -> Iterator[ConvShape]:
    yield _conv(IMAGE, COLORS, 64, 7, 2)
    yield _conv(56, 64, 64, 1)
    yield _conv(56, 64, 192)
    for H, IC, (one, reduced3, three, reduced5, five, pooled) in INCEPTION:
        yield _conv(H, IC, one, 1)
        yield _conv(H, IC, reduced3, 1)
        yield _conv(H, reduced3, three)
        yield _conv(H, IC, reduced5, 1)
        yield _conv(H, reduced5, five)
        yield _conv(H, IC, pooled, 1)


def mobilenet_v2() -> Iterator[ConvShape]:
    yield _conv(IMAGE, COLORS, 32, 3, 2)
    H, IC = 112, 32
    for expansion, OC, blocks, stride in INVERTED:
        for block in range(blocks):
            if expansion > 1:
                yield _conv(H, IC, expansion * IC, 1)
            H //= stride if block == 0 else 1  # by the depthwise convolution
            yield _conv(H, expansion * IC, OC, 1)
            IC = OC
    yield _conv(H, IC, 1280, 1)


def densenet121() -> Iterator[ConvShape]:
    yield _conv(IMAGE, COLORS, 64, 7, 2)
    H, C, growth = 56, 64, 32
    for stage, layers in enumerate((6, 12, 24, 16)):
        for _ in range(layers):
            yield _conv(H, C, 4 * growth, 1)
            yield _conv(H, 4 * growth, growth)
            C += growth
        if stage < 3:
            yield _conv(H, C, C // 2, 1)
            C, H = C // 2, H // 2


def vgg16() -> Iterator[ConvShape]:
    IC, H = COLORS, IMAGE
    for OC, layers in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(layers):
            yield _conv(H, IC, OC)
            IC = OC
        H //= 2


def unet() -> Iterator[ConvShape]:
    N, IC, H = UNET_BATCH, COLORS, UNET_IMAGE
    for level in range(5):
        OC = 64 << level
        yield _conv(H, IC, OC, N=N)
        yield _conv(H, OC, OC, N=N)
        IC, H = OC, H // 2
    H *= 2
    for level in reversed(range(4)):
        C = 64 << level
        H *= 2
        yield conv_shape("zoo", (N, H, H, C), (2 * C, 2, 2, C), (2, 2), (0, 0))  # transposed: 2 C channels -> C
        yield _conv(H, 2 * C, C, N=N)
        yield _conv(H, C, C, N=N)
    yield _conv(H, 64, 2, 1, N=N)


def _grouped(N: int, H: int, C: int, K: int, S: int, groups: int) -> ConvShape:
    """Shape of `_conv`, with as many output channels as input channels."""
    return conv_shape("zoo", (N, H, H, C), (C, K, K, C // groups), (S, S), (K // 2, K // 2), groups=groups)


def mobilenet_v2_depthwise() -> Iterator[ConvShape]:
    H, IC = 112, 32
    for expansion, OC, blocks, stride in INVERTED:
        for block in range(blocks):
            S = stride if block == 0 else 1
            yield _grouped(DEPTHWISE_BATCH, H, expansion * IC, 3, S, expansion * IC)
            H, IC = H // S, OC


def convnext_tiny_depthwise() -> Iterator[ConvShape]:
    for stage, blocks in enumerate((3, 3, 9, 3)):
        C = 96 << stage
        for _ in range(blocks):
            yield _grouped(DEPTHWISE_BATCH, 56 >> stage, C, 7, 1, C)


def resnext50_32x4d_grouped() -> Iterator[ConvShape]:
    H = 56
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            S = 2 if stage and block == 0 else 1
            yield _grouped(BATCH, H, 128 << stage, 3, S, 32)
            H //= S


NETWORKS = {f.__name__: f for f in (resnet50, googlenet, mobilenet_v2, densenet121, vgg16, unet)}
DEPTHWISE = {f.__name__: f for f in (mobilenet_v2_depthwise, convnext_tiny_depthwise)}
GROUPED = {f.__name__: f for f in (resnext50_32x4d_grouped,)}
