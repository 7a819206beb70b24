"""Cases of bench_conv.py: the layers of the paper, of a network, of the zoo, depthwise and grouped ones, drawn ones."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np

from alpha import models

Rooms = Callable[[str], ModuleType]


def test_the_paper_s_cases(room: Rooms) -> None:
    cases = room("cases")
    paper = cases.distinct(cases.parse_cases("paper"))
    assert len(paper) == 32
    assert paper[0].name == "32x128x128x64 -> 64, 3x3 / 1"
    assert paper[-1].name == "512x4x4x512 -> 512, 5x5 / 2"
    assert {case.shape.ph for case in paper if case.shape.FH == 5} == {2}


def test_the_layers_of_a_network(room: Rooms) -> None:
    cases = room("cases")
    layers = cases.convolutions(models.resnet18(), 512, 32)
    assert len(layers) == 20
    assert layers[0].X == (512, 32, 32, 3)
    assert layers[0].W == (64, 7, 7, 3)
    assert layers[-1].Y == (512, 2, 2, 512)
    found = cases.distinct(
        cases.Case(shape, (source,), first=index == 0)
        for source in ("resnet18-32", "other-128")
        for index, shape in enumerate(layers)
    )
    assert len(found) == 8
    assert [case.first for case in found] == [True] + 7 * [False]
    assert all(case.sources == ("resnet18-32", "other-128") for case in found)
    assert all(case.in_cifar_network and not case.in_paper for case in found)


# torchvision 0.28: how many convolutions that are not depthwise, and their weights; the U-Net has 31,031,810 parameters
# with its biases
ZOO = {
    "resnet50": (53, 23454912),
    "googlenet": (57, 5585344),
    "mobilenet_v2": (35, 2125536),
    "densenet121": (120, 6870208),
    "vgg16": (13, 14710464),
    "unet": (23, 31031810 - 6850),
}


def test_the_layers_of_the_zoo(room: Rooms) -> None:
    cases = room("cases")
    for name, (count, weights) in ZOO.items():
        shapes = list(room("zoo").NETWORKS[name]())
        assert (len(shapes), sum(np.prod(s.W) for s in shapes)) == (count, weights), name
    found = cases.distinct(cases.parse_cases("zoo"))
    assert len(found) == 176
    assert all(case.first == (case.shape.IC == 3) for case in found)
    few = [case for case in found if case.has_few_channels]
    assert {min(case.shape.IC, case.shape.OC) for case in few} == {2, 3}
    assert {case.shape.N for case in found if case.sources[0].startswith("zoo-")} == {32, 8}


# torchvision 0.28: how many depthwise or grouped convolutions, and their weights
GROUPED = {
    "mobilenet_v2_depthwise": (17, 64224),
    "convnext_tiny_depthwise": (18, 324576),
    "resnext50_32x4d_grouped": (16, 1414656),
}


def test_depthwise_and_grouped_layers(room: Rooms) -> None:
    zoo, cases = room("zoo"), room("cases")
    for name, network in {**zoo.DEPTHWISE, **zoo.GROUPED}.items():
        shapes = list(network())
        assert (len(shapes), sum(np.prod(s.W) for s in shapes)) == GROUPED[name], name
    found = [cases.distinct(cases.parse_cases(name)) for name in ("depthwise", "grouped")]
    assert [len(group) for group in found] == [14, 7]
    assert all(case.shape.groups == case.shape.IC and case.shape.N == 64 for case in found[0])
    assert all(case.shape.groups == 32 and case.shape.N == 32 for case in found[1])


def test_the_drawn_layers_are_the_same_each_time_and_unlike_each_other(room: Rooms) -> None:
    cases = room("cases")
    found = cases.parse_cases("drawn")
    assert found == cases.parse_cases("drawn")
    assert len(cases.distinct(found)) == len(found) == 48
    shapes = [case.shape for case in found]
    uneven = [s for s in shapes if (s.IH, s.FH, s.sh, s.ph) != (s.IW, s.FW, s.sw, s.pw)]
    assert 12 <= len(uneven) <= 16
    assert {s.FH for s in shapes} >= {1, 2, 3, 5, 7}
    assert {s.sh for s in shapes} >= {1, 2, 3}
    assert any(s.IC % 64 for s in shapes)
