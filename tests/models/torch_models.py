"""The networks of `alpha.models` in PyTorch's operators (NCHW), written from the names of their weights alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from alpha import nn

torch.set_num_threads(1)  # small networks: more threads only wait for each other


class Weights:
    """The weights of a model by name in PyTorch's layout, with layers that take theirs from a name."""

    def __init__(self, model: nn.Module) -> None:
        self.all = {}
        for name, value in model.state_dict().numpy().items():
            turned = np.moveaxis(value, -1, 1) if value.ndim == 4 else value
            self.all[name] = torch.tensor(turned.copy(), requires_grad="running" not in name)

    def has(self, name: str) -> bool:
        return f"{name}.weight" in self.all

    def layer(self, name: str) -> tuple[Any, Any]:
        return self.all[f"{name}.weight"], self.all.get(f"{name}.bias")

    def conv(self, x: Any, name: str, stride: int = 1, padding: int | None = None, groups: int = 1) -> Any:
        weight, bias = self.layer(name)
        return F.conv2d(x, weight, bias, stride, weight.shape[-1] // 2 if padding is None else padding, 1, groups)

    def norm(self, x: Any, name: str, eps: float = 1e-5) -> Any:
        return F.batch_norm(x, None, None, *self.layer(name), training=True, eps=eps)

    def linear(self, x: Any, name: str) -> Any:
        return F.linear(x, *self.layer(name))


def images(values: Any) -> Any:
    """(N, H, W, C) -> (N, C, H, W)"""
    return torch.from_numpy(values).permute(0, 3, 1, 2)


def mean(x: Any) -> Any:
    return x.mean(dim=(2, 3))


def resnet(w: Weights, x: Any, groups: int = 1) -> Any:
    x = F.max_pool2d(w.norm(w.conv(x, "conv1", 2), "bn1").relu(), 3, 2, 1)
    for stage in range(1, 5):
        block = 0
        while w.has(name := f"layer{stage}.{block}.conv1"):
            name = name.removesuffix(".conv1")
            stride = 2 if stage > 1 and block == 0 else 1
            three = w.has(f"{name}.conv3")
            y = w.norm(w.conv(x, f"{name}.conv1", 1 if three else stride), f"{name}.bn1").relu()
            y = w.norm(w.conv(y, f"{name}.conv2", stride if three else 1, groups=groups), f"{name}.bn2")
            if three:
                y = w.norm(w.conv(y.relu(), f"{name}.conv3"), f"{name}.bn3")
            if w.has(f"{name}.se.fc1"):
                scale = w.conv(w.conv(mean(y)[:, :, None, None], f"{name}.se.fc1").relu(), f"{name}.se.fc2")
                y = y * scale.sigmoid()
            if w.has(f"{name}.downsample.0"):
                x = w.norm(w.conv(x, f"{name}.downsample.0", stride), f"{name}.downsample.1")
            x, block = (x + y).relu(), block + 1
    return w.linear(mean(x), "fc")


def densenet(w: Weights, x: Any) -> Any:
    x = F.max_pool2d(w.norm(w.conv(x, "features.conv0", 2), "features.norm0").relu(), 3, 2, 1)
    block = 1
    while w.has(f"features.denseblock{block}.denselayer1.conv1"):
        layer = 1
        while w.has(f"{(name := f'features.denseblock{block}.denselayer{layer}')}.conv1"):
            y = w.conv(w.norm(x, f"{name}.norm1").relu(), f"{name}.conv1")
            x = torch.cat([x, w.conv(w.norm(y, f"{name}.norm2").relu(), f"{name}.conv2")], 1)
            layer += 1
        if w.has(f"{(name := f'features.transition{block}')}.conv"):
            x = F.avg_pool2d(w.conv(w.norm(x, f"{name}.norm").relu(), f"{name}.conv"), 2)
        block += 1
    return w.linear(mean(w.norm(x, "features.norm5").relu()), "classifier")


def mobilenet(w: Weights, x: Any) -> Any:
    def conv_bn(x: Any, name: str, stride: int = 1, groups: int = 1) -> Any:
        return F.relu6(w.norm(w.conv(x, f"{name}.0", stride, groups=groups), f"{name}.1"))

    strides = [1, 2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1]
    x = conv_bn(x, "features.0", 2)
    for index, stride in enumerate(strides, 1):
        y, part = x, 0
        name = f"features.{index}.conv"
        if w.has(f"{name}.1.0"):
            y, part = conv_bn(y, f"{name}.0"), 1
        y = conv_bn(y, f"{name}.{part}", stride, groups=y.shape[1])
        y = w.norm(w.conv(y, f"{name}.{part + 1}"), f"{name}.{part + 2}")
        x = x + y if x.shape == y.shape else y
    return w.linear(mean(conv_bn(x, "features.18")), "classifier.1")


def googlenet(w: Weights, x: Any) -> Any:
    def conv(x: Any, name: str, stride: int = 1) -> Any:
        return w.norm(w.conv(x, f"{name}.conv", stride), f"{name}.bn", 1e-3).relu()

    x = F.max_pool2d(conv(x, "conv1", 2), 3, 2, ceil_mode=True)
    x = F.max_pool2d(conv(conv(x, "conv2"), "conv3"), 3, 2, ceil_mode=True)
    for name in ("3a", "3b", "pool", "4a", "4b", "4c", "4d", "4e", "pool", "5a", "5b"):
        if name == "pool":
            x = F.max_pool2d(x, *((3, 2) if x.shape[1] == 480 else (2, 2)), ceil_mode=True)
            continue
        name = f"inception{name}.branch"
        pooled = conv(F.max_pool2d(x, 3, 1, 1), f"{name}4.1")
        second, third = (conv(conv(x, f"{name}{branch}.0"), f"{name}{branch}.1") for branch in (2, 3))
        x = torch.cat([conv(x, f"{name}1"), second, third, pooled], 1)
    return w.linear(mean(x), "fc")


def unet(w: Weights, x: Any) -> Any:
    def double(x: Any, name: str) -> Any:
        x = w.norm(w.conv(x, f"{name}.0"), f"{name}.1").relu()
        return w.norm(w.conv(x, f"{name}.3"), f"{name}.4").relu()

    maps = [double(x, "down.0")]
    for level in range(1, 5):
        maps.append(double(F.max_pool2d(maps[-1], 2), f"down.{level}"))
    x = maps.pop()
    for level in range(4):
        x = F.conv_transpose2d(x, *w.layer(f"up.{level}"), stride=2)
        x = double(torch.cat([maps.pop(), x], 1), f"merge.{level}")
    return w.conv(x, "head")


def convnext(w: Weights, x: Any) -> Any:
    def norm(x: Any, name: str) -> Any:
        return F.layer_norm(x.permute(0, 2, 3, 1), x.shape[1:2], *w.layer(name), 1e-6).permute(0, 3, 1, 2)

    x = norm(w.conv(x, "features.0.0", w.all["features.0.0.weight"].shape[-1], 0), "features.0.1")
    stage = 1
    while w.has(f"features.{stage}.0") or w.has(f"features.{stage}.0.block.0"):
        if stage % 2 == 0:
            x = w.conv(norm(x, f"features.{stage}.0"), f"features.{stage}.1", 2, 0)
        block = 0
        while w.has(f"{(name := f'features.{stage}.{block}')}.block.0"):
            y = norm(w.conv(x, f"{name}.block.0", groups=x.shape[1]), f"{name}.block.2").permute(0, 2, 3, 1)
            y = w.linear(F.gelu(w.linear(y, f"{name}.block.3")), f"{name}.block.5").permute(0, 3, 1, 2)
            x = x + w.all[f"{name}.layer_scale"] * y
            block += 1
        stage += 1
    x = norm(x.mean(dim=(2, 3), keepdim=True), "classifier.0").flatten(1)
    return w.linear(x, "classifier.2")


def vit(w: Weights, x: Any, heads: int) -> Any:
    def norm(x: Any, name: str) -> Any:
        return F.layer_norm(x, x.shape[-1:], *w.layer(name), 1e-6)

    x = w.conv(x, "conv_proj", 16, 0).flatten(2).transpose(1, 2)
    x = torch.cat([w.all["class_token"].expand(len(x), -1, -1), x], 1) + w.all["encoder.pos_embedding"]
    block = 0
    while w.has(f"{(name := f'encoder.layers.encoder_layer_{block}')}.ln_1"):
        y = norm(x, f"{name}.ln_1")
        y = F.linear(y, w.all[f"{name}.self_attention.in_proj_weight"], w.all[f"{name}.self_attention.in_proj_bias"])
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in y.chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + w.linear(y, f"{name}.self_attention.out_proj")
        x = x + w.linear(F.gelu(w.linear(norm(x, f"{name}.ln_2"), f"{name}.mlp.0")), f"{name}.mlp.3")
        block += 1
    return w.linear(norm(x, "encoder.ln")[:, 0], "heads.head")
