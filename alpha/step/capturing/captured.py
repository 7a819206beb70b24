"""`alpha.capture`: a training step runs its Python code a few times, and from then on as one CUDA graph.

The first call runs as usual, and notes what no graph could repeat. The next calls are captured: the Python code runs,
the device records its work and then does it. Once two captures have recorded the same work, the graph is kept, and a
call replays it for as long as nothing has changed that the code depends on (`Watch`). So a result is never stale: what
is not known to be the same is recorded anew, or runs as usual.

What speaks against a capture in the first calls is often done once, such as a mask that is made and kept. So it is
looked for again in the next calls, and, if it is still there, after many more.
"""

from __future__ import annotations

import copy
import functools
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from alpha.autograd.grad_mode import is_grad_enabled
from alpha.autograd.memory_mode import get_memory_mode
from alpha.core.nested import map_tensors
from alpha.core.numerics import get_precision
from alpha.core.tensor import Tensor
from alpha.errors import CaptureError, CaptureWarning, OutOfMemoryError
from alpha.nn.lazy import waits
from alpha.runtime import recording
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.graphs import CudaRecording, StepGraph
from alpha.runtime.registry import opened
from alpha.step.call_arguments import Arguments
from alpha.step.capturing.attempt import MOST_DOUBTS, Attempt, Kind, Trial
from alpha.step.capturing.host_state import HostState
from alpha.step.capturing.rebound import Bound
from alpha.step.capturing.replay import Handing, odd_result, run
from alpha.step.sources.ran import Ran
from alpha.step.sources.watch import Watch

P = ParamSpec("P")
R = TypeVar("R")


def on_shortage(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], held: set[int] | None) -> str:
    """Say what a captured step holds that found no memory; alpha/step/memory/shortage.py puts its own in this place."""
    return ""


MOST_GRAPHS = 16  # of one step; the one that was not replayed for the longest time is dropped first
MOST_KINDS = 64  # of calls that are remembered; the oldest is forgotten first
MOST_TRIALS = 8  # captures in a row of which no two agree
MOST_MISSES = 16  # calls in a row for which no graph was right any more


@overload
def capture(function: Callable[P, R]) -> Captured[P, R]: ...
@overload
def capture(*, strict: bool = ...) -> Callable[[Callable[P, R]], Captured[P, R]]: ...
def capture(function: Callable[P, R] | None = None, *, strict: bool = False) -> Any:
    """Make a function that runs a step on the cuda device replay as one CUDA graph.

        @alpha.capture
        def step(images, labels):
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

    A call gives the same bits as the function itself would. The first call runs as usual, the next three are captured,
    and then the graph is replayed. It is captured anew for other shapes, dtypes or numbers among the arguments, another
    precision or mode, and when something changes that the function's code depends on: a module's attribute, a
    parameter, `requires_grad`, a parameter group. Learning rates, the count of an optimizer's steps and the random
    streams change from replay to replay as they would from call to call.

    Tensors in the result have no graph of their own, so `backward` belongs into the function. On the cpu the function
    runs as usual.

    Args:
        function: takes tensors, numbers and other objects. Data comes in as tensors of the cuda device.
        strict: what cannot be captured is an error. By default the function then runs as usual, and a `CaptureWarning`
            says why, once.

    Raises:
        CaptureError: (strict) the function reads a value on the host (`.item()`, `.numpy()`, `if tensor:`), copies host
            values to the device, has hooks, changes an object of the program or draws random numbers on the host; the
            message names the line. Also if there is no cuda-bindings.

    Examples:
        >>> import alpha
        >>> w = alpha.ones(2, requires_grad=True)
        >>> optimizer = alpha.optim.SGD([w], lr=0.1)
        >>> @alpha.capture
        ... def step(x):
        ...     loss = (w * x).sum()
        ...     optimizer.zero_grad()
        ...     loss.backward()
        ...     optimizer.step()
        ...     return loss
        ...
        >>> losses = [step(alpha.ones(2)) for _ in range(3)]  # on cuda later calls replay a graph
        >>> [round(loss.item(), 2) for loss in losses]
        [2.0, 1.8, 1.6]
    """
    if function is None:
        return functools.partial(Captured, strict=strict)
    return Captured(function, strict)


class Captured(Generic[P, R]):
    """A function that replays as a CUDA graph; made by `alpha.capture`.

    Attributes:
        strict: see `alpha.capture`.
        captured_function: the function itself.
        why_not: why it runs as usual, in words; empty if it is captured, or will be.
    """

    def __init__(self, function: Callable[P, R], strict: bool = False) -> None:
        functools.update_wrapper(self, function)
        self._name = getattr(function, "__name__", "the step")
        self.strict = strict
        self.why_not = ""
        self.captured_function = function
        self._kinds: dict[Any, Kind] = {}
        self._ran = Ran()
        self._known = False  # whether it has run once and nothing spoke against a capture
        self._warned = False
        self._held: set[int] | None = None  # the blocks that were held before the last call that was no replay

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method has graphs of its own for each object."""
        if instance is None:
            return self
        bound: Captured[..., Any] = Captured(types.MethodType(self.captured_function, instance), self.strict)
        vars(instance)[self.captured_function.__name__] = bound
        return bound

    def __deepcopy__(self, memo: dict[int, Any]) -> Captured[P, R]:
        """The same function, of the copied object if it is a method, without graphs."""
        return Captured(copy.deepcopy(self.captured_function, memo), self.strict)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return self._called(*args, **kwargs)
        except OutOfMemoryError as error:
            error.explain_by(functools.partial(on_shortage, self, args, kwargs, self._held))
            raise

    def _called(self, *args: P.args, **kwargs: P.kwargs) -> R:
        device = opened("cuda")
        if not isinstance(device, CudaDevice) or not device.driver.owner.here or recording.active() is not None:
            return self.captured_function(*args, **kwargs)
        if device.driver.why_no_capture:
            self._refuse(None, device.driver.why_no_capture)
            return self.captured_function(*args, **kwargs)
        arguments = Arguments(args, kwargs)
        kind = self._kind((arguments.key, get_precision(), get_memory_mode(), is_grad_enabled()))
        if kind.is_resting():
            return self.captured_function(*args, **kwargs)
        change = ""
        for index, replay in enumerate(kind.replays):
            change = replay.change(arguments.tensors)
            if not change:
                kind.replays.insert(0, kind.replays.pop(index))
                kind.misses = kind.doubts = 0
                return cast(R, run(replay, arguments))
        kind.misses += bool(kind.replays)
        if kind.misses > MOST_MISSES:
            self._refuse(kind, f"it depends on something that changes from call to call: {change}")
            return self.captured_function(*args, **kwargs)
        result = self._run(device, kind, arguments)
        for replay in kind.replays:
            replay.count()
        return cast(R, result)

    def _kind(self, key: Any) -> Kind:
        """The calls of this kind, which becomes the youngest."""
        kind = self._kinds[key] = self._kinds.pop(key) if key in self._kinds else Kind()
        if len(self._kinds) > MOST_KINDS:
            for replay in self._kinds.pop(next(iter(self._kinds))).replays:
                replay.graph.close()
        return kind

    def _holders(self) -> Iterator[Any]:
        """Objects through which the graphs and trials hold tensors and their arrays."""
        for kind in self._kinds.values():
            for replay in kind.replays:
                yield from (replay.alone, replay.graph.notes.held)
                yield from replay.watch.holders()
            for trial in kind.trials.values():
                if trial.watch is not None:
                    yield from trial.watch.holders()

    @property
    def graphs(self) -> list[StepGraph]:
        """The graphs that are kept, the last used of each kind of call first."""
        return [replay.graph for kind in self._kinds.values() for replay in kind.replays]

    def describe(self) -> str:
        """Description of what is captured, one line for each graph."""
        lines = [
            f"{graph.nodes} launches, copies and fills, {graph.nbytes / 1e6:.1f} MB, {len(replay.inputs)} inputs"
            for kind in self._kinds.values()
            for replay in kind.replays
            for graph in [replay.graph]
        ]
        if self.why_not:
            lines.append(f"runs as usual: {self.why_not}")
        doubts = [f"; what has delayed it: {kind.doubted}" for kind in self._kinds.values() if kind.doubts]
        return "\n".join(lines) or "nothing is captured yet" + "".join(doubts[-1:])

    def clear(self) -> None:
        """Drop all graphs and give their memory back; later calls are captured anew."""
        graphs = self.graphs
        self._kinds.clear()
        for graph in graphs:
            graph.close()
            graph.device.memory.release_scratch()
        self._known, self.why_not = False, ""

    # -- running and capturing ----------------------------------------------------------------

    def _refuse(self, kind: Kind | None, why: str) -> None:
        """Run as usual from now on, and say so once; calls of a kind are tried again later."""
        if self.strict:
            raise CaptureError(f"{self._name} cannot be captured: {why}")
        if kind is not None:
            kind.refuse(why)
        self.why_not = why
        if not self._warned:
            self._warned = True
            text = f"{self._name} is not captured in a CUDA graph and runs as usual: {why}"
            warnings.warn(text, CaptureWarning, stacklevel=recording.callers() + 1)

    def _doubt(self, kind: Kind, why: str) -> None:
        """Count a call in which something speaks against a capture, and refuse the kind if there were several."""
        kind.doubts, kind.doubted = kind.doubts + 1, why
        if kind.doubts >= MOST_DOUBTS:
            self._refuse(kind, why)

    def _run(self, device: CudaDevice, kind: Kind, arguments: Arguments) -> Any:
        self._held = device.memory.block_ids()
        if any(tensor._requires_grad for tensor in arguments.tensors):
            self._refuse(kind, "an argument requires a gradient")
            return self.captured_function(*arguments.args, **arguments.kwargs)
        try:
            watch = Watch(self.captured_function, arguments.objects, self._ran)
        except OverflowError as error:
            self._refuse(kind, str(error))
            return self.captured_function(*arguments.args, **arguments.kwargs)
        if watch.lazy:
            return self._initialise(kind, arguments, watch)
        if watch.hooks:
            self._refuse(kind, f"{watch.hooks[0]} has a hook, which runs Python code at every step")
            return self.captured_function(*arguments.args, **arguments.kwargs)
        if watch.unknown:
            return self._observe(device, kind, arguments, watch, watch.unknown[0])
        if self._known and not kind.watched:
            return self._capture(device, kind, arguments, watch)
        return self._observe(device, kind, arguments, watch)

    def _initialise(self, kind: Kind, arguments: Arguments, watch: Watch) -> Any:
        """Run as usual, which makes the parameters of lazy layers."""
        result = self.captured_function(*arguments.args, **arguments.kwargs)
        if left := [name for name, part in watch.lazy.items() if waits(part)]:
            self._refuse(kind, f"{left[0]} waits for its first forward, which the step does not do")
        return result if left else map_tensors(result, Tensor.detach)

    def _observe(self, device: CudaDevice, kind: Kind, arguments: Arguments, watch: Watch, why: str = "") -> Any:
        """Run as usual, and note what cannot be captured; `why` is what has stopped a capture of this call."""
        notes, host = CudaRecording(device, capturing=False, strict=self.strict), HostState(watch)
        versions = [tensor._version.value for tensor in arguments.tensors]
        device.memory.clear_scratch()
        bound = Bound(watch, host, self._holders())

        def step() -> Any:
            with self._ran.watching():
                result = self.captured_function(*arguments.args, **arguments.kwargs)
            bound.settle(device, result, notes.held)
            return result

        result = device.within(device.scratch, notes, step)
        found = [*notes.obstacles, *host.changes(), *self._ran.asked]
        arguments.refresh()
        if versions != [tensor._version.value for tensor in arguments.tensors]:
            found.append("it writes an argument in place")
        if odd := odd_result(result, watch, arguments.tensors):
            found.append(odd)
        kind.watched = bool(found)
        if notes.nodes or notes.obstacles:
            self._known = self._known or not found
            if found or why:
                self._doubt(kind, found[0] if found else why)
        if not notes.nodes or found:
            return result
        return map_tensors(result, Handing(arguments.tensors, arguments.tensors, watch.tensors))

    def _capture(self, device: CudaDevice, kind: Kind, arguments: Arguments, watch: Watch) -> Any:
        """Record the step, do it, and keep the graph if the last capture of this kind has recorded the same."""
        key, new = tuple([leaf._grad is None for leaf in watch.leaves]), ""
        trial = kind.trials.setdefault(key, Trial())
        try:
            attempt, known = Attempt(device, trial, arguments, watch, self._holders()), self._ran.count
            changes = attempt.run(self.captured_function, self._ran)
        except OutOfMemoryError:
            if not trial.count:
                del kind.trials[key]  # with the memory that this call has asked for
            raise
        except CaptureError as error:
            if attempt.host.changes():
                raise
            if self.strict:
                self._refuse(kind, str(error))
            del attempt
            return self._observe(device, kind, arguments, watch, str(error))
        if self._ran.count > known:  # the watch did not know of this code yet
            trial.nodes = None
            new = "it runs code that the captures before it did not run"
        replay = attempt.finish(changes)
        if replay is None:
            if attempt.why:
                self._doubt(kind, attempt.why)
            elif trial.count >= MOST_TRIALS:
                found = "; ".join(filter(None, (attempt.differs, new)))
                self._refuse(kind, found or "its captures do not agree")
            return attempt.result
        kind.replays.insert(0, replay)
        kind.doubts = 0
        del kind.trials[key]
        self.why_not = next((other.refused for other in self._kinds.values() if other.refused), "")
        self._drop_oldest()
        device.scratch.trim()
        return attempt.result

    def _drop_oldest(self) -> None:
        while len(self.graphs) > MOST_GRAPHS:
            kind = max(self._kinds.values(), key=lambda kind: len(kind.replays))
            kind.replays.pop().graph.close()
