"""What a row of the table of convolution algorithms says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from alpha.ops.conv2d.shape import ConvShape
from alpha.runtime import Device

FORWARD, INPUT, WEIGHT = "conv2d_forward", "conv2d_backward_input", "conv2d_backward_weight"


@dataclass(frozen=True)
class Target:
    """What a choice depends on besides the shape."""

    device: str  # "cpu" or "cuda"
    compute_capability: tuple[int, int] = (0, 0)
    multiprocessors: int = 0
    # that a block may have: 64 KiB on sm_75, 99 on sm_86, 89 and 120, 163 on sm_80, 227 on sm_90 and 100
    shared_bytes: int = 163 << 10
    gpu: Device | None = field(default=None, compare=False)  # to time rows on, with ALPHA_TUNE=1


Condition = Callable[[ConvShape, Target], bool]


@dataclass
class ChannelMoments:
    """Moments of the channels of a result, for the batch normalisation that comes next, where a row finds them.

    part (2, parts, C): mean and sum of squared deviations over some rows; counts (parts,): how many.
    """

    part: Any = None
    counts: Any = None


def always(s: ConvShape, target: Target) -> bool:
    return True


@dataclass(frozen=True)
class Variant:
    """One way to compute one operator on one device.

    `run(first, second, shape, variant)` takes the operator's arrays: (X, W), (dY, W) or (X, dY). `can` says whether it
    computes a shape at all, `pays` whether it is worth it; `why` is the reason in words. No kernel of the row may need
    more than `registers` a thread. A row that `fuses` takes a bias and the slope of an activation, too:
    `run(first, second, shape, variant, bias, slope)`. One that `finds_moments` takes `ChannelMoments`, too,
    and fills them. `ffma`: a CUDA row without tensor cores.
    """

    name: str
    operator: str
    device: str
    run: Callable[..., Any]
    why: str
    can: Condition = always
    pays: Condition = always
    tile: Mapping[str, Any] = field(default_factory=dict)
    precision: str = "float32"
    registers: int = 128
    fuses: bool = False
    finds_moments: bool = False
    ffma: bool = False
