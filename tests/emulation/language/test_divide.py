"""The kernels' integer divisions, which leave out divisions by 1, and how split-K shares its steps."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_emulator import Emulator

SOURCE = "divide.cu"


def test_divisions(emulator: Emulator) -> None:
    numbers = (0, 1, 2, 3, 7, 8, 9, 131, 2**20, 2**31 - 200)
    a, b = np.array([(sign * x, y) for sign in (1, -1) for x in numbers for y in (1, 2, 3, 8, 132)], np.int32).T.copy()
    out = np.zeros((len(a), 5), np.int32)
    emulator(SOURCE, "divisions", -(-len(a) // 64), 64, out, a, b, np.int32(len(a)))
    magnitude = np.abs(a)
    np.testing.assert_array_equal(out.T, [*np.divmod(a, b), *np.divmod(magnitude, b), -(-magnitude // b)])


@pytest.mark.parametrize(("total", "GZ"), [(0, 3), (1, 1), (2, 5), (24, 4), (100, 7), (2**31 - 1, 64)])
def test_splits_share_all_steps_evenly(emulator: Emulator, total: int, GZ: int) -> None:
    out = np.zeros((GZ, 2), np.int32)
    emulator(SOURCE, "splits", 1, GZ, out, np.int32(total), np.int32(GZ))
    begin, end = out.T.astype(np.int64)
    assert begin[0] == 0
    assert end[-1] == total
    np.testing.assert_array_equal(begin[1:], end[:-1])
    assert np.ptp(end - begin) <= 1
