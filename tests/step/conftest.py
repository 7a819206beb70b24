"""Fixtures that tests of captured steps share."""

from __future__ import annotations

import gc

import pytest

import alpha
from alpha.errors import AlphaError
from alpha.runtime.cuda.cuda_device import CudaDevice


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
    gc.collect()
    gc.freeze()  # what is left is no garbage: the next test need not look through it
    device.graphs.close_dropped()
    return device
