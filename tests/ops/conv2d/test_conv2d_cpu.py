"""Convolutions on the cpu: both forms of each algorithm by the formula, and the memory that they use."""

from __future__ import annotations

import numpy as np
import pytest
from conv2d_cases import CPU_FORMS, OPERATORS, operands, shapes
from hypothesis import given, settings

from alpha.ops.conv2d import cpu
from alpha.ops.conv2d.problem import FORWARD
from alpha.ops.conv2d.shape import ConvShape


@pytest.mark.slow
@given(s=shapes())
@settings(max_examples=150, deadline=None)
def test_cpu_forms_equal_the_formula(s: ConvShape) -> None:
    for operator, form in CPU_FORMS:
        first, second = operands(operator, s, "float64")
        exact = OPERATORS[operator][0](first, second, s)
        np.testing.assert_allclose(form(first, second, s), exact, atol=1e-10, err_msg=form.__name__)


@given(s=shapes())
@settings(max_examples=100, deadline=None)
def test_adjoint_identity(s: ConvShape) -> None:
    """<conv(X), dY> = <X, dX> = <W, dW>: needs no reference."""
    X, W = operands(FORWARD, s, "float64")
    dY = np.random.default_rng(1).standard_normal(s.Y)
    left = (cpu.conv_v2_patches(X, W, s) * dY).sum()
    through_X = (X * cpu.ks_deconv_patches(dY, W, s)).sum()
    through_W = (W * cpu.sk_dilated_patches(X, dY, s)).sum()
    assert left == pytest.approx(through_X, abs=1e-8)
    assert left == pytest.approx(through_W, abs=1e-8)


def test_images_of_a_task_on_the_cpu() -> None:
    """Images fill the scratch, but 16 tasks and 512 rows for each product come first."""
    assert cpu._images_per_task(1000, 4, 10, 4) == 128
    assert cpu._images_per_task(10_000, 1000, 10, 4) == 625
    assert cpu._images_per_task(10_000, 4, 1 << 15, 4) == 32


def test_scratch_is_used_again() -> None:
    large = cpu.scratch("a test's", (8, 4), np.dtype(np.float32))
    small = cpu.scratch("a test's", (3,), np.dtype(np.float64))
    assert (small.shape, small.dtype) == ((3,), np.float64)
    assert np.shares_memory(large, small)
