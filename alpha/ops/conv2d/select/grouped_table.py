"""The table of kernel configurations for convolutions with groups, dilated ones too; see table.py.

The last configuration of each operator and device takes any shape of two axes. Which convolutions come here, and which
are cut into dense ones before, is decided by `as_2d` in ops/convolution/whole.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from alpha.ops.conv2d import cpu
from alpha.ops.conv2d.groups import (
    depthwise,
    grouped,
    grouped_cpu,
    small_groups,
    small_groups_sm80,
    small_groups_weight_sm80,
)
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Configuration, MathMode, Target
from alpha.ops.conv2d.shape import ConvShape

NAMES = {FORWARD: "forward", INPUT: "input", WEIGHT: "weight"}
DEPTHWISE = "one input channel per group: strips of pixels in registers"
SMALL_GROUPS = "groups of few channels on FFMA, in float32"
TENSOR_GROUPS = "groups of few channels: filters in registers, rows in shared memory"


def _both(name: str, operator: str, make: Any, reason: str, **more: Any) -> Iterator[Configuration]:
    """A configuration for arrays of bfloat16, and one for float32; sums are float32, by FFMA."""
    epilogue = operator != WEIGHT
    for math, suffix in ((MathMode.BF16, "_bf16"), (MathMode.FP32, "")):
        yield Configuration(
            name + suffix, operator, "cuda", make, reason, math=math, supports_epilogue=epilogue, **more
        )


def _on_tensor_cores(operator: str) -> Iterator[Configuration]:
    """Configurations of small groups on mma.sync for arrays of bfloat16, and for float32 in precision "tf32"."""
    name = f"small_groups_{NAMES[operator]}_sm80"
    if operator == WEIGHT:
        yield Configuration(
            f"{name}_bf16",
            operator,
            "cuda",
            small_groups_weight_sm80.small_groups_weight,
            "groups of few channels: the sums of all taps in registers",
            supports=lambda s, target: target.compute_capability >= (8, 0) and small_groups_weight_sm80.supports(s),
            math=MathMode.BF16,
            registers=small_groups_weight_sm80.REGISTERS,
        )
        return
    for math, item in ((MathMode.BF16, 2), (MathMode.TF32, 4)):

        def supports(s: ConvShape, target: Target, item: int = item) -> bool:
            return target.compute_capability >= (8, 0) and small_groups_sm80.supports(operator, s, item)

        yield Configuration(
            f"{name}_{math.name.lower()}",
            operator,
            "cuda",
            small_groups_sm80.small_groups_map,
            TENSOR_GROUPS,
            supports=supports,
            math=math,
            registers=small_groups_sm80.REGISTERS,
            supports_epilogue=True,
        )


def _on_cuda(operator: str) -> Iterator[Configuration]:
    result = "weight" if operator == WEIGHT else "map"
    name = NAMES[operator]
    yield from _both(
        f"depthwise_{name}_ffma",
        operator,
        getattr(depthwise, f"depthwise_{result}"),
        DEPTHWISE,
        supports=lambda s, target: depthwise.supports(operator, s),
        registers=depthwise.REGISTERS,
    )
    yield from _on_tensor_cores(operator)
    yield from _both(
        f"small_groups_{name}_ffma",
        operator,
        getattr(small_groups, f"small_groups_{result}"),
        SMALL_GROUPS,
        supports=lambda s, target: small_groups.supports(operator, s),
        registers=small_groups.REGISTERS,
    )
    yield from _both(f"grouped_{name}_ffma", operator, getattr(grouped, f"grouped_{result}"), "any shape")


def _on_cpu(operator: str, form: str) -> Iterator[Configuration]:
    name = NAMES[operator]
    yield Configuration(
        f"depthwise_{name}_taps",
        operator,
        "cpu",
        getattr(cpu, form),
        "one input channel per group: one tap at a time",
        supports=lambda s, target: s.groups == s.IC,
    )
    yield Configuration(f"grouped_{name}_taps", operator, "cpu", getattr(grouped_cpu, form), "any shape")


GROUPED: tuple[Configuration, ...] = (
    *_on_cpu(FORWARD, "forward"),
    *_on_cpu(INPUT, "backward_input"),
    *_on_cpu(WEIGHT, "backward_weight"),
    *_on_cuda(FORWARD),
    *_on_cuda(INPUT),
    *_on_cuda(WEIGHT),
)
