"""Networks of alpha.models beside the paper's, written for PyTorch with the same names of their weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from alpha.models.torchvision import mobilenet

ConvNeXtNorm = partial(nn.LayerNorm, eps=1e-6)


def conv_bn(in_channels: int, channels: int, kernel_size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution, BN and ReLU6, of MobileNetV2."""
    conv = nn.Conv2d(in_channels, channels, kernel_size, stride, kernel_size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(channels), nn.ReLU6(inplace=True))


class InvertedResidual(nn.Module):
    """alpha.models.torchvision.mobilenet.InvertedResidual."""

    def __init__(self, in_channels: int, channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = in_channels * expansion
        self.use_res_connect = stride == 1 and in_channels == channels
        first = [conv_bn(in_channels, width, 1)] if expansion != 1 else []
        last = nn.Conv2d(width, channels, 1, bias=False), nn.BatchNorm2d(channels)
        self.conv = nn.Sequential(*first, conv_bn(width, width, 3, stride, width), *last)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)  # type: ignore[no-any-return]


class MobileNetV2(nn.Module):
    """alpha.models.torchvision.MobileNetV2 of width 1."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        blocks: list[nn.Module] = [conv_bn(3, 32, 3, 2)]
        channels = 32
        for expansion, width, count, first_stride in mobilenet.STAGES:
            for block in range(count):
                blocks.append(InvertedResidual(channels, width, 1 if block else first_stride, expansion))
                channels = width
        self.features = nn.Sequential(*blocks, conv_bn(channels, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))  # type: ignore[no-any-return]


class BasicConv2d(nn.Module):
    """alpha.models.torchvision.googlenet.BasicConv2d."""

    def __init__(self, in_channels: int, channels: int, kernel_size: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, channels, kernel_size, stride, kernel_size // 2, bias=False)
        self.bn = nn.BatchNorm2d(channels, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)), inplace=True)


class Inception(nn.Module):
    """alpha.models.torchvision.googlenet.Inception; `branches`: its numbers of channels after in_channels."""

    def __init__(self, in_channels: int, *branches: Any) -> None:
        super().__init__()
        first, second, third, pooled = branches
        self.branch1 = BasicConv2d(in_channels, first, 1)
        self.branch2 = nn.Sequential(BasicConv2d(in_channels, second[0], 1), BasicConv2d(*second, 3))
        self.branch3 = nn.Sequential(BasicConv2d(in_channels, third[0], 1), BasicConv2d(*third, 3))
        self.branch4 = nn.Sequential(
            nn.MaxPool2d(3, stride=1, padding=1, ceil_mode=True), BasicConv2d(in_channels, pooled, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class GoogLeNet(nn.Module):
    """alpha.models.torchvision.GoogLeNet without the classifiers for training."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv1 = BasicConv2d(3, 64, 7, 2)
        self.conv2 = BasicConv2d(64, 64, 1)
        self.conv3 = BasicConv2d(64, 192, 3)
        self.inception3a = Inception(192, 64, (96, 128), (16, 32), 32)
        self.inception3b = Inception(256, 128, (128, 192), (32, 96), 64)
        self.inception4a = Inception(480, 192, (96, 208), (16, 48), 64)
        self.inception4b = Inception(512, 160, (112, 224), (24, 64), 64)
        self.inception4c = Inception(512, 128, (128, 256), (24, 64), 64)
        self.inception4d = Inception(512, 112, (144, 288), (32, 64), 64)
        self.inception4e = Inception(528, 256, (160, 320), (32, 128), 128)
        self.inception5a = Inception(832, 256, (160, 320), (32, 128), 128)
        self.inception5b = Inception(832, 384, (192, 384), (48, 128), 128)
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(1024, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        def pool(x: Tensor, size: int = 3) -> Tensor:
            return F.max_pool2d(x, size, 2, ceil_mode=True)

        x = pool(self.conv3(self.conv2(pool(self.conv1(x)))))
        x = self.inception4a(pool(self.inception3b(self.inception3a(x))))
        x = self.inception4e(self.inception4d(self.inception4c(self.inception4b(x))))
        x = self.inception5b(self.inception5a(pool(x, 2)))
        return self.fc(self.dropout(x.mean((2, 3))))  # type: ignore[no-any-return]


class ChannelNorm(nn.LayerNorm):
    """A layer norm over the channels of (N, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class DropPath(nn.Module):
    """alpha.nn.DropPath: in training zeros for some images, the others divided by 1 - drop_prob."""

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.drop_prob == 0:
            return x
        kept = torch.empty((len(x), 1, 1, 1), dtype=x.dtype, device=x.device).bernoulli_(1 - self.drop_prob)
        return x * kept / (1 - self.drop_prob)


class CNBlock(nn.Module):
    """alpha.models.torchvision.convnext.CNBlock."""

    def __init__(self, channels: int, drop_probability: float) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(channels, channels, 7, padding=3, groups=channels),
            nn.Identity(),
            ConvNeXtNorm(channels),
            nn.Linear(channels, 4 * channels),
            nn.GELU(),
            nn.Linear(4 * channels, channels),
        )
        self.layer_scale = nn.Parameter(torch.full((channels, 1, 1), 1e-6))
        self.stochastic_depth = DropPath(drop_probability)

    def forward(self, x: Tensor) -> Tensor:
        y = self.block[1:](self.block[0](x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x + self.stochastic_depth(y * self.layer_scale)  # type: ignore[no-any-return]


class ConvNeXt(nn.Module):
    """alpha.models.torchvision.convnext_tiny."""

    def __init__(self, num_classes: int, stem_size: int) -> None:
        super().__init__()
        channels, blocks = (96, 192, 384, 768), (3, 3, 9, 3)
        stages: list[nn.Module] = [nn.Sequential(nn.Conv2d(3, 96, stem_size, stem_size), ChannelNorm(96, 1e-6))]
        before = 0
        for stage, (width, count) in enumerate(zip(channels, blocks, strict=True)):
            if stage:
                last = channels[stage - 1]
                stages.append(nn.Sequential(ChannelNorm(last, 1e-6), nn.Conv2d(last, width, 2, 2)))
            step = 0.1 / (sum(blocks) - 1)
            stages.append(nn.Sequential(*(CNBlock(width, step * (before + i)) for i in range(count))))
            before += count
        self.features = nn.Sequential(*stages)
        self.classifier = nn.Sequential(ConvNeXtNorm(768), nn.Flatten(), nn.Linear(768, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))  # type: ignore[no-any-return]


class EncoderBlock(nn.Module):
    """alpha.models.torchvision.vision_transformer.EncoderBlock without dropout."""

    def __init__(self, num_heads: int, hidden_dim: int, mlp_dim: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden_dim, 1e-6), nn.LayerNorm(hidden_dim, 1e-6)
        self.self_attention = nn.MultiheadAttention(hidden_dim, num_heads, batch_first=True)
        first, second = nn.Linear(hidden_dim, mlp_dim), nn.Linear(mlp_dim, hidden_dim)
        self.mlp = nn.Sequential(first, nn.GELU(), nn.Identity(), second)

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        x = x + self.self_attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """alpha.models.torchvision.vision_transformer.Encoder."""

    def __init__(self, length: int, hidden_dim: int) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, length, hidden_dim))
        self.layers = nn.ModuleDict({f"encoder_layer_{i}": EncoderBlock(3, hidden_dim, 768) for i in range(12)})
        self.ln = nn.LayerNorm(hidden_dim, 1e-6)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.pos_embedding
        for block in self.layers.values():
            x = block(x)
        return self.ln(x)  # type: ignore[no-any-return]


class VisionTransformer(nn.Module):
    """alpha.models.vit_tiny."""

    def __init__(self, num_classes: int, image_size: int, patch_size: int) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, 192, patch_size, patch_size)
        self.class_token = nn.Parameter(torch.empty(1, 1, 192))
        self.encoder = Encoder((image_size // patch_size) ** 2 + 1, 192)
        self.heads = nn.ModuleDict({"head": nn.Linear(192, num_classes)})

    def forward(self, x: Tensor) -> Tensor:
        patches = self.conv_proj(x).flatten(2).transpose(1, 2)
        token = self.class_token.expand(len(x), 1, 192).to(patches.dtype)
        return self.heads["head"](self.encoder(torch.cat([token, patches], 1))[:, 0])  # type: ignore[no-any-return]
