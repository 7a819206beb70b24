"""The fp16 copies that batch normalisation writes for convolutions in "tf32", and the limits that are their scales."""

from __future__ import annotations

from typing import Any

import half_cases
import numpy as np
import pytest
from conv2d_cases import hopper
from half_cases import CASES, FEW, LARGE, SHAPE, Case, Operands

from alpha.core.primitive import Array
from alpha.ops.conv2d.problem import Given
from alpha.ops.kernel.casts import HalfAlone
from alpha.runtime.cuda.cuda_device import CudaDevice

HALF_MAX = np.float32(65504)


def scale_of(word: np.ndarray) -> np.float32:
    """The power of two of cuda/common/fp16_terms.cuh for a magnitude with these bits."""
    bits = int(word.view(np.uint32)[0])
    return np.float32(1) if bits == 0 else np.uint32(min(253, 268 - (bits >> 23)) << 23).view(np.float32)


def in_half(values: np.ndarray, scale: np.float32) -> np.ndarray:
    """Values times the scale as fp16, rounded to nearest; what is finite stays finite."""
    with np.errstate(all="ignore"):
        scaled = values * scale
    finite = np.where(np.isfinite(values), np.clip(scaled, -HALF_MAX, HALF_MAX), scaled)
    return finite.astype(np.float16)


def check(device: CudaDevice, case: Case, operands: Operands, **changed: np.ndarray) -> tuple[np.ndarray, float]:
    """The result and its limit. The copy is that of the result, whose bits are those without a copy."""
    made = case.run(device, operands, **changed)
    assert made.magnitude is not None
    assert made.magnitude.half is not None, "no copy was written"
    assert made.magnitude.half.shape == made.shape
    plain: Array = case.run(device, operands, wanted=Given.MAGNITUDE, **changed)
    assert plain.magnitude.half is None
    values, word = device.download(made), device.download(made.magnitude)
    np.testing.assert_array_equal(values, device.download(plain))
    half = device.download(made.magnitude.half).view(np.float16)
    np.testing.assert_array_equal(half, in_half(values, scale_of(word)))
    return values, float(word.view(np.float32)[0])


def largest(a: np.ndarray) -> float:
    return float(np.abs(a[np.isfinite(a)]).max(initial=0))


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("shape", [SHAPE, FEW, pytest.param(LARGE, marks=pytest.mark.slow)], ids=str)
def test_the_copy_is_that_of_the_result_below_its_limit(case: Case, shape: tuple[int, ...]) -> None:
    values, limit = check(hopper(), case, Operands.draw(shape))
    assert 0 < largest(values) <= limit * (1 + 1e-6)


@pytest.mark.parametrize("case", [case for case in CASES if not case.forward], ids=str)
@pytest.mark.parametrize("shape", [SHAPE, FEW, pytest.param(LARGE, marks=pytest.mark.slow)], ids=str)
def test_a_copy_alone_is_the_copy_that_lies_beside_the_result(case: Case, shape: tuple[int, ...]) -> None:
    device, operands = hopper(), Operands.draw(shape)
    both, alone = (case.run(device, operands, wanted) for wanted in (Given.HALF, Given.HALF_ALONE))
    assert isinstance(alone, HalfAlone)
    assert (alone.shape, alone.dtype) == (both.shape, both.dtype)
    for one, other in ((both.magnitude.half, alone.copy), (both.magnitude, alone.magnitude)):
        np.testing.assert_array_equal(device.download(one), device.download(other))


@pytest.mark.parametrize("case", [case for case in CASES if case.forward], ids=str)
def test_the_limit_is_reached_by_one_row_that_differs(case: Case) -> None:
    """All rows of a channel are equal but one: it is sqrt(R - 1) standard deviations from the mean."""
    operands = Operands.draw()
    X = np.zeros(SHAPE, np.float32)
    X[0, 0, 0] = 100 * np.sign(operands.weight)
    R = X.size // SHAPE[-1]
    values, limit = check(
        hopper(), case, operands, X=X, bias=np.abs(operands.bias), residual=np.zeros(SHAPE, np.float32)
    )
    assert largest(values) <= limit
    most = np.abs(operands.weight) * np.sqrt(R) + np.abs(operands.bias)
    assert limit == pytest.approx(most.max() * (3 if "steep" in case.name else 1), rel=1e-5)
    if "residual" not in case.name:
        assert largest(values) > 0.9 * limit / (3 if "steep" in case.name else 1)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-6, 1e6, 1e15])
def test_weights_of_any_size(case: Case, scale: float) -> None:
    operands = Operands.draw()
    changed = {"weight": operands.weight * np.float32(scale), "bias": operands.bias * np.float32(scale)}
    if "output" in case.name:  # the output is that of other weights
        return
    values, limit = check(hopper(), case, operands, **changed)
    assert largest(values) <= limit * (1 + 1e-6) or scale == 0


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_leaves_the_others_their_copies(case: Case, value: float) -> None:
    """A channel with such a number has no part in the limit."""
    operands = Operands.draw()
    for name in ("X", "dY", "weight"):
        changed = vars(operands)[name].copy()
        changed[..., 1].flat[:1] = value
        values, limit = check(hopper(), case, operands, **{name: changed})
        others = np.delete(values, 1, axis=-1)
        assert np.isfinite(others).all()
        assert 0 < largest(others) <= limit * (1 + 1e-6)


@pytest.mark.parametrize("case", [case for case in CASES if not case.name.startswith("gradients, begun")], ids=str)
def test_a_limit_above_all_floats(case: Case) -> None:
    """The results are finite, and so are their copies."""
    operands = Operands.draw()
    weight = operands.weight.copy()
    weight[1] = np.float32(1e37)
    values, limit = check(hopper(), case, operands, weight=weight)
    if case.forward:
        assert np.isfinite(values).all()
        assert largest(values) <= limit


@pytest.mark.parametrize("case", [case for case in CASES if "copy" in case.name], ids=str)
@pytest.mark.parametrize("off", [0, 4], ids=["packs", "single elements"])
def test_gradients_from_a_copy_are_those_from_what_it_holds(case: Case, off: int) -> None:
    """A thread takes one element at a time of a gradient that begins anywhere."""
    name = case.name.replace("from a copy of the output", "from the output").replace("from a copy", "from Y")
    twin = next(other for other in CASES if other.name == name)
    device, operands = hopper(), Operands.draw(LARGE)

    def result(each: Case, **changed: np.ndarray) -> np.ndarray:
        def call(a: dict[str, Any]) -> Array:
            if off:
                flat = device.empty((a["dY"].size + 1,), np.float32)
                part = flat.slice_rows(1, flat.size).reshape(a["dY"].shape)
                device.write(part, device.download(a["dY"]))
                part.magnitude, a["dY"] = a["dY"].magnitude, part
            return each.call(a)

        return device.download(Case(each.name, call).run(device, operands, **changed))

    found, expected = result(case, Y=held(operands.Y)), result(twin, Y=held(operands.Y))
    np.testing.assert_array_equal(found, expected)
    exact = result(twin)
    error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    assert error < 3e-4
    assert error > 0 or case.name.endswith("sign from a copy")


def held(a: np.ndarray) -> np.ndarray:
    """The numbers that the copy of an array holds."""
    scale = np.float32(2.0 ** (15 - np.frexp(4 * np.abs(a).max())[1]))
    return (a * scale).astype(np.float16).astype("float32") / scale


def test_relu6_bounds_the_limit() -> None:
    case = half_cases._training("training, ReLU6", False, half_cases.Rectifier(bound=6.0))
    assert check(hopper(), case, Operands.draw())[1] == 6


def test_a_channel_of_one_large_number_stays_finite() -> None:
    """Rounding of the mean is then more than all that eps leaves: the result is above the limit."""
    operands = Operands.draw((1, 2, 2, 8))
    X = operands.X.copy()
    X[..., 0] = np.float32(3e7) + np.array([[[0, 2], [0, 0]]], np.float32)
    values, _ = check(hopper(), CASES[0], operands, X=X)
    assert np.isfinite(values).all()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_copy_of_channels_that_are_no_packs_or_of_other_forms(case: Case) -> None:
    for shape in ((3, 4, 5, 20), (60, 24), (3, 4, 24), (2, 3, 4, 5, 24)):
        made = case.run(hopper(), Operands.draw(shape))
        assert made.magnitude is not None
        assert made.magnitude.half is None


def test_no_copy_if_no_limit_is_known() -> None:
    """The residual's magnitude is unknown, the one behind is steep, or dZ was made without its magnitude."""
    device, operands = hopper(), Operands.draw()
    steep = [
        half_cases._gradients("steep", None, half_cases.Rectifier(3.0)),
        half_cases._begun("steep", lambda a: half_cases.RectifiedInput(a["X"], half_cases.Rectifier(3.0))),
    ]
    for case in steep:
        assert case.run(device, operands).magnitude.half is None

    def forgetting(case: Case, name: str) -> Case:
        def call(a: dict[str, Array]) -> Array:
            a[name].magnitude = None
            return case.call(a)

        return Case(case.name, call)

    by_name = {case.name: case for case in CASES}
    for case in (forgetting(by_name["training, residual"], "residual"), forgetting(by_name["gradients, begun"], "dY")):
        made = case.run(device, operands)
        assert made.magnitude is not None
        assert made.magnitude.half is None


def test_arrays_that_begin_anywhere() -> None:
    """A thread then takes one element at a time, and writes no copy."""
    device, operands = hopper(), Operands.draw()
    size = operands.X.size
    shifted = device.upload(np.append(np.float32(0), operands.X.ravel())).slice_rows(1, size + 1).reshape(SHAPE)

    def call(a: dict[str, Array]) -> Array:
        return CASES[0].call({**a, "X": shifted})

    made = Case("shifted", call).run(device, operands)
    assert made.magnitude.half is None
    expected = CASES[0].run(device, operands)
    np.testing.assert_allclose(device.download(made), device.download(expected), rtol=1e-5, atol=1e-5)
