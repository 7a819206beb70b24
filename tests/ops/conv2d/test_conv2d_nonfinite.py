"""Infinities, NaN and extreme magnitudes in the operands of convolutions.

What is not finite reaches the results that it is a factor of. It also reaches those for which a kernel multiplies it by
a zero of the padding; `spread` says which kernels do and how far. No other result changes, whatever the scale of the
fp16 terms.
"""

from __future__ import annotations

import conv2d_cases
import conv2d_geometry
import numpy as np
import pytest
from conv2d_cases import OPERATORS, arrays_of, make, relative_error
from helpers import first_of, smallest_of

import alpha
from alpha.ops.conv2d import direct
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Configuration
from alpha.ops.conv2d.select.grouped_table import GROUPED
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import ConvShape
from alpha.runtime import Device

LIMITS = {"float32": 1e-6, "tf32": 1e-3, "bf16": 5e-3}
NOT_FINITE = (np.nan, np.inf, -np.inf)
MAGNITUDES = ((1e-35, 1.0), (1e30, 1e-5), (1e36, 1e-35), (1e-35, 1e36), (1e-40, 1e4))  # the last are denormal
SCALED = [v for v in CONFIGURATIONS if v.math.in_fp16]
RECTIFYING = [v for v in (*CONFIGURATIONS, *(g for g in GROUPED if g.device == "cuda")) if v.operator != WEIGHT]
# a shape of several images, pixels, taps and channels for the rows of the cpu
ON_CPU = make(3, (7, 5), (3, 5), (3, 4), (2, 1), (1, 4))


def device_of(row: Configuration) -> Device:
    if row.device == "cpu":
        return alpha.get_device("cpu")
    return conv2d_cases.hopper() if conv2d_geometry.is_hopper(row) else alpha.get_device("cuda")


def shape_of(row: Configuration) -> ConvShape:
    """The cheapest of its drawn shapes."""
    if row.device == "cpu":
        return ON_CPU
    return min(conv2d_geometry.of(row), key=lambda s: conv2d_geometry.cost(row, s))


def run(
    row: Configuration, s: ConvShape, arrays: list[np.ndarray], bias: np.ndarray | None = None, slope: float = 1.0
) -> np.ndarray:
    device = device_of(row)
    b = None if bias is None else device.upload(bias)
    first, second = (device.upload(a.astype(arrays_of(row)) if row.device == "cuda" else a) for a in arrays)
    return device.download(compute(row, first, second, s, b, slope)).astype(np.float64)


def operands_of(row: Configuration, s: ConvShape, small: int) -> list[np.ndarray]:
    """Operands as the row takes them, one of them of about 1e-6."""
    arrays = list(conv2d_cases.operands(row.operator, s, "float32"))
    arrays[small] *= np.float32(1e-6)
    return [a.astype(arrays_of(row)).astype(np.float32) for a in arrays]


def formula(row: Configuration, s: ConvShape, arrays: list[np.ndarray]) -> np.ndarray:
    return OPERATORS[row.operator][0](*(a.astype(np.float64) for a in arrays), s)


# -- where it may go --------------------------------------------------------------------------------


def touched(row: Configuration, s: ConvShape, which: int, bad: np.ndarray) -> np.ndarray:
    """The results that an element of operand `which` is a factor of, where `bad` says which elements."""
    arrays = [np.ones(getattr(s, name)) for name in OPERATORS[row.operator][1]]
    arrays[which] = bad.astype(np.float64)
    return formula(row, s, arrays) > 0


def spread(row: Configuration, s: ConvShape, which: int, bad: np.ndarray) -> np.ndarray:
    """The results that it may reach: as `touched`, unless the kernel multiplies zeros that pad its tile."""
    exact = touched(row, s, which, bad)
    if row.base is not None:  # as on the swapped convolution
        other = direct.swapped(s)
        if row.operator == INPUT:
            return spread(row.base, other, which, rotated(bad) if which else bad)
        return rotated(spread(row.base, other, 1 - which, bad))
    name = OPERATORS[row.operator][1][which]
    hopper, first_layer = conv2d_geometry.is_hopper(row), row.name.startswith("direct")
    if not hopper and not first_layer:
        return exact
    reached = exact.copy()
    for index in np.argwhere(bad):
        if name == "W" and row.operator == FORWARD:  # padding of the image, by all of the filter
            reached[..., index[0]] = True
        elif name == "W":  # padding of dY, by the split filter of one residue
            _, fh, fw, ic = index
            rows, columns = (np.arange(s.IH) + s.ph - fh) % s.sh == 0, (np.arange(s.IW) + s.pw - fw) % s.sw == 0
            reached[:, rows[:, None] & columns[None, :], ic] = True
        elif name == "Y" and row.operator == WEIGHT:  # padding of X
            reached[index[3]] = True
        elif row.operator == WEIGHT and hopper:  # outputs beyond the row, which fill a step
            oh, rest = np.divmod(index[1] + s.ph - np.arange(s.FH), s.sh)
            reached[:, (rest == 0) & (oh >= 0) & (oh < s.OH), :, index[3]] = True
        elif row.operator == WEIGHT and not row.is_ffma:  # and pixels beyond the row, in all taps
            reached[..., index[3]] = True
        elif row.operator == FORWARD and first_layer and not row.is_ffma:
            reached |= _beside_the_window(s, *index)
    return reached


def rotated(W: np.ndarray) -> np.ndarray:
    """Filters of few output channels as those of the swapped convolution, and back."""
    return W[:, ::-1, ::-1].transpose(3, 1, 2, 0)


def _beside_the_window(s: ConvShape, n: int, ih: int, iw: int, ic: int) -> np.ndarray:
    """Filter rows of an odd length are padded by one number, the neighbour on the right."""
    taps = s.FW * s.IC + s.FW * s.IC % 2
    rows = ih + s.ph - np.arange(s.OH) * s.sh
    numbers = (iw + s.pw) * s.IC + ic - np.arange(s.OW) * s.sw * s.IC
    reached = np.zeros(s.Y, bool)
    reached[n] = ((rows >= 0) & (rows < s.FH))[:, None, None] & ((numbers >= 0) & (numbers < taps))[None, :, None]
    return reached


@pytest.mark.filterwarnings("ignore:invalid value")  # of numpy, on the cpu
@pytest.mark.parametrize("row", smallest_of(CONFIGURATIONS))
@pytest.mark.parametrize("which", first_of(0, 1))
def test_what_is_not_finite_reaches_what_it_touches(row: Configuration, which: int) -> None:
    """The other results are as accurate as without it."""
    s = shape_of(row)
    arrays = operands_of(row, s, which)
    rng = np.random.default_rng(which)
    bad = np.zeros(arrays[which].shape, bool)
    for value in NOT_FINITE:
        place = tuple(rng.integers(0, arrays[which].shape))
        arrays[which][place], bad[place] = value, True
    found = run(row, s, arrays)
    arrays[which][bad] = 0
    exact = formula(row, s, arrays)
    must, may = touched(row, s, which, bad), spread(row, s, which, bad)
    assert not np.isfinite(found[must]).any(), f"{np.isfinite(found[must]).sum()} results lost it"
    reached = ~np.isfinite(found)
    assert not (reached & ~may).any(), f"it touches {must.sum()}, may reach {may.sum()}, reaches {reached.sum()}"
    assert relative_error(found[~reached], exact[~reached]) < LIMITS[row.precision]


# -- extreme magnitudes -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("row", smallest_of(SCALED))
@pytest.mark.parametrize("magnitudes", [*first_of(*MAGNITUDES[:3]), *first_of(*MAGNITUDES[3:])])
def test_extreme_magnitudes(row: Configuration, magnitudes: tuple[float, float]) -> None:
    """Each scale is of its own operand, and undoing both neither overflows nor underflows on the way."""
    s = shape_of(row)
    arrays = list(conv2d_cases.operands(row.operator, s, "float32"))
    arrays = [(a * np.float64(m)).astype(np.float32) for a, m in zip(arrays, magnitudes, strict=True)]
    assert relative_error(run(row, s, arrays), formula(row, s, arrays)) < LIMITS[row.precision]


@pytest.mark.parametrize("row", smallest_of(SCALED))
def test_operands_of_zeros_and_of_nothing_finite(row: Configuration) -> None:
    s = shape_of(row)
    arrays = operands_of(row, s, 0)
    zeros = [np.zeros_like(a) for a in arrays]
    for pair in ([zeros[0], arrays[1]], [arrays[0], zeros[1]], zeros):
        assert not run(row, s, pair).any()
    infinite = [np.full_like(arrays[0], np.inf), arrays[1]]
    must = touched(row, s, 0, np.ones(arrays[0].shape, bool))
    assert not np.isfinite(run(row, s, infinite)[must]).any()


# -- rectifiers -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid value")  # of numpy, on the cpu
@pytest.mark.parametrize("row", smallest_of(RECTIFYING))
def test_a_rectifier_behind_it(row: Configuration) -> None:
    """The results are those of the operators one after the other, bit for bit: with ReLU -inf is 0, and NaN stays."""
    s = shape_of(row)
    arrays = operands_of(row, s, 1)
    channels = s.OC if row.operator == FORWARD else s.IC
    for first in range(0, 4, channels):
        bias = np.resize(np.roll(np.float32([-np.inf, 0, np.nan, np.inf]), -first), channels)
        plain = run(row, s, arrays, bias)
        assert not np.isfinite(plain[..., bias != 0]).any()
        for slope in (0.0, 0.25):
            wanted = np.where(plain > 0, plain, slope * plain) if slope else np.where(plain < 0, 0, plain)
            np.testing.assert_array_equal(run(row, s, arrays, bias, slope), wanted, err_msg=f"slope {slope}")


# -- matrix products --------------------------------------------------------------------------------
