"""Convolutions of one to three axes, with groups, dilation and any padding: how they are cut, and PyTorch's results."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest
from helpers import first_of

import alpha
from alpha.errors import ShapeError
from alpha.nn import functional as F
from alpha.ops.conv2d.shape import Axis
from alpha.ops.convolution import Conv, ConvTranspose, pieces, plain
from alpha.ops.convolution.conv_arguments import ConvAxes, met, output_length, phase_runs, phases

CASES = 30  # drawn convolutions per test


def drawn_axis(rng: random.Random) -> Axis:
    I, F_, s, p, d = (rng.randint(1, most) for most in (9, 4, 4, 5, 5))
    O = output_length(I, F_, s, (p - 1, p - 1), d) + rng.randint(0, 1)  # an output more reads padding at the end
    return Axis(I, F_, s, p - 1, d, max(1, O))


def drawn(seed: int) -> ConvAxes:
    rng = random.Random(seed)
    groups = rng.choice((1, 1, 2, 3))
    axes = drawn_axis(rng), drawn_axis(rng), drawn_axis(rng)
    return ConvAxes(rng.randint(1, 3), 2 * groups, 3 * groups, groups, axes)


# -- the cuts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(CASES))
def test_phases_are_the_axis_without_gaps(seed: int) -> None:
    """Every output once, no input twice, and each tap of a phase reads what the tap of the whole axis reads."""
    axis = drawn_axis(random.Random(seed))
    outputs: list[int] = []
    inputs: list[int] = []
    for phase in phases(axis):
        inner = phase.axis
        assert inner.d == 1 or inner.F == 1
        outputs += [phase.y_start + phase.y_step * t for t in range(inner.O)]
        inputs += [phase.x_start + phase.x_step * i for i in range(inner.I)]
        for t in range(inner.O):
            for f in range(inner.F):
                own = t * inner.s - inner.p + f * inner.d
                place = (phase.y_start + phase.y_step * t) * axis.s - axis.p + f * axis.d
                assert (0 <= own < inner.I) == (0 <= place < axis.I)
                if 0 <= own < inner.I:
                    assert phase.x_start + phase.x_step * own == place
    assert sorted(outputs) == list(range(axis.O))
    assert len(inputs) == len(set(inputs))
    assert all(0 <= i < axis.I for i in inputs)


@pytest.mark.parametrize("seed", range(CASES))
def test_no_piece_multiplies_a_zero_of_depth_or_dilation(seed: int) -> None:
    """The pieces of each operator have together the useful products of the whole, and of the groups nothing more."""
    c = drawn(seed)._replace(groups=1)
    useful = round(c.flops * c.useful)
    assert useful == 2 * c.N * c.OC * c.IC * math.prod(met(axis) for axis in c.axes)
    for cut in (pieces.forward_pieces, pieces.input_pieces, pieces.weight_pieces):
        assert sum(round(piece.shape.flops * piece.shape.useful) for piece in cut(c)) == useful


def test_runs_are_all_phases_in_their_order() -> None:
    """Runs cover every small axis, also with an output more; and no two runs could be one."""
    lengths = itertools.product((1, 2, 5, 8), (1, 3), range(1, 7), range(7), range(1, 7), (0, 1))
    for I, F_, s, p, d, more in lengths:
        axis = Axis(I, F_, s, p, d, max(1, output_length(I, F_, s, (p, p), d) + more))
        found, runs = [], phase_runs(axis)
        for first, number, x_gap, y_gap in runs:
            for i in range(number):
                found.append(first._replace(x_start=first.x_start + i * x_gap, y_start=first.y_start + i * y_gap))
        assert found == list(phases(axis))
        assert all(one.first.axis != other.first.axis for one, other in itertools.pairwise(runs)), axis


def test_phases_of_equal_maps_are_images_of_one_convolution() -> None:
    """65 pixels at rate 12: five residues of 6 pixels and seven of 5, along both axes."""
    axis = Axis(65, 3, 1, 12, 12, 65)
    c = ConvAxes(8, 4, 4, 1, (Axis(1, 1, 1, 0, 1, 1), axis, axis))
    for cut in (pieces.forward_pieces, pieces.input_pieces, pieces.weight_pieces):
        assert {(p.shape.N, p.shape.IH, p.shape.IW) for p in cut(c)} == {
            (8 * 25, 6, 6),
            (8 * 35, 6, 5),
            (8 * 35, 5, 6),
            (8 * 49, 5, 5),
        }


def test_groups_are_packed_until_a_tile_is_full() -> None:
    axes = (Axis(1, 1, 1, 0, 1, 1), Axis(5, 3, 1, 1, 1, 5), Axis(5, 3, 1, 1, 1, 5))
    for groups, IC, OC, expected in ((32, 4, 4, [16, 16]), (6, 32, 16, [2, 2, 2]), (3, 100, 8, [1, 1, 1])):
        found = pieces.forward_pieces(ConvAxes(2, groups * IC, groups * OC, groups, axes))
        assert [piece.W.shape[0] for piece in found] == expected
        assert [piece.shape.IC for piece in found] == [n * IC for n in expected]


def test_a_plain_convolution_is_computed_by_its_own_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for kind in (plain.Conv2d, plain.ConvTranspose2d, Conv, ConvTranspose):

        def noted(cls: type, *operands: Any, apply: Any = kind.apply, **options: Any) -> Any:
            calls.append(cls.__name__)
            return apply(*operands, **options)

        monkeypatch.setattr(kind, "apply", classmethod(noted))
    x, w = (alpha.tensor(np.ones(shape, np.float32)) for shape in ((1, 4, 4, 2), (2, 3, 3, 2)))
    F.conv2d(x, w, padding="same")
    F.conv_transpose2d(x, w)
    F.conv2d(x, alpha.tensor(np.ones((2, 1, 1, 2), np.float32)), dilation=3)
    F.conv2d(x, w, padding=2, dilation=(1, 2))
    F.conv_transpose2d(x, w, dilation=2)
    assert calls == ["Conv2d", "ConvTranspose2d", "Conv2d", "Conv", "ConvTranspose"]


# -- PyTorch ------------------------------------------------------------------------------------------


def case(seed: int) -> tuple[str, dict[str, Any], list[np.ndarray]]:
    """A function, its options, and x, weight and bias."""
    rng, values = random.Random(seed), np.random.default_rng(seed)
    rank, transposed = rng.choice((1, 2, 3)), rng.random() < 0.4
    groups = rng.choice((1, 1, 2, 3, 4))
    IC, OC = groups * rng.choice((1, 2, 3)), groups * rng.choice((1, 2, 4))

    def sizes(least: int, most: int) -> tuple[int, ...]:
        return tuple(rng.randint(least, most) for _ in range(rank))

    filters, I = sizes(1, 3), sizes(1, 9)
    options: dict[str, Any] = {"stride": sizes(1, 3), "padding": sizes(0, 4), "dilation": sizes(1, 4), "groups": groups}
    if transposed:
        most = [max(pair) - 1 for pair in zip(options["stride"], options["dilation"], strict=True)]
        options["output_padding"] = tuple(rng.randint(0, n) for n in most)
    elif rng.random() < 0.2:
        options |= {"stride": 1, "padding": "same"}
    weight = (IC, *filters, OC // groups) if transposed else (OC, *filters, IC // groups)
    arrays = [values.standard_normal(shape) for shape in ((rng.choice((1, 2, 5)), *I, IC), weight, (OC,))]
    return f"conv_transpose{rank}d" if transposed else f"conv{rank}d", options, arrays


def compare(seed: int, device: str, dtype: type[np.floating[Any]], tolerance: float) -> bool:
    """Compare result and gradients with PyTorch's; False if PyTorch and Alpha both refuse the case."""
    torch = pytest.importorskip("torch")
    name, options, arrays = case(seed)
    rank = arrays[0].ndim - 2
    first, last = (0, rank + 1, *range(1, rank + 1)), (0, *range(2, rank + 2), 1)
    ours = [alpha.tensor(a.astype(dtype), device=device, requires_grad=True) for a in arrays]
    theirs = [torch.tensor(a.transpose(first) if a.ndim > 1 else a, requires_grad=True) for a in arrays]
    try:
        expected = getattr(torch.nn.functional, name)(*theirs, **options)
    except RuntimeError:
        with pytest.raises(ShapeError):
            getattr(F, name)(*ours, **options)
        return False
    y = getattr(F, name)(*ours, **options)
    dY = np.random.default_rng(seed).standard_normal(y.shape)
    y.backward(alpha.tensor(dY.astype(dtype), device=device))
    expected.backward(torch.tensor(dY.transpose(first)))
    pairs = [(y, expected), *((a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))]
    for mine, other in pairs:
        right = other.detach().numpy()
        right = right.transpose(last) if right.ndim > 1 else right
        assert mine.shape == right.shape, (name, options)
        np.testing.assert_allclose(mine.numpy(), right, tolerance, tolerance * 10, err_msg=f"{name} {options}")
    return True


EVEN = "ignore:Using padding=.same. with even kernel lengths"


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.filterwarnings(EVEN)
def test_results_and_gradients_are_pytorchs() -> None:
    assert sum(compare(seed, "cpu", np.float64, 1e-10) for seed in range(150)) > 100


OF_ONE_TAP = [  # transposed, with an output_padding, which is below the dilation: (x, weight, options)
    ((2, 4, 8), (8, 1, 16), {"output_padding": 1, "dilation": 2}),
    ((2, 4, 4, 8), (8, 1, 1, 16), {"output_padding": 1, "dilation": 2}),
    ((2, 4, 4, 8), (8, 1, 3, 16), {"output_padding": (1, 0), "dilation": (2, 1)}),
    ((2, 4, 4, 4, 8), (8, 1, 1, 1, 16), {"output_padding": (1, 0, 0), "dilation": 2}),
    ((2, 3, 4, 4, 8), (8, 3, 1, 1, 16), {"output_padding": (0, 2, 1), "dilation": 3, "padding": (1, 0, 0)}),
]


@pytest.mark.parametrize(("x_shape", "weight_shape", "options"), OF_ONE_TAP)
def test_the_border_of_an_output_padding_reads_nothing(
    device: str, x_shape: tuple[int, ...], weight_shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    """The result there is the bias, and its gradient belongs to the bias alone; the rest is as without the border."""
    rng, operator = np.random.default_rng(0), getattr(F, f"conv_transpose{len(x_shape) - 2}d")
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in (x_shape, weight_shape, (16,))]
    found: list[list[np.ndarray]] = []
    inner: tuple[slice, ...] = ()
    for extra in (0, options["output_padding"]):
        x, w, b = (alpha.tensor(array, device=device, requires_grad=True) for array in arrays)
        y = operator(x, w, b, **{**options, "output_padding": extra})
        inner = inner or tuple(slice(0, length) for length in y.shape)
        border = np.ones(y.shape, bool)
        border[inner] = False
        assert border.any() == bool(extra)
        np.testing.assert_array_equal(y.numpy()[border].reshape(-1, 16), np.tile(arrays[2], (border.sum() // 16, 1)))
        y.backward(alpha.tensor(np.ones(y.shape, np.float32), device=device))
        found.append([y.numpy()[inner], x.grad.numpy(), w.grad.numpy()])
    for without, with_border in zip(*found, strict=True):
        np.testing.assert_allclose(with_border, without, 1e-5, 1e-5)


@pytest.mark.torch
@pytest.mark.filterwarnings(EVEN)
@pytest.mark.parametrize("seed", first_of(*range(12)))
def test_results_and_gradients_are_pytorchs_on_cuda(seed: int) -> None:
    alpha.get_device("cuda")
    compare(seed, "cuda", np.float32, 2e-5)


@pytest.mark.parametrize(
    "options", [{"groups": 2, "dilation": 2, "padding": 1}, {"stride": 3, "padding": 4, "groups": 2}]
)
def test_bfloat16(device: str, options: dict[str, Any]) -> None:
    """Results that read nothing are bfloat16, too, though the bias is float32."""
    values = np.random.default_rng(0)
    arrays = [values.standard_normal(shape).astype(np.float32) for shape in ((2, 5, 6, 4), (4, 3, 1, 2), (4,))]
    found = []
    for dtype in ("float32", "bfloat16"):
        x, w, b = (alpha.tensor(a, device=device) for a in arrays)
        w.requires_grad = True
        y = F.conv2d(x.astype(dtype), w, b, **options)
        y.sum().backward()
        assert (y.dtype.name, w.grad.dtype.name) == (dtype, "float32")
        found.append((y.astype("float32").numpy(), w.grad.numpy()))
    for exact, rounded in zip(*found, strict=True):
        np.testing.assert_allclose(rounded, exact, atol=0.02 * np.abs(exact).max())


def test_what_reads_nothing_is_the_bias(device: str) -> None:
    """Outputs that meet no input are in every phase, if the padding is above the filter."""
    x, w = (alpha.tensor(np.ones(shape, np.float32), device=device) for shape in ((1, 2, 2, 2), (2, 1, 1, 1)))
    b = alpha.tensor(np.array([2.0, -2.0], np.float32), device=device)
    y = F.conv2d(x, w, b, stride=3, padding=4, dilation=1, groups=2, negative_slope=0.5).numpy()
    assert y.shape == (1, 4, 4, 2)
    assert set(map(tuple, y.reshape(-1, 2))) <= {(2.0, -1.0), (3.0, -0.5)}
    y = F.conv3d(x.reshape(1, 1, 2, 2, 2), w.reshape(2, 1, 1, 1, 1), b, padding=(2, 0, 0), groups=2).numpy()
    np.testing.assert_array_equal(y[0, [0, 1, 3, 4]], np.broadcast_to([2.0, -2.0], (4, 2, 2, 2)))
    np.testing.assert_array_equal(y[0, 2], np.broadcast_to([3.0, -1.0], (2, 2, 2)))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_batch_of_no_images_is_taken(device: str, rank: int) -> None:
    calls = (
        (f"conv{rank}d", (4, *[3] * rank, 6), {"stride": 2, "padding": 1}, (4,) * rank),
        (f"conv{rank}d", (4, *[3] * rank, 3), {"groups": 2, "dilation": 2}, (4,) * rank),
        (f"conv_transpose{rank}d", (6, *[3] * rank, 4), {"stride": 2, "output_padding": 1}, (18,) * rank),
    )
    for name, taps, given, lengths in calls:
        x = alpha.zeros(0, *[8] * rank, 6, device=device, requires_grad=True)
        w = alpha.ones(*taps, device=device, requires_grad=True)
        b = alpha.ones(4, device=device, requires_grad=True)
        y = getattr(F, name)(x, w, b, **given)
        assert y.shape == (0, *lengths, 4)
        y.sum().backward()
        for operand in (x, w, b):
            assert operand.grad is not None
            np.testing.assert_array_equal(operand.grad.numpy(), np.zeros(operand.shape))
        assert getattr(F, name)(x, w, **given).shape == y.shape


@pytest.mark.parametrize(
    ("name", "x", "w", "options", "message"),
    [
        ("conv1d", (1, 4, 3), (2, 3, 2), {}, "x has 3 channels but weight expects 2"),
        ("conv1d", (1, 4, 4, 3), (2, 3, 3), {}, r"x \(N, L, C\) and weight \(OC, F, IC / groups\) are needed"),
        ("conv3d", (1, 4, 4, 3), (2, 3, 3, 3), {}, r"x \(N, D, H, W, C\)"),
        ("conv2d", (1, 4, 4, 3), (2, 3, 3, 1), {"groups": 2}, "3 channels of x do not divide into 2 groups"),
        ("conv2d", (1, 4, 4, 4), (3, 3, 3, 2), {"groups": 2}, "3 channels of OC do not divide into 2 groups"),
        ("conv2d", (1, 4, 4, 3), (2, 3, 3, 3), {"dilation": 2}, "which is empty"),
        ("conv2d", (0, 4, 4, 3), (2, 3, 3, 3), {"dilation": 2}, "which is empty"),
        ("conv1d", (1, 0, 3), (2, 3, 3), {"padding": 3}, "which is empty"),
        ("conv2d", (1, 4, 4, 3), (2, 3, 3, 3), {"dilation": 0}, "dilation=0 must be at least 1"),
        ("conv2d", (1, 4, 4, 3), (2, 3, 3, 3), {"padding": "full"}, 'neither an integer nor "same" nor "valid"'),
        ("conv2d", (1, 4, 4, 3), (2, 3, 3, 3), {"padding": "same", "stride": 2}, "stride 1 only"),
        ("conv_transpose1d", (1, 4, 3), (3, 3, 2), {"output_padding": 1}, "must be below stride"),
        (
            "conv2d",
            (1, 1, 1, 1),
            (1, 1, 1, 1),
            {"padding": 1 << 15},
            r"has 4,295,098,369 pixels, at most 2,147,483,647",
        ),
        ("conv_transpose1d", (1, 3, 1), (1, 1, 1), {"stride": 1 << 30}, "the output .* has 2,147,483,649 pixels"),
        ("conv_transpose2d", (1, 4, 4, 4), (3, 3, 3, 2), {}, "x has 4 channels but weight expects 3"),
        ("conv3d", (1, 4, 4, 4, 3), (2, 3, 3, 3, 3), {"stride": (1, 2)}, "neither an integer nor 3 of them"),
    ],
)
def test_bad_arguments_say_what_is_wrong(
    name: str, x: tuple[int, ...], w: tuple[int, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"{name}: .*{message}"):
        getattr(F, name)(*(alpha.tensor(np.zeros(shape, np.float32)) for shape in (x, w)), **options)


@pytest.mark.parametrize("stride", [(True, 1), (1.0, 1), [True, 1]])
def test_lengths_that_equal_integers_are_none(stride: Any) -> None:
    with pytest.raises(TypeError, match=r"stride=.* is not an integer"):
        F.conv2d(alpha.tensor(np.zeros((1, 4, 4, 3))), alpha.tensor(np.zeros((2, 3, 3, 3))), stride=stride)


def test_lengths_of_plain_integers_are_checked() -> None:
    with pytest.raises(ValueError, match="stride=0 must be at least 1"):
        F.conv2d(alpha.tensor(np.zeros((1, 4, 4, 3))), alpha.tensor(np.zeros((2, 3, 3, 3))), stride=(0, 1))
