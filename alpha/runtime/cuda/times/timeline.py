"""Activities of a device: what it has done from when to when, as a driver notes it."""

from __future__ import annotations

from typing import NamedTuple

TO_DEVICE, TO_HOST, ON_DEVICE = "copy to device", "copy to host", "copy"


class Activity(NamedTuple):
    """A kernel, a copy or a fill that the device has done.

    Attributes:
        kind: "kernel", "copy" or "fill".
        name: the name of the kernel; of a copy, whence and whereto.
        start, end: nanoseconds of the clock of its `Timeline`.
        call: a number that grows with the calls of the host, the same for all that a replay of a graph does.
        in_graph: whether a graph has launched it.
        nbytes: of a copy or a fill.
        stream: the number of the stream that it ran on.
        node: of the graph that has launched it: a number that grows in the order in which the graph was recorded.
    """

    kind: str
    name: str
    start: int
    end: int
    call: int
    in_graph: bool = False
    nbytes: int = 0
    stream: int = 0
    node: int = 0


class Timeline(NamedTuple):
    """Activities of a device.

    Attributes:
        begin, end: nanoseconds of one clock, between which they were noted; the device was idle at both.
        activities: in the order of their starts.
    """

    begin: int
    end: int
    activities: list[Activity]
