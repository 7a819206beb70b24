"""Rank of this process among those that train together; `alpha.distributed.init` sets it."""

from __future__ import annotations

_rank, _world_size = 0, 1


def rank() -> int:
    """The number of this process, from 0 up to, and without, `world_size()`; 0 of a process alone."""
    return _rank


def world_size() -> int:
    """The number of processes that train together; 1 of a process alone."""
    return _world_size


def set_ranks(own: int, count: int) -> None:
    """Say which of how many processes this one is."""
    global _rank, _world_size
    _rank, _world_size = own, count
