"""Random streams as kernels take them."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.core.rng import Stream

STREAM = np.dtype([("key", np.uint64), ("number", np.uint64)], align=True)


def stream_numbers(stream: Stream) -> Any:
    """`Stream` of cuda/common/philox.cuh."""
    return np.array(tuple(stream), STREAM)[()]
