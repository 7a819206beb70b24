"""Times of kernels by CUPTI, through NVIDIA's package `cupti-python`: eager ones and those of replayed graphs.

CUPTI fills buffers with records of what the GPU has done, and gives them back once they are full or are asked for. It
is a part of the process, so that it sees kernels of other libraries, too.
"""

from __future__ import annotations

from typing import Any, ClassVar

from alpha.errors import DeviceError
from alpha.installation import install
from alpha.runtime.cuda.times.timeline import ON_DEVICE, TO_DEVICE, TO_HOST, Activity, Timeline

BUFFER_BYTES = 8 << 20
FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: buffers come back though they are not full


class CuptiTimes:
    """Records of CUPTI from when it is made until `finish`; the GPU must be idle at both.

    Raises:
        DeviceError: `cupti-python` is missing, or CUPTI refuses, as when another profiler has the GPU.
    """

    _current: ClassVar[CuptiTimes | None] = None  # which is given the records
    _registered: ClassVar[bool] = False  # whether CUPTI knows the functions below; another profiler may replace them

    def __init__(self) -> None:
        try:
            from cupti import cupti
        except Exception as error:  # also its own errors, if it does not find CUPTI or the driver
            raise DeviceError(f"no times of kernels by CUPTI ({error}): {install('profile')}") from error
        self._cupti: Any = cupti
        self._records: list[Activity] = []
        self._enabled: list[Any] = []
        kinds = cupti.ActivityKind
        self._kinds = {int(kinds.CONCURRENT_KERNEL): "kernel", int(kinds.MEMCPY): "copy", int(kinds.MEMSET): "fill"}
        copies = cupti.ActivityMemcpyKind
        self._copies = {int(copies.HTOD): TO_DEVICE, int(copies.DTOH): TO_HOST}
        try:
            self._register()
            for kind in (kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET):
                cupti.activity_enable(kind)
                self._enabled.append(kind)
            self._begin = int(cupti.get_timestamp())
        except Exception as error:
            self._disable()
            raise DeviceError(f"CUPTI notes no times of kernels: {error}") from error

    def _register(self) -> None:
        """Let CUPTI ask for buffers and give them back; once may be enough."""
        CuptiTimes._current = self
        try:
            self._cupti.activity_register_callbacks(_buffer, _give_back)
        except Exception:
            if not CuptiTimes._registered:
                raise
        CuptiTimes._registered = True

    def take(self, records: Any) -> None:
        """Keep what is needed of the records of a buffer, which CUPTI uses again."""
        for record in records:
            kind = self._kinds.get(int(record.kind))
            if kind is not None:
                self._records.append(self._activity(kind, record))

    def _activity(self, kind: str, record: Any) -> Activity:
        name = kind
        if kind == "kernel":
            name = record.name.decode() if isinstance(record.name, bytes) else str(record.name)
        elif kind == "copy":
            name = self._copies.get(int(record.copy_kind), ON_DEVICE)
        return Activity(
            kind,
            name,
            int(record.start),
            int(record.end),
            int(record.correlation_id),
            bool(record.graph_node_id),
            0 if kind == "kernel" else int(record.bytes),
            int(record.stream_id),
            int(record.graph_node_id),
        )

    def finish(self) -> Timeline:
        """The activities so far; CUPTI notes nothing any more."""
        begin, end = self._begin, int(self._cupti.get_timestamp())
        try:
            self._cupti.activity_flush_all(FORCED)
        except Exception as error:
            raise DeviceError(f"CUPTI does not give its records: {error}") from error
        finally:
            self._disable()
        found = sorted(self._records, key=lambda record: record.start)
        if found:  # all are of this time, for the GPU was idle at both ends; clocks may differ by a little
            begin, end = min(begin, found[0].start), max(end, *(record.end for record in found))
        return Timeline(begin, end, found)

    def _disable(self) -> None:
        """Let CUPTI note nothing, and hold no buffer, which it would give back at the end of the process."""
        for kind in self._enabled:
            self._cupti.activity_disable(kind)
        if self._enabled:
            self._enabled.clear()
            self._cupti.activity_flush_all(FORCED)
        CuptiTimes._current = None


def _buffer() -> tuple[int, int]:
    """The bytes of a new buffer, and the most records in it; 0: as many as find room."""
    return BUFFER_BYTES, 0


def _give_back(records: Any) -> None:
    """Take the records of a buffer that CUPTI gives back."""
    if CuptiTimes._current is not None:
        CuptiTimes._current.take(records)
