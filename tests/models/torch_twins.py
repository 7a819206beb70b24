"""The paper's networks written for PyTorch (NCHW), and Alpha's weights carried over."""

from __future__ import annotations

import sys
from pathlib import Path

import small_nets
import torch
from torch import nn
from torch.nn import functional as F

sys.path.append(str(Path(__file__).parents[2] / "examples"))

from compare.twins import VGG, ResNet, copy_weights

torch.set_num_threads(1)  # small networks: more threads only wait for each other


def twin(name: str) -> nn.Module:
    """PyTorch's form of `small_nets.build(name)`, with the same initial weights."""
    if name in small_nets.RESNET:
        target: nn.Module = ResNet(num_classes=small_nets.CLASSES, dropout=0.0, **small_nets.RESNET[name])
    else:
        target = VGG(dropout=0.0, **small_nets.VGGS[name], **small_nets.VGG_SHAPE)
    return copy_weights(small_nets.build(name), target)


def train(model: nn.Module) -> list[float]:
    """PyTorch's losses over what `small_nets.train` does."""
    optimizer = torch.optim.Adam(model.parameters(), lr=small_nets.LR)
    images, labels = (torch.from_numpy(values) for values in small_nets.batch())
    losses = []
    for _ in range(small_nets.STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images.permute(0, 3, 1, 2)), labels.long())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
