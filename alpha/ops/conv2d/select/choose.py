"""The choice of a kernel configuration: the least predicted time (time_model.py).

Without ALPHA_* variables it follows from shape, precision, target, and which magnitudes are known (`known`). Which
configurations support a shape is in table.py and hopper_table.py, which of them are `preferred` in problem.py.
Before this, `launch.py` says in which precision a convolution is computed, and `ops/convolution` cuts one that no
kernel computes as it is.
"""

from __future__ import annotations

import functools
import math
import sys

from alpha import config
from alpha.core.numerics import BFLOAT16
from alpha.ops.conv2d.prepare import shape_for
from alpha.ops.conv2d.problem import (
    INPUT,
    OPERANDS,
    UNKNOWN,
    WEIGHT,
    Configuration,
    Given,
    Known,
    Target,
    seen_by_kernels,
)
from alpha.ops.conv2d.select import hopper_table, time_model, tune
from alpha.ops.conv2d.select.grouped_table import GROUPED
from alpha.ops.conv2d.select.product_table import PRODUCTS
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import TRIVIAL, ConvShape
from alpha.runtime import Device

# those that take a depth and dilation
OF_DEPTH_OR_DILATION = (*hopper_table.FORWARD_ROWS, *hopper_table.INPUT_ROWS, *hopper_table.WEIGHT_ROWS)
NAMES = tuple(v.name for v in (*CONFIGURATIONS, *PRODUCTS, *GROUPED))


def applicable(
    operator: str, s: ConvShape, target: Target, precision: str = "float32", known: Known = UNKNOWN
) -> list[Configuration]:
    """The configurations that compute the shape in this precision or a better one, in the order of the table.

    A convolution with groups has a table of its own.

    Raises:
        ValueError: there is no such operator.
    """
    if operator not in OPERANDS:
        raise ValueError(f"no convolution operator {operator!r}: use {', '.join(OPERANDS)}")
    s = seen_by_kernels(s, target)
    return [
        v
        for v in _table(s, target)
        if v.operator == operator
        and v.device == target.device
        and v.precision in ("float32", precision)
        and shape_for(v, s, target) is not None
        and (not v.reads_half or (_has_half(known, v) and _reads_copies(v, s, target, precision)))
        and (Given.HALF_ALONE not in known or (_reads_alone(known, v) and _reads_copies(v, s, target, precision)))
    ]


def _has_half(known: Known, v: Configuration) -> bool:
    """True if there is the fp16 copy that a configuration must have."""
    return known[v.operator == WEIGHT] >= Given.HALF


def _reads_alone(known: Known, v: Configuration) -> bool:
    """True if a configuration reads no operand as floats of which there is the copy alone."""
    first, second = (given == Given.HALF_ALONE for given in known)
    if v.operator == WEIGHT:
        return (v.reads_half_of_X or not first) and (v.reads_half or not second)
    return v.reads_half or not first


def _reads_copies(v: Configuration, s: ConvShape, target: Target, precision: str) -> bool:
    """True if the copies that there are have the form that a configuration reads: that of the arrays, in one term."""
    return v.precision == precision and v.supports(s, target)


def reads_half_again(s: ConvShape, target: Target, precision: str, half_of_dY: bool) -> bool:
    """True if dW will read the fp16 copy of X, so that nobody has to keep X for it.

    Args:
        half_of_dY: whether a copy of dY is expected. There must be a configuration without one, too.
    """
    known = Given.HALF, Given.HALF if half_of_dY else Given.NOTHING
    if not choose(WEIGHT, s, target, precision, known).reads_half_of_X:
        return False
    rows = applicable(WEIGHT, s, target, precision, (Given.HALF_ALONE, Given.NOTHING))
    return any(time_model.is_counted(v) and v.preferred(s, target) for v in rows)


def reads_half_of_gradient(s: ConvShape, target: Target, precision: str, X: Given, wanted: tuple[bool, bool]) -> bool:
    """True if it saves time that the fp16 copy of dY takes the place of dY, which is then never written.

    It is compared with a copy beside dY, or with one tap, where there is none, with dY alone.

    Args:
        X: what there is of it.
        wanted: whether dX and dW are.
    """
    operators = [operator for operator, needed in zip((INPUT, WEIGHT), wanted, strict=True) if needed]
    if not operators or config.CONV_KERNEL.get():  # which may read dY
        return False
    constants, seen = time_model.constants_of(target.name), seen_by_kernels(s, target)

    def cycles(of_dY: Given, written: int) -> float:
        """Sum of the kernel that writes so many bytes for each element of dY, and of those that read it."""
        total = written * math.prod(s.Y) / constants.memory
        for operator in operators:
            known = (of_dY, Given.NOTHING) if operator == INPUT else (X, of_dY)
            rows = applicable(operator, s, target, precision, known)
            if not any(time_model.is_counted(v) and v.preferred(seen, target) for v in rows):
                return math.inf
            total += time_model.cycles(_best(rows, s, target, known), seen, target, constants, known)
        return total

    others = cycles(Given.HALF, 6) if s.taps > 1 else cycles(Given.MAGNITUDE, 4)
    return cycles(Given.HALF_ALONE, 2) < others


def _table(s: ConvShape, target: Target) -> tuple[Configuration, ...]:
    """The configurations among which one for the shape is found."""
    if s.is_dense:
        return *CONFIGURATIONS, *PRODUCTS
    if computes_depth_or_dilation(s, target):
        return OF_DEPTH_OR_DILATION
    return GROUPED if s.depth == TRIVIAL else ()  # whose kernels have no depth


def computes_depth_or_dilation(s: ConvShape, target: Target) -> bool:
    """True if kernels compute all three operators of a convolution with a depth or dilation as they are."""
    return all(
        any(v.operator == operator and shape_for(v, s, target) for v in OF_DEPTH_OR_DILATION) for operator in OPERANDS
    )


def choose(
    operator: str, s: ConvShape, target: Target, precision: str = "float32", known: Known = UNKNOWN
) -> Configuration:
    """The configuration to run: of those that are preferred for the shape, the one that is predicted to be the fastest.

    One whose work the model does not know (all on the cpu, a new algorithm) is taken before the others.
    ALPHA_CONV_KERNEL forces a configuration by name, if it supports the shape. Otherwise ALPHA_TUNE=1 takes the fastest
    on the target's GPU, measured with magnitudes that are not known, unless the choice must read a copy in fp16.
    ALPHA_DEBUG=1 prints each choice once.

    Args:
        known: see `ConvProblem`. What needs scales is predicted to be faster if magnitudes are known.

    Raises:
        ConfigError: ALPHA_CONV_KERNEL is not the name of a configuration.
        ValueError: no configuration computes the shape, such as one with both a depth and groups.
    """
    forced, debug = config.CONV_KERNEL.get(), config.DEBUG.flag()
    chosen = _choose(operator, s, target, precision, known, forced, debug)
    of_copies = chosen.reads_half or Given.HALF_ALONE in known
    if target.gpu is None or chosen.name == forced or of_copies or not config.TUNE.flag():
        return chosen
    return _fastest(operator, s, target, precision, target.gpu, config.CACHE_DIR.get())


def _best(rows: list[Configuration], s: ConvShape, target: Target, known: Known = UNKNOWN) -> Configuration:
    s = seen_by_kernels(s, target)
    for v in rows:
        if not time_model.is_counted(v) and v.preferred(s, target):
            return v
    counted = [v for v in rows if time_model.is_counted(v) and v.preferred(s, target)]
    narrow = [v for v in counted if v.dtype == BFLOAT16]  # the operands are bfloat16: these read them without casts
    constants = time_model.constants_of(target.name)
    return min(narrow or counted, key=lambda v: time_model.cycles(v, s, target, constants, known))


def not_much_slower(
    v: Configuration, s: ConvShape, target: Target, precision: str, known: Known, moved: float
) -> list[Configuration]:
    """Configurations that take at most as much longer than `v` as a kernel takes to move so many bytes, fastest first.

    Those that the model does not know are left out.
    """
    seen, constants = seen_by_kernels(s, target), time_model.constants_of(target.name)

    def cycles(other: Configuration) -> float:
        return time_model.cycles(other, seen, target, constants, known)

    if not time_model.is_counted(v):
        return []
    most = cycles(v) + moved / constants.memory
    rows = applicable(v.operator, s, target, precision, known)
    rows = [row for row in rows if time_model.is_counted(row) and row.preferred(s, target) and row.dtype == v.dtype]
    return sorted((row for row in rows if row is not v and cycles(row) <= most), key=cycles)


@functools.lru_cache(maxsize=4096)
def predicted_cycles(operator: str, s: ConvShape, target: Target, precision: str) -> float:
    """The least predicted cycles of a configuration on cuda; infinity if the model does not know the one to run."""
    v = _best(applicable(operator, s, target, precision), s, target)
    seen = seen_by_kernels(s, target)
    return (
        time_model.cycles(v, seen, target, time_model.constants_of(target.name))
        if time_model.is_counted(v)
        else math.inf
    )


@functools.lru_cache(maxsize=4096)
def _choose(
    operator: str, s: ConvShape, target: Target, precision: str, known: Known, forced: str, debug: bool
) -> Configuration:
    config.CONV_KERNEL.choice(NAMES)
    rows = applicable(operator, s, target, precision, known)
    if not rows:
        raise ValueError(
            f"{operator}: no kernel computes X {s.X} W {s.W}{s.extras} as it is; F.conv2d and its relatives cut it "
            "into pieces"
        )
    chosen = next((v for v in rows if v.name == forced), None)
    why = "forced"
    if chosen is None:
        chosen = _best(rows, s, target, known)
        why = chosen.reason
    if debug:
        print(
            f"alpha: {operator} X {s.X} W {s.W} stride ({s.sh}, {s.sw}) padding ({s.ph}, {s.pw})"
            f"{s.extras} "
            f"{precision}: {chosen.name} ({why}); "
            f"{s.useful:.1%} of the multiplications meet no padded zero",
            file=sys.stderr,
        )
    return chosen


@functools.lru_cache(maxsize=4096)
def _fastest(operator: str, s: ConvShape, target: Target, precision: str, gpu: Device, cache: str) -> Configuration:
    """The fastest configuration, measured once per shape, GPU and cache folder."""
    rows = applicable(operator, s, target, precision)
    default = _best(rows, s, target)
    return tune.fastest(gpu, operator, s, precision, rows, default)
