"""simulate_scaling.py: its formulae against numbers computed by hand, its buckets, and what it prints."""

from __future__ import annotations

import importlib
import itertools
import math
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from alpha import models, nn
from alpha.train.commands.chosen_network import arguments_of, built

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "scaling.md"
COUNTS = [1 << power for power in range(11)]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return importlib.import_module("simulate_scaling")


@pytest.fixture
def scaling(script: ModuleType) -> SimpleNamespace:
    """The rooms of examples/scaling."""
    rooms = {name: importlib.import_module(f"scaling.{name}") for name in ("allreduce", "networks", "picture", "step")}
    return SimpleNamespace(**rooms)


@pytest.fixture
def small(scaling: SimpleNamespace) -> list[Any]:
    """Gradients of layers of 3 + 0.25, 2 and 6 MB of float32; the second has half of the multiply-adds."""
    Layer, quarter = scaling.step.Layer, 1 << 16
    layers = [Layer("a", (12 * quarter, quarter), 50), Layer("b", (8 * quarter,), 100), Layer("c", (24 * quarter,), 50)]
    return scaling.step.gradients_of(layers)  # type: ignore[no-any-return]


def test_all_reduces_of_one_machine(scaling: SimpleNamespace) -> None:
    """1 GB over 4 GPUs with 100 GB/s and 10 microseconds: 2 * 3/4 * 10 ms and 6 steps, or 2 * 10 ms and 6 steps."""
    links, a = scaling.allreduce.Links(nvlink_gbs=100.0, nvlink_us=10.0), scaling.allreduce
    assert a.ring_ms(1e9, 4, links) == pytest.approx(15.06)
    assert a.tree_ms(1e9, 4, links) == pytest.approx(20.06)
    assert a.two_level_ms(1e9, 4, links) == pytest.approx(15.06)
    assert a.ring_ms(1e9, 2, links) == pytest.approx(10.02)
    assert a.fastest(1e9, 4, links) == "ring"


def test_all_reduces_between_machines(scaling: SimpleNamespace) -> None:
    """1 GB over 4 machines of 2 GPUs: 100 GB/s and 10 microseconds within a machine, 20 GB/s and 30 between them.

    Both cards of a machine together have 40 GB/s. A ring of 8 has 14 steps, 6 of them between machines; a tree has 2
    within and 4 between. On two levels a card sends 1.5 or 2 times half of the bytes, which takes longer than the 10 ms
    within the machine, with 6 or 4 steps between.
    """
    a = scaling.allreduce
    links = a.Links(gpus_per_machine=2, nvlink_gbs=100.0, nvlink_us=10.0, network_gbs=20.0, network_us=30.0)
    assert a.ring_ms(1e9, 8, links) == pytest.approx(2 * 7 / 8 * 25 + 8 * 0.01 + 6 * 0.03)
    assert a.tree_ms(1e9, 8, links) == pytest.approx(50 + 2 * 0.01 + 4 * 0.03)
    assert a.two_level_ms(1e9, 8, links) == pytest.approx(37.5 + 2 * 0.01 + 6 * 0.03)
    assert a.two_level_ms(1e3, 8, links) == pytest.approx(50e-6 + 2 * 0.01 + 4 * 0.03)
    assert a.fastest(1e9, 8, links) == "two-level"
    fast_network = a.Links(gpus_per_machine=2, nvlink_gbs=100.0, nvlink_us=0.0, network_gbs=1e6, network_us=0.0)
    assert a.two_level_ms(1e9, 8, fast_network) == pytest.approx(10)
    assert a.ring_ms(1e9, 8, fast_network) == pytest.approx(2 * 7 / 8 * 10)
    alone = a.Links(gpus_per_machine=1, nvlink_gbs=1.0, network_gbs=20.0, network_us=30.0)
    assert a.ring_ms(1e9, 4, alone) == pytest.approx(75 + 6 * 0.03)


def test_numbers_of_nodes_that_are_no_powers_of_two(scaling: SimpleNamespace) -> None:
    a = scaling.allreduce
    links = a.Links(nvlink_us=0.0, network_us=1000.0)
    assert a.tree_ms(0, 24, links) == pytest.approx(2 * 2)  # three machines: a tree of depth two
    assert (links.machines(17), links.inside(17), links.inside(3)) == (3, 8, 3)
    assert [a.ALGORITHMS[name](1e9, 1, links) for name in a.ALGORITHMS] == [0.0, 0.0, 0.0]


def test_gradients_are_ready_from_the_last_layer_to_the_first(small: list[Any]) -> None:
    assert [(gradient.name, gradient.elements >> 16, gradient.ready) for gradient in small] == [
        ("c", 24, 0.25),
        ("b", 8, 0.75),
        ("a", 1, 1.0),
        ("a", 12, 1.0),
    ]


def test_buckets_are_filled_in_that_order(scaling: SimpleNamespace, small: list[Any]) -> None:
    def sizes(*limits: float) -> list[tuple[float, float]]:
        """MB of float32 of each bucket, and the share of the backward pass after which it is ready."""
        found = scaling.step.buckets_of(small, *limits)
        assert [gradient for bucket in found for gradient in bucket.gradients] == small
        return [(bucket.elements / (1 << 18), bucket.ready) for bucket in found]

    assert sizes(1, 25, 0) == [(6, 0.25), (5.25, 1.0)]
    assert sizes(1, 25) == [(6, 0.25), (2.25, 1.0), (3, 1.0)]
    assert sizes(1, 2, 0) == [(6, 0.25), (2, 0.75), (3.25, 1.0)]
    assert sizes(6.5, 25, 0) == [(8, 0.75), (3.25, 1.0)]
    assert sizes(1, 0.01, 25) == [(6, 0.25), (2, 0.75), (0.25, 1.0), (3, 1.0)]
    assert sizes(100, 100, 100) == [(11.25, 1.0)]
    assert scaling.step.buckets_of([]) == []


def test_buckets_wait_for_their_gradients_and_for_each_other(scaling: SimpleNamespace, small: list[Any]) -> None:
    """Two GPUs with 1 GB/s and no latency send S bytes in S / 10^6 ms.

    The buckets have 6.29, 2.10 and 3.41 MB and are ready after 2, 6 and 8 ms of a backward pass of 8 ms: they end after
    8.29, 10.39 and 13.80 ms.
    """
    step, links = scaling.step.Step(12.0, 2 / 3, 0.0), scaling.allreduce.Links(nvlink_gbs=1.0, nvlink_us=0.0)
    buckets = scaling.step.buckets_of(small, 1, 2, 0)
    found = scaling.step.simulate(buckets, 2, step, links)
    assert found.communication_ms == pytest.approx(11.25 * 1.048576)
    assert found.exposed_ms == pytest.approx(2 + 11.25 * 1.048576 - 8)
    assert found.step_ms == pytest.approx(12 + found.exposed_ms)
    assert found.efficiency == pytest.approx(12 / (12 + found.exposed_ms))
    assert found.algorithms == ("ring",)
    slower = scaling.step.simulate(buckets, 2, scaling.step.Step(12.0, 2 / 3, 0.5), links)
    assert slower.slower_ms == pytest.approx((8 - 2) / 2)  # half of what was sent before the backward pass ended
    assert slower.step_ms == pytest.approx(found.step_ms + 3)
    half = scaling.step.simulate(buckets, 2, step, links, element_bytes=2)
    assert half.communication_ms == pytest.approx(found.communication_ms / 2)
    assert half.exposed_ms == pytest.approx(3.25 * 1.048576 / 2)  # the last bucket alone: the others are done by then
    tree = scaling.step.simulate(buckets, 2, step, links, algorithm="tree")
    assert tree.communication_ms == pytest.approx(2 * found.communication_ms)


def test_only_the_last_bucket_is_exposed_if_the_backward_pass_is_long(scaling: SimpleNamespace) -> None:
    Layer, step = scaling.step.Layer, scaling.step
    layers = [Layer("late", (), 999), Layer("early", (1 << 20,), 1)]
    buckets = step.buckets_of(step.gradients_of(layers))
    for gpus in COUNTS:
        assert step.simulate(buckets, gpus, step.Step(1e6), scaling.allreduce.Links()).exposed_ms == 0
    layers = [Layer("first", (1000,), 999), Layer("last", (1 << 20,), 1)]
    buckets = step.buckets_of(step.gradients_of(layers))
    links = scaling.allreduce.Links()
    outcome = step.simulate(buckets, 8, step.Step(1e6), links)
    assert outcome.exposed_ms == pytest.approx(scaling.allreduce.ring_ms(4000, 8, links))


def test_links_of_any_speed_and_no_latency_cost_nothing(scaling: SimpleNamespace, small: list[Any]) -> None:
    free = scaling.allreduce.Links(8, math.inf, 0.0, math.inf, 0.0)
    buckets = scaling.step.buckets_of(small)
    for gpus in COUNTS:
        found = scaling.step.simulate(buckets, gpus, scaling.step.Step(1.0), free)
        assert (found.efficiency, found.communication_ms, found.exposed_ms) == (1.0, 0.0, 0.0)
    alone = scaling.step.simulate(buckets, 1, scaling.step.Step(1.0), scaling.allreduce.Links())
    assert (alone.efficiency, alone.communication_ms, alone.algorithms) == (1.0, 0.0, ())


@pytest.mark.parametrize("algorithm", [None, "ring", "tree", "two-level"])
def test_more_bandwidth_or_less_latency_never_makes_a_step_longer(
    scaling: SimpleNamespace, small: list[Any], algorithm: str | None
) -> None:
    Links, step = scaling.allreduce.Links, scaling.step
    buckets = step.buckets_of(small)
    for gpus in COUNTS:
        for name, faster in (("nvlink_gbs", 2), ("network_gbs", 2), ("nvlink_us", 0.5), ("network_us", 0.5)):
            values = [getattr(Links(), name) * faster**power for power in range(-4, 5)]
            times = [
                step.simulate(buckets, gpus, step.Step(0.2), Links(**{name: value}), algorithm=algorithm).step_ms
                for value in values
            ]
            assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(times)), name


def test_the_fastest_algorithm_is_taken(scaling: SimpleNamespace) -> None:
    a, links = scaling.allreduce, scaling.allreduce.Links()
    for gpus in COUNTS[1:]:
        for size in (1e3, 1e6, 1e9):
            times = {name: algorithm(size, gpus, links) for name, algorithm in a.ALGORITHMS.items()}
            assert times[a.fastest(size, gpus, links)] == pytest.approx(min(times.values()))


def test_layers_of_a_network(scaling: SimpleNamespace) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 5))
    layers = scaling.networks.layers_of(model, 4)
    assert [(layer.parameters, layer.macs) for layer in layers] == [
        ((8 * 27, 8), 16 * 8 * 27),
        ((8, 8), 0),
        ((5 * 128, 5), 5 * 128),
    ]
    vit = scaling.networks.layers_of(models.vit_tiny(10, 32, 4), 32)
    names = [layer.name for layer in vit]
    assert names[:2] == ["(model)", "conv_proj"]  # the class token is used first, so its gradient is ready last
    assert names.index("encoder") < names.index("encoder.layers.encoder_layer_0.ln_1")
    assert sum(sum(layer.parameters) for layer in vit) == 5_362_762
    shared = nn.Linear(3, 3, bias=False)
    assert sum(len(layer.parameters) for layer in scaling.networks.layers_of(nn.Sequential(shared, shared), 3)) == 1


def test_times_that_were_measured_are_those_of_the_page(scaling: SimpleNamespace) -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    titles = {"resnet18": "ResNet18", "resnet34": "ResNet34", "vgg16": "VGG16", "vgg19": "VGG19"}
    busy = page.split("## H200: how busy the GPU is")[1].split("\n## ")[0]
    large = page.split("Alpha's steps in ms on 2026-11-22")[1].split("\n## ")[0]
    for (name, size), times in scaling.networks.STEP_MS.items():
        for precision, ms in zip(scaling.networks.PRECISIONS, times, strict=True):
            assert scaling.networks.measured_ms(name, size, precision) == ms
        row, table = (titles[name], busy) if size == 32 else (f"{titles[name]}, {size}x{size}", large)
        (line,) = re.findall(rf"^\| {row} \|(.*)", table, re.M)
        assert [float(cell.split(",")[0]) for cell in line.split("|")[:3]] == list(times)


@pytest.mark.slow
def test_computed_steps_are_within_5_percent_of_those_that_were_measured(scaling: SimpleNamespace) -> None:
    """All but one row of docs/benchmarks.md for two and four GPUs, from the step alone and NVLink's bandwidth."""
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    part = page.split("## Two and four GPUs: scaling")[1].split("\n## ")[0]
    pattern = (
        r"^\| (\w+), (\d+)x\d+(?: \*)? \| \w+ \| \d+ \| (\d) \| ([\d.]+) \| [\d.]+ \| ([\d.]+) \| [\d.]+ \| ([\d.]+),"
    )
    rows = re.findall(pattern, part, re.M)
    names = {"ResNet18": "resnet18", "VGG16": "vgg16", "ResNet50": "torchvision.resnet50"}
    buckets, errors = {}, []
    for title, size, gpus, alone, measured, _ in rows:
        if (title, size) not in buckets:
            name, classes = names[title], 10 if size == "32" else 1000
            model = built(name, arguments_of(name, classes, int(size)), int(size))
            layers = scaling.networks.layers_of(model, int(size))
            buckets[title, size] = scaling.step.buckets_of(scaling.step.gradients_of(layers))
        links = scaling.allreduce.Links(nvlink_gbs=300.0) if gpus == "2" else scaling.allreduce.Links()
        found = scaling.step.simulate(buckets[title, size], int(gpus), scaling.step.Step(float(alone)), links)
        errors.append(found.step_ms / float(measured) - 1)
    assert len(rows) == 24
    # of 2026-11-28, 5.5 % longer than computed; to be measured anew with the steps in turns
    exception = ("VGG16", "128", "2", "46.727", "50.207", "0.788")
    far = [row for row, error in zip(rows, errors, strict=True) if abs(error) >= 0.05]
    assert far == [exception]
    assert max(map(abs, errors)) < 0.055
    assert abs(sum(errors)) / len(errors) < 0.02


@pytest.mark.slow
def test_the_program_prints_the_tables_of_the_page(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(
        r"^    python examples/simulate_scaling\.py([^\n]*)\n\n```\n(.*?)```", PAGE.read_text(), re.M | re.S
    )
    assert len(examples) >= 3
    for options, printed in examples:
        assert script.main(options.split()) == 0
        assert capsys.readouterr().out.rstrip() == printed.rstrip()
        assert max(map(len, printed.splitlines())) <= 80


@pytest.mark.slow
def test_a_picture(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "new" / "scaling.png"
    options = ["--models", "resnet18,vgg16", "--gpus", "40", "--gradients", "bf16", "--output", str(picture)]
    assert script.main(options) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert printed.endswith(f"{picture}\n")
    assert re.findall(r"^ *([\d,]+) ", printed.split("\n\n")[1], re.M) == ["1", "2", "4", "8", "16", "32"]
    assert "gradients in bf16" in printed
    assert "vgg16 at 32x32" in printed


def test_a_step_that_is_given(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--models", "torchvision.resnet18", "--image-size", "64", "--step-ms", "20", "--batch-size", "8"]
    assert script.main([*given, "--gpus", "2", "--bucket-mb", "1"]) == 0
    printed = capsys.readouterr().out
    assert "torchvision.resnet18 at 64x64, 8 images a GPU, 11,181,642 parameters" in printed
    assert "20.00 ms (given), 13.33 ms of it backward" in printed
    assert ".. " in printed  # many buckets
    assert re.search(r"^ +2 +16 +20\.\d+ .* ring$", printed, re.M)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--models", "resnet"], "argument --models: there is no network 'resnet'; is it resnet18"),
        (["--network-gbs", "0"], "argument --network-gbs: 0 is not a finite number above 0"),
        (["--gpus", "-1"], "argument --gpus: -1 is not 1 or more"),
        (["--beside-share", "-1"], "argument --beside-share: -1 is not a finite number above 0"),
        (["--backward-share", "1"], "argument --backward-share: 1 is not between 0 and 1"),
        (["--step-ms", "3"], "--step-ms and --batch-size belong together"),
        (["--models", "vgg16,vgg19", "--step-ms", "3", "--batch-size", "2"], "--step-ms is the step of one network"),
        (["--output", "picture.jpg"], "--output picture.jpg: the picture is a .png file"),
    ],
)
def test_bad_options(script: ModuleType, capsys: pytest.CaptureFixture[str], options: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as end:
        script.main(options)
    error = capsys.readouterr().err
    assert end.value.code == 2
    assert error.startswith(f"simulate_scaling: {message}")
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--models", "torchvision.resnet50", "--image-size", "224"], "no step of torchvision.resnet50 at 224x224"),
        (["--models", "vgg16", "--image-size", "64", "--step-ms", "1", "--batch-size", "1"], "image_size=64"),
    ],
)
def test_networks_that_cannot_be_simulated(
    script: ModuleType, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert script.main(options) == 2
    error = capsys.readouterr().err
    assert error.startswith("simulate_scaling: ")
    assert message in error
    assert len(error.splitlines()) == 1
