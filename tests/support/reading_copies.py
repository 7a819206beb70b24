"""A Hopper GPU whose convolutions in "tf32" read fp16 copies, and the copies that batch normalisations wrote there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from conv2d_cases import hopper
from helpers import choosing
from launch_log import Launched

from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.step.dry import in_place_of_the_gpu

TILES = {
    "conv_v2_sm90_fp16_64x32_prepared",
    "ks_deconv_sm90_fp16_64x32_prepared",
    "sk_dilated_sm90_fp16_64x32_both_prepared",
}


@contextmanager
def gpu_that_reads_copies() -> Iterator[CudaDevice]:
    """A Hopper GPU of few SMs, or an emulated one, on which the smallest tile that reads copies is always taken."""
    device = hopper(4)
    with in_place_of_the_gpu(device), choosing(lambda v: v.name in TILES):
        yield device


def copies(log: list[Launched]) -> int:
    """The number of copies that kernels of batch normalisation wrote."""
    return sum(launched.defines.get("HALF", 0) > 0 for launched in log)


def alone(log: list[Launched]) -> int:
    """The number of those that took the place of a gradient."""
    return sum(launched.defines.get("HALF", 0) == 2 for launched in log)
