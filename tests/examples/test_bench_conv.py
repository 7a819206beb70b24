"""bench_conv.py as its users run it, in short, and the arithmetic that its figures rest on."""

from __future__ import annotations

import csv
import importlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import child
import conv2d_reference
import numpy as np
import pytest

import alpha
from alpha import get_device, models
from alpha.ops.conv2d.shape import conv_shape

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
Rooms = Callable[[str], ModuleType]
FORMULAS = {
    "forward": conv2d_reference.forward,
    "dX": conv2d_reference.backward_input,
    "dW": conv2d_reference.backward_weight,
}


def run(*arguments: str, without: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Output that a user sees who has not installed the packages that `without` hides."""
    paths = [] if without is None else [without]
    return child.run(
        [sys.executable, "-W", "error", "bench_conv.py", *arguments], cwd=EXAMPLES, env=child.environment(*paths)
    )


def hide(folder: Path, *packages: str) -> Path:
    """A folder on Python's path in which these packages are, but cannot be imported.

    The import of PyTorch takes longer than a short benchmark, so only tests that need it have it.
    """
    for name in packages:
        (folder / f"{name}.py").write_text("raise ImportError('not installed')\n")
    return folder


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Rooms:
    """A module of examples/bench."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return lambda name: importlib.import_module(f"bench.{name}")


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_alone(device: str, tmp_path: Path) -> None:
    result = run(
        "--device",
        device,
        "--alone",
        "--cases",
        "4,8,16,6,3,2",
        "3,16,8,48,3,1",
        "--precision",
        "float32",
        "--budget-ms",
        "1",
        "--output",
        str(tmp_path),
        "--statistics",
        without=hide(tmp_path, "torch"),
    )
    assert result.returncode == 0, result.stderr
    assert len(re.findall(r"error \d\S+  (?:then|with) statistics", result.stdout)) == 4
    rows = table(tmp_path)
    assert [row["operator"] for row in rows] == 2 * ["forward", "dX", "dW"]
    for row in rows:
        assert float(row["ms"]) > 0
        assert float(row["error"]) < 1e-6
        assert row["configuration"]
        assert not row["peer"]
        assert not row["ratio"]
    assert "2 of 2 cases" in result.stdout
    page = (tmp_path / "results.md").read_text()
    assert "--cases 4,8,16,6,3,2 3,16,8,48,3,1" in page
    assert "| 48x3x3x16 -> 8, 3x3 / 1 | given |" in page


@pytest.mark.torch
def test_against_pytorch(tmp_path: Path) -> None:
    result = run(
        "--device",
        "cpu",
        "--cases",
        "6,8,8,12,3,2",
        "6,8,8,12,3,1",
        "--operators",
        "dX",
        "--precision",
        "float32",
        "--configurations",
        "--budget-ms",
        "1",
        "--output",
        str(tmp_path),
    )
    assert result.returncode == 0, result.stderr
    rows = table(tmp_path)
    assert [row["operator"] for row in rows] == ["dX", "dX"]
    for row in rows:
        assert row["peer"] in ("NCHW", "channels_last")
        assert float(row["peer_error"]) < 1e-6
        ratio = float(row["peer_ms"]) / float(row["ms"])
        assert float(row["ratio"]) == pytest.approx(ratio, rel=1e-4)
    ratios = [float(row["ratio"]) for row in rows]
    mean = (ratios[0] * ratios[1]) ** 0.5
    expected = f"| dX | float32 | 2 | {mean:.2f}x | {ratios[0]:.2f}x | {min(ratios):.2f}x (12x6x6x8"
    assert expected in (tmp_path / "results.md").read_text()
    assert expected in result.stdout
    assert "ks_deconv_pixels" in result.stdout
    assert re.search(r"\d\.\d\dx the chosen one's time", result.stdout)
    if importlib.util.find_spec("matplotlib"):
        chart = tmp_path / "layers-dX-3x3.png"
        assert chart.read_bytes().startswith(b"\x89PNG")
        assert chart.name in result.stdout


def test_without_pytorch_and_matplotlib(tmp_path: Path) -> None:
    result = run(
        "--device",
        "cpu",
        "--cases",
        "4,8,8,4,3,1",
        "--precision",
        "float32",
        "--budget-ms",
        "1",
        "--output",
        str(tmp_path / "out"),
        without=hide(tmp_path, "torch", "matplotlib"),
    )
    assert result.returncode == 0, result.stderr
    assert "no charts: pip install matplotlib" in result.stdout
    assert all(float(row["error"]) < 1e-6 for row in table(tmp_path / "out"))


def test_mistakes_are_answered_in_one_line() -> None:
    for arguments, answer in (
        (["--cases", "4,8,8"], "'4,8,8' is not paper, networks, all, zoo, drawn, depthwise, grouped or a convolution"),
        (["--cases", "1,8,8,4,3,0"], "stride (0, 0) must be >= 1"),
        (["--part", "3/2"], "'3/2' is not K/N with 1 <= K <= N"),
        (["--precision", "float16"], "'float16' is not one of float32"),
        (["--operators", "dX,dY"], "'dY' is not one of forward, dX, dW"),
    ):
        result = run(*arguments)
        assert result.returncode == 2
        assert answer in result.stderr
        assert len(result.stderr.splitlines()) == 1


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


def test_unchecked_times_have_no_error(tmp_path: Path) -> None:
    arguments = ["--device", "cpu", "--cases", "4,8,8,4,3,1", "--alone", "--precision", "float32", "--unchecked"]
    result = run(*arguments, "--budget-ms", "1", "--output", str(tmp_path), without=hide(tmp_path, "torch"))
    assert result.returncode == 0, result.stderr
    assert [(row["error"], float(row["ms"]) > 0) for row in table(tmp_path)] == 3 * [("", True)]


def test_operations_of_table_iii(room: Rooms) -> None:
    operators = room("operators").OPERATORS
    s = room("cases").square(8, 3, 5, 2, 3, 2)  # 4x4 outputs, 7x7 with inserted zeros
    taps = 3 * 3 * 3 * 5
    nominal = {name: operator.nominal(s) for name, operator in operators.items()}
    assert nominal == {"forward": 2 * 2 * 4 * 4 * taps, "dX": 2 * 2 * 8 * 8 * taps, "dW": 2 * 2 * 7 * 7 * taps}
    useful = 11 * 11 / (12 * 12)  # of three taps at four outputs, the first lies in the padding
    assert operators["forward"].skipped(s) == pytest.approx(1 - useful)
    assert operators["dX"].skipped(s) == pytest.approx(1 - useful / 4)


@pytest.mark.parametrize("name", ["forward", "dX", "dW"])
def test_a_part_of_the_operands_gives_that_part_of_the_result(room: Rooms, name: str) -> None:
    operators, cases, numpy_side = room("operators"), room("cases"), room("numpy_side")
    operator = operators.OPERATORS[name]
    s = cases.square(5, 40, 36, 19, 3, 2)
    side = numpy_side.NumpySide()
    operands = side.draw(s)
    part = operator.part(s)
    exact = side.exact(operator, s, operands, part)
    whole = FORMULAS[name](*(operands[key] for key in operator.operands), s)
    assert exact.size < whole.size
    np.testing.assert_allclose(exact, part.of(operator.result, whole), rtol=1e-12, atol=1e-12)
    assert operators.relative_error(exact * 1.5, exact) == pytest.approx(0.5)
    assert np.isnan(operators.relative_error(exact * np.nan, exact))


@pytest.mark.parametrize("name", FORMULAS)
def test_what_results_are_compared_with_is_right_with_groups_too(room: Rooms, name: str) -> None:
    operator, side = room("operators").OPERATORS[name], room("numpy_side").NumpySide()
    for groups, IC, OC in ((1, 5, 7), (6, 6, 12), (3, 6, 9)):
        s = conv_shape("test", (9, 11, 8, IC), (OC, 3, 4, IC // groups), (2, 1), (1, 2), groups=groups)
        operands, part = side.draw(s), operator.part(s)
        whole = FORMULAS[name](*(operands[key] for key in operator.operands), s)
        exact = side.exact(operator, s, operands, part)
        np.testing.assert_allclose(exact, part.of(operator.result, whole), rtol=1e-12, atol=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("name", ["forward", "dX", "dW"])
def test_pytorch_computes_the_same(room: Rooms, name: str, precision: str) -> None:
    import torch

    operator = room("operators").OPERATORS[name]
    s = room("cases").square(6, 20, 24, 10, 3, 2)
    side, host = room("torch_side").TorchSide(torch, gpu=False), room("numpy_side").NumpySide()
    operands, part = side.draw(s), operator.part(s)
    exact = side.exact(operator, s, operands, part)
    arrays = {key: tensor.numpy() for key, tensor in operands.items()}
    np.testing.assert_allclose(exact, host.exact(operator, s, arrays, part), rtol=1e-9, atol=1e-9)
    tolerance = {"float32": 1e-6, "bf16": 1e-2}[precision]
    with side.precision(precision):
        contestants = side.contestants(operator, s, operands, precision)
        assert [contestant.name for contestant in contestants] == ["NCHW", "channels_last"]
        for contestant in contestants:
            found = contestant.take(contestant.call(), part)
            assert room("operators").relative_error(found, exact) < tolerance


def test_a_result_is_taken_from_either_device(room: Rooms, device: str) -> None:
    """Every kernel configuration of the precision gives a result, too, and so does the events' clock."""
    operators, sides = room("operators"), room("alpha_side")
    s = room("cases").square(3, 20, 36, 19, 3, 1)
    host = room("numpy_side").NumpySide()
    operands = host.draw(s)
    side = sides.AlphaSide(get_device(device))
    arrays = side.arrays(operands, side.dtype("float32"))
    for name, operator in operators.OPERATORS.items():
        part = operator.part(s)
        exact = part.of(operator.result, FORMULAS[name](*(operands[key] for key in operator.operands), s))
        contestants = side.contestants(operator, s, arrays, every=True)
        names = [contestant.name for contestant in contestants]
        assert len(names) == len(set(names)) > 1
        for contestant in contestants:
            found = contestant.take(contestant.call(), part)
            assert found.shape == exact.shape
            assert operators.relative_error(found, exact) < 1e-6
    if device == "cuda":
        clock = sides.event_clock(get_device(device), 1 << 12)
        start = clock.mark()
        clock.hold(0.1)
        assert clock.elapsed_ms(start, clock.mark()) > 0


def test_all_kernels_are_compiled_before_the_first_timing(
    room: Rooms, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    operators, sides = room("operators").OPERATORS, room("alpha_side")
    side, units = sides.AlphaSide(get_device("cuda")), []
    monkeypatch.setattr(sides, "compile_units", lambda driver, found: units.extend(found))
    s = room("cases").square(3, 8, 72, 50, 3, 1)
    precisions = ("float32", "bf16")
    side.compile([(o, s, precision, True) for o in operators.values() for precision in precisions], statistics=False)
    wanted = set()
    dry = sides.DryDevice.double(side.device.properties)
    with dry.driver.noting() as found:
        for operator in operators.values():
            for precision in precisions:
                operands = [dry.empty(getattr(s, name[-1]), side.dtype(precision)) for name in operator.operands]
                for v in sides.applicable(operator.key, s, sides.conv2d.cuda_target(side.device), precision):
                    if v.precision == precision:
                        sides.compute(v, *operands, s)
                        wanted |= {launch.unit for launch in found}
    assert wanted <= set(units)
    assert len(wanted) > 3


@pytest.mark.parametrize(("text", "indices"), [("1/1", [0, 1, 2, 3]), ("1/3", [0, 3]), ("2/3", [1]), ("3/3", [2])])
def test_parts_share_the_cases(monkeypatch: pytest.MonkeyPatch, text: str, indices: list[int]) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    bench_conv = importlib.import_module("bench_conv")
    cases = ["--cases", *(f"4,8,{8 * n},2,3,1" for n in (1, 2, 3, 4))]
    found = bench_conv.parse([*cases, "--part", text]).cases
    assert [case.shape.OC // 8 - 1 for case in found] == indices


def test_predictions_are_compared_with_the_fastest(room: Rooms) -> None:
    report, case = room("report"), room("cases").Case(room("cases").square(4, 8, 8, 2, 3, 1), ("given",))
    results = [report.Result(name, ms, None, ms * factor) for name, ms, factor in (("a", 1.1, 2), ("b", 1.0, 1))]
    row = report.Row(case, room("operators").OPERATORS["dX"], "tf32", results[0], None, (results[1],))
    line = room("markdown").predictions([row]).splitlines()[-1]
    assert line == "| dX | tf32 | 1 | 0% | 100% | 100% | 100% | 1.41, 1.00 to 2.00 |"


def test_the_precision_in_force_is_measured(room: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    side, seen = room("alpha_side"), []
    original = side.choose

    def chosen(*args: Any) -> Any:
        seen.append(args[-1])
        return original(*args)

    monkeypatch.setattr(side, "choose", chosen)
    host, s = room("numpy_side").NumpySide(), room("cases").square(3, 4, 4, 2, 3, 1)
    contestants = side.AlphaSide(get_device("cpu")).contestants
    operator = room("operators").OPERATORS["forward"]
    with alpha.precision("tf32"):
        contestants(operator, s, host.draw(s), False)
    assert seen == ["tf32"]


class CountingClock:
    """Clock whose time is the number of calls so far."""

    queues = False

    def __init__(self) -> None:
        self.log: list[str] = []

    def hold(self, ms: float) -> None:
        self.log.append("hold")

    def mark(self) -> int:
        return len(self.log)

    def elapsed_ms(self, start: int, end: int) -> float:
        return float(end - start)


def test_contestants_have_their_turns(room: Rooms) -> None:
    timing = room("timing")
    clock = CountingClock()

    def contestant(name: str, length: int) -> Any:
        def call() -> None:
            clock.log.extend(length * name)

        return timing.Contestant(name, call, clock, lambda result, part: result)

    times = timing.measure([contestant("a", 1), contestant("b", 4)], budget_ms=8.0 * timing.ROUNDS)
    assert times == [1.0, 4.0]
    turns = "".join(clock.log).split("hold")
    assert turns == ["aaa" + 3 * "bbbb", *(timing.ROUNDS * ["a" * 8, "b" * 8])]


def test_a_block_that_the_host_was_late_for_is_timed_again(room: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    timing, now, late = room("timing"), [0.0], [5]
    clock = CountingClock()
    clock.queues = True
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def call() -> None:
        clock.log.append("a")
        now[0] += 1e-3 if clock.log.count("a") != late[0] else 1.0

    contestant = timing.Contestant("a", call, clock, lambda result, part: result)
    assert timing.measure([contestant], budget_ms=4.0 * timing.ROUNDS) == [1.0]
    assert clock.log.count("hold") == timing.ROUNDS + 1
