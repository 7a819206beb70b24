"""How the emulated driver does its work: calls of C code that no interrupt cuts off, as on a GPU."""

from __future__ import annotations

import ctypes
import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from alpha.errors import DeviceError


class LaunchRequest(ctypes.Structure):
    """`alpha_emulation::LaunchRequest` of cuda/common/emulation/launch.h."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("seed", ctypes.c_uint32),
        ("block_order", ctypes.c_uint32),
        ("argument_count", ctypes.c_uint32),
        ("argument_bytes", ctypes.c_uint32),
        ("zone_count", ctypes.c_uint32),
        ("arguments", ctypes.c_char_p),
        ("offsets", ctypes.c_void_p),
        ("zones", ctypes.c_void_p),
        ("stacks", ctypes.c_void_p),
        ("stack_bytes", ctypes.c_uint64),
        ("fault_address", ctypes.c_uint64),
        ("fault_instruction", ctypes.c_uint64),
    )


Work: TypeAlias = tuple[partial[Any], Callable[[bytes], str]]  # a call that returns None or a fault; its message
Prepare: TypeAlias = Callable[[], Work]


@dataclass(frozen=True)
class EmulatedFunction:
    """One entry point of a loaded library."""

    entry: str
    artefact: Path
    call: Any


def run(works: Sequence[Work], done: list[Any]) -> None:
    """Do one work after the other, up to the first fault, in one call of C code: as on a GPU, no interrupt cuts it off.

    `done` gets an element then. `DeviceError` for a fault.
    """
    faults: Any = enumerate(map(partial.__call__, [call for call, _ in works]))
    done.extend(itertools.islice(itertools.chain(filter(operator.itemgetter(1), faults), [None]), 1))
    if done[-1] is not None:
        number, fault = done.pop()
        raise DeviceError(works[number][1](fault))


def title(function: EmulatedFunction, grid: Sequence[int], block: Sequence[int], shared_bytes: int) -> str:
    return f"{function.entry}<<<{tuple(grid)}, {tuple(block)}, {shared_bytes}>>>"
