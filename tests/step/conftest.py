"""Fixtures that tests of captured steps share."""

from __future__ import annotations

import pytest

import alpha
from alpha.errors import AlphaError
from alpha.runtime.cuda.cuda_device import CudaDevice


@pytest.fixture(autouse=True)
def right_values_beside_weights() -> None:
    """Compare nothing inside a step: what is watched or counted here must be the step alone.

    tests/optim/test_beside_weights.py compares the values of captured steps.
    """


@pytest.fixture
def cuda() -> CudaDevice:
    """The cuda device, if it captures, without graphs of tests before."""
    try:
        device = alpha.get_device("cuda")
    except AlphaError as error:
        pytest.skip(str(error))
    assert isinstance(device, CudaDevice)
    if device.driver.why_no_capture:
        pytest.skip(device.driver.why_no_capture)
    device.graphs.close_dropped()
    return device
