"""Log of what a cuda device launches, and in which arithmetic: nothing else shows that a precision is not ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from alpha.ops.conv2d.problem import MathMode
from alpha.runtime.cuda.cuda_device import CudaDevice

# the products on FFMA: float32, whatever was asked for
FFMA = {
    "conv2d/direct/forward_ffma.cu",
    "conv2d/direct/weight_ffma.cu",
    "conv2d/implicit_gemm/ffma.cu",
    "conv2d/ks_deconv/ffma.cu",
    "conv2d/sk_dilated/ffma.cu",
    "matmul/ffma.cu",
}
# kernels of the folders conv2d and matmul that prepare operands and multiply nothing
NO_PRODUCTS = {
    "conv2d/prepare/filter_terms.cu",
    "conv2d/ks_deconv/split_filter.cu",
    "conv2d/prepare/activation_terms.cu",
}


@dataclass(frozen=True)
class Launched:
    """One launch: `entry` of cuda/<source>, with its macros."""

    source: str
    entry: str
    defines: Mapping[str, Any] = field(hash=False)

    @property
    def mode(self) -> str | None:
        """The arithmetic of its products, "float32", "tf32" or "bf16"; None if it multiplies no operands."""
        if self.source in FFMA:
            return "float32"
        if self.source in NO_PRODUCTS or self.source.split("/")[0] not in ("conv2d", "matmul"):
            return None
        return MathMode[self.defines["MATH"]].precision


@contextmanager
def observed_launches(device: CudaDevice) -> Iterator[list[Launched]]:
    """The launches of `device` within, in their order.

    The `mode` of a launch is a KeyError if its kernel is new and this file has not heard of its macros.
    """
    log: list[Launched] = []
    launch = device.driver.launch

    def observed(function: Any, *sizes_and_arguments: Any) -> None:
        kernel = device._kernels.of(function)
        log.append(Launched(kernel.source, kernel.entry, kernel.defines))
        launch(function, *sizes_and_arguments)

    with patch.object(device.driver, "launch", observed):
        yield log


def modes(log: list[Launched]) -> set[str]:
    """The arithmetic of the products of a log."""
    return {mode for launched in log if (mode := launched.mode) is not None}
