"""Measure matrix products on this machine's GPU, and fit what the model of time knows of the FFMA kernel to them.

    python examples/fit_product_model.py --output runs/products
    python examples/fit_product_model.py --measured runs/products/products.csv    # fit again, on any machine

A product in float32 or tf32 is computed by a convolution's configuration on tensor cores or by `cuda/matmul/ffma.cu`,
whichever is predicted to be faster (alpha/ops/matmul/cuda.py). This measures both for products of drawn sizes, prints
how much slower than the faster one the predicted one is, and writes the constants of FFMA to
`alpha/ops/conv2d/select/fitted/<name of the GPU>.json`. Those of configurations are fit_conv_model.py's, whose file of
the same GPU, or else of the reference GPU, must be there.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from bench.alpha_side import AlphaSide
from bench.timing import Contestant, measure
from fit_conv_model import FACTORS, FINE, LIMITS, bounded, changed_rate, rounded

import alpha
from alpha.errors import AlphaError
from alpha.ops.conv2d import cuda_target
from alpha.ops.conv2d.problem import Configuration, Target, seen_by_kernels
from alpha.ops.conv2d.select import time_model
from alpha.ops.conv2d.select.choose import choose
from alpha.ops.conv2d.select.product_table import PRODUCTS, as_convolution
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.select.time_model import FFMA_PRODUCT, FITTED, Constants
from alpha.ops.gemm.tiles import FFMA, Product, ffma
from alpha.ops.matmul.cuda import run_configuration
from alpha.train.commands.command_line import command

LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536)
LEAST, MOST, MOST_ELEMENTS = 1 << 12, 1 << 36, 1 << 26  # operations of a product; elements of a matrix
TRANSPOSED = ((False, True), (False, False), (True, False))
COLUMNS = ("M", "N", "K", "transpose_a", "transpose_b", "ffma_ms", "configuration", "precision", "ms")
ERROR_SHARE = 0.05  # of the error of the predictions, beside what the choices cost
ROUNDS = 4


class Sample(NamedTuple):
    """Milliseconds of a product by FFMA, and by the configuration of a precision."""

    product: Product
    ffma_ms: float
    configuration: str
    precision: str
    ms: float


def drawn(count: int) -> list[tuple[int, int, int]]:
    """(M, N, K) of products that are neither tiny nor huge."""
    sizes = [
        (M, N, K)
        for M, N, K in itertools.product(LENGTHS, repeat=3)
        if LEAST <= 2 * M * N * K <= MOST and max(M * N, M * K, N * K) <= MOST_ELEMENTS
    ]
    return [sizes[i] for i in np.random.default_rng(0).permutation(len(sizes))[:count]]


def measured(count: int, budget_ms: float) -> Iterator[Sample]:
    """Samples of the GPU of this machine."""
    device = alpha.get_device("cuda")
    clock, target = AlphaSide(device).clock, cuda_target(device)  # type: ignore[arg-type]
    for (M, N, K), (ta, tb) in itertools.product(drawn(count), TRANSPOSED):
        p = Product(1, M, N, K, ta, tb)
        shapes = ((1, K, M) if ta else (1, M, K)), ((1, N, K) if tb else (1, K, N))
        A, B = (device.zeros(shape, np.dtype(np.float32)) for shape in shapes)
        calls: dict[str, Callable[[], object]] = {FFMA: lambda p=p, A=A, B=B: ffma(p, A, B)}  # type: ignore[misc]
        rows = {}
        for precision in ("float32", "tf32"):
            rows[precision] = v = choose(*_convolution(p), target, precision)
            calls[precision] = lambda p=p, v=v, A=A, B=B: run_configuration(p, v, A, B)  # type: ignore[misc]
        times = measure([Contestant(name, call, clock, _nothing) for name, call in calls.items()], budget_ms)
        ms = dict(zip(calls, times, strict=True))
        for precision, v in rows.items():
            yield Sample(p, ms[FFMA], v.name, precision, ms[precision])


def _nothing(*_: object) -> np.ndarray:
    """Results are not compared here; the tests of matrix products do that."""
    return np.empty(0)


def _convolution(p: Product) -> tuple[str, time_model.ConvShape]:
    found = as_convolution(p)
    assert found is not None
    return found


def write(path: Path, samples: Sequence[Sample]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for s in samples:
            p = s.product
            numbers = p.M, p.N, p.K, int(p.transpose_a), int(p.transpose_b), f"{s.ffma_ms:.5g}"
            table.writerow([*numbers, s.configuration, s.precision, f"{s.ms:.5g}"])


def read(path: Path) -> list[Sample]:
    """Samples of a file that `write` made; of configurations that are still there.

    Raises:
        KeyError: the file has not the columns.
    """
    known = {v.name for v in (*CONFIGURATIONS, *PRODUCTS)}
    with path.open(newline="", encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["configuration"] in known]
    found = []
    for line in lines:
        p = Product(1, *(int(line[n]) for n in ("M", "N", "K")), *(line[n] == "1" for n in COLUMNS[3:5]))
        found.append(Sample(p, float(line["ffma_ms"]), line["configuration"], line["precision"], float(line["ms"])))
    return found


def _cycles(v: Configuration, p: Product, target: Target, c: Constants) -> float:
    return time_model.cycles(v, seen_by_kernels(_convolution(p)[1], target), target, c)


class Fit:
    """Samples with what the model predicts for their configurations, which does not change."""

    def __init__(self, samples: Sequence[Sample], target: Target, c: Constants) -> None:
        by_name = {v.name: v for v in (*CONFIGURATIONS, *PRODUCTS)}
        self.samples, self.target = samples, target
        self.others = np.array([_cycles(by_name[s.configuration], s.product, target, c) for s in samples])
        self.on_ffma = np.array([by_name[s.configuration].is_ffma for s in samples])
        self.ms = np.array([[s.ffma_ms, s.ms] for s in samples])
        self.measured = self.ms[:, 0] * 1e3 * c.clock_mhz  # cycles of FFMA

    def predicted(self, c: Constants) -> np.ndarray:
        return np.array([time_model.product_cycles.__wrapped__(s.product, self.target, c) for s in self.samples])

    def losses(self, c: Constants) -> np.ndarray:
        """Time of what is chosen over the time of the faster one."""
        chosen = np.where(self.on_ffma | (self.predicted(c) <= self.others), self.ms[:, 0], self.ms[:, 1])
        return np.asarray(chosen / self.ms.min(axis=1))

    def cost(self, c: Constants) -> float:
        """Mean of log(time / time of the faster one), more if that is much, and a share of all errors."""
        losses, errors = self.losses(c), np.abs(np.log(self.predicted(c) / self.measured))
        slower = sum(weight * float(np.mean(losses > 1 + limit)) for limit, weight in LIMITS)
        return float(np.mean(np.log(losses))) + slower + ERROR_SHARE * float(np.mean(errors))

    def report(self, c: Constants) -> str:
        losses = self.losses(c)
        shares = ", ".join(f"{np.mean(losses <= 1 + p / 100):.1%} within {p} %" for p in (5, 15, 30))
        mean = np.exp(np.mean(np.log(losses)))
        return f"{len(losses)} products: {shares}; mean {mean:.3f}x, worst {losses.max():.2f}x of the faster kernel"


def fitted(fit: Fit, c: Constants) -> Constants:
    """The constants of FFMA that fit best; all others stay."""
    tiles = sorted({time_model.product_configuration(s.product, fit.target) for s in fit.samples})
    keys = [(kind, FFMA_PRODUCT) for kind in ("read", "block", "split")]
    keys += [(kind, tile) for tile in tiles for kind in ("slowdown", "end")]
    for kind, name in keys:
        start = getattr(c, kind).get(name) or {"end": 500.0}.get(kind, time_model.USUAL[kind])
        c = replace(c, **{kind: {**getattr(c, kind), name: bounded(kind, start)}})
    least = fit.cost(c)
    for factors in (FACTORS, FINE):
        for _, (kind, name), factor in itertools.product(range(ROUNDS), keys, factors):
            tried = changed_rate(c, kind, name, factor)
            if (found := fit.cost(tried)) < least - 1e-7:
                least, c = found, tried
    return c


@command("fit_product_model")
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--measured", type=Path, nargs="+", help="products.csv of earlier runs, instead of measuring")
    parser.add_argument("--count", type=int, default=140, help="sizes to measure (default: %(default)s)")
    parser.add_argument("--budget-ms", type=float, default=4.0, help="of each timing (default: %(default)s)")
    parser.add_argument("--gpu", metavar="NAME", help="the GPU that was measured (default: this machine's)")
    parser.add_argument("--output", type=Path, default=Path("runs/products"), help="folder of products.csv")
    parser.add_argument(
        "--constants", type=Path, default=FITTED, help="folder of the constants (default: the package's)"
    )
    args = parser.parse_args(arguments)
    try:
        device = alpha.get_device("cuda")
        target = cuda_target(device)  # type: ignore[arg-type]
        name = args.gpu or device.properties.name  # type: ignore[attr-defined]
        if args.measured:
            samples = [sample for path in args.measured for sample in read(path)]
        else:
            samples = list(measured(args.count, args.budget_ms))
            write(args.output / "products.csv", samples)
    except KeyError as column:
        print(f"fit_product_model: {column} is no column of the file", file=sys.stderr)
        return 2
    except (AlphaError, OSError, ValueError) as problem:
        print(f"fit_product_model: {problem}", file=sys.stderr)
        return 2
    if not samples:
        print("fit_product_model: no measurement of a configuration of today", file=sys.stderr)
        return 2
    stored = time_model.constants_of(name)
    fit = Fit(samples, target, stored)
    print("before:", fit.report(stored))
    c = fitted(fit, stored)
    print("fitted:", fit.report(c))
    path = args.constants / time_model.file_name(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rounded(c), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
