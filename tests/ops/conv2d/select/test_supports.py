"""Shapes that a kernel configuration says it supports, it computes: from a shape that it takes, one number changes.

Wherever the configuration still says yes, it is compared with the formula. `make test` runs a change if no other kernel
must be compiled for it, or if it asks for another kind of kernel, which most refuse; `make gate` runs all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import axes_geometry
import conv2d_geometry
import grouped_geometry
import pytest
from conv2d_cases import CUDA_ROWS, OPERATORS, arrays_of, hopper, operands, relative_error
from helpers import half_of, sample_names, tile_area
from trials import trials

import alpha
from alpha.ops.conv2d import cuda_target
from alpha.ops.conv2d.plan import compute, plan_configuration
from alpha.ops.conv2d.problem import Configuration, ConvProblem, Target
from alpha.ops.conv2d.select.choose import OF_DEPTH_OR_DILATION, applicable, choose
from alpha.ops.conv2d.select.grouped_table import GROUPED
from alpha.ops.conv2d.shape import TRIVIAL, ConvShape
from alpha.ops.convolution.conv_arguments import output_length

SMALLEST = min(map(tile_area, OF_DEPTH_OR_DILATION))
NAMES = {"depth": "D", "height": "H", "width": "W"}
LIMITS = {"float32": 1e-6, "tf32": 1e-3, "bf16": 5e-3}
# changes that ask for no other kind of kernel, but often for another compilation of the same
SAME_KIND = {
    *(f"{axis}: {change}" for axis in NAMES for change in ("padding above the filter", "stride above the map")),
    *(f"an odd number of {side} channels" for side in ("input", "output")),
    *(f"half a pack of {side} channels more" for side in ("input", "output")),
    "a channel per group more",
}
OF_GROUPS = [row for row in GROUPED if row.device == "cuda"]


def along(s: ConvShape, axis: str, /, **numbers: int) -> ConvShape | None:
    """The shape with other numbers of an axis, and as many outputs as they give; None if there is none."""
    changed = getattr(s, axis)._replace(**numbers)
    I, F, step, p, d, O = changed
    if "O" not in numbers:
        O = output_length(I, F, step, (p, p), d)
    if O < 1:
        return None
    X = NAMES[axis]
    low = X.lower()
    return replace(s, **{f"I{X}": I, f"F{X}": F, f"s{low}": step, f"p{low}": p, f"d{low}": d, f"O{X}": O})


def others(s: ConvShape) -> Iterator[tuple[str, ConvShape | None]]:
    """Changes that few kernels take."""
    for axis in NAMES:
        one = getattr(s, axis)
        yield f"{axis}: dilation", along(s, axis, d=one.d + 1, F=max(2, one.F), I=one.I + one.F + 1)
        yield f"{axis}: stride and dilation", along(s, axis, s=2, d=2, F=max(2, one.F), I=one.I + one.F + 2)
        yield f"{axis}: padding above the filter", along(s, axis, p=one.F + 1)
        yield f"{axis}: stride above the map", along(s, axis, s=one.I + 1, p=one.F, d=1)
    if s.depth == TRIVIAL:
        yield "a depth", along(s, "depth", I=3, F=2)
        yield "more images in the depth", along(s, "depth", I=3)
    for groups in (1, 2, 3, 4, 5, 8):
        if groups != s.groups and s.IC % groups == s.OC % groups == 0:
            yield f"{groups} groups", replace(s, groups=groups)
    yield "an odd number of input channels", replace(s, IC=s.IC + s.groups)
    yield "an odd number of output channels", replace(s, OC=s.OC + s.groups)
    yield "half a pack of input channels more", replace(s, IC=s.IC + 4 * s.groups)
    yield "half a pack of output channels more", replace(s, OC=s.OC + 4 * s.groups)
    if s.groups > 1:
        yield "a channel per group more", replace(s, IC=s.IC + s.groups, OC=s.OC + s.groups)


def neighbours(s: ConvShape) -> Iterator[tuple[str, ConvShape | None]]:
    """Changes that most kernels take."""
    yield "an image more", replace(s, N=s.N + 1)
    for axis in NAMES:
        one = getattr(s, axis)
        if axis == "depth" and s.depth == TRIVIAL:
            continue
        yield f"{axis}: an input more", along(s, axis, I=one.I + 1)
        yield f"{axis}: one input", along(s, axis, I=1, p=max(one.p, one.F // 2))
        yield f"{axis}: a tap more", along(s, axis, F=one.F + 1)
        yield f"{axis}: a stride more", along(s, axis, s=one.s + 1)
        yield f"{axis}: padding more", along(s, axis, p=one.p + 1)
        yield f"{axis}: an output less", along(s, axis, O=one.O - 1) if one.O > 1 else None


def base_of(row: Configuration) -> ConvShape:
    """A small shape that the row takes."""
    if row in OF_GROUPS:
        return min(grouped_geometry.of(row), key=lambda s: s.flops)
    if row in OF_DEPTH_OR_DILATION:
        return min(axes_geometry.of(row), key=lambda s: s.flops)
    return min(conv2d_geometry.of(row), key=lambda s: s.flops)


def units(row: Configuration, s: ConvShape, target: Target) -> set[Any]:
    """Kernels that are compiled for a shape."""
    problem = ConvProblem(row.operator, s, row.precision, dtype=arrays_of(row))
    launches = plan_configuration(problem, row, target).launches
    return {(x.source, x.entry, tuple(sorted(x.defines.items()))) for x in launches}


def check(row: Configuration, everything: bool) -> None:
    """Compare the row with the formula on the neighbours of its shape that it takes."""
    device = alpha.get_device("cuda") if row in OF_GROUPS else hopper()
    target, base = cuda_target(device), base_of(row)
    known = units(row, base, target)
    with trials() as trial:
        for seed, (name, s) in enumerate((*others(base), *neighbours(base))):
            if s is None or row not in applicable(row.operator, s, target, row.precision):
                continue
            usual = name in SAME_KIND or name in dict(neighbours(base))
            if usual and not everything and not units(row, s, target) <= known:
                continue
            with trial(row.name, name, s):
                first, second = (a.astype(arrays_of(row)) for a in operands(row.operator, s, "float32", seed))
                exact = OPERATORS[row.operator][0](first.astype("float64"), second.astype("float64"), s)
                found = device.download(compute(row, device.upload(first), device.upload(second), s))
                assert relative_error(found.astype("float64"), exact) < LIMITS[row.precision]


def params() -> Iterator[Any]:
    """Kernels of small shapes in `make test`, the others in `make gate`."""
    rows = [*OF_GROUPS, *OF_DEPTH_OR_DILATION, *(row for row in CUDA_ROWS if row not in OF_DEPTH_OR_DILATION)]
    sample = sample_names(rows)
    for row in rows:
        small = row.is_ffma and base_of(row).flops < 1e5
        hopper = row in OF_DEPTH_OR_DILATION and row.precision == "bf16" and tile_area(row) == SMALLEST
        marks = () if row.name in sample and (small or hopper) else pytest.mark.gate
        yield pytest.param(row, id=f"{row.operator} {row.name}", marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize("row", half_of(params(), first=1))
def test_a_row_computes_whatever_it_takes_near_a_shape(row: Configuration) -> None:
    check(row, everything=False)


OF_EACH_SHAPE = [
    *(row for row in OF_GROUPS if not row.name.startswith("grouped")),
    *(row for row in OF_DEPTH_OR_DILATION if row.precision == "bf16" and tile_area(row) == SMALLEST),
]


@pytest.mark.gate
@pytest.mark.parametrize("row", OF_EACH_SHAPE, ids=lambda row: row.name)
def test_rows_that_are_compiled_for_each_shape(row: Configuration) -> None:
    check(row, everything=True)


def test_a_depth_with_groups_is_refused_with_what_to_do() -> None:
    """No kernel computes it as it is, on any device; ops/convolution cuts it before."""
    s = replace(base_of(OF_GROUPS[0]), ID=3, FD=2, OD=2)
    for target in (Target("cpu"), axes_geometry.HOPPER):
        for operator in OPERATORS:
            assert applicable(operator, s, target) == []
            with pytest.raises(ValueError, match=rf"^{operator}: no kernel computes X .* as it is"):
                choose(operator, s, target)
