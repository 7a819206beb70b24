"""Fit the model that predicts the time of convolution kernels to measurements on this machine's GPU.

    python examples/bench_conv.py --device cuda --alone --configurations --cases all zoo drawn --output runs/sweep
    python examples/fit_conv_model.py runs/sweep/candidates.csv

The constants go to `alpha/ops/conv2d/select/fitted/<name of the GPU>.json`, which the model of time
(alpha/ops/conv2d/select/time_model.py) reads. First the
errors of the predicted times are minimised, above all those in which the configurations of a problem differ, then what
their choices cost. This is done twice: without a fifth of the convolutions, to see how good the predictions are for
those, and with all of them. A line says for how many problems (an operator, a convolution and a precision) the
configuration that is predicted to be the fastest takes at most so much longer than the fastest.

    python examples/fit_conv_model.py runs/sweep/candidates.csv --rates-only --kernels sm90,product

keeps the stored constants of the GPU itself, and of kernels that were not measured or whose names contain neither text.
It is for a change of some kernels, or if others were measured for few shapes.
"""

from __future__ import annotations

import argparse
import csv
import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from bench.operators import OPERATORS
from bench.report import FIELDS

import alpha
from alpha.errors import AlphaError
from alpha.ops.conv2d import cuda_target
from alpha.ops.conv2d.prepare import shape_for
from alpha.ops.conv2d.problem import Configuration, Target, seen_by_kernels
from alpha.ops.conv2d.select.product_table import PRODUCTS
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.select.time_model import (
    FITTED,
    USUAL,
    Constants,
    Quantities,
    Rates,
    Work,
    file_name,
    key_of,
    quantities,
    total,
)
from alpha.ops.conv2d.shape import ConvShape
from alpha.train.commands.command_line import command

Array: TypeAlias = "np.ndarray[Any, Any]"

HELD_OUT = 5  # each of so many convolutions is not fitted to
FACTORS = (0.5, 0.7, 0.85, 0.95, 0.98, 1.02, 1.05, 1.18, 1.4, 2.0)
FINE = (0.7, 0.85, 0.93, 0.97, 1.03, 1.08, 1.18, 1.4)
ROUNDS, CHOICE_ROUNDS = 6, 3
START = {**USUAL, "step": 100.0, "end": 500.0}  # of rates that are not stored, as 0 has no multiples
OF_THE_GPU = ("launch", "memory", "partial", "not_hidden", "memory_not_hidden", "least_active")
NEAR, FAR_WEIGHT = (
    0.25,
    0.02,
)  # a configuration that is slower than the fastest by NEAR counts a third, any other a little
COMMON = 0.2  # how much the part of an error counts that all configurations of a problem share
SMOOTH = 0.01  # an error below it hardly counts
LIMITS = ((0.05, 0.015), (0.15, 0.05))  # what a choice costs that is slower than the fastest by so much
# of what the other constants can stand for as well: bytes per cycle, and a share of the cycles of the arithmetic units
BOUNDS = {"read": (1.0, 1024.0), "slowdown": (0.3, 10.0)}
ERROR_SHARE = 0.02  # of the error of the predictions, beside what their choices cost


class Sample(NamedTuple):
    """One measurement: a configuration on a shape, as its kernel sees it."""

    configuration: Configuration
    shape: ConvShape
    cycles: float
    precision: str


@dataclass(eq=False)
class Samples:
    """Measurements as arrays with an entry per sample, sorted by problem.

    Attributes:
        keys: the names of `Constants` that the samples use: by kind the names, and for each sample its index.
        starts: the first sample of each problem.
        problem: the number of each sample's problem.
    """

    measured: Array
    quantities: Quantities
    keys: dict[str, tuple[list[str], Array]]
    starts: Array
    problem: Array

    @classmethod
    def of(cls, samples: Iterable[Sample], target: Target) -> Samples:
        def problem_of(x: Sample) -> tuple[Any, ...]:
            return x.configuration.operator, x.precision, x.shape.X, x.shape.W, x.shape

        found = sorted(samples, key=lambda x: tuple(map(str, problem_of(x))))
        problems = [problem_of(x) for x in found]
        new = np.array([i == 0 or problems[i - 1] != p for i, p in enumerate(problems)])
        each = [quantities(x.configuration, x.shape, target) for x in found]
        work = Work(*(np.array(column, float) for column in zip(*(q.work for q in each), strict=True)))
        others = (np.array(column, float) for column in zip(*(q[1:] for q in each), strict=True))
        keys = {}
        for kind in USUAL:
            names = [key_of(kind, x.configuration) for x in found]
            distinct, index = np.unique(names, return_inverse=True)
            keys[kind] = list(map(str, distinct)), index
        measured = np.array([x.cycles for x in found])
        return cls(measured, Quantities(work, *others), keys, np.flatnonzero(new), np.cumsum(new) - 1)

    @property
    def fastest(self) -> Array:
        """The time of the fastest configuration of each problem."""
        return np.minimum.reduceat(self.measured, self.starts)

    @functools.cached_property
    def weights(self) -> Array:
        """Weight of the error of each prediction: larger for configurations that may be chosen."""
        ratio = self.measured / self.fastest[self.problem]
        weights = np.exp((1 - ratio) / NEAR) + FAR_WEIGHT
        return weights / weights.sum()

    def predicted(self, c: Constants) -> Array:
        rates = {}
        for kind, (names, index) in self.keys.items():
            rates[kind] = np.array([getattr(c, kind).get(name, USUAL[kind]) for name in names])[index]
        return np.asarray(total(self.quantities, Rates(**rates), c))

    def errors(self, c: Constants) -> Array:
        """log(predicted / measured) of each sample."""
        return np.log(self.predicted(c) / self.measured)

    def error(self, c: Constants) -> float:
        """Error of all predictions: errors about the mean error of the problem, and a share COMMON of the errors."""
        errors = self.errors(c)
        mean = np.bincount(self.problem, self.weights * errors) / np.bincount(self.problem, self.weights)
        own = np.sqrt((errors - mean[self.problem]) ** 2 + SMOOTH**2)
        return float(self.weights @ own + COMMON * (self.weights @ np.abs(errors)))

    def losses(self, c: Constants) -> Array:
        """Loss of each problem: the time of the configuration predicted to be the fastest, over the fastest one's."""
        predicted = self.predicted(c)
        chosen = predicted == np.minimum.reduceat(predicted, self.starts)[self.problem]
        return np.minimum.reduceat(np.where(chosen, self.measured, np.inf), self.starts) / self.fastest


def read(paths: Sequence[Path], target: Target, clock_mhz: float, kernels: Sequence[str] = ("",)) -> list[Sample]:
    """The measurements of candidates.csv files, without configurations that are no longer there, or not preferred.

    `kernels`: texts, one of which the name of a configuration must contain.

    A float32 configuration may be chosen for tf32, too, so its measurement counts for both.

    Raises:
        ValueError: a configuration was measured that the target cannot run, so it is not the GPU that was measured.
    """
    by_name = {(v.operator, v.name): v for v in (*CONFIGURATIONS, *PRODUCTS)}
    found = []
    for path in paths:
        with path.open(newline="", encoding="utf-8") as file:
            for line in csv.DictReader(file):
                v = by_name.get((OPERATORS[line["operator"]].key, line["configuration"]))
                s = seen_by_kernels(ConvShape(*(int(line[name]) for name in FIELDS)), target)
                if v is not None and shape_for(v, s, target) is None:
                    raise ValueError(f"{v.name} was measured for X {s.X} W {s.W}, but {target} does not support it")
                if v is not None and v.preferred(s, target) and any(text in v.name for text in kernels):
                    found.append(Sample(v, s, float(line["ms"]) * 1e3 * clock_mhz, line["precision"]))
    tf32 = {(x.configuration.operator, x.shape) for x in found if x.precision == "tf32"}
    better = [x for x in found if x.precision == "float32" and (x.configuration.operator, x.shape) in tf32]
    return found + [x._replace(precision="tf32") for x in better]


# -- fitting ----------------------------------------------------------------------------------------


def fit(samples: Samples, stored: Constants | None = None) -> Constants:
    """The constants that fit best. `stored`: begin with these, and change only rates of kernels that were measured."""
    of_the_gpu = OF_THE_GPU if stored is None else ()
    c = stored or Constants()
    for kind, (names, _) in samples.keys.items():
        rates = getattr(c, kind)
        c = replace(c, **{kind: {**rates, **{name: bounded(kind, rates.get(name) or START[kind]) for name in names}}})
    for objective, factors, rounds in ((Samples.error, FACTORS, ROUNDS), (cost, FINE, CHOICE_ROUNDS)):
        c = descend(functools.partial(objective, samples), c, factors, rounds, samples, of_the_gpu)
    print("fitted:  ", report(samples, c), flush=True)
    return c


def descend(
    objective: Callable[[Constants], float],
    c: Constants,
    factors: Sequence[float],
    rounds: int,
    samples: Samples,
    of_the_gpu: Sequence[str],
) -> Constants:
    """Change one constant after another by some percent, as long as the objective becomes smaller."""
    least = objective(c)
    for _ in range(rounds):
        for changed in constants_one_by_one(samples, of_the_gpu):
            for factor in factors:
                tried = changed(c, factor)
                if (found := objective(tried)) < least - 1e-7:
                    least, c = found, tried
    return c


def constants_one_by_one(
    samples: Samples, of_the_gpu: Sequence[str]
) -> Iterator[Callable[[Constants, float], Constants]]:
    for kind, (names, _) in samples.keys.items():
        for name in names:
            yield lambda c, f, kind=kind, name=name: changed_rate(c, kind, name, f)  # type: ignore[misc]
    for name in of_the_gpu:
        yield lambda c, f, name=name: replace(c, **{name: getattr(c, name) * f})  # type: ignore[misc]


def changed_rate(c: Constants, kind: str, name: str, factor: float) -> Constants:
    rates = getattr(c, kind)
    return replace(c, **{kind: {**rates, name: bounded(kind, rates[name] * factor)}})


def bounded(kind: str, rate: float) -> float:
    least, most = BOUNDS.get(kind, (0.0, np.inf))
    return float(min(max(rate, least), most))


def cost(samples: Samples, c: Constants) -> float:
    """The mean of log(time / fastest time) of what is chosen, more if that is much, and a little of all errors."""
    losses = samples.losses(c)
    slower = sum(weight * float(np.mean(losses > 1 + limit)) for limit, weight in LIMITS)
    return float(np.mean(np.log(losses))) + slower + ERROR_SHARE * samples.error(c)


def report(samples: Samples, c: Constants) -> str:
    """Text that says how much slower the configuration predicted to be the fastest is than the fastest one."""
    losses = samples.losses(c)
    shares = ", ".join(f"{np.mean(losses <= 1 + p / 100):.1%} within {p} %" for p in (5, 15, 30))
    error = np.expm1(samples.weights @ np.abs(samples.errors(c)))
    return f"{len(losses)} problems: {shares}; worst {losses.max():.2f}x; mean error of a prediction {error:.1%}"


def rounded(c: Constants) -> dict[str, object]:
    """Constants as JSON, with four digits."""

    def four(value: float) -> float:
        return float(f"{value:.4g}")

    return {
        name: {key: four(x) for key, x in sorted(value.items())} if isinstance(value, dict) else four(value)
        for name, value in asdict(c).items()
    }


@command("fit_conv_model")
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("candidates", type=Path, nargs="+", help="candidates.csv of bench_conv.py --configurations")
    parser.add_argument("--device", choices=["cuda"], default="cuda")
    parser.add_argument("--gpu", metavar="NAME", help="the GPU that was measured (default: this machine's)")
    parser.add_argument("--kernels", type=lambda text: text.split(","), default=[""], metavar="TEXT,..")
    parser.add_argument("--rates-only", action="store_true", help="keep all other constants that the file has")
    parser.add_argument("--output", type=Path, default=FITTED, help="folder of the constants (default: the package's)")
    args = parser.parse_args(arguments)
    missing = [str(path) for path in args.candidates if not path.is_file()]
    if missing:
        print(f"fit_conv_model: no such file: {', '.join(missing)}", file=sys.stderr)
        return 2
    try:
        device = alpha.get_device(args.device)
        target, properties = cuda_target(device), device.properties  # type: ignore[attr-defined]
        samples = read(args.candidates, target, Constants().clock_mhz, args.kernels)
    except KeyError as column:
        print(f"fit_conv_model: {column} is no column of the file, or no operator", file=sys.stderr)
        return 2
    except (AlphaError, OSError, ValueError) as problem:
        print(f"fit_conv_model: {problem}", file=sys.stderr)
        return 2
    if not samples:
        print("fit_conv_model: no measurement of a configuration of today", file=sys.stderr)
        return 2
    path = args.output / file_name(args.gpu or properties.name)
    if args.rates_only and not path.is_file():
        print(f"fit_conv_model: --rates-only needs {path}", file=sys.stderr)
        return 2
    stored = Constants.load(path) if args.rates_only else None
    shapes = sorted({x.shape for x in samples}, key=lambda s: (s.X, s.W))
    held_out = set(shapes[::HELD_OUT])
    used = [x for x in samples if x.shape not in held_out]
    if used:
        others = Samples.of([x for x in samples if x.shape in held_out], target)
        print("held out:", report(others, fit(Samples.of(used, target), stored)))
    c = fit(Samples.of(samples, target), stored)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rounded(c), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
