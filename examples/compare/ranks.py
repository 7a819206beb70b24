"""Ranks that train one network together: how they are started, how those of PyTorch meet, and what is said of all.

Alpha joins its ranks itself (`join_ranks`, alpha.DataParallel). PyTorch's find their place in the variables of the same
launcher, and talk through NCCL on GPUs and through gloo on CPUs.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from inspect import signature
from statistics import fmean
from typing import Any

from alpha import distributed
from alpha.distributed.membership.environment import place_of, visible_gpus
from alpha.runtime.workers import cores
from compare.spec import Outcome

Gather = Callable[[Sequence[float]], list[list[float]]]  # numbers of this rank -> those of each rank


def launcher(device: str, count: int) -> list[str]:
    """The beginning of a command that runs a program as so many ranks, each on a GPU of its own, or on the CPU."""
    return [sys.executable, "-m", "alpha.run", "--gpus" if device == "cuda" else "--cpus", str(count)]


def of_all_ranks(result: Outcome, gather: Gather) -> Outcome:
    """The outcome of all ranks, for which this rank's own is changed: rank 0's but for losses, seconds and memory.

    The loss of an epoch is the mean, since all ranks train on as many images. Seconds of an epoch are those of the
    slowest rank, and each kind of memory is that of the rank with the most of it.
    """
    result.losses = [fmean(values) for values in zip(*gather(result.losses), strict=True)]
    result.seconds = [max(values) for values in zip(*gather(result.seconds), strict=True)]
    memory = gather([result.live, result.reserved, result.process])
    result.live, result.reserved, result.process = (int(max(values)) for values in zip(*memory, strict=True))
    return result


def gather_alpha(values: Sequence[float]) -> list[list[float]]:
    """The numbers of each rank, among the ranks that Alpha has joined."""
    found = [distributed.gather_numbers(value) for value in values]
    return [list(of_rank) for of_rank in zip(*found, strict=True)]


# -- of PyTorch ------------------------------------------------------------------------------------


def join_torch(device: str, meeting: str = "env://") -> None:
    """Let PyTorch join the other ranks; only rank 0 prints from then on. A process alone needs no group.

    Args:
        meeting: where the ranks find each other, as a URL; by default at MASTER_ADDR and MASTER_PORT. Under MPI, which
            sets neither of them, a file that is not there yet.
    """
    place = place_of()
    if place.world_size == 1:
        return
    import torch

    if device == "cuda":
        alone = len(visible_gpus() or ()) == 1  # each process sees its own GPU alone
        torch.cuda.set_device(0 if alone else place.local_rank)
    else:
        torch.set_num_threads(max(1, cores() // place.local_size))
    backend = "nccl" if device == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, meeting, rank=place.rank, world_size=place.world_size)
    if place.rank:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123


def leave_torch() -> None:
    """Let PyTorch leave the group, when nobody needs it any more; all ranks call it."""
    import torch

    gc.collect()  # models that hold the group: a thread of it that outlives Python aborts the process
    torch.distributed.destroy_process_group()


def gather_torch(values: Sequence[float]) -> list[list[float]]:
    """The numbers of each rank, among those that PyTorch has joined; of a process alone, its own."""
    import torch

    if not torch.distributed.is_initialized():
        return [list(values)]
    found: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(found, list(values))
    return found


def data_parallel(model: Any, best: bool = False, **options: Any) -> Any:
    """The model in PyTorch's DistributedDataParallel, as its users get it.

    Args:
        best: gradients lie in the buckets that are sent, and no buffers are sent before each step. Only the statistics
            of batch normalisation depend on that, of ranks above 0, until `take_buffers`.
        options: more arguments of DistributedDataParallel.
    """
    from torch.nn.parallel import DistributedDataParallel

    if not best:
        return DistributedDataParallel(model, **options)
    names = signature(DistributedDataParallel).parameters  # the first one is deprecated where there is the second
    buffers = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"
    return DistributedDataParallel(model, gradient_as_bucket_view=True, **{buffers: False}, **options)


def take_buffers(model: Any) -> None:
    """Give the buffers of PyTorch's model the values of rank 0, as Alpha's Trainer does before an evaluation."""
    import torch

    for buffer in model.buffers():
        torch.distributed.broadcast(buffer, 0)
