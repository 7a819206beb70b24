"""alpha.finfo and alpha.iinfo, and the constants beside them."""

from __future__ import annotations

import math

import numpy as np
import pytest

import alpha


def test_limits_are_pythons_numbers_that_the_dtype_holds() -> None:
    for dtype in (alpha.float32, alpha.float64, alpha.bfloat16):
        found = alpha.finfo(dtype)
        assert (found.dtype, found.bits) == (dtype.name, dtype.itemsize * 8)
        numbers = (found.min, found.max, found.eps, found.tiny, found.smallest_normal, found.resolution)
        assert {type(number) for number in numbers} == {float}
        one = np.ones((), dtype)
        assert float(one + np.asarray(found.eps, dtype)) == 1 + found.eps
        assert float(one + np.asarray(found.eps / 4, dtype)) == 1
        assert float(np.asarray(found.max, dtype)) == found.max == -found.min
    for name, least, most in (("int32", -(2**31), 2**31 - 1), ("int64", -(2**63), 2**63 - 1), ("uint8", 0, 255)):
        whole = alpha.iinfo(name)
        assert (whole.min, whole.max, whole.dtype, whole.bits) == (least, most, name, np.dtype(name).itemsize * 8)
    assert alpha.finfo() == alpha.finfo("float32") != alpha.finfo("bfloat16")
    assert len({alpha.finfo(), alpha.finfo(alpha.float32), alpha.iinfo("int32")}) == 2
    assert alpha.full((2,), alpha.finfo(alpha.float32).min).isfinite().all()


@pytest.mark.torch
def test_limits_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for name in ("float32", "float64", "bfloat16", "int32", "int64", "uint8"):
        kind = "finfo" if "float" in name else "iinfo"
        mine, other = getattr(alpha, kind)(name), getattr(torch, kind)(getattr(torch, name))
        if kind == "finfo":  # PyTorch shows integers rounded
            assert repr(mine) == repr(other)
        for attribute in vars(mine):
            assert getattr(mine, attribute) == getattr(other, attribute), attribute


def test_a_dtype_of_the_other_kind() -> None:
    with pytest.raises(TypeError, match=r"^finfo: int32 is not a floating dtype; iinfo has"):
        alpha.finfo(alpha.int32)
    for name in ("float32", "bfloat16", "bool"):
        with pytest.raises(TypeError, match=f"^iinfo: {name} is not an integer dtype"):
            alpha.iinfo(name)
    with pytest.raises(TypeError, match="is no dtype"):
        alpha.finfo("number")


def test_constants() -> None:
    assert (alpha.pi, alpha.e, alpha.inf) == (math.pi, math.e, math.inf)
    assert math.isnan(alpha.nan)
    assert {"pi", "e", "inf", "nan", "finfo", "iinfo"} <= set(alpha.__all__)
