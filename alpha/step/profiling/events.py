"""Events of a profile: kernels, copies, fills, exchanges and operators of the cpu, each with its layer and its work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alpha.ops.conv2d.problem import MathMode, Target
from alpha.ops.conv2d.select import time_model
from alpha.runtime.cuda.driver import DeviceProperties
from alpha.runtime.recording import Asked
from alpha.runtime.work import NO_WORK, Work

UNKNOWN = "(not Alpha's)"  # the operator of an event that Alpha has not asked for


@dataclass(frozen=True)
class Event:
    """One thing that a device has done.

    Attributes:
        kind: "kernel", "copy", "fill", "exchange" with other processes, "replay" of a graph that is not known in
            parts, or "operator" of the cpu.
        phase: "forward", "backward" or "update"; empty if it is unknown.
        layer: the name of the module whose forward or gradient it is a part of; empty if it is a part of none.
        operator: what it computes.
        kernel: the kernel, with its configuration if it has one; of other kinds the operator.
        start_ms: from the beginning of the profile.
        ms: how long it took.
        work: its products and its bytes.
        products_ms: how long its products take at the limit of the device; 0 if that is unknown.
        bytes_ms: how long its bytes take at the limit of the device's memory; 0 if that is unknown.
        captured: whether a replayed graph has launched it.
        stream: the number of the stream that it ran on.
        inner_ms: how long others took that it has called, which are events of their own; of operators of the cpu.
    """

    kind: str
    phase: str
    layer: str
    operator: str
    kernel: str
    start_ms: float
    ms: float
    work: Work = NO_WORK
    products_ms: float = 0.0
    bytes_ms: float = 0.0
    captured: bool = False
    stream: int = 0
    inner_ms: float = 0.0

    @property
    def end_ms(self) -> float:
        """The time from the beginning of the profile until it was done."""
        return self.start_ms + self.ms + self.inner_ms

    @property
    def is_known(self) -> bool:
        """True if Alpha has asked for it; another library in the process may have launched others."""
        return self.operator != UNKNOWN


class Limits:
    """Limits of a GPU, from the table by which kernels are chosen (alpha/ops/conv2d/select/time_model.py)."""

    def __init__(self, properties: DeviceProperties) -> None:
        self._target = Target(
            "cuda",
            properties.compute_capability,
            properties.num_sms,
            properties.shared_bytes_per_block,
            name=properties.name,
        )
        self._constants = time_model.constants_of(properties.name)

    def tflops(self, math: str) -> float:
        """The most TFLOP/s of products in a math mode, at the clock of the table."""
        per_cycle = time_model.products_per_cycle(MathMode[math], self._target)
        return 2 * per_cycle * self._target.num_sms * self._constants.clock_mhz / 1e6

    @property
    def gb_per_s(self) -> float:
        """The GB/s of the GPU's memory that kernels have been seen to reach."""
        return self._constants.memory * self._constants.clock_mhz / 1e3

    def products_ms(self, work: Work) -> float:
        """The least milliseconds that the products of a launch take; 0 if it has none."""
        return work.flop / self.tflops(work.math) / 1e9 if work.flop and work.math else 0.0

    def bytes_ms(self, work: Work) -> float:
        """The least milliseconds that its bytes take."""
        return (work.read + work.written) / self.gb_per_s / 1e6

    def predicted_ms(self, work: Work) -> float:
        """The milliseconds of a launch: by the model of convolutions, else by its products, bytes and launch.

        That model does not count the arrays of a first step or of an epilogue, so it is not believed below the least
        time of products and bytes.
        """
        least = max(self.products_ms(work), self.bytes_ms(work))
        if work.cycles:
            return max(work.cycles / self._constants.clock_mhz / 1e3, least)
        return self._constants.launch / self._constants.clock_mhz / 1e3 + least


def kernel_name(asked: Asked) -> str:
    """Name of a kernel; its configuration if that says more."""
    return asked.configuration if asked.configuration.startswith(asked.entry) else asked.entry


def predicted(launches: Sequence[tuple[Asked, str]], properties: DeviceProperties) -> list[Event]:
    """Events of launches with the names of their layers, one behind the other, with predicted times."""
    limits, now, events = Limits(properties), 0.0, []
    for asked, layer in launches:
        ms = limits.predicted_ms(asked.work)
        events.append(event_of(asked, layer, now, ms, limits))
        now += ms
    return events


def event_of(
    asked: Asked, layer: str, start_ms: float, ms: float, limits: Limits | None, captured: bool = False, stream: int = 0
) -> Event:
    """Event of something that the device was asked for."""
    return Event(
        asked.kind,
        asked.phase,
        layer,
        asked.operator,
        kernel_name(asked),
        start_ms,
        ms,
        asked.work,
        0.0 if limits is None else limits.products_ms(asked.work),
        0.0 if limits is None else limits.bytes_ms(asked.work),
        captured,
        stream,
    )
