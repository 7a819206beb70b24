"""Arguments of convolutions: checked, and as the axes of a convolution of any number of dimensions, with dilation.

Every range of the paper is a product of ranges, one per axis, so this file looks at one axis at a time. A filter with
dilation d reads every d-th input. Outputs that are d / gcd(s, d) apart read inputs of one residue by d, and with these
inputs side by side they are a convolution without dilation: its filter has no gaps, so no zero is multiplied for them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import lengths_of
from alpha.ops.conv2d.shape import TRIVIAL, Axis, pairs_met
from alpha.ops.kernel.options import Lengths, integer, lengths, real
from alpha.ops.kernel.rectifier import rectifier_of


class Phase(NamedTuple):
    """Outputs y_start, y_start + y_step, .. of an axis: a convolution without dilation of some of its inputs.

    Attributes:
        x_start, x_step: its inputs; there may be none.
        axis: the axis that they make, with dilation 1.
    """

    x_start: int
    x_step: int
    y_start: int
    y_step: int
    axis: Axis


@functools.lru_cache(maxsize=4096)
def phases(axis: Axis) -> tuple[Phase, ...]:
    """The phases of an axis; together they have every output once, and no input twice."""
    I, F, s, p, d, O = axis
    if d == 1 or F == 1:
        return (Phase(0, 1, 0, 1, Axis(I, F, s, p, 1, O)),)
    common = math.gcd(s, d)
    period = d // common
    found = []
    for first in range(min(period, O)):
        offset, start = divmod(first * s - p, d)  # of its first tap, among the inputs start, start + d, ..
        begin = max(offset, 0)
        inputs = max(0, -(-(I - start) // d) - begin)
        inner = Axis(inputs, F, s // common, max(-offset, 0), 1, -(-(O - first) // period))
        found.append(Phase(start + begin * d, d, first, period, inner))
    return tuple(found)


class PhaseRun(NamedTuple):
    """Neighbouring phases that make equal axes: one convolution can compute them as so many images.

    Attributes:
        first: the first of `number` phases.
        x_gap, y_gap: inputs, and outputs, from one phase to the next.
    """

    first: Phase
    number: int
    x_gap: int
    y_gap: int


@functools.lru_cache(maxsize=4096)
def phase_runs(axis: Axis) -> tuple[PhaseRun, ...]:
    """The phases of an axis in as few runs as their order allows.

    The next output reads s inputs further on. If it makes an equal axis, so much lies between the first inputs of both.
    """
    runs: list[PhaseRun] = []
    for phase in phases(axis):
        if runs and runs[-1].first.axis == phase.axis:
            runs[-1] = runs[-1]._replace(number=runs[-1].number + 1)
        else:
            runs.append(PhaseRun(phase, 1, axis.s, 1))
    return tuple(runs)


def met(axis: Axis) -> int:
    """The number of pairs of an output and a tap that meet an input."""
    return pairs_met(*axis)


def output_length(I: int, F: int, s: int, p: tuple[int, int], d: int) -> int:
    """The number of outputs of an axis with p[0] zeros before and p[1] zeros after the inputs; it may be negative."""
    return (I + p[0] + p[1] - d * (F - 1) - 1) // s + 1


class ConvAxes(NamedTuple):
    """A convolution of N images with IC and OC channels in `groups` groups, with its axes (depth, height, width).

    X (N, *I, IC), W (OC, *F, IC / groups), Y (N, *O, OC)
    """

    N: int
    IC: int
    OC: int
    groups: int
    axes: tuple[Axis, Axis, Axis]

    @property
    def X(self) -> tuple[int, ...]:
        return (self.N, *(axis.I for axis in self.axes), self.IC)

    @property
    def W(self) -> tuple[int, ...]:
        return (self.OC, *(axis.F for axis in self.axes), self.IC // self.groups)

    @property
    def Y(self) -> tuple[int, ...]:
        return (self.N, *(axis.O for axis in self.axes), self.OC)

    @property
    def flops(self) -> int:
        """Operations including those on padded zeros, without gaps of dilated filters; a multiply-add counts as two."""
        return 2 * math.prod(self.Y) * math.prod(self.W[1:])

    @property
    def useful(self) -> float:
        """The share of these multiplications that meet no padded zero."""
        return math.prod(met(axis) / max(1, axis.O * axis.F) for axis in self.axes)

    @property
    def is_plain(self) -> bool:
        """True if a 2-D convolution without groups and dilation is the same."""
        depth, *others = self.axes
        return self.groups == 1 and depth == TRIVIAL and all(axis.d == 1 or axis.F == 1 for axis in others)


Padding = Lengths | str  # or "same" or "valid"
Shape = tuple[int, ...]
MOST_PIXELS = (1 << 31) - 1  # of all images of a tensor, which the kernels count in an int


def convolution_axes(
    name: str, x: Tensor, weight: Tensor, sizes: tuple[Lengths, Padding, Lengths], groups: int
) -> ConvAxes:
    """The axes of a convolution, after a check of its arguments; `sizes` are stride, padding and dilation."""
    return axes_of(name, x.shape, weight.shape, sizes, groups)


def axes_of(name: str, x: Shape, weight: Shape, sizes: tuple[Lengths, Padding, Lengths], groups: int) -> ConvAxes:
    """`convolution_axes` of tensors of these shapes."""
    rank = int(name[-2])
    s = lengths(name, "stride", sizes[0], rank, least=1)
    p = sizes[1] if isinstance(sizes[1], str) else lengths(name, "padding", sizes[1], rank, least=0)
    d = lengths(name, "dilation", sizes[2], rank, least=1)
    return _axes(name, x, weight, (s, p, d), integer(name, "groups", groups, least=1))


@functools.lru_cache(maxsize=4096)
def _axes(
    name: str, x: Shape, weight: Shape, sizes: tuple[tuple[int, ...], tuple[int, ...] | str, tuple[int, ...]], G: int
) -> ConvAxes:
    _check_rank(name, x, weight, "OC", "IC / groups")
    _check_channels(name, x, weight, G, weight[-1] * G, OC=weight[0])
    F, I, (s, p, d) = weight[1:-1], x[1:-1], sizes
    both = _named_padding(name, p, F, s, d) if isinstance(p, str) else [(n, n) for n in p]
    O = [output_length(*each) for each in zip(I, F, s, both, d, strict=True)]
    _check_output(name, x, weight, (x[0], *O, weight[0]))
    own = [Axis(i, f, st, before, di, o) for i, f, st, (before, _), di, o in zip(I, F, s, both, d, O, strict=True)]
    return ConvAxes(x[0], x[-1], weight[0], G, _three(own))


def transposed_axes(
    name: str, x: Tensor, weight: Tensor, sizes: tuple[Lengths, Lengths, Lengths, Lengths], groups: int
) -> ConvAxes:
    """The axes of the convolution whose adjoint it is; `sizes` are stride, padding, output_padding and dilation."""
    named = zip(("stride", "padding", "output_padding", "dilation"), sizes, (1, 0, 0, 1), strict=True)
    found = tuple([lengths(name, key, value, int(name[-2]), least=n) for key, value, n in named])
    return _transposed_axes(name, x.shape, weight.shape, found, integer(name, "groups", groups, least=1))


def padding_for(name: str, x: Shape, output_size: Sequence[int], sizes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """The output padding with which a transposed convolution has results of that size.

    Args:
        x: the shape of its input (N, *O, C), or without N.
        output_size: the lengths of the result's axes, without N and channels or with them.
        sizes: kernel_size, stride, padding and dilation.

    Raises:
        ShapeError: no output padding below the stride gives that size.
    """
    F, s, p, d = sizes
    rank = len(F)
    wanted = lengths_of(name, "output_size", output_size, 0)
    if len(wanted) == len(x) and len(x) > rank:
        wanted = wanted[len(x) - rank - 1 : -1]
    each = zip(x[-1 - rank : -1], F, s, p, d, strict=True)
    least = [(o - 1) * st - 2 * n + di * (f - 1) + 1 for o, f, st, n, di in each]
    most = [n + st - 1 for n, st in zip(least, s, strict=True)]
    if len(wanted) != rank or any(not a <= n <= b for a, n, b in zip(least, wanted, most, strict=True)):
        raise ShapeError(
            f"{name}: output_size={tuple(output_size)} is not {tuple(least)} to {tuple(most)}, the sizes that an input "
            f"{x} can give"
        )
    return tuple([n - a for n, a in zip(wanted, least, strict=True)])


@functools.lru_cache(maxsize=4096)
def _transposed_axes(name: str, x: Shape, weight: Shape, sizes: tuple[tuple[int, ...], ...], G: int) -> ConvAxes:
    _check_rank(name, x, weight, "IC", "OC / groups")
    _check_channels(name, x, weight, G, weight[0], IC=weight[0])
    s, p, extra, d = sizes
    if any(n >= max(st, di) for n, st, di in zip(extra, s, d, strict=True)):
        raise ShapeError(f"{name}: output_padding {extra} must be below stride {s} or dilation {d}")
    F, O, OC = weight[1:-1], x[1:-1], weight[-1] * G
    I = [
        (o - 1) * st - 2 * pad + di * (f - 1) + n + 1 for o, f, st, pad, n, di in zip(O, F, s, p, extra, d, strict=True)
    ]
    _check_output(name, x, weight, (x[0], *I, OC))
    own = [Axis(*each) for each in zip(I, F, s, p, d, O, strict=True)]
    return ConvAxes(x[0], OC, weight[0], G, _three(own))


def _three(axes: Sequence[Axis]) -> Any:
    """Depth, height and width; the ones that a convolution does not have are trivial."""
    return (*[TRIVIAL] * (3 - len(axes)), *axes)


def check_slope(operator: str, slope: float) -> None:
    """`ValueError` for a slope that the kernels of a convolution do not compute."""
    if not 0 <= real(operator, "negative_slope", slope) <= 1:
        raise ValueError(f"{operator}: negative_slope={slope} is not between 0 and 1")


def slope_of(activation: Callable[[Tensor], Tensor] | None) -> float | None:
    """The slope of a rectifier that the kernels of a convolution compute; None for any other activation."""
    rectifier = rectifier_of(activation)
    return None if rectifier is None or rectifier.slope > 1 or rectifier.bound < math.inf else rectifier.slope


def check_epilogue(name: str, bias: Tensor | None, channels: int, slope: float) -> None:
    check_slope(name, slope)
    if bias is not None and bias.shape != (channels,):
        raise ShapeError(f"{name}: bias has shape {bias.shape}, ({channels},) is needed")


def _check_rank(name: str, x: Shape, weight: Shape, first: str, last: str) -> None:
    rank = int(name[-2])
    letters = {1: "L", 2: "H, W", 3: "D, H, W"}[rank]
    filters = {1: "F", 2: "FH, FW", 3: "FD, FH, FW"}[rank]
    if len(x) != rank + 2 or len(weight) != rank + 2:
        raise ShapeError(
            f"{name}: x (N, {letters}, C) and weight ({first}, {filters}, {last}) are needed  (x {x}, weight {weight})"
        )


def _check_channels(name: str, x: Shape, weight: Shape, groups: int, expected: int, **divided: int) -> None:
    for what, count in (("x", x[-1]), *divided.items()):
        if count % groups:
            raise ShapeError(f"{name}: {count} channels of {what} do not divide into {groups} groups")
    if x[-1] != expected:
        raise ShapeError(f"{name}: x has {x[-1]} channels but weight expects {expected}  (x {x}, weight {weight})")


def _check_output(name: str, x: Shape, weight: Shape, shape: tuple[int, ...]) -> None:
    if min((*shape[1:], *x[1:], *weight)) < 1:  # a batch of 0 images is taken
        raise ShapeError(f"{name}: the output would be {shape}, which is empty  (x {x}, weight {weight})")
    for what, sizes in (("x", x), ("the output", shape)):
        if (pixels := math.prod(sizes[:-1])) > MOST_PIXELS:
            raise ShapeError(f"{name}: {what} {sizes} has {pixels:,} pixels, at most {MOST_PIXELS:,} are offered")


def _named_padding(
    name: str, padding: str, F: Sequence[int], s: Sequence[int], d: Sequence[int]
) -> list[tuple[int, int]]:
    """The zeros before and after each axis for "valid" and "same"; of an odd number the larger half comes after."""
    if padding == "valid":
        return [(0, 0)] * len(F)
    if padding != "same":
        raise ValueError(f'{name}: padding={padding!r} is neither an integer nor "same" nor "valid"')
    if any(n != 1 for n in s):
        raise ValueError(f'{name}: padding="same" is offered with stride 1 only, not {tuple(s)}')
    every = [di * (f - 1) for f, di in zip(F, d, strict=True)]
    return [(n // 2, n - n // 2) for n in every]
