"""Dry runs: what a step launches on a GPU, found without computing anything and without the GPU.

    run = alpha.dry_run(step, images, labels)                      # on the cuda device
    run = alpha.dry_run(model, (512, 32, 32, 3), gpu="sm_90a")     # on a GPU that need not be there
    print(run.describe())

The Python code of the step runs once, on a copy of everything that it reaches (`stand_ins.py`). So modules, optimizers,
gradients and random numbers stay as they are. `alpha.compile_kernels` (`compile_steps.py`) compiles all kernels that
are found so at once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from alpha.autograd.memory_mode import get_memory_mode, memory_mode
from alpha.core import rng
from alpha.core.numerics import get_precision, precision
from alpha.errors import DeviceError, DryRunError
from alpha.module.module import Module
from alpha.runtime import Device
from alpha.runtime.cuda.compile import ARCHITECTURES, Unit
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.driver import DeviceProperties
from alpha.runtime.cuda.planning.driver_dry import DryDevice, Launch, dry_properties
from alpha.runtime.recording import Asked, Recording, layer_names, recorded, unheard
from alpha.runtime.registry import opened, standing_in
from alpha.step.dry_arguments import BothPasses, device_of, input_of, is_shape, known_gpus
from alpha.step.profiling.event_report import Report
from alpha.step.profiling.events import predicted
from alpha.step.sources.watch import Watch
from alpha.step.stand_ins import stand_in

REFUSED = "a dry run computes nothing on the GPU"


@dataclass(frozen=True)
class StepLaunch:
    """One launch of a step.

    Attributes:
        phase: "forward", "backward" or "update". What belongs to neither of the last two is "forward", too.
        layer: the name of the innermost module whose forward or gradient is being computed; empty if it is unknown.
        asked: the operator that it belongs to, and its work.
    """

    phase: str
    layer: str
    launch: Launch
    asked: Asked = field(repr=False, compare=False)


@dataclass(frozen=True)
class DryRun:
    """Launches of a step on a GPU.

    Attributes:
        gpu: the name of the GPU.
        launches: in their order.
        units: what must be compiled for the step, each once and in the order in which it is needed: a file below
            `cuda/` and the options of the compiler.
        devices: where the tensors that the step reaches lie.
        properties: of the GPU.
    """

    gpu: str
    launches: tuple[StepLaunch, ...]
    units: tuple[Unit, ...]
    devices: frozenset[Device]
    properties: DeviceProperties

    def describe(self) -> str:
        """Description: the number of launches, and a line for each, with its predicted time."""
        phases = Counter(step.phase for step in self.launches)
        counts = ", ".join(f"{count} {name}" for name, count in phases.items())
        phase, layer = (max((len(getattr(s, part)) for s in self.launches), default=0) for part in ("phase", "layer"))
        times = [f"{event.ms:9.4f} ms" for event in self.report.events]
        lines = [
            f"{s.phase:{phase}}  {s.layer:{layer}}  {ms}  {s.launch}"
            for s, ms in zip(self.launches, times, strict=True)
        ]
        head = f"{len(self.launches)} launches ({counts}) of {len(self.units)} compiled files on {self.gpu}"
        return "\n".join([head, *lines])

    @cached_property
    def report(self) -> Report:
        """The launches with predicted times: tables and a trace, as `alpha.profile` makes of measured ones."""
        events = predicted([(step.asked, step.layer) for step in self.launches], self.properties)
        total = sum(event.ms for event in events)
        return Report(f"{self.gpu}, times predicted by Alpha's model", events, total, True)

    def table(self, by: str = "layer", most: int | None = None) -> str:
        """Table of the predicted times; see `alpha.profile` and `Report.table`.

        Args:
            by: "layer", "operator", "kernel" or "phase".
            most: so many lines at most; the others are added up in one.

        Raises:
            ConfigError: `by` is another word.
            TypeError, ValueError: `most` is neither None nor an integer of at least 1.
        """
        return self.report.table(by, most)


def dry_run(function: Callable[..., Any], *args: Any, gpu: str | Device | None = None, **kwargs: Any) -> DryRun:
    """Run a step without computing anything, and list what it launches.

    The tensors that the step reaches may lie on any device; it is run as if they lay on the GPU. The precision and the
    grad mode in force hold. What the step prints or does to files it does here, too.

    Args:
        function: a step, also one of `alpha.capture`, or a module. In place of a tensor a module takes the shape of its
            input as a tuple; it then runs forward and, if it is in training mode, backward.
        gpu: the GPU on which the step would run: the cuda device, or the name of an architecture such as "sm_90a". By
            default the cuda device, which is made if need be.

    Raises:
        DryRunError: the launches cannot be known without computing: the step reads values (`.item()`, `.numpy()`) or
            raises an error, or something that it reaches cannot be copied. Nothing has changed then.
        DeviceError: there is no such GPU.
        TypeError, ValueError: the shape in place of a tensor is none.
    """
    device = _double(gpu)
    title = getattr(function, "__name__", type(function).__name__)
    if isinstance(function, Module) and len(args) == 1 and is_shape(args[0]):
        function, args = BothPasses(function), (input_of("dry_run", args[0]),)
    try:
        return _run(function, args, kwargs, device)
    except DryRunError as error:
        raise DryRunError(f"{title} cannot be dry-run: {error}") from None
    except Exception as error:
        raise DryRunError(f"{title} cannot be dry-run: {type(error).__name__}: {error}") from error


def _double(gpu: str | Device | None) -> DryDevice:
    """The dry device of the same properties."""
    if isinstance(gpu, str) and gpu in ARCHITECTURES:
        return DryDevice.double(dry_properties(gpu))
    device = device_of("dry_run", gpu)
    if not isinstance(device, CudaDevice):
        raise DeviceError(f"dry_run: {device.name} is no GPU: use {known_gpus()}")
    return device if isinstance(device, DryDevice) else DryDevice.double(device.properties)


def _run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], device: DryDevice) -> DryRun:
    (function, args, kwargs), devices = stand_in((function, args, dict(kwargs)), device)
    reached = {"the arguments": (args, kwargs)}
    watch = Watch(function, reached)
    for name, tensor in watch.named_tensors():
        if tensor.device is not device:
            raise DryRunError(f"it reaches the tensor {name} through a class or a module, which are not copied")
    with ExitStack() as stack:
        stack.enter_context(in_place_of_the_gpu(device))
        notes = _Notes(device)
        if watch.lazy:  # what is listed is a step of the plain layers, as all behind the first one are
            before = {id(tensor): tensor._grad for tensor in watch.tensors}
            with recorded(_Notes(device)):  # so that a step of `alpha.capture` runs as usual, too
                function(*args, **kwargs)
            watch = Watch(function, reached)
            for tensor in watch.tensors:
                tensor._grad = before.get(id(tensor))
        notes.follow([value for value in watch.reached if isinstance(value, Module)])
        stack.enter_context(recorded(notes))
        found = stack.enter_context(device.driver.noting())
        function(*args, **kwargs)
    # an exchange between ranks is noted, too, under the number of the launch behind it, if there is one
    labels = [(found[i], notes.labels[i]) for i in sorted(notes.labels) if i < len(found)]
    names = layer_names(asked.layer for _, asked in labels)
    launches = tuple([StepLaunch(asked.phase, names[asked.layer], launch, asked) for launch, asked in labels])
    units = tuple(dict.fromkeys(launch.unit for launch in found))
    return DryRun(device.properties.name, launches, units, frozenset(devices), device.properties)


@contextmanager
def in_place_of_the_gpu(device: DryDevice) -> Iterator[None]:
    """Context in which a dry device is the cuda device, and the real one refuses every call; see `_kept_state`, too.

    A recording or a profile of the program hears nothing of it.
    """
    real = opened("cuda")
    with ExitStack() as stack:
        if isinstance(real, CudaDevice) and real is not device:
            stack.enter_context(real.driver.owner.refusing(REFUSED))
        stack.enter_context(standing_in(device))
        stack.enter_context(unheard())
        stack.enter_context(_kept_state())
        yield


@contextmanager
def _kept_state() -> Iterator[None]:
    """Context after which what was drawn inside is drawn again, and the precision and the memory mode are as before."""
    drawn, python, legacy = rng.default.state(), random.getstate(), np.random.get_state()
    try:
        with precision(get_precision()), memory_mode(get_memory_mode()):
            yield
    finally:
        rng.default.set_state(drawn)
        random.setstate(python)
        np.random.set_state(legacy)


class _Notes(Recording):
    """Notes on each launch, by its number. A launch without a recording has none."""

    def __init__(self, device: DryDevice) -> None:
        super().__init__(capturing=False)
        self.labels: dict[int, Asked] = {}
        self._device = device

    def hear(self, asked: Asked) -> None:
        if asked.kind not in ("copy", "fill"):
            self.labels[len(self._device.driver.launches)] = asked

    def refuse(self, what: str) -> None: ...

    def follow(self, modules: list[Module]) -> None:
        """Give these modules their names, as parts of the largest among them."""
        below = {id(inner) for module in modules for inner in list(module.modules())[1:]}
        for module in modules:
            if id(module) not in below:
                self.name(module)
