"""Check of what lies beside weights, and programs without it.

`right_values` compares every such value with the weight whenever somebody reads it, so each test of the suite that
trains on the emulated driver, or on a GPU, also looks for a write to a weight that was not noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from alpha.autograd import derived
from alpha.autograd.derived import Derived, Kind
from alpha.core.numerics import BFLOAT16
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.conv2d.magnitudes import MAGNITUDE
from alpha.ops.kernel.casts import COPY
from alpha.optim import fused
from alpha.runtime import recording
from alpha.step.capturing import replay

NAN = np.uint16(0x7FFF)  # to which a cast on a GPU turns every NaN
COMPUTES = ("emulated", "pycuda")  # the drivers with memory


def host(array: Array) -> np.ndarray:
    """The content of an array, also while a step is observed that may not read it."""
    values = np.empty(array.shape, array.dtype)
    if array.nbytes:
        array.device.driver.download(values, array.address)
    return values


def bits_of(value: Derived) -> np.ndarray:
    """The bits of a value, as they lie on the device."""
    found = host(value.array)
    return found.view(np.uint16) if value.kind is COPY else found[:1]


def expected(kind: Kind, weight: np.ndarray) -> np.ndarray:
    """The bits that a value must have."""
    if kind is COPY:
        with np.errstate(all="ignore"):
            return np.where(np.isnan(weight), NAN, weight.astype(BFLOAT16).view(np.uint16))
    assert kind is MAGNITUDE
    return np.abs(np.where(np.isfinite(weight), weight, 0)).max(initial=0).reshape(1).view(np.uint32)


def check(value: Derived) -> None:
    """Fail if a value is not that of its weight now."""
    weight, notes = value._source(), recording.active()
    if value.array is None or weight is None or weight.device.driver.name not in COMPUTES:
        return
    if notes is not None and notes.capturing:  # nothing is computed yet
        return
    np.testing.assert_array_equal(
        bits_of(value), expected(value.kind, host(weight)), f"a stale value: {value.kind.name}"
    )


@contextmanager
def right_values() -> Iterator[None]:
    """Compare each value beside a weight with the weight where it is read, and where a replay begins and ends."""
    read, refresh, replayed = Derived.read, replay.refresh, Derived.replayed

    def checked_read(self: Derived) -> Array | None:
        array = read(self)
        if array is not None:
            check(self)
        return array

    def checked_refresh(values: Iterable[Derived]) -> None:
        values = list(values)
        refresh(values)
        for value in values:
            check(value)

    def checked_replayed(self: Derived) -> None:
        replayed(self)
        check(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Derived, "read", checked_read)
        patch.setattr(Derived, "replayed", checked_replayed)
        patch.setattr(replay, "refresh", checked_refresh)
        yield


@contextmanager
def nothing_beside() -> Iterator[None]:
    """Programs in which no optimizer keeps anything beside a weight, as before there was such a thing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "make_room", lambda *_: None)
        yield


def values_of(weight: Tensor) -> dict[str, Derived]:
    """The values beside a tensor, by the names of their kinds."""
    return {found.kind.name: found for found in derived.derived_of(weight.array) if found.array is not None}
