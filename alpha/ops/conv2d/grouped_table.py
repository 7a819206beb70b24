"""The table of kernel configurations for convolutions with groups or dilation; see table.py.

The last configuration of each operator and device takes any shape. On cpu it takes any depthwise one: others are
cut into dense ones before (ops/convolution/pieces.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from alpha.ops.conv2d import depthwise, depthwise_cpu, grouped
from alpha.ops.conv2d.configuration import Condition, Configuration
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, MathMode

DEPTHWISE = "one input channel per group: strips of pixels in registers"


def _condition(operator: str) -> Condition:
    return lambda s, target: depthwise.supports(operator, s)


def _both(name: str, operator: str, make: Any, reason: str, **more: Any) -> Iterator[Configuration]:
    """A configuration for arrays of bfloat16, and one for float32; sums are float32, by FFMA."""
    epilogue = operator != WEIGHT
    for math, suffix in ((MathMode.BF16, "_bf16"), (MathMode.FP32, "")):
        yield Configuration(
            name + suffix, operator, "cuda", make, reason, math=math, supports_epilogue=epilogue, **more
        )


def _of(operator: str) -> Iterator[Configuration]:
    result = "weight" if operator == WEIGHT else "map"
    name = {FORWARD: "forward", INPUT: "input", WEIGHT: "weight"}[operator]
    yield from _both(
        f"depthwise_{name}_ffma",
        operator,
        getattr(depthwise, f"depthwise_{result}"),
        DEPTHWISE,
        supports=_condition(operator),
        registers=depthwise.REGISTERS,
    )
    yield from _both(f"grouped_{name}_ffma", operator, getattr(grouped, f"grouped_{result}"), "any shape")


GROUPED: tuple[Configuration, ...] = (
    Configuration("depthwise_forward_taps", FORWARD, "cpu", depthwise_cpu.forward, "one tap at a time"),
    Configuration("depthwise_input_taps", INPUT, "cpu", depthwise_cpu.backward_input, "one tap at a time"),
    Configuration("depthwise_weight_taps", WEIGHT, "cpu", depthwise_cpu.backward_weight, "one tap at a time"),
    *_of(FORWARD),
    *_of(INPUT),
    *_of(WEIGHT),
)
