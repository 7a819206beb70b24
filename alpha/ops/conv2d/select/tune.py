"""The autotuner: with ALPHA_TUNE=1 the configurations that support a shape are measured once, and the fastest is kept.

Measurements are kept in the cache folder, in a file for each GPU, driver, compiler and version of the kernels.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from alpha import config
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.core.primitive import Array
from alpha.errors import CompileError, OutOfMemoryError
from alpha.ops.conv2d.plan import compute, cuda_target
from alpha.ops.conv2d.problem import OPERANDS, Configuration, seen_by_kernels
from alpha.ops.conv2d.select.time_model import is_counted, predicted_ms
from alpha.ops.conv2d.shape import ConvShape
from alpha.runtime import Device
from alpha.runtime.cuda.cache import folder_of, source_root
from alpha.runtime.cuda.compile import compile_units, cuda_compiler, target
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.planning.driver_dry import DryDevice

Times = dict[str, float]  # name of a candidate -> median milliseconds


class TuningCache:
    """The measurements for one GPU, driver, compiler and version of the kernels, and their file."""

    def __init__(self, path: Path, facts: Mapping[str, str]) -> None:
        self.path, self.facts = path, facts
        self._unwritable = False
        self._known = self._read()

    def times(self, key: str, names: Sequence[str]) -> Times | None:
        """The measurements for `key`, if all of them belong to present candidates; otherwise None."""
        times = self._known.get(key)
        return times if times and times.keys() <= set(names) else None

    def add(self, key: str, times: Times) -> None:
        """Add measurements to the file, together with what other processes have written in the meantime."""
        self._known = {**self._read(), **self._known, key: times}
        content = {"facts": self.facts, "milliseconds": self._known}
        try:
            _replace(self.path, json.dumps(content, indent=1))
        except OSError as error:
            if not self._unwritable:
                self._unwritable = True
                warnings.warn(
                    f"{self.path}: what ALPHA_TUNE measured cannot be kept ({error.strerror}) and "
                    f"is measured again in every process: set {config.CACHE_DIR.name} to a writable "
                    "folder",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def _read(self) -> dict[str, Times]:
        try:
            text = self.path.read_bytes()
        except OSError:  # usually there is no file yet; `add` reports what is wrong with the folder
            return {}
        try:
            content = json.loads(text)
            found = {
                str(key): {str(name): float(ms) for name, ms in times.items()}
                for key, times in content["milliseconds"].items()
            }
            if not all(0 < ms < math.inf for times in found.values() for ms in times.values()):
                raise ValueError("a time is not a positive number")
            return found
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            aside = self.path.with_suffix(".damaged")
            with contextlib.suppress(OSError):
                self.path.replace(aside)
            warnings.warn(
                f"{self.path}: not a file of ALPHA_TUNE ({type(error).__name__}: {error}); it is kept as "
                f"{aside.name} and its shapes are measured again",
                RuntimeWarning,
                stacklevel=2,
            )
            return {}


def _replace(path: Path, text: str) -> None:
    """Write a file completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".tuned-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def folder() -> Path:
    """The folder of the files."""
    return folder_of("tuned")


@functools.cache
def tuning_cache(device: Device, home: Path) -> TuningCache:
    facts = facts_of(device)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    gpu = "".join(c if c.isalnum() else "-" for c in facts["gpu"])
    return TuningCache(home / f"{gpu}.{digest}.json", facts)


def facts_of(device: Any) -> dict[str, str]:
    """Everything besides the shape on which a measurement depends."""
    properties = device.properties
    major, minor = properties.compute_capability
    try:
        compiler = cuda_compiler(target((major, minor))).identity
    except CompileError as error:  # the emulated driver needs none
        compiler = str(error)
    return {
        "gpu": properties.name,
        "compute capability": f"{major}.{minor}",
        "driver": properties.driver,
        "compiler": compiler,
        "kernels": sources_digest(),
    }


@functools.cache
def sources_digest() -> str:
    """A hash of the kernels, and of the Python files that choose and launch them."""
    digest = hashlib.sha256()
    for path in _sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:32]


def _sources() -> Iterable[Path]:
    ops, root = Path(__file__).parents[2], source_root()
    for folder in ("conv2d", "gemm", "matmul"):
        yield from sorted((ops / folder).rglob("*.py"))
    for family in ("common", "conv2d", "matmul", "reduce"):
        yield from sorted(path for path in (root / family).iterdir() if path.is_file())


Call = Callable[[], Any]

BUDGET_S = 0.020  # of measurements per candidate
ROUNDS = 25  # at most
MARGIN = 0.97  # times the default's time: only a faster candidate displaces the default
PRUNE_RATIO = 3.0  # times the fastest: a slower candidate is not measured again after the first round
FLUSH_BYTES, FLUSHES = 64 << 20, 4  # bytes, and how often they are written before a measurement: see `_Clock`


def fastest(
    device: Device, operator: str, s: ConvShape, precision: str, rows: Sequence[Configuration], default: Configuration
) -> Configuration:
    """The fastest of `rows` on `device`, measured in this run or an earlier one; `default` is the table's choice."""

    key = f"{operator} X {s.X} W {s.W} Y {s.Y} stride {(s.sh, s.sw)} padding {(s.ph, s.pw)}{s.extras} {precision}"
    by_name = {default.name: default, **{v.name: v for v in rows}}

    def calls(on: Device) -> dict[str, Call]:
        dtype = BFLOAT16 if precision == "bf16" else FLOAT32
        first, second = (scratch(on, getattr(s, name.removeprefix("d")), dtype) for name in OPERANDS[operator])
        return {v.name: partial(compute, v, first, second, s) for v in by_name.values()}

    taken = best_of(device, key, tuple(by_name), calls)
    times = tuning_cache(device, folder()).times(key, tuple(by_name))
    if times is not None and config.DEBUG.flag():
        target = cuda_target(device)
        seen = seen_by_kernels(s, target)
        counted = {name: v for name, v in by_name.items() if is_counted(v) and name in times}
        _say(f"{key}: {compared(times, {name: predicted_ms(v, seen, target) for name, v in counted.items()})}")
    return by_name[taken]


def compared(measured: Times, predicted: Times) -> str:
    """One line that says how the model's choice compares with the fastest."""
    if not predicted:
        return "the model knows none of the candidates"
    fastest, expected = min(measured, key=lambda n: measured[n]), min(predicted, key=lambda n: predicted[n])
    slower = measured[expected] / measured[fastest] - 1
    took = f"{measured[expected]:.4f} ms, {predicted[expected]:.4f} ms predicted"
    return f"the model would take {expected} ({took}), {slower:.0%} slower than the fastest"


def best_of(device: Device, key: str, names: Sequence[str], calls: Callable[[Device], Mapping[str, Call]]) -> str:
    """The fastest of `names` for the work `key`. The first one is the default, which is taken unless clearly slower.

    `calls(device)` makes scratch operands there and one call for each name; it is called only if no run has measured
    `key` yet. If there is not enough memory for it, or in a dry run, the default is taken and nothing is kept.
    """
    if len(names) == 1:
        return names[0]
    cache = tuning_cache(device, folder())
    times = cache.times(key, names)
    if times is None:
        try:
            times = cast(CudaDevice, device).outside_capture(lambda: _times(device, calls))
        except OutOfMemoryError as error:
            _say(f"{key}: {names[0]}, not tuned: {error}")
            return names[0]
        if times is None:
            return names[0]
        cache.add(key, times)
    order = sorted(times, key=lambda name: times[name])
    if times[order[0]] > MARGIN * times.get(names[0], float("inf")):
        order.remove(names[0])
        order.insert(0, names[0])
    listed = [f"{name} ({times[name]:.4f} ms)" for name in order]
    runner_up = f", runner-up {listed[1]}" if len(listed) > 1 else ""
    _say(f"{key}: tuned: {listed[0]}{runner_up}")
    return order[0]


def _times(device: Device, calls: Callable[[Device], Mapping[str, Call]]) -> dict[str, float] | None:
    """The time of each call; None in a dry run, in which what they launch is noted, to be compiled with the step."""
    if isinstance(device, DryDevice):
        run_all(device, calls)
        return None
    compile_all(cast(CudaDevice, device), calls)
    return measure(device, calls(device))


def _say(text: str) -> None:
    if config.DEBUG.flag():
        print(f"alpha: {text}", file=sys.stderr)


# -- compiling ----------------------------------------------------------------------------------------


def run_all(device: Device, calls: Callable[[Device], Mapping[str, Call]]) -> None:
    """Run each candidate once."""
    for call in calls(device).values():
        call()


def compile_all(device: CudaDevice, calls: Callable[[Device], Mapping[str, Call]]) -> None:
    """Compile the kernels of all candidates at once."""
    double = DryDevice.double(device.properties)
    with double.driver.noting() as found:
        run_all(double, calls)
    compile_units(device.driver, [launch.unit for launch in found])


# -- measuring --------------------------------------------------------------------------------------


def scratch(device: Device, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array of normally distributed numbers. Zeros need less power, so the GPU would run faster on them."""
    if isinstance(device, DryDevice):
        return device.empty(shape, dtype)
    return device.upload(np.resize(_pattern(dtype), shape))


@functools.cache
def _pattern(dtype: np.dtype[Any]) -> Any:
    return np.random.default_rng(0).standard_normal(1 << 16, np.float32).astype(dtype)


def measure(device: Device, calls: Mapping[str, Call]) -> Times:
    """Median milliseconds of each call. The calls alternate, so that a change of the clock rate affects all of them.

    A call for which there is too little memory is left out. If none is left, this raises `OutOfMemoryError`.
    """
    clock = _Clock(device)
    running: dict[str, Call] = {}
    shortage: OutOfMemoryError | None = None
    for name, call in calls.items():
        try:
            call()  # uploads the tables that plans keep
            running[name] = call
        except OutOfMemoryError as error:
            shortage = error
    if not running:
        raise shortage or ValueError("nothing to measure")
    samples: dict[str, list[float]] = {name: [] for name in running}
    until = time.perf_counter() + BUDGET_S * len(running)
    for _ in range(ROUNDS):
        for name, call in running.items():
            samples[name].append(clock.milliseconds(call))
        least = min(values[0] for values in samples.values())
        running = {n: call for n, call in running.items() if samples[n][0] <= PRUNE_RATIO * least}
        if time.perf_counter() > until:
            break
    return {name: statistics.median(values) for name, values in samples.items()}


class _Clock:
    """Measures the time that a call takes on the device, without the time that the host needs to queue it.

    Before each measurement the device gets other work, long enough that the call's launches are queued behind it. This
    work also evicts the operands from the L2 cache, where they would not be in a training step either.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self._waste = device.empty((FLUSH_BYTES,), np.uint8)

    def milliseconds(self, call: Call) -> float:
        for _ in range(FLUSHES):
            self.device.driver.fill(self._waste.address, 0, FLUSH_BYTES)
        start = self.device.record_event()
        call()
        return float(self.device.elapsed_ms(start, self.device.record_event()))
