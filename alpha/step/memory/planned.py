"""`alpha.memory_plan`: the memory of a step before it runs, found by running it on a device that only plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from alpha.autograd.memory_mode import get_memory_mode, memory_mode
from alpha.core import numerics
from alpha.errors import DeviceError, DryRunError, OutOfMemoryError
from alpha.ops.kernel.options import positive_integer, real
from alpha.runtime import Device
from alpha.runtime.cuda.compile import ARCHITECTURES
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.planning.driver_dry import dry_properties
from alpha.runtime.cuda.planning.gpu_process import overhead, process_bytes
from alpha.runtime.cuda.planning.ledger import Ledger
from alpha.runtime.cuda.planning.planning_device import OF_A_GPU, PlanningDevice, PlanningDriver
from alpha.step.dry_arguments import device_of, known_gpus
from alpha.step.memory.largest import largest
from alpha.step.memory.plan_table import grows, table_of
from alpha.step.memory.simulation import KINDS, Held, held_on, moment_of, shares_of, simulate
from alpha.step.memory.step_place import Where
from alpha.step.memory.subjects import Scene, Subject, subject_of

LOADED_LATER = 64_000_000  # bytes for kernels and graphs that an opened GPU has not loaded yet, if NVML tells nothing


@dataclass(frozen=True)
class Target:
    """A GPU for which memory is planned.

    Attributes:
        held: by the program on the opened device.
        room: bytes that Alpha may hold there, None if that is not known.
    """

    make: Callable[[Ledger | None], PlanningDevice]
    held: Held
    name: str
    overhead: int
    overhead_from: str
    room: int | None


class StepMemory:
    """The memory of a step on a GPU; made by `alpha.memory_plan`.

    All numbers are bytes. `live` and `reserved` are what `alpha.memory_stats("cuda")` shows as `peak` and `reserved`
    after some steps, if the peak was reset before, `process` what NVML shows of the process.

    Attributes:
        gpu: its name.
        precision, mode: in which the step runs; the mode is that of memory.
        captured: whether it replays as a CUDA graph.
        live: the most that arrays take at once, in the first step or a later one.
        reserved: what Alpha holds of the GPU after some steps.
        overhead: what the process takes besides, the CUDA context and the kernels.
        overhead_from: whence that is known, in words.
        steps: `MemoryStats` of each call that was planned, until two were equal; a peak is that of one call.
        shares: of what the peak consists, the largest first.
        when: the part of the step that reaches the peak, in words.
        room: bytes that Alpha may hold on this GPU; None if it is a name without `memory=`.
        batch: the length of the first tensor among the arguments; 0 if there is none.
        launches: how many kernels a step launches.
        growth: bytes that each call leaves in use beside those of the call before, as when a program keeps its losses;
            0 if it does not go on like that.
        updated: False if an optimizer that the step reaches changed no parameter in any call, so that its state is
            missing here.
    """

    def __init__(self, subject: Subject, target: Target, precision: str = "") -> None:
        self._subject, self._target = subject, target
        self.precision, self.mode = precision or numerics.get_precision(), get_memory_mode()
        where = Where()
        ledger = Ledger(where)
        run = simulate(subject, target.make(ledger), target.held, ledger, where)
        self.gpu, self.batch = target.name, subject.batch
        self.captured, self.launches = run.captured, run.launches
        self.steps, self.growth, self.updated = tuple(run.steps), run.growth, run.updated
        self.live = max(stats.peak for stats in run.steps)
        self.reserved = run.steps[-1].reserved
        self.overhead, self.overhead_from = target.overhead, target.overhead_from
        self.room, self._most = target.room, run.most
        names = where.names()
        self.shares = tuple(shares_of(ledger, self.live, names))
        self.when = moment_of(ledger, names)

    @property
    def process(self) -> int:
        """Bytes that NVML shows of the process."""
        return self.reserved + self.overhead

    @property
    def fits(self) -> bool | None:
        """True if the step fits on the GPU; None if its memory is not known, or the step takes more in each call."""
        if self.room is None or self.growth:
            return None
        return self.live <= self.room and (self._most <= self.room or self._obeys(self._subject, self.room))

    def of_kind(self, kind: str) -> int:
        """The bytes of one kind at the peak, such as "parameters" or "kept for backward".

        Raises:
            ValueError: there is no such kind.
        """
        if kind not in KINDS:
            raise ValueError(f"of_kind: kind={kind!r} is none of {', '.join(map(repr, KINDS))}")
        return sum(share.nbytes for share in self.shares if share.kind == kind)

    def largest_batch(self, limit: int | float | None = None) -> int:
        """The largest batch whose step fits; found by more plans, nothing is computed.

        The batch is axis 0 of the tensors among the arguments that are as long as the first one.

        Args:
            limit: bytes that Alpha may hold, as of `alpha.set_memory_limit`; by default those of the GPU.

        Returns:
            A batch that fits, of which one more sample would not; 0 if not even one fits.

        Raises:
            ValueError: the GPU is a name, and neither `memory` nor `limit` was given; or the arguments have no batch;
                or `limit` is no number of bytes of at least 0.
            DryRunError: the step cannot be planned with another batch, or takes more memory in each call.
        """
        if self.growth:
            raise DryRunError(f"largest_batch: there is none: {grows(self.growth)}")
        room = self.room if limit is None else _nbytes("largest_batch", "limit", limit)
        if room is None:
            raise ValueError(
                f"largest_batch: nothing is known of the memory of {self.gpu}: give limit=, or memory= to "
                "memory_plan, such as memory=80e9"
            )
        if not self.batch:
            raise ValueError(
                "largest_batch: the step has no tensor with an axis among its arguments, whose batch could grow"
            )
        return largest(self.batch, self.reserved, room, lambda batch: self._planned(batch, room), self._subject.most)

    def at_batch(self, batch: int) -> StepMemory:
        """The plan of the same step with another batch.

        Raises:
            TypeError, ValueError: `batch` is no integer of at least 1, or larger than that of any tensor can be.
            DryRunError: the step cannot be planned with it.
        """
        return self._of(self._subject.at_batch(positive_integer("at_batch", "batch", batch)))

    def in_precision(self, name: str) -> StepMemory:
        """The plan of the same step in another precision; `ValueError` for a name that is none."""
        name = numerics.precision(name).name
        return self._of(self._subject.in_precision(name), name)

    def in_mode(self, name: str) -> StepMemory:
        """The plan of the same step in another memory mode, see `alpha.set_memory_mode`, and its `ValueError`."""
        return self._of(self._subject, mode=memory_mode(name).name)

    def with_change(self, change: Callable[[Scene], None]) -> StepMemory:
        """The plan of the same step, of whose copy `change` has changed something."""

        def scene(things: Any) -> Scene:
            found = self._subject.scene(things)
            change(found)
            return found

        return self._of(replace(self._subject, scene=scene))

    def _of(self, subject: Subject, precision: str = "", mode: str = "") -> StepMemory:
        with self._settings(precision, mode):
            return StepMemory(subject, self._target, precision or self.precision)

    @contextmanager
    def _settings(self, precision: str = "", mode: str = "") -> Iterator[None]:
        """Context with the precision and the memory mode of the plan, or others."""
        with numerics.precision(precision or self.precision), memory_mode(mode or self.mode):
            yield

    def _planned(self, batch: int, room: int) -> int | None:
        """Bytes that are held with this batch, None if they are more than `room`."""
        subject = self._subject.at_batch(batch)
        with self._settings():
            run = simulate(subject, self._target.make(None), self._target.held)
        if max(stats.peak for stats in run.steps) > room:
            return None
        return run.steps[-1].reserved if run.most <= room or self._obeys(subject, room) else None

    def _obeys(self, subject: Subject, room: int) -> bool:
        """True if the arenas manage with less than they would take, as they do under a limit."""
        device = self._target.make(None)
        device.set_memory_limit(room)
        try:
            with self._settings():
                simulate(subject, device, self._target.held)
            return True
        except OutOfMemoryError:
            return False

    def table(self, rows: int | None = 12) -> str:
        """A table of the peak by kind and by layer, of the `rows` largest layers, 80 columns wide.

        Args:
            rows: so many layers at most, the others are added up in one; None: all layers.

        Raises:
            TypeError, ValueError: `rows` is neither None nor an integer of at least 1.
        """
        return table_of(self, None if rows is None else positive_integer("table", "rows", rows))

    def __str__(self) -> str:
        return self.table()

    __repr__ = __str__


def memory_plan(
    step: Callable[..., Any], *args: Any, gpu: str | Device | None = None, memory: float | None = None, **kwargs: Any
) -> StepMemory:
    """Plan the memory of a step before its first run: what lives at its peak, what is reserved, and whether it fits.

        plan = alpha.memory_plan(step, images, labels)                   # for the GPU of this machine
        plan = alpha.memory_plan(model, (512, 32, 32, 3), gpu="sm_90a", memory=80e9)   # for one that is not there
        print(plan)                                                      # by kind and by layer
        plan.live, plan.reserved, plan.process                           # bytes
        plan.largest_batch()

    The step runs a few times on a copy of all that it reaches, as in `alpha.dry_run`: nothing is computed, and no
    memory of the GPU is used. The copy asks the same arenas for the same blocks as the step will, and is captured if it
    is a step of `alpha.capture`. So the numbers are those that `alpha.memory_stats` shows after the same steps, and not
    a formula's.

    Args:
        step: a step, also one of `alpha.capture`, or a module. In place of a tensor a module takes the shape of its
            input as a tuple; it then runs forward and, if it is in training mode, backward.
        args, kwargs: of the step; tensors may lie on any device. `alpha.empty(..)` has a shape and costs nothing.
        gpu: as for `alpha.dry_run`.
        memory: bytes of the GPU, by default those that are free on the opened one. Whatever the GPU's process takes
            beside its arrays counts, too.

    Raises:
        DryRunError: the memory cannot be known without computing, as for `alpha.dry_run`.
        DeviceError: there is no such GPU; memory is planned for a GPU alone.
        ValueError: `memory` is no positive number, or the shape in place of a tensor has a negative size.
        TypeError: a size of that shape is no integer.

    Examples:
        >>> import alpha
        >>> model = alpha.nn.Linear(1000, 1000)
        >>> plan = alpha.memory_plan(model, (64, 1000), gpu="sm_90a")
        >>> plan.of_kind("parameters"), plan.live > 2 * 4_004_000  # weights and their gradients
        (4004352, True)
    """
    target = target_of(gpu, memory)
    return StepMemory(subject_of(step, args, kwargs), target)


# -- the GPU --------------------------------------------------------------------------------------


def target_of(gpu: str | Device | None, memory: float | None, held: set[int] | None = None) -> Target:
    """The GPU for which memory is planned; `held`: the ids of the blocks that the program holds, None if all count."""
    nbytes = None if memory is None else _nbytes("memory_plan", "memory", memory, least=1)
    if isinstance(gpu, str) and gpu in ARCHITECTURES:
        properties = dry_properties(gpu)
        extra, source = overhead(properties)
        room = None if nbytes is None else max(0, nbytes - extra)
        free = properties.total_bytes if room is None else room
        return Target(
            lambda ledger: PlanningDevice(PlanningDriver(properties, OF_A_GPU, free), ledger),
            Held(),
            gpu,
            extra,
            source,
            room,
        )
    device = device_of("memory_plan", gpu)
    if not isinstance(device, CudaDevice):
        raise DeviceError(f"memory_plan: the plan is that of a GPU, and {device.name} is none: use {known_gpus()}")
    total = device.memory.total
    shown = process_bytes() if device.driver.name == "pycuda" else 0
    now = max(0, shown - total.reserved)
    extra, source = overhead(device.properties, now) if device.driver.name == "pycuda" else (0, "as there is no GPU")
    if nbytes is None:
        later = 0 if device.driver.name != "pycuda" else extra - now if now else LOADED_LATER
        room = device.driver.memory_info()[0] + total.reserved - later
    else:
        room = max(0, nbytes - extra)
    if total.limit is not None:
        room = min(room, total.limit)
    return Target(
        lambda ledger: PlanningDevice.like(device, ledger),
        held_on(device, held),
        device.properties.name,
        extra,
        source,
        room,
    )


def _nbytes(function: str, name: str, value: Any, least: int = 0) -> int:
    """A number of bytes of at least `least`, which may be a float, as 80e9, or numpy's.

    Raises:
        ValueError: it is none.
    """
    try:
        found = int(real(function, name, value))
    except (TypeError, ValueError, OverflowError):
        found = least - 1
    if found < least:
        wanted = "positive number of bytes" if least else "number of bytes of at least 0"
        raise ValueError(f"{function}: {name}={value!r} is no {wanted}, such as 80e9")
    return found
