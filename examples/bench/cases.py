"""The convolutions to time: the paper's 32 cases, the layers of its networks or of the zoo, drawn or given ones."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import alpha
from alpha import models, nn
from alpha.ops.conv2d.shape import ConvShape, conv_shape
from bench import zoo
from bench.drawn import drawn

# H, C, N of the paper's figures: maps shrink while channels and batch grow
PAPER_SIZES = (
    (128, 64, 32),
    (96, 64, 64),
    (64, 128, 64),
    (48, 128, 128),
    (32, 256, 128),
    (16, 256, 256),
    (8, 512, 256),
    (4, 512, 512),
)
PAPER_FILTERS = (3, 5)
STRIDES = (1, 2)

NETWORKS = ("resnet18", "resnet34", "vgg16", "vgg19")
CIFAR = 32  # pixels
BATCHES = {CIFAR: 512, 128: 256}  # image size -> batch of the paper's training runs
CLASSES = {CIFAR: 10, 128: 1000}

PAPER, ZOO, DRAWN, DEPTHWISE, GROUPED = "paper", "zoo", "drawn", "depthwise", "grouped"
FEW_CHANNELS = 16  # a layer with fewer is judged apart


@dataclass(frozen=True)
class Case:
    """A convolution and where it comes from.

    Attributes:
        sources: "paper", "given", "zoo-unet", or "vgg16-32" for a layer of the paper's VGG16 on 32x32 images.
        first: it reads the images themselves, so that its dX is never computed.
    """

    shape: ConvShape
    sources: tuple[str, ...]
    first: bool = False

    @property
    def name(self) -> str:
        s = self.shape
        groups = f", {s.groups} groups" if s.groups > 1 else ""
        return f"{s.N}x{s.IH}x{s.IW}x{s.IC} -> {s.OC}, {s.FH}x{s.FW} / {s.sh}{groups}"

    @property
    def in_paper(self) -> bool:
        return PAPER in self.sources

    @property
    def in_cifar_network(self) -> bool:
        return any(source.endswith(f"-{CIFAR}") for source in self.sources)

    @property
    def has_few_channels(self) -> bool:
        return min(self.shape.IC, self.shape.OC) < FEW_CHANNELS


def square(H: int, IC: int, OC: int, N: int, K: int, S: int) -> ConvShape:
    """Square images and filters, padding K // 2."""
    return conv_shape("bench_conv", (N, H, H, IC), (OC, K, K, IC), (S, S), (K // 2, K // 2))


def paper_cases() -> Iterator[Case]:
    """The eight sizes by filter and stride."""
    for K in PAPER_FILTERS:
        for S in STRIDES:
            for H, C, N in PAPER_SIZES:
                yield Case(square(H, C, C, N, K, S), (PAPER,))


def network_cases() -> Iterator[Case]:
    """Every convolution of the paper's networks, as one forward pass meets them."""
    for size, batch in BATCHES.items():
        for network in NETWORKS:
            model = getattr(models, network)(num_classes=CLASSES[size], image_size=size)
            for index, shape in enumerate(convolutions(model, batch, size)):
                yield Case(shape, (f"{network}-{size}",), first=index == 0)


def zoo_cases() -> Iterator[Case]:
    """Every dense convolution of the networks in zoo.py."""
    for name, network in zoo.NETWORKS.items():
        for shape in network():
            yield Case(shape, (f"{ZOO}-{name}",), first=shape.IC == zoo.COLORS)


def depthwise_cases() -> Iterator[Case]:
    """Every depthwise convolution of MobileNetV2 and ConvNeXt-T."""
    for name, network in zoo.DEPTHWISE.items():
        for shape in network():
            yield Case(shape, (name,))


def grouped_cases() -> Iterator[Case]:
    """Every grouped convolution of ResNeXt50."""
    for name, network in zoo.GROUPED.items():
        for shape in network():
            yield Case(shape, (name,))


def drawn_cases() -> Iterator[Case]:
    """Every convolution of drawn.py."""
    for shape in drawn():
        yield Case(shape, (DRAWN,))


def convolutions(model: nn.Module, batch: int, image_size: int) -> list[ConvShape]:
    """The shapes of the convolutions of a network on (batch, image_size, image_size, 3)."""
    found: list[ConvShape] = []

    def note(layer: nn.Module, args: tuple[Any, ...]) -> None:
        assert isinstance(layer, nn.Conv2d)
        image = args[0].shape[1:]
        found.append(conv_shape("conv2d", (batch, *image), layer.weight.shape, layer.stride, layer.padding))

    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_pre_hook(note)
    model.eval()
    with alpha.no_grad():  # one image tells the shapes
        model(alpha.tensor(np.zeros((1, image_size, image_size, 3), np.float32)))
    return found


def distinct(cases: Iterable[Case]) -> list[Case]:
    """Each shape once, with all of its sources."""
    by_shape: dict[ConvShape, Case] = {}
    for case in cases:
        known = by_shape.get(case.shape)
        if known is not None:
            sources = tuple(dict.fromkeys(known.sources + case.sources))
            case = dataclasses.replace(known, sources=sources, first=known.first and case.first)
        by_shape[case.shape] = case
    return list(by_shape.values())


def parse_cases(text: str) -> list[Case]:
    """Cases by name: paper, networks, all (both), zoo, drawn, depthwise, grouped, or "H,IC,OC,N,K,S" of a shape."""
    lists = {
        PAPER: (paper_cases,),
        "networks": (network_cases,),
        "all": (paper_cases, network_cases),
        ZOO: (zoo_cases,),
        DRAWN: (drawn_cases,),
        DEPTHWISE: (depthwise_cases,),
        GROUPED: (grouped_cases,),
    }
    if text in lists:
        return [case for cases in lists[text] for case in cases()]
    try:
        H, IC, OC, N, K, S = (int(number) for number in text.split(","))
        return [Case(square(H, IC, OC, N, K, S), ("given",))]
    except ValueError as error:  # ShapeError is one, too
        raise argparse.ArgumentTypeError(
            f"{text!r} is not {', '.join(lists)} or a convolution H,IC,OC,N,K,S: {error}"
        ) from None
