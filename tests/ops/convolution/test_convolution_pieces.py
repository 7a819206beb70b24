"""Bias and activation on the pieces of a convolution: a result is f(sum + b) with the b of its channel.

A result that reads nothing is f(b). Drawn convolutions are cut in every way that pieces.py knows, which the tests
count, and compared with the formula.
"""

from __future__ import annotations

from collections import Counter

import conv2d_reference as reference
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alpha
from alpha.ops.conv2d.problem import FORWARD, INPUT
from alpha.ops.conv2d.shape import Axis, ConvShape, segments, split_segments
from alpha.ops.convolution import pieces
from alpha.ops.convolution.conv_arguments import ConvAxes, output_length, phases
from alpha.ops.convolution.pieces import parts

SLOPES = (1.0, 0.0, 0.25)
TRIVIAL = Axis(1, 1, 1, 0, 1, 1)


def shape_of(c: ConvAxes) -> ConvShape:
    """The same as one shape with a depth, dilation and groups, which only the formula takes."""
    d, h, w = c.axes
    sizes = c.N, h.I, w.I, c.IC, c.OC, h.F, w.F, h.s, w.s, h.p, w.p, h.O, w.O
    return ConvShape(*sizes, c.groups, h.d, w.d, d.I, d.F, d.s, d.p, d.d, d.O)


@st.composite
def axes(draw: st.DrawFn, most: int = 7) -> Axis:
    """Axes of convolutions, also with a padding above the filter, and with an output more or less than usual."""
    number = st.integers
    I, F, s, d = draw(number(1, most)), draw(number(1, 3)), draw(number(1, 3)), draw(number(1, 4))
    p = draw(number(0, d * (F - 1) + 2))
    O = output_length(I, F, s, (p, p), d) + draw(number(-1, 1))
    return Axis(I, F, s, p, d, max(1, O))


@st.composite
def convolutions(draw: st.DrawFn) -> ConvAxes:
    groups, IC, OC = draw(
        st.sampled_from(((1, 2, 3), (2, 3, 2), (5, 1, 2), (3, 24, 2), (2, 2, 40), (33, 2, 1), (40, 1, 2)))
    )
    depth = draw(st.one_of(st.just(TRIVIAL), axes(5)))
    few = 4 if groups * max(IC, OC) > 32 else 10
    return ConvAxes(
        draw(st.integers(1, 2)), groups * IC, groups * OC, groups, (depth, draw(axes(few)), draw(axes(few)))
    )


def kinds(operator: str, c: ConvAxes) -> set[str]:
    """Ways in which the operator is cut on the cpu."""
    cut = pieces._pieces(operator, c, np.zeros(1), "float32")
    depth, h, w = c.axes
    output = c.Y if operator == FORWARD else c.X
    covered = sum((piece.Y if operator == FORWARD else piece.X).size for piece in cut)
    found = {"one piece" if len(cut) == 1 else "several pieces" if cut else "no piece"}
    if cut and covered < np.prod(output):
        found.add("some read nothing")
    if len(cut) > 1 or (cut and not pieces._is_whole(cut[0].Y, int(np.prod(c.Y)))):
        found |= {"residues of height"} if len(phases(h)) > 1 else set()
        found |= {"residues of width"} if len(phases(w)) > 1 else set()
        found |= {"residues of depth"} if len(phases(depth)) > 1 else set()
        found |= {"residues as images"} if any(part.images > 1 for part in parts(c)) else set()
        packed = max((piece.W.shape[0] for piece in cut), default=0)
        if c.groups > 1:
            found |= {"groups packed"} if packed > 1 else {"groups one by one"}
            found |= {"groups in several packs"} if 1 < packed < c.groups else set()
            found |= {"channels behind 32"} if any(piece.first_channel >= 32 for piece in cut) else set()
        if depth.d == 1:
            O, I, F, s, p = depth.O, depth.I, depth.F, depth.s, depth.p
            if operator == FORWARD and len({g.f_e - g.f_s for g in segments(O, I, F, s, p)}) > 1:
                found.add("segments of the depth")
            if operator == INPUT and s > 1 and len(list(split_segments(O, I, F, s, p))) > 1:
                found.add("split filters of the depth")
    return found


EVERY = {
    *("one piece", "several pieces", "no piece", "some read nothing"),
    *("residues of height", "residues of width", "residues of depth", "residues as images"),
    *("groups packed", "groups one by one", "groups in several packs", "channels behind 32"),
}
MOST = {FORWARD: {*EVERY, "segments of the depth"}, INPUT: {*EVERY, "split filters of the depth"}}


def activated(Y: np.ndarray, b: np.ndarray | None, slope: float) -> np.ndarray:
    Y = Y if b is None else Y + b
    return np.where(Y > 0, Y, slope * Y)


def operands(operator: str, c: ConvAxes, dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Image and filters of both operands, and a bias that differs from channel to channel, of both signs."""
    rng = np.random.default_rng(0)
    X, W = rng.standard_normal(c.X if operator == FORWARD else c.Y), rng.standard_normal(c.W)
    channels = c.OC if operator == FORWARD else c.IC
    b = np.where(np.arange(channels) % 2, -1, 1) * (2 + np.arange(channels) / 8)
    return X.astype(dtype), W.astype(dtype), b.astype(dtype)


def exact(operator: str, c: ConvAxes, X: np.ndarray, W: np.ndarray) -> np.ndarray:
    s = shape_of(c)
    images = (c.N * s.OD, s.OH, s.OW, c.OC) if operator == INPUT else (c.N * s.ID, s.IH, s.IW, c.IC)
    filters = W.reshape(c.OC, -1, s.FW, c.IC // c.groups)
    formula = reference.forward if operator == FORWARD else reference.backward_input
    return formula(X.reshape(images), filters, s).reshape(c.Y if operator == FORWARD else c.X)


@pytest.mark.slow
@pytest.mark.parametrize("operator", [FORWARD, INPUT])
def test_every_result_is_the_formula(operator: str) -> None:
    met: Counter[str] = Counter()
    compute = pieces.forward if operator == FORWARD else pieces.backward_input

    @given(c=convolutions())
    @settings(max_examples=100, deadline=None, derandomize=True, database=None)
    def run(c: ConvAxes) -> None:
        X, W, bias = operands(operator, c, "float64")
        without = exact(operator, c, X, W)
        for slope in SLOPES:
            for b in (bias, None):
                found = compute(X, W, c, "float32", b, slope)
                np.testing.assert_allclose(found, activated(without, b, slope), atol=1e-10, err_msg=f"{slope} {b}")
        met.update(kinds(operator, c))

    run()
    rare = [kind for kind in sorted(MOST[operator]) if met[kind] < 3]
    assert not rare, f"{rare} met less than three times: {met}"


# on cuda a kernel computes bias and activation, in other ways for each kind; (N, IC, OC, groups, axes)
ON_CUDA: dict[str, ConvAxes] = {
    "patches": ConvAxes(2, 3, 5, 1, (Axis(4, 2, 2, 0, 1, 2), Axis(5, 2, 2, 0, 1, 2), Axis(6, 3, 3, 0, 1, 2))),
    "some read nothing": ConvAxes(1, 6, 4, 2, (Axis(2, 1, 2, 3, 1, 4), Axis(3, 2, 1, 4, 2, 9), Axis(4, 1, 2, 1, 1, 3))),
    "no piece": ConvAxes(1, 2, 4, 2, (Axis(1, 1, 3, 1, 1, 1), Axis(2, 1, 4, 1, 1, 1), Axis(3, 1, 1, 0, 1, 3))),
    "channels behind 32": ConvAxes(1, 80, 80, 40, (Axis(2, 2, 1, 1, 1, 3), TRIVIAL, Axis(3, 2, 1, 0, 1, 2))),
}


@pytest.mark.parametrize("name", ON_CUDA)
@pytest.mark.parametrize("operator", [FORWARD, INPUT])
def test_on_cuda(name: str, operator: str) -> None:
    c, device = ON_CUDA[name], alpha.get_device("cuda")
    X, W, bias = operands(operator, c, "float32")
    x, w = device.upload(X), device.upload(W)
    cut = pieces._pieces(operator, c, x, "float32")
    assert (cut[0].shape.taps == 1 and len(cut) == 1) if name == "patches" else name in kinds(operator, c)
    without = exact(operator, c, X, W)
    compute = pieces.forward if operator == FORWARD else pieces.backward_input
    for slope in SLOPES:
        for b in (bias, None):
            found = device.download(compute(x, w, c, "float32", b if b is None else device.upload(b), slope))
            np.testing.assert_allclose(found, activated(without, b, slope), atol=2e-5, err_msg=f"{slope} {b}")
