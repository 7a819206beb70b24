"""The paper's Experiment 1: the three convolution operators of Alpha against cuDNN's through PyTorch.

    python examples/bench_conv.py                              # the paper's 32 cases
    python examples/bench_conv.py --cases all --device cuda    # and every layer of its networks
    python examples/bench_conv.py --cases zoo --device cuda    # every layer of ResNet50, GoogLeNet, U-Net ..
    python examples/bench_conv.py --cases drawn --device cuda  # layers of no network
    python examples/bench_conv.py --cases depthwise grouped --device cuda  # MobileNetV2, ConvNeXt-T, ResNeXt50
    python examples/bench_conv.py --cases 16,256,256,256,3,2 --configurations    # H,IC,OC,N,K,S

Each operator is timed on the same operands as PyTorch's, in turns, in the same precision, against
the faster of PyTorch's two layouts with cudnn.benchmark on; without PyTorch, alone. The output
folder gets results.csv, results.md and the line charts of the paper's Figures 9 to 14.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from bench import markdown, report
from bench.alpha_side import AlphaSide, on_gpu
from bench.cases import Case, distinct, parse_cases
from bench.charts import save_charts
from bench.numpy_side import NumpySide
from bench.operators import OPERATORS, Operator, relative_error
from bench.report import Result, Row
from bench.timing import Contestant, measure
from bench.torch_side import TorchSide

import alpha
from alpha.core.numerics import PRECISIONS
from alpha.errors import AlphaError
from alpha.train import make_folder, new_folder
from alpha.train.commands.command_line import Parser, command, names, path, positive_float


def part(text: str) -> tuple[int, int]:
    """(K - 1, N) of "K/N"."""
    try:
        number, count = (int(x) for x in text.split("/"))
    except ValueError:
        number, count = 0, 0
    if not 1 <= number <= count:
        raise argparse.ArgumentTypeError(f"{text!r} is not K/N with 1 <= K <= N")
    return number - 1, count


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(prog="bench_conv", description="Alpha's convolution operators against cuDNN's.")
    add = parser.add_argument
    add(
        "--cases",
        type=parse_cases,
        nargs="+",
        metavar="CASES",
        help="paper (default), networks, all (both), zoo, drawn, depthwise, grouped, "
        "or convolutions H,IC,OC,N,K,S (padding K // 2)",
    )
    offered = PRECISIONS
    add("--precision", type=names(offered), default=list(offered), help=f"some of {','.join(offered)} (default: all)")
    add(
        "--operators",
        type=names(tuple(OPERATORS)),
        default=list(OPERATORS),
        help=f"some of {','.join(OPERATORS)} (default: all)",
    )
    add(
        "--configurations",
        action="store_true",
        help="time every configuration of the precision, beside what the model predicts, and write candidates.csv",
    )
    add(
        "--part",
        type=part,
        default=(0, 1),
        metavar="K/N",
        help="only the K-th of N parts of the cases, 1/N to N/N: several GPUs share them",
    )
    add(
        "--statistics",
        action="store_true",
        help="time forward with the statistics of its channels, for batch normalisation, too: "
        "by a pass of their own, and found with the convolution",
    )
    add(
        "--first-steps",
        action="store_true",
        help="time dX with the first step of the gradient behind it, too: of a rectifier, and of a batch normalisation "
        "with one, without and with a sum of two gradients; those that the chosen kernel takes, on a GPU",
    )
    add("--alone", action="store_true", help="without PyTorch's times")
    add("--unchecked", action="store_true", help="without the errors against float64, which take longer than the times")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto")
    add(
        "--budget-ms",
        type=positive_float,
        default=15.0,
        help="of each timing, warm-up not counted (default: %(default)s)",
    )
    add("--output", type=path, metavar="DIR", help="default: runs/bench_conv, or -2 and so on if that exists")
    args = parser.parse_args(arguments)
    args.cases = distinct(case for group in args.cases or [parse_cases("paper")] for case in group)
    args.cases = args.cases[args.part[0] :: args.part[1]]
    args.fused = {"statistics": args.statistics, "first-steps": args.first_steps}
    args.fused = [name for name, wanted in args.fused.items() if wanted]
    args.command = " ".join(["python examples/bench_conv.py", *arguments])
    return args


def torch_side(gpu: bool) -> TorchSide | None:
    """PyTorch on the GPU, or else on the CPU; None where it is not installed, or without CUDA."""
    try:
        import torch
    except ImportError:
        return None
    return TorchSide(torch, gpu) if torch.cuda.is_available() or not gpu else None


class Bench:
    """Both sides, and the operands that they share."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.device = alpha.get_device(args.device)
        if args.first_steps and self.device.name == "cpu":
            raise AlphaError("--first-steps times kernels of a GPU, and the device is cpu")
        side = torch_side(on_gpu(self.device))
        self.source = side or NumpySide()
        self.peer = None if args.alone else side
        self.ours = AlphaSide(self.device)

    @property
    def heading(self) -> str:
        properties = getattr(self.device, "properties", None)
        machine = properties.name if properties else platform.machine()
        versions = f"alpha {alpha.__version__}, numpy {np.__version__}"
        if self.peer:
            versions += f", {self.peer.version}"
        now = datetime.datetime.now(datetime.timezone.utc)
        text = f"{now:%Y-%m-%d}, {machine} ({self.device.name}): {versions}"
        if not on_gpu(self.device) and (load := os.getloadavg()[0]) > 0.5:
            text += f"; the machine is busy (load average {load:.1f}): not comparable"
        return text

    def compile(self) -> None:
        """Compile the kernels of all cases at once."""
        self.ours.compile(
            (
                (operator, case.shape, precision, self.args.configurations)
                for case in self.args.cases
                for operator in self.operators(case)
                for precision in self.args.precision
            ),
            self.args.fused,
        )

    def rows(self, case: Case) -> Iterator[Row]:
        """One an operator and precision; what they shared is free afterwards."""
        s = case.shape
        operands = self.source.draw(s)
        dtypes = {name: self.ours.dtype(name) for name in self.args.precision}
        arrays = {dtype: self.ours.arrays(operands, dtype) for dtype in dtypes.values()}
        for operator in self.operators(case):
            part = operator.part(s)
            exact = None if self.args.unchecked else self.source.exact(operator, s, operands, part)
            for name in self.args.precision:
                with alpha.precision(name), self.peer.precision(name) if self.peer else nullcontext():
                    row = self.row(case, operator, name, operands, arrays[dtypes[name]], exact)
                yield row
        del operands, arrays
        self.source.release()

    def operators(self, case: Case) -> list[Operator]:
        wanted = [OPERATORS[name] for name in OPERATORS if name in self.args.operators]
        return [o for o in wanted if not (case.first and o.result == "dX")]

    def row(
        self,
        case: Case,
        operator: Operator,
        name: str,
        operands: dict[str, Any],
        arrays: dict[str, Any],
        exact: np.ndarray | None,
    ) -> Row:
        s = case.shape
        ours = self.ours.contestants(operator, s, arrays, self.args.configurations, self.args.fused)
        theirs = self.peer.contestants(operator, s, operands, name) if self.peer else []
        times = measure([*ours, *theirs], self.args.budget_ms)

        def result(contestant: Contestant, ms: float) -> Result:
            predicted = self.ours.predicted_ms(operator, s, contestant.name)
            if exact is None:
                return Result(contestant.name, ms, None, predicted)
            found = contestant.take(contestant.call(), operator.part(s))
            return Result(contestant.name, ms, relative_error(found, exact), predicted)

        chosen, *others = [result(*pair) for pair in zip(ours, times, strict=False)]
        fastest = min(zip(times[len(ours) :], range(len(theirs)), strict=True), default=None)
        peer = result(theirs[fastest[1]], fastest[0]) if fastest else None
        row = Row(case, operator, name, chosen, peer, tuple(others))
        print(report.line(row), flush=True)
        for other in others:
            print(report.other_line(row, other), flush=True)
        return row


def run(args: argparse.Namespace) -> int:
    bench = Bench(args)
    if args.output:
        make_folder(args.output)
    else:
        args.output = new_folder(Path("runs/bench_conv"))
    print(bench.heading, flush=True)
    begin, status = time.perf_counter(), 0
    rows: list[Row] = []
    tables: list[report.Results | report.Candidates] = [report.Results(args.output / "results.csv")]
    if args.configurations:
        tables.append(report.Candidates(args.output / "candidates.csv"))
    try:
        bench.compile()
        for case in args.cases:
            for row in bench.rows(case):
                rows.append(row)
                for table in tables:
                    table.add(row)
    except KeyboardInterrupt:
        print("interrupted")
        status = 130
    finally:
        for table in tables:
            table.close()
        if rows:
            finish(bench, rows, time.perf_counter() - begin)
    return status


def finish(bench: Bench, rows: list[Row], seconds: float) -> None:
    """The page, the charts and the summary of what was measured."""
    args, peer = bench.args, bench.peer.name if bench.peer else None
    took = f"{len({row.case for row in rows})} of {len(args.cases)} cases in {seconds:.0f} s"
    heading = [bench.heading, f"`{args.command}`: {took}"]
    (args.output / "results.md").write_text(markdown.page(rows, heading, peer), encoding="utf-8")
    charts = save_charts(args.output, rows, peer)
    if peer:
        print(markdown.summary(rows, peer))
    if args.configurations:
        print(markdown.predictions(rows))
    print(f"{took}; {args.output}: results.csv, results.md, {', '.join(charts)}")


@command("bench_conv")
def main(arguments: list[str] | None = None) -> int:
    args = parse(sys.argv[1:] if arguments is None else arguments)
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
