"""DataParallel: a model whose gradients are averaged over all processes while the backward pass makes them.

Gradients are put in buckets, in the order in which a backward pass makes them: from the last parameter to the first.
When all of a bucket are complete, they are reduced beside the backward pass: large ones in place, small ones side by
side in a copy. The end of the pass waits for them. In a captured step the reductions are a branch of the graph. The
gradient of a parameter that one rank updates (`alpha.distributed.optim`) is reduced to that rank, and dropped on the
others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary, ref
from zlib import crc32

import numpy as np

from alpha.autograd.grad_mode import is_grad_enabled
from alpha.autograd.listeners import listen, listener_of
from alpha.autograd.shares import expect_reduced, is_reduced, mark_reduced, share_of
from alpha.autograd.versions import array_of
from alpha.core.dtypes import bfloat16
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.distributed.engines.exchange import Engine
from alpha.distributed.engines.side_by_side import copy_arrays, pack
from alpha.distributed.process_group import current, joined_engine
from alpha.errors import DistributedError, GradientError, first_few
from alpha.module.module import Module, device_of
from alpha.module.parameter import Uninitialized
from alpha.ops.kernel.options import real
from alpha.runtime import recording
from alpha.runtime.ranks import rank, world_size

MIB = 2**20
FIRST_BUCKET = MIB  # bytes: small, so that the first reduction begins early
LAST_BUCKET = 3 * MIB  # small, since the pass has ended when it is sent, and the step waits for it
PACKED = MIB  # smaller gradients are copied side by side: NCCL takes many small arrays as slowly as large ones
COMPRESSIONS = (None, "bf16")
REFUSED, ZEROS, SKIPPED = "refused", "zeros", "skipped"  # parameters that a pass does not reach
SHOWN = 8  # names in a message


def buckets_of(
    sizes: Sequence[int], limit: float, first: float = FIRST_BUCKET, last: float = LAST_BUCKET
) -> list[list[int]]:
    """Numbers of parameters in buckets, from the last parameter to the first.

    A bucket takes parameters until it has reached its limit; none is cut. The last bucket takes as many of the first
    parameters as its limit has room for.

    Args:
        sizes: of the parameters, in bytes.
        limit: of a bucket, in bytes.
        first: limit of the first bucket, if it is below the other one.
        last: limit of the last bucket, if it is below the other one.
    """
    ends = list(accumulate(sizes))
    held = bisect_right(ends, min(last, limit))  # parameters of the last bucket
    buckets: list[list[int]] = []
    room = 0.0
    for number in reversed(range(held, len(sizes))):
        if not buckets or room <= 0:
            room = min(first, limit) if not buckets else limit
            buckets.append([])
        buckets[-1].append(number)
        room -= sizes[number]
    return [*buckets, list(reversed(range(held)))] if held else buckets


def _is_of_group(module: Module) -> bool:
    """True if a module is on the group's device; that of a dry run is on another one."""
    group = current()
    return group is not None and device_of(module) is group.device


def _placed(parameter: Tensor) -> str:
    """Place of a parameter in an optimizer that shares out its state, in words."""
    share = share_of(parameter)
    return "" if share is None else f", number {share.number} of its optimizer"


def name_of(parameter: Tensor) -> str:
    """Name of a parameter in the model of a `DataParallel`; empty if it is in none."""
    listener = listener_of(parameter)
    return listener.name_of(parameter) if isinstance(listener, Reducer) else ""


def _engine() -> Engine:
    """The engine of the group; see `joined_engine`."""
    return joined_engine("DataParallel")


# of reducers, the numbers of parameters with a gradient of this rank alone, from passes that exchanged nothing; here,
# since a captured step depends on all that a model holds
_alone: WeakKeyDictionary[Reducer, frozenset[int]] = WeakKeyDictionary()
_expecting: WeakKeyDictionary[Reducer, ref[Any]] = WeakKeyDictionary()  # the last step that was recorded with a pass


class Reducer:
    """Listens to backward passes, and averages gradients bucket by bucket; see `alpha.autograd.listeners`.

    Attributes:
        active: whether the next backward pass averages gradients.
        unused: what becomes of parameters that a pass does not reach: REFUSED, ZEROS or SKIPPED.
    """

    def __init__(self, named: Sequence[tuple[str, Tensor]], limit: int, halved: bool, unused: str) -> None:
        self.active = True
        self.unused = unused
        self._halved = halved
        self._named = list(named)
        self._buckets = buckets_of([parameter.array.nbytes for _, parameter in named], limit)
        self._places = {parameter: number for number, (_, parameter) in enumerate(named)}
        self._ready: set[int] = set()
        self._begun = 0  # buckets that are being reduced
        self._copied: list[tuple[list[Array], list[Array]]] = []  # gradients, and their copies that are reduced
        self._sent: list[Array] = []  # what is reduced: its memory is in use until the end of the pass
        self._kept: set[int] = set()  # parameters that had a gradient before the pass, in memory that others may know
        self._before: dict[int, Tensor] = {}  # gradients of all ranks that this one had before the pass

    def begin(self) -> None:
        """Multiply gradients of all ranks, which this one alone has, by the number of ranks.

        So they count once in the mean to which the pass adds. Only what is shared out can have such gradients.
        """
        self._expect_alone()
        dropped, held = [], []
        self._kept.update(number for number, (_, parameter) in enumerate(self._named) if parameter._grad is not None)
        for number, (_, parameter) in enumerate(self._named):
            if share_of(parameter) is None:
                continue
            if (grad := parameter._grad) is None:
                dropped.append(parameter)
                continue
            held.append(parameter)
            if is_reduced(parameter):
                self._before[number] = grad
                self._kept.discard(number)
                parameter._grad = grad * world_size()
        expect_reduced(held)
        mark_reduced([*dropped, *held], False)

    def _give_back(self, numbers: Iterable[int]) -> None:
        """Undo what `begin` has done to some parameters."""
        parameters = []
        for number in numbers:
            parameters.append(self._named[number][1])
            parameters[-1]._grad = self._before[number]
        mark_reduced(parameters, True)

    def name_of(self, leaf: Tensor) -> str:
        """Name of a parameter."""
        return self._named[self._places[leaf]][0]

    def _left_alone(self) -> frozenset[int]:
        """Numbers of the parameters whose gradients are to be reduced yet."""
        alone = _alone.get(self, frozenset())
        return frozenset(number for number in alone if self._named[number][1]._grad is not None)

    def _set_alone(self, numbers: frozenset[int]) -> None:
        """Note which gradients are to be reduced yet; a replay of a step notes it again."""
        if numbers == _alone.get(self, frozenset()):
            return

        def mark() -> None:
            _alone[self] = numbers

        def keep() -> Callable[[], None]:
            return partial(_alone.__setitem__, self, _alone.get(self, frozenset()))

        mark()
        recording.again(mark, keep)

    def _expect_alone(self) -> None:
        """Let a replay of the step that is recorded refuse other gradients that are to be reduced yet than now.

        The first pass of a step does so; what later ones find follows from the step itself.
        """
        step = recording.state.recording
        if step is None or (self in _expecting and _expecting[self]() is step):
            return
        _expecting[self] = ref(step)
        # what the step drops before the pass does not count; a replay begins with gradients where this one did
        held = frozenset(number for number, (_, parameter) in enumerate(self._named) if parameter._grad is not None)
        wanted = _alone.get(self, frozenset()) & held

        def check() -> None:
            if _alone.get(self, frozenset()) & held != wanted:
                raise GradientError(
                    "a captured step goes on with gradients of a pass within no_sync() in one call and without them in "
                    "another; use a function of its own for each"
                )

        recording.again(check)

    def ready(self, leaf: Tensor) -> None:
        self._ready.add(self._places[leaf])
        if not self.active:
            return
        while self._begun < len(self._buckets) and self._ready.issuperset(self._buckets[self._begun]):
            reduce = partial(self._reduce, self._buckets[self._begun])
            step = recording.state.recording
            if step is None:
                reduce()
            else:  # the pass goes on, while gradients of weights are still made beside it
                step.go_on_beside(reduce)
            self._begun += 1

    def _reduce(self, bucket: list[int]) -> None:
        numbers = [number for number in bucket if self._named[number][1]._grad is not None]
        note = self._noted(numbers)  # small gradients of other parameters may look alike side by side
        sent: dict[int | None, list[Array]] = {}  # by the rank that updates them; None for all ranks
        # gradients that are copied side by side; True for those that get their values back into their own memory
        alike: dict[tuple[int | None, np.dtype[Any]], list[tuple[Tensor, bool]]] = {}
        for number in numbers:
            parameter = self._named[number][1]
            grad: Any = parameter._grad
            share = share_of(parameter)
            owner = None if share is None else share.owner
            if self._halved or grad.array.nbytes < PACKED:
                back = self._halved or number in self._kept
                alike.setdefault((owner, grad.array.dtype), []).append((grad, back))
            else:
                sent.setdefault(owner, []).append(array_of(grad))
        for (owner, dtype), small in alike.items():
            arrays = [array_of(grad) for grad, _ in small]
            packed = arrays[0]
            if self._halved or len(small) > 1:
                packed, parts = pack(arrays, bfloat16 if self._halved else dtype)
                copies = [(array, part) for array, part, (_, back) in zip(arrays, parts, small, strict=True) if back]
                if copies and owner in (None, rank()):
                    targets, sources = zip(*copies, strict=True)
                    self._copied.append((list(targets), list(sources)))
                for (grad, back), part in zip(small, parts, strict=True):
                    if not back:
                        grad.array = part
            sent.setdefault(owner, []).append(packed)
        self._sent += [array for arrays in sent.values() for array in arrays]
        if everywhere := sent.pop(None, []):
            _engine().all_reduce(everywhere, "mean", True, note)
        owners = [owner for owner, arrays in sent.items() for _ in arrays if owner is not None]
        if owners:
            _engine().reduce([array for arrays in sent.values() for array in arrays], owners, "mean", True, note)

    def _noted(self, numbers: Sequence[int]) -> str:
        """Text by which ranks see whether they reduce the gradients of the same parameters, for the same owners."""
        if not numbers:
            return ""
        owners = [None if share is None else share.owner for share in (share_of(self._named[n][1]) for n in numbers)]
        names = first_few((self._named[number][0] for number in numbers), 1)
        return f" (gradients of {names}, {crc32(repr((numbers, owners)).encode()):08x})"

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """None: the copy of a model averages nothing."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as None, as `__deepcopy__`."""
        return type(None), ()

    def finish(self) -> None:
        if not self.active:
            self._set_alone(_alone.get(self, frozenset()) | self._ready)
            self._give_back(self._before.keys() - self._ready)
            self._forget()
            return
        refused = self.unused == REFUSED
        left = self._left_alone() - self._ready
        self._ready.update(number for number in left if not (refused and self._named[number][1]._requires_grad))
        self._set_alone(frozenset())
        missing = [
            number
            for number, (_, parameter) in enumerate(self._named)
            if number not in self._ready and parameter._requires_grad
        ]
        if missing and self.unused == REFUSED:
            names = [self._named[number][0] for number in missing]
            raise GradientError(
                f"DataParallel: {len(names)} of {len(self._named)} parameters got no gradient in this backward pass: "
                f"{first_few(names, SHOWN)}; the other ranks wait for them. Use them, freeze them (requires_grad = "
                "False), or give DataParallel find_unused_parameters=True, which takes zeros for them; a Trainer "
                "leaves them out if it has a step="
            )
        if self.unused == ZEROS:
            self._ready.update(missing)
            for number in missing:
                parameter = self._named[number][1]
                if parameter._grad is None:
                    parameter._grad = Tensor(parameter.device.zeros(parameter.shape, parameter.dtype))
        for bucket in self._buckets[self._begun :]:
            self._reduce([number for number in bucket if number in self._ready])
        _engine().join()
        for arrays, copies in self._copied:
            copy_arrays(arrays, copies)
        self._keep_own()
        self._give_back(self._before.keys() - self._ready)
        self._forget()

    def _keep_own(self) -> None:
        """Drop the gradients that were reduced to other ranks."""
        own = []
        for number in self._ready:
            parameter = self._named[number][1]
            share = share_of(parameter)
            if share is not None and share.owner == rank():
                own.append(parameter)
            elif share is not None:
                parameter._grad = None
        mark_reduced(own, True)

    def abandon(self) -> None:
        _engine().join()
        self._give_back(self._before)
        self._forget()

    def _forget(self) -> None:
        self._ready.clear()
        self._copied.clear()
        self._sent.clear()
        self._kept.clear()
        self._before.clear()
        self._begun = 0


class DataParallel(Module):
    """A model of which every process trains a copy on a part of the batch of its own.

    Weights and buffers begin as those of rank 0. `backward` leaves the mean of all ranks in `.grad`, so optimizers make
    the same step everywhere; with a `ZeroRedundancyOptimizer` it leaves that on one rank, and None on the others. A
    loss that is the mean of a rank's batch makes them the gradients of the mean over all batches, if these are of one
    size. Statistics of batch normalisation are those of each rank's own batch (see `SyncBatchNorm`). Before an
    evaluation on all ranks `take_buffers()` gives them the running means of rank 0. All ranks must call forward and
    backward alike.

    In a group of one, or if nothing is trained, it is the model itself under another name.

    Args:
        module: the model, on the group's device.
        device_ids, output_device: change nothing; a process has one GPU.
        bucket_cap_mb: MiB of gradients that are reduced together; the first ones at 1 MiB, the last ones at 3.
        find_unused_parameters: True takes zeros for the gradients of parameters that a backward pass does not reach.
            By default that is an error, which names them.
        broadcast_buffers: changes nothing: `take_buffers()` gives all ranks the buffers of rank 0.
        compression: "bf16" sends gradients in half the bytes, rounded to bfloat16.

    Attributes:
        module: the model. Save its `state_dict()`: the keys do not begin with "module." then, and any number of
            processes can load them.
        require_backward_grad_sync: False within `no_sync()`.

    Raises:
        DistributedError: `alpha.distributed.init()` was not called, the model is on another device, or names, shapes
            and dtypes of the ranks' parameters are not the same.
        GradientError: from `backward`: parameters got no gradient.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        *,
        bucket_cap_mb: float = 25,
        find_unused_parameters: bool = False,
        broadcast_buffers: bool = True,
        compression: str | None = None,
    ) -> None:
        group = current()
        if group is None:
            raise DistributedError("DataParallel: call alpha.distributed.init() before")
        if real("DataParallel", "bucket_cap_mb", bucket_cap_mb) <= 0:
            raise ValueError(f"DataParallel: bucket_cap_mb={bucket_cap_mb} is not above 0")
        if compression not in COMPRESSIONS:
            raise ValueError(f"DataParallel: compression={compression!r}, expected None or 'bf16'")
        self.module = module
        self.require_backward_grad_sync = True
        self._reducer: Reducer | None = None
        self._many = group.engine is not None  # whether there are other ranks
        self._averages = False  # whether gradients are averaged, if this is no copy
        if group.engine is None:
            return
        lazy = [name for name, value in module.named_tensors() if isinstance(value, Uninitialized)]
        if lazy:
            raise DistributedError(f"DataParallel: {lazy[0]} has no shape yet; call the model once on a batch before")
        if device_of(module) is not group.device:
            raise DistributedError(
                f"DataParallel: the model is on {device_of(module).name}, the group on {group.device.name}; move it "
                f"by model.to({group.device.name!r})"
            )
        tensors = list(module.named_tensors())
        group.compare_lines(
            "parameters and buffers",
            [
                f"{name} {value.dtype.name} {value.shape}{' trained' if value.requires_grad else ''}{_placed(value)}"
                for name, value in tensors
            ],
        )
        self._send([value for _, value in tensors])
        trained = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
        if trained:
            self._averages = True
            limit, halved = int(bucket_cap_mb * MIB), compression is not None
            self._reducer = Reducer(trained, limit, halved, ZEROS if find_unused_parameters else REFUSED)
            for _, parameter in trained:
                listen(parameter, self._reducer)

    def _send(self, tensors: Sequence[Tensor]) -> None:
        """Give tensors the values of rank 0."""
        _engine().broadcast([array_of(value) for value in tensors], [0] * len(tensors))
        for value in tensors:
            value._version.bump("broadcast")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self._averages and self._reducer is None and is_grad_enabled() and _is_of_group(self.module):
            raise DistributedError(
                "DataParallel: this is a copy, which averages no gradients; make one of the copied model: "
                "alpha.DataParallel(copy.module)"
            )
        return self.module(*args, **kwargs)

    def take_buffers(self, model: Module | None = None) -> None:
        """Give the buffers of a model, by default of this one, the values of rank 0; all ranks call it at once."""
        buffers = list((model or self.module).buffers())
        if self._many and buffers:
            self._send(buffers)

    def skip_unused(self) -> None:
        """Leave out, from now on, parameters that a pass does not reach; they must be the same on all ranks."""
        if self._reducer is not None:
            self._reducer.unused = SKIPPED

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Context in which backward passes add to the gradients of this rank alone.

        The first backward pass behind it averages what has come together.
        """
        before = self.require_backward_grad_sync
        self._set_active(False)
        try:
            yield
        finally:
            self._set_active(before)

    def _set_active(self, active: bool) -> None:
        self.require_backward_grad_sync = active  # on which a captured step depends
        if self._reducer is not None:
            self._reducer.active = active
