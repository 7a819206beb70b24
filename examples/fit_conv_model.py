"""Fit the model that predicts the time of convolution kernels to measurements on this machine's GPU.

    python examples/bench_conv.py --device cuda --alone --configurations --cases all zoo --output runs/sweep
    python examples/fit_conv_model.py runs/sweep/candidates.csv

The constants go to `alpha/ops/conv2d/fitted/<name of the GPU>.json`, which `alpha.ops.conv2d.predict` reads. What is
minimised is the mean of |log(predicted / measured)|. A fifth of the convolutions takes no part in the fit, and the last
lines say how good the prediction is for them: the time of the configuration that is predicted to be the fastest, over
that of the fastest.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from bench.operators import OPERATORS
from bench.report import FIELDS

import alpha
from alpha.errors import AlphaError
from alpha.ops.conv2d import cuda_target
from alpha.ops.conv2d.configuration import Configuration
from alpha.ops.conv2d.predict import FITTED, Constants, cycles, file_name, kernel_of
from alpha.ops.conv2d.problem import seen_by_kernels
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.conv2d.table import CONFIGURATIONS, Target

HELD_OUT = 5  # each of so many convolutions is not fitted to
ROUNDS = 6
FACTORS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.02, 1.05, 1.1, 1.25, 1.4, 2.0)
OF_THE_GPU = ("launch", "memory", "partial")
OF_A_KERNEL = ("read", "block")


class Sample(NamedTuple):
    """One measurement: a configuration on a shape, as its kernel sees it."""

    configuration: Configuration
    shape: ConvShape
    cycles: float
    precision: str


def read(paths: Sequence[Path], target: Target, clock_mhz: float) -> list[Sample]:
    """The measurements of candidates.csv files. Configurations that are no longer there are left out."""
    by_name = {(v.operator, v.name): v for v in CONFIGURATIONS}
    found = []
    for path in paths:
        with path.open(newline="", encoding="utf-8") as file:
            for line in csv.DictReader(file):
                v = by_name.get((OPERATORS[line["operator"]].key, line["configuration"]))
                s = seen_by_kernels(ConvShape(*(int(line[name]) for name in FIELDS)), target)
                if v is not None and v.supports(s, target):
                    found.append(Sample(v, s, float(line["ms"]) * 1e3 * clock_mhz, line["precision"]))
    return found


def error(samples: Sequence[Sample], target: Target, c: Constants) -> float:
    """The mean of |log(predicted / measured)|."""
    ratios = (cycles(x.configuration, x.shape, target, c) / x.cycles for x in samples)
    return math.fsum(abs(math.log(ratio)) for ratio in ratios) / max(1, len(samples))


def fit(samples: Sequence[Sample], target: Target, start: Constants) -> Constants:
    """Change one constant after another by some percent, as long as the predictions become better."""
    kernels, names = defaultdict(list), defaultdict(list)
    for sample in samples:
        kernels[kernel_of(sample.configuration)].append(sample)
        names[sample.configuration.name].append(sample)
    c = start
    for round_ in range(ROUNDS):
        for name, mine in names.items():
            c = better(mine, target, c, lambda c, f, name=name: scaled(c, "slowdown", name, f, 1.25))
        for kernel, mine in kernels.items():
            for kind, usual in zip(OF_A_KERNEL, (32.0, 2000.0), strict=True):
                c = better(mine, target, c, lambda c, f, k=kernel, kind=kind, u=usual: scaled(c, kind, k, f, u))
        for kind in OF_THE_GPU:
            c = better(samples, target, c, lambda c, f, kind=kind: replace(c, **{kind: getattr(c, kind) * f}))
        print(f"round {round_ + 1} of {ROUNDS}: mean error {math.expm1(error(samples, target, c)):.1%}", flush=True)
    return c


def better(
    samples: Sequence[Sample], target: Target, c: Constants, change: Callable[[Constants, float], Constants]
) -> Constants:
    """The best of the constants as they are and with one of them multiplied by each of FACTORS."""
    return min([c, *(change(c, factor) for factor in FACTORS)], key=lambda c: error(samples, target, c))


def scaled(c: Constants, kind: str, name: str, factor: float, usual: float) -> Constants:
    values = dict(getattr(c, kind))
    values[name] = values.get(name, usual) * factor
    return replace(c, **{kind: values})


def report(samples: Sequence[Sample], target: Target, c: Constants) -> str:
    """How much slower the configuration that is predicted to be the fastest is than the fastest."""
    groups: dict[tuple[str, ConvShape, str], list[Sample]] = defaultdict(list)
    for x in samples:
        groups[x.configuration.operator, x.shape, x.precision].append(x)
    losses = []
    for group in groups.values():
        best = min(group, key=lambda x: cycles(x.configuration, x.shape, target, c))
        losses.append(best.cycles / min(x.cycles for x in group))
    shares = ", ".join(f"{np.mean(np.array(losses) <= 1 + p / 100):.0%} within {p} %" for p in (5, 15, 30))
    return f"{len(groups)} problems, {len(samples)} measurements: {shares}; worst {max(losses):.2f}x"


def rounded(c: Constants) -> dict[str, object]:
    """As JSON, with four digits."""

    def four(value: float) -> float:
        return float(f"{value:.4g}")

    return {
        name: {key: four(x) for key, x in sorted(value.items())} if isinstance(value, dict) else four(value)
        for name, value in asdict(c).items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("candidates", type=Path, nargs="+", help="candidates.csv of bench_conv.py --configurations")
    parser.add_argument("--device", choices=["cuda"], default="cuda")
    parser.add_argument("--output", type=Path, default=FITTED, help="folder of the constants (default: the package's)")
    args = parser.parse_args(arguments)
    try:
        device = alpha.get_device(args.device)
        target, properties = cuda_target(device), device.properties  # type: ignore[attr-defined]
        start = Constants()
        samples = read(args.candidates, target, start.clock_mhz)
    except (AlphaError, OSError, KeyError, ValueError) as problem:
        print(f"fit_conv_model: {problem!r}", file=sys.stderr)
        return 2
    shapes = sorted({x.shape for x in samples}, key=lambda s: (s.X, s.W))
    held_out = set(shapes[::HELD_OUT])
    used = [x for x in samples if x.shape not in held_out]
    if not used:
        print("fit_conv_model: no measurement of a configuration of today", file=sys.stderr)
        return 2
    c = fit(used, target, start)
    print("fitted:  ", report(used, target, c))
    if len(used) < len(samples):
        print("held out:", report([x for x in samples if x.shape in held_out], target, c))
    path = args.output / file_name(properties.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rounded(c), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
