"""Capsules of DLPack: what stands in them, which producers are read, and what numpy and cuda-core are given."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from alpha.runtime.sharing import capsules

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


class Given:
    """A producer that gives one capsule, and notes how it was asked."""

    def __init__(self, capsule: Any) -> None:
        self.capsule, self.asked = capsule, list[Any]()

    def __dlpack__(self, **arguments: Any) -> Any:
        self.asked.append(arguments)
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@pytest.mark.parametrize(
    ("dtype", "code", "bits"),
    [
        ("float32", 2, 32),
        ("float64", 2, 64),
        ("int32", 0, 32),
        ("int64", 0, 64),
        ("uint8", 1, 8),
        ("bool", 6, 8),
        (BFLOAT16, 4, 16),
    ],
)
@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_fields(dtype: Any, code: int, bits: int, max_version: Any) -> None:
    array = VALUES.astype(dtype)
    capsule = capsules.of_host(array, max_version)
    found = capsules.tensor_of(capsule)
    assert (found.code, found.bits, found.lanes, found.ndim) == (code, bits, 1, 2)
    assert (found.device_type, found.device_id, found.byte_offset) == (1, 0, 0)
    assert found.data == array.ctypes.data
    assert ("versioned" in repr(capsule)) is (
        max_version is not None and np.lib.NumpyVersion(np.__version__) >= "2.1.0"
    )


def test_bfloat16_goes_through_numpy_as_bits() -> None:
    array = VALUES.astype(BFLOAT16)
    found = capsules.of_producer(Given(capsules.of_host(array, (1, 0))), BFLOAT16)
    assert found.dtype == BFLOAT16
    assert found.ctypes.data == array.ctypes.data
    np.testing.assert_array_equal(found.astype(np.float32), VALUES)


def test_the_offset_of_a_producer_counts_for_every_reader() -> None:
    """A part of an array would begin at the wrong place in cuda-core, which reads the address alone."""
    capsule = capsules.of_host(VALUES, (1, 0))
    tensor = capsules.tensor_of(capsule)
    tensor.data, tensor.byte_offset = VALUES.ctypes.data - 8, 8
    found = capsules.of_producer(Given(capsule), BFLOAT16)  # which keeps the capsule's memory
    assert found.ctypes.data == VALUES.ctypes.data
    assert (tensor.data, tensor.byte_offset) == (VALUES.ctypes.data, 0)


def test_a_producer_that_gives_no_capsule() -> None:
    with pytest.raises(BufferError, match="gave no fresh capsule of DLPack but 3"):
        capsules.tensor_of(3)
    capsule = capsules.of_host(VALUES, (1, 0))
    np.from_dlpack(Given(capsule))
    with pytest.raises(BufferError, match="used_dltensor"):
        capsules.tensor_of(capsule)
