"""Packs a thread takes, and dtypes that meet."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.errors import DeviceError
from alpha.ops.kernel.casts import (
    as_dtype,
    as_float32,
    cast_operands,
    require_float32,
    require_same_float,
    result_type,
    vector_width,
)


def test_the_dtype_of_an_unpickled_array_is_numpys_object() -> None:
    """The check `array.dtype is FLOAT32` of the largest kernels is true of each float32 array of a GPU."""
    unpickled = pickle.loads(pickle.dumps(np.zeros((3, 1, 4, 1, 5), np.float32)))
    assert unpickled.dtype is not FLOAT32
    assert alpha.tensor(unpickled, device="cuda").array.dtype is FLOAT32


def array(dtype: Any, address: int = 512) -> Any:
    block = SimpleNamespace(address=address)
    return SimpleNamespace(dtype=np.dtype(dtype), address=address, block=block, offset=0, ndim=1)


@pytest.mark.parametrize(
    ("arrays", "along", "width"),
    [
        ([array(FLOAT32)], 0, 4),
        ([array(FLOAT32, 516)], 0, 1),
        ([array(FLOAT32)], 6, 1),
        ([array(np.float64, 528)], 8, 4),
        ([array(np.uint8, 516)], 0, 4),
        ([array(BFLOAT16)], 0, 8),
        ([array(BFLOAT16)], 24, 8),
        ([array(BFLOAT16)], 12, 4),
        ([array(BFLOAT16)], 6, 1),
        ([array(BFLOAT16, 520)], 8, 4),  # packs of four are 8 bytes
        ([array(BFLOAT16), array(FLOAT32)], 8, 8),
        ([array(BFLOAT16), array(FLOAT32, 520)], 8, 1),
        ([array(BFLOAT16), array(np.uint8, 516)], 8, 4),
    ],
)
def test_packs_are_aligned_and_divide_the_axis(arrays: list[Any], along: int, width: int) -> None:
    assert vector_width(*arrays, along=along) == width


def test_float32_wins_over_bfloat16_which_meets_nothing_else() -> None:
    assert result_type("add", [array(FLOAT32), array(BFLOAT16)]) == FLOAT32
    number = np.empty((), FLOAT32)
    assert result_type("add", [number, np.empty(3, BFLOAT16)]) == BFLOAT16
    assert result_type("add", [number, number.astype(BFLOAT16)]) == FLOAT32
    assert result_type("add", [array(np.int32)] * 3) == np.int32
    with pytest.raises(TypeError, match=r"add: dtypes bfloat16 and int32 differ; use \.astype"):
        result_type("add", [array(BFLOAT16), array(np.int32)])


def test_what_kernels_refuse_is_named() -> None:
    require_same_float("pool", array(BFLOAT16), array(BFLOAT16))
    with pytest.raises(TypeError, match="pool: cuda computes in float32, not float64"):
        require_same_float("pool", array(np.float64))
    with pytest.raises(TypeError, match="pool: one dtype is needed, not bfloat16, float32"):
        require_same_float("pool", array(BFLOAT16), array(FLOAT32))
    with pytest.raises(TypeError, match="norm: cuda computes in float32, not bfloat16"):
        require_float32("norm", array(BFLOAT16))


def test_factors_of_a_product() -> None:
    X, W = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
    half = X.astype(BFLOAT16)
    assert [a is b for a, b in zip(cast_operands("linear", "bf16", X, W), (X, W), strict=True)] == [True, True]
    assert {a.dtype for a in cast_operands("linear", "float32", half, W)} == {BFLOAT16}
    with pytest.raises(TypeError, match="linear: dtypes bfloat16 and float64 differ"):
        cast_operands("linear", "bf16", half, W.astype(np.float64))


def test_a_cast_to_its_own_dtype_is_the_array() -> None:
    X = np.ones((2, 3), np.float32)
    assert as_float32(X) is X
    assert as_dtype(X, FLOAT32) is X
    assert as_float32(X.astype(BFLOAT16)).dtype == FLOAT32


def test_pytorchs_names_of_a_cast_and_of_pinned_memory(device: str) -> None:
    x = alpha.ones(2, device=device)
    assert x.type(alpha.int64).dtype == np.int64
    assert x.type("float32") is x
    with pytest.raises(TypeError, match=r"type: a dtype is needed; x\.dtype is that of x"):
        x.type()
    if device == "cpu":
        assert x.pin_memory() is x
    else:
        with pytest.raises(DeviceError, match="pin_memory: the tensor is on cuda"):
            x.pin_memory()
