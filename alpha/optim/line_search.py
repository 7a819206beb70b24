"""A line search: a step along a direction that lowers the loss and flattens its slope (strong Wolfe conditions)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from alpha.core.tensor import Tensor

DECREASE = 1e-4  # the share of the slope at 0 by which the loss must fall
FLATTER = 0.9  # the share of the slope at 0 that may be left
NARROWEST = 1e-9  # of a bracket, in what the parameters move
MOST = 25  # evaluations after the first one


class Point(NamedTuple):
    """What is known of x + t d: the loss, the gradient (N,), and the slope along d."""

    t: float
    loss: float
    gradient: Tensor
    slope: float


def strong_wolfe(evaluate: Callable[[float], Point], start: Point, t: float, reach: float) -> tuple[Point, int]:
    """Search from `t` on, as minFunc does (Schmidt 2005): bracket a good point, then narrow the bracket.

    Args:
        evaluate: computes a point.
        start: the point of t = 0, whose slope is negative.
        reach: the largest magnitude in d.

    Returns:
        The point that was found, and how many were evaluated.
    """

    def is_too_high(point: Point) -> bool:
        return point.loss > start.loss + DECREASE * point.t * start.slope

    def is_flat(point: Point) -> bool:
        return abs(point.slope) <= -FLATTER * start.slope

    before, point, tried = start, evaluate(t), 0
    while tried < MOST:
        if is_too_high(point) or (tried > 1 and point.loss >= before.loss):
            break
        if is_flat(point):
            return point, tried + 1
        if point.slope >= 0:
            break
        t = lowest(before, point, point.t + 0.01 * (point.t - before.t), point.t * 10)
        before, point, tried = point, evaluate(t), tried + 1
    ends = [before if tried < MOST else start, point]
    low = _lower(ends)
    is_close = False  # whether the last point was near an end, so that the bracket has hardly become narrower
    while tried < MOST and abs(ends[1].t - ends[0].t) * reach >= NARROWEST:
        left, right = sorted(end.t for end in ends)
        t, margin, was_close = lowest(ends[0], ends[1], left, right), 0.1 * (right - left), is_close
        is_close = min(right - t, t - left) < margin
        if is_close and (was_close or not left < t < right):
            t, is_close = right - margin if abs(t - right) < abs(t - left) else left + margin, False
        point, tried = evaluate(t), tried + 1
        if is_too_high(point) or point.loss >= ends[low].loss:
            ends[1 - low] = point
            low = _lower(ends)
            continue
        if is_flat(point):
            return point, tried + 1
        if point.slope * (ends[1 - low].t - ends[low].t) >= 0:
            ends[1 - low] = ends[low]
        ends[low] = point
    return ends[low], tried + 1


def _lower(ends: list[Point]) -> int:
    return 0 if ends[0].loss <= ends[1].loss else 1


def lowest(a: Point, b: Point, least: float, most: float) -> float:
    """Where the cubic through two points with their slopes is lowest, within [least, most]; else the middle of that."""
    a, b = (a, b) if a.t <= b.t else (b, a)
    middle = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = middle * middle - a.slope * b.slope
    if not square >= 0:
        return (least + most) / 2
    root = math.sqrt(square)
    width = b.slope - a.slope + 2 * root
    if width == 0:
        return (least + most) / 2
    t = b.t - (b.t - a.t) * ((b.slope + root - middle) / width)
    return min(max(t, least), most)
