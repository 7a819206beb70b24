"""Interface of what moves arrays between processes: NCCL for arrays of a GPU, MPI for those of numpy.

Every rank calls the same functions in the same order, with arrays of the same shapes and dtypes, so the texts of their
exchanges (`described`) are the same. On CPUs they are compared before each exchange; on GPUs, where nothing may be
added to a step, the watch compares what ranks report. Work is ordered as any other: an array that was given has its
result for all calls behind.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from alpha.core.primitive import Array
from alpha.errors import first_few

OPERATIONS = ("sum", "mean", "min", "max")
SHOWN = 3  # arrays of an exchange


class Engine(Protocol):
    """Moves arrays between the ranks. Errors are `DistributedError`.

    Attributes:
        begin: is called when an exchange begins, with what it is.
    """

    name: str
    begin: Callable[[str], None]

    def all_reduce(self, arrays: Sequence[Array], operation: str, beside: bool = False, note: str = "") -> None:
        """Reduce each array over all ranks, in place; in the same order of ranks each time.

        beside: it may run beside the work that follows, up to `join`; nobody touches the arrays until then.
        note: what else must be the same on all ranks, in words.
        """

    def reduce(
        self, arrays: Sequence[Array], owners: Sequence[int], operation: str, beside: bool = False, note: str = ""
    ) -> None:
        """Reduce each array over all ranks to its owner, in place; on the other ranks it is not changed.

        beside, note: see `all_reduce`.
        """

    def join(self) -> None:
        """Let the work that follows begin after that which runs beside."""

    def broadcast(self, arrays: Sequence[Array], sources: Sequence[int]) -> None:
        """Copy each array of the rank that is its source to all others."""

    def all_gather(self, target: Array, source: Array) -> None:
        """Put the arrays of all ranks, each of n elements, one behind the other into `target` of world_size n."""

    def reduce_scatter(self, target: Array, source: Array, operation: str) -> None:
        """Reduce `source` of world_size n elements over all ranks, and put the rank's own n of them into `target`."""

    def close(self) -> None:
        """Take leave of the other ranks. Safe to call twice."""

    def abort(self) -> None:
        """End at once, whatever the others do."""


def described(name: str, arrays: Sequence[Array], ranks: Sequence[int] = ()) -> str:
    """An exchange in words: "broadcast of float32 (3,) at rank 0". The name has the operation, as "sum".

    Args:
        ranks: the source or the owner of each array, if it has one.
    """
    forms = [f"{np.dtype(array.dtype).name} {tuple(array.shape)}" for array in arrays]
    if ranks:
        forms = [f"{form} at rank {rank}" for form, rank in zip(forms, ranks, strict=True)]
    text = f"{name} of {first_few(forms, SHOWN)}"
    if len(forms) > SHOWN:
        text += f" ({zlib.crc32(' '.join(forms).encode()):08x})"
    return text


def nothing(what: str) -> None:
    """Do nothing: the `begin` of an engine that nobody watches."""
