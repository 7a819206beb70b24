"""The first step of a gradient that begins with a rectifier, taken by the kernel that makes the gradient before it.

    dZ = rectifier.gradient(dY + other)

A batch normalisation also needs two sums of each channel: of dZ, and of dZ times its input, centred. KS-deconv on
Hopper takes such steps (cuda/conv2d/sm90/first_step.cuh).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from alpha.autograd.first_step import FirstStep
from alpha.core.primitive import Array
from alpha.ops.kernel.rectifier import Rectifier

# where the sign of what a rectifier was given is from, see cuda/batchnorm/gradient_rows.cuh
NOT_RECTIFIED, FROM_X, FROM_Y, FROM_OUTPUT, FROM_SUM = range(5)


class StepForm(NamedTuple):
    """What a plan depends on of a step.

    Attributes:
        sign: where the sign is from.
        sloped: whether the slope of the rectifier is not 0.
        sums: whether channels are added up.
        other: whether another gradient is added first.
        magnitude: whether the largest magnitude of dZ is found, too.
    """

    sign: int
    sloped: bool
    sums: bool
    other: bool
    magnitude: bool

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


class RectifierStep(FirstStep):
    """dZ = rectifier.gradient(dY + other), with the sums of channels if `normalized` has what they need.

    Args:
        sign: where the sign of what the rectifier was given is from.
        maps: "X", "Y" and "residual", as far as `sign` and the sums need them, of the form of dY.
        normalized: of a batch normalisation: "mean", "var", "weight" and "bias" (C,), as far as there are some, and the
            numbers "eps" and "smallest"; without any, nothing is added up.

    Attributes:
        part: (2, parts, C), the sums over parts of the rows, if the step was taken and they were asked for.
    """

    def __init__(
        self, rectifier: Rectifier, sign: int, maps: Mapping[str, Array], normalized: Mapping[str, Any] | None = None
    ) -> None:
        self.rectifier, self.sign, self.maps, self.normalized = rectifier, sign, maps, normalized or {}
        self.part: Array | None = None

    def form(self, magnitude: bool) -> StepForm:
        """What a plan depends on; `magnitude`: whether that of dZ is asked for, which no more is than dZ itself."""
        sloped, adds_up = self.rectifier.slope != 0, bool(self.normalized)
        return StepForm(self.sign, sloped, adds_up, self.other is not None, magnitude and not adds_up)

    def fits(self, dY: Array) -> bool:
        """True if the arrays are of the dtype of dY and begin at multiples of 16 bytes."""
        maps = [array for array in (self.other, *self.maps.values()) if array is not None]
        columns = [array for array in self.normalized.values() if isinstance(array, type(dY))]
        return all(array.dtype == dY.dtype for array in maps) and all(a.address % 16 == 0 for a in (*maps, *columns))

    @property
    def operands(self) -> dict[str, Any]:
        """Arrays and numbers of a launch."""
        given = {**self.maps, "other": self.other, "eps": 0.0, "smallest": 0.0, **self.normalized}
        return {f"behind {name}": value for name, value in given.items()} | {
            "behind slope": self.rectifier.slope,
            "behind bound": self.rectifier.bound,
        }

    def note_taken(self, part: Array | None) -> None:
        """Take note that dZ was made, and of the sums; the other gradient is not needed any more."""
        self.part, self.other, self.taken = part, None, True
