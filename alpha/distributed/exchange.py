"""Interface of what moves arrays between processes: NCCL for arrays of a GPU, MPI for those of numpy.

Every rank calls the same functions in the same order, with arrays of the same shapes and dtypes. Work is ordered as
any other: an array that was given has its result for all calls behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from alpha.core.primitive import Array

OPERATIONS = ("sum", "mean", "min", "max")


class Engine(Protocol):
    """Moves arrays between the ranks. Errors are `DistributedError`.

    Attributes:
        begin: is called when an exchange begins.
    """

    name: str
    begin: Callable[[], None]

    def all_reduce(self, arrays: Sequence[Array], operation: str, beside: bool = False) -> None:
        """Reduce each array over all ranks, in place; in the same order of ranks each time.

        beside: it may run beside the work that follows, up to `join`; nobody touches the arrays until then.
        """

    def reduce(self, arrays: Sequence[Array], owners: Sequence[int], operation: str, beside: bool = False) -> None:
        """Reduce each array over all ranks to its owner, in place; on the other ranks it is not changed.

        beside: see `all_reduce`.
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


def nothing() -> None:
    """Do nothing: the `begin` of an engine that nobody watches."""
