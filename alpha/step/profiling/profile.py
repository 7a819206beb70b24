"""`alpha.profile`: times of the kernels of a part of a program, eager and captured, by layer and operator.

While a profile runs, the thread has a listener that notes each launch with its phase, its layer and its work
(alpha/runtime/recording.py), and the driver notes when the device does what: by CUPTI on a GPU, by the host's clock on
the emulated one. `matching.py` brings both together at the end. Without CUPTI a time stamp goes into the stream before
each launch. On the cpu the primitives are timed (`host_times.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, ClassVar, TypeVar

from alpha.core.primitive import time_primitives
from alpha.errors import DeviceError
from alpha.installation import install
from alpha.runtime import recording
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.recording import Asked, Profiling, Recording
from alpha.runtime.registry import opened
from alpha.step.profiling.event_report import Report
from alpha.step.profiling.events import Event, Limits, event_of
from alpha.step.profiling.host_times import HostTimes
from alpha.step.profiling.matching import Replay, by_events, matched

T = TypeVar("T")


def profile(*, nvtx: bool = False) -> Profile:
    """Time what is done inside of a `with`, by layer, operator and kernel.

        with alpha.profile() as p:
            for _ in range(10):
                step(images, labels)
        print(p.table(by="operator", steps=10))
        p.save_trace("step.json")                   # for ui.perfetto.dev

    Steps of `alpha.capture` are shown in the same way as eager ones, also if they were captured before. On a GPU the
    times are those of CUPTI (`pip install "alpha-cks[profile]"`); without it the time from one launch to the next is
    taken, and a replayed step is one line. On the cpu these are the times of Alpha's operators. Results stay the same
    bit for bit. The first calls of a step compile kernels and allocate, so call it once or twice before.

    If the device was asked for anything, the table is its: what was computed on the cpu beside it is left out. What
    other threads do is not seen on the cpu; on a GPU it is not explained.

    Args:
        nvtx: make a range of NVTX of each layer and phase of what runs eagerly, for NVIDIA's `nsys` and `ncu`.

    Returns:
        The profile. After the `with` it has `table()`, which `print` shows, `events`, `total_ms`, `idle_ms`,
        `explained` and `save_trace(path)`. Before that `print` says that it has not ended, and these methods are a
        RuntimeError.

    Raises:
        RuntimeError: another profile is running, or it begins within a step that is captured.
        DeviceError: (nvtx) the package `nvtx` is missing.

    Examples:
        >>> import alpha
        >>> x = alpha.ones(4, 4)
        >>> with alpha.profile() as p:
        ...     y = alpha.relu(x @ x)
        >>> [event.operator for event in p.events]
        ['matmul_batch', 'relu_forward']
    """
    return Profile(nvtx=nvtx)


class Profile(Report, Profiling):
    """The times of what is done inside of a `with`; made by `alpha.profile`. It is a `Report`.

    Attributes:
        of_kernels: True if the times are those of single kernels, False if they last until the next launch.
    """

    _running: ClassVar[bool] = False  # whether one is, in any thread

    def __init__(self, *, nvtx: bool = False) -> None:
        Report.__init__(self)
        self._ranges = _ranges() if nvtx else None
        self._phases = ["forward"]
        Profiling.__init__(self)
        self._host = HostTimes(self)
        self._device: CudaDevice | None = None
        self._how = ""
        self.of_kernels = True
        self._order: list[Asked | Replay] = []
        self._stamps: list[Any] = []
        self._begun, self._ended = 0, False

    def _why_unknown(self) -> str:
        if self._ended:
            return ""
        if self._begun:
            return "alpha.profile: this profile has not ended; its times are known when its `with` is over"
        return "alpha.profile: this profile has not begun; time something inside of `with alpha.profile() as p:`"

    def __enter__(self) -> Profile:
        state = recording.state
        if Profile._running:
            raise RuntimeError("alpha.profile: another profile is running; end it first, or use that one for both")
        if state.recording is not None:
            raise RuntimeError("alpha.profile: put it around the captured step, not into it")
        if self._begun:
            raise RuntimeError("alpha.profile: this profile has run; make another one for each `with`")
        self._open()
        Profile._running = True
        time_primitives(True)
        self._begun = time.perf_counter_ns()
        state.profile = self
        state.record(None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state = recording.state
        state.profile = None
        state.record(state.recording)
        ended = time.perf_counter_ns()
        time_primitives(False)
        Profile._running, self._ended = False, True
        try:
            if self._device is not None:
                self._finish(self._device)
            if not self._order:
                self._finish_host(ended)
        except DeviceError:  # as after a kernel's fault, of which the program is told already
            if error is None:
                raise

    # -- the device ---------------------------------------------------------------------------

    def _open(self) -> None:
        """Begin to time the device, if there is one that this thread may use."""
        device = opened("cuda")
        if not isinstance(device, CudaDevice) or not device.driver.owner.here:
            return
        self._device = device
        device.driver.synchronize()
        try:
            self._how = device.driver.begin_times()
        except DeviceError as error:
            self.of_kernels = False
            self._how = f"from one launch to the next, for there are {error}"
            self._stamps.append(device.driver.record_event())

    def _stamp(self, asked: Asked | Replay) -> None:
        self._order.append(asked)
        if self._device is None:
            self._open()
        if not self.of_kernels and self._device is not None:
            self._stamps.append(self._device.driver.record_event())

    def hear(self, asked: Asked) -> None:
        self._stamp(asked)

    def replay(self, notes: Recording) -> None:
        self._stamp(tuple(notes.asked))
        if self._ranges is not None:
            self._ranges.mark("replayed step")

    def _finish(self, device: CudaDevice) -> None:
        driver, limits = device.driver, Limits(device.properties)
        self.title = f"{device.properties.name}, times {self._how}"
        if self.of_kernels:
            timeline = driver.end_times()
            eager = [each for each in self._order if isinstance(each, Asked)]
            replays = [each for each in self._order if not isinstance(each, Asked)]
            self.events, self.unseen = matched(timeline, eager, replays, limits)
            self.total_ms = (timeline.end - timeline.begin) / 1e6
            return
        self._stamps.append(driver.record_event())
        first, *others = self._stamps
        times = [driver.elapsed_ms(first, stamp) for stamp in others]
        self.events, self.total_ms = by_events(self._order, times, limits), times[-1]

    # -- the cpu ------------------------------------------------------------------------------

    def timed(self, name: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return self._host.call(name, function, args, kwargs)

    def _finish_host(self, ended: int) -> None:
        names = recording.layer_names(call.asked.layer for call in self._host.calls)
        calls = sorted(self._host.calls, key=lambda call: call.start)
        self.events: list[Event] = []
        for call in calls:
            name, start = names[call.asked.layer], (call.start - self._begun) / 1e6
            event = event_of(call.asked, name, start, call.own / 1e6, None)
            self.events.append(replace(event, inner_ms=call.inner / 1e6))
        self.title, self.between, self.in_turn = "cpu, times by the host's clock", "(between operators)", True
        self.total_ms = (ended - self._begun) / 1e6

    # -- NVTX ---------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        """The part of the step that is running."""
        return self._phases[-1]

    @phase.setter
    def phase(self, name: str) -> None:
        if self._phases[-2:-1] == [name]:
            self._phases.pop()
            if self._ranges is not None:
                self._ranges.pop_range()
            return
        self._phases.append(name)
        if self._ranges is not None:
            self._ranges.push_range(name)

    def call(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._ranges is None:
            return super().call(module, args, kwargs)
        self._ranges.push_range(self.named(module))
        try:
            return super().call(module, args, kwargs)
        finally:
            self._ranges.pop_range()

    def named(self, module: Any) -> str:
        """The name of a module."""
        layer = self.layer_of(module)
        return layer.name or layer.kind


def _ranges() -> Any:
    """The package nvtx."""
    try:
        import nvtx
    except ImportError as error:
        raise DeviceError(f"alpha.profile(nvtx=True) needs the package nvtx: {install('profile')}") from error
    return nvtx
