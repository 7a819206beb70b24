"""The form of the first step of a gradient that begins with a rectifier, for the kernel that takes it.

    dZ = rectifier.gradient(dY + other)

A batch normalisation also needs two sums of each channel: of dZ, and of dZ times its input, centred. KS-deconv on
Hopper takes such steps (cuda/conv2d/sm90/step_operands.cuh).
"""

from __future__ import annotations

from typing import NamedTuple

from alpha.ops.kernel.rectifier import FROM_OUTPUT, FROM_SUM, FROM_Y, RectifierStep


class StepForm(NamedTuple):
    """Facts of a step on which a plan depends.

    Attributes:
        sign: where the sign is from.
        sloped: whether the slope of the rectifier is not 0.
        sums: whether channels are added up.
        other: whether another gradient is added first.
        magnitude: whether the largest magnitude of dZ is found, too.
        half: whether Y is an fp16 copy.
    """

    sign: int
    sloped: bool
    sums: bool
    other: bool
    magnitude: bool
    half: bool = False

    @classmethod
    def of(cls, step: RectifierStep, magnitude: bool) -> StepForm:
        """The form of a step; `magnitude`: whether that of dZ is of use. Beside sums the step must need it."""
        sloped, adds_up = step.rectifier.slope != 0, bool(step.normalized)
        asked = magnitude and (step.needs_magnitude or not adds_up)
        return cls(step.sign, sloped, adds_up, step.other is not None, asked, step.half)

    @property
    def maps(self) -> tuple[str, ...]:
        """Names of the arrays of the form of dZ that are read."""
        reads_y = self.sign in (FROM_Y, FROM_OUTPUT, FROM_SUM)
        read = {
            "other": self.other,
            "X": self.sums and self.sign not in (FROM_OUTPUT, FROM_SUM),
            "Y": reads_y,
            "residual": self.sign == FROM_SUM,
        }
        return tuple(name for name, is_read in read.items() if is_read)
