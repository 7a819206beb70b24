"""Captured steps draw anew at each replay, and give the bits of the transforms themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_transforms import FIXED, MIXING, RANDOM

import alpha
from alpha import transforms
from alpha.runtime.cuda.cuda_device import CudaDevice

CHOICE = [transforms.MixUp(num_classes=4), transforms.CutMix(num_classes=4)]
CASES: dict[str, Any] = {
    name: getattr(transforms, name)(**arguments)
    for name, arguments in (RANDOM | MIXING | FIXED | {"RandomGrayscale": {"p": 0.5}}).items()
}
CASES["Compose"] = transforms.Compose([transforms.RandAugment(1), transforms.RandomChoice(CHOICE)])


@pytest.mark.parametrize("name", CASES)
def test_a_replay_draws_anew(name: str) -> None:
    device = alpha.get_device("cuda")
    if not isinstance(device, CudaDevice) or device.driver.why_no_capture:
        pytest.skip("no captured steps here")
    transform = CASES[name].to("cuda")
    rng = np.random.default_rng(0)
    x = alpha.tensor(rng.random((16, 7, 9, 3), dtype=np.float32), device="cuda")
    labels = alpha.tensor(rng.integers(0, 4, 16), device="cuda")
    given = (x, labels) if transforms.takes_targets(transform) else (x,)

    @alpha.capture(strict=True)
    def augment(*tensors: alpha.Tensor) -> Any:
        result = transform(*tensors)
        return [each * 1 for each in result] if isinstance(result, tuple) else result * 1

    found, expected = [], []
    for step, made in ((augment, found), (transform, expected)):
        alpha.manual_seed(5)
        for _ in range(6):
            result = step(*given)
            made.append([each.numpy() for each in (result if isinstance(result, (tuple, list)) else (result,))])
    assert augment.graphs
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
    if name not in FIXED:
        assert len({one[0].tobytes() for one in found[-3:]}) > 1
