"""Times of operators that bench_conv.py does not know, beside PyTorch's.

    python examples/bench_operators.py                       # operators on 64 MB, as a share of a copy's speed
    python examples/bench_operators.py --lists dilated video sequence --precision float32,tf32,bf16

`memory`: normalisations, softmax, reductions and elementwise operators on 64 MB of float32, or on as many elements of
bfloat16. Their speed is the bytes that must be read and written over the time; a copy's is 100 %. `dilated`, `video`,
`sequence` and `patches`: convolutions with gaps, in three dimensions, in one, and with a stride as long as the filter;
forward, dX and dW; PyTorch in its faster layout. Calls are queued behind other work, so that Python's time does not
count.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from bench import axes, memory_bound
from bench.alpha_side import AlphaSide
from bench.timing import Contestant, measure
from bench.torch_side import TorchSide

import alpha
from alpha.core.numerics import BFLOAT16, FLOAT32, PRECISIONS, computed_precision
from alpha.train.commands.command_line import Parser, command, names, positive_float

MEMORY = "memory"
CALLED = {"float32": FLOAT32, "tf32": FLOAT32, "bf16": BFLOAT16}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="bench_operators", description="Times of operators beside PyTorch's.")
    add = parser.add_argument
    lists = (MEMORY, *axes.LAYERS)
    add("--lists", nargs="+", choices=lists, default=[MEMORY], metavar="LIST", help=f"some of {', '.join(lists)}")
    add("--precision", type=names(PRECISIONS), default=["float32", "bf16"], help="with commas between")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto")
    add("--budget-ms", type=positive_float, default=10.0, help="of each timing (default: %(default)s)")
    return parser.parse_args(arguments)


class Bench:
    """Both sides; PyTorch may be missing."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.device = alpha.get_device(args.device)
        self.ours, self.budget = AlphaSide(self.device), args.budget_ms
        self.theirs: TorchSide | None = None
        try:
            import torch
        except ImportError:
            return
        if self.device.name == "cpu" or torch.cuda.is_available():
            self.theirs = TorchSide(torch, self.device.name == "cuda")

    def times(self, ours: Any, theirs: list[Any]) -> tuple[float, float | None]:
        """Milliseconds of Alpha's call and of the fastest of PyTorch's."""
        contestants = [Contestant("Alpha", ours, self.ours.clock, _nothing)]
        if self.theirs is not None:
            contestants += [Contestant("PyTorch", call, self.theirs.clock, _nothing) for call in theirs]
        mine, *others = measure(contestants, self.budget)
        return mine, min(others, default=None)

    def memory(self, precision: str) -> Iterator[str]:
        """A line per operator: its speed and PyTorch's as shares of the speed of Alpha's copy."""
        arrays, dtype = memory_bound.drawn(), CALLED[precision]
        ours = tuple(alpha.tensor(array, device=self.device).astype(dtype) for array in arrays[:2])
        ours += tuple(alpha.tensor(array, device=self.device) for array in arrays[2:])
        theirs: tuple[Any, ...] = ()
        if self.theirs is not None:
            torch = self.theirs.torch
            kind = torch.bfloat16 if dtype == BFLOAT16 else torch.float32
            theirs = tuple(torch.from_numpy(array).to(self.theirs.device, kind) for array in arrays)
        copy = None
        for case in memory_bound.CASES:
            call = memory_bound.our_call(case, ours)
            others = [memory_bound.their_call(case, self.theirs.torch, theirs)] if self.theirs else []
            mine, best = self.times(call, others)
            copy = copy or mine / case.passes
            peer = "" if best is None else f"   PyTorch {best:8.4f} ms {copy * case.passes / best:6.1%}"
            yield f"{precision:8} {case.name:22} {mine:8.4f} ms {copy * case.passes / mine:6.1%}{peer}"

    def convolutions(self, title: str, precision: str) -> Iterator[str]:
        """A line per layer with the ratios to PyTorch, and their geometric means."""
        ratios: dict[str, list[float]] = {name: [] for name in axes.OPERATORS}
        for layer in axes.LAYERS[title]:
            arrays = axes.drawn(layer)
            dtype = CALLED[precision]
            ours = tuple(alpha.tensor(array, device=self.device).astype(dtype).detach() for array in arrays)
            calls = axes.our_calls(layer, ours)  # type: ignore[arg-type]
            others = self._their_calls(layer, arrays, precision)
            texts = []
            for name in axes.OPERATORS:
                mine, best = self.times(calls[name], [each[name] for each in others])
                texts.append(f"{name} {mine:8.4f} ms" + (f" {best / mine:5.2f}x" if best else ""))
                if best:
                    ratios[name].append(best / mine)
            yield f"{title:8} {precision:8} {layer.name:44} {'  '.join(texts)}"
        if all(ratios.values()):
            means = "  ".join(f"{name} {math.prod(r) ** (1 / len(r)):.2f}x" for name, r in ratios.items())
            yield f"{title:8} {precision:8} geometric means  {means}"

    def _their_calls(self, layer: axes.Layer, arrays: Any, precision: str) -> list[Any]:
        """PyTorch's calls, one set for each layout."""
        if self.theirs is None:
            return []
        torch = self.theirs.torch
        kind = torch.bfloat16 if precision == "bf16" else torch.float32
        last = [torch.from_numpy(array).to(self.theirs.device, kind).movedim(-1, 1) for array in arrays]
        first = [tensor.contiguous() for tensor in last]
        layouts = [first] if len(layer.kernel) == 1 else [first, last]
        return [axes.their_calls(layer, torch, tuple(operands)) for operands in layouts]


def _nothing(*_: Any) -> Any:
    """Results are not compared here; the tests of the operators do that."""


def run(args: argparse.Namespace) -> None:
    bench = Bench(args)
    precisions = dict.fromkeys(computed_precision(bench.device.name, asked) for asked in args.precision)
    for title in args.lists:
        for precision in precisions:
            theirs = bench.theirs.precision(precision) if bench.theirs else nullcontext()
            with alpha.precision(precision), theirs:
                for line in bench.memory(precision) if title == MEMORY else bench.convolutions(title, precision):
                    print(line, flush=True)


@command("bench_operators")
def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    run(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
