"""The functions and layers that cut or enlarge images: pools, padding, interpolation."""

from __future__ import annotations

from typing import Any

import numpy as np
from argument_table import Row, changes, instead

import alpha
import alpha.nn.functional as F
from alpha import nn
from rows.arrays import IMAGE, SEQUENCE, VOLUME, drawn
from rows.kinds import FunctionRow, LayerRow

IMAGES = {1: SEQUENCE, 2: IMAGE, 3: VOLUME}  # by the number of axes
PLACES = {  # of maxima over two neighbours
    1: np.repeat(np.arange(0, 18, 2), 3).reshape(1, 9, 3).repeat(2, 0),
    2: (np.arange(7)[:, None] * 20 + np.arange(5) * 2).reshape(1, 7, 5, 1) * np.ones((2, 1, 1, 3), np.int64),
    3: (np.arange(60).reshape(1, 5, 4, 3, 1) * 8) * np.ones((2, 1, 1, 1, 3), np.int64),
}


def windows(rank: int, **more: Row) -> dict[str, Row]:
    return {
        "kernel_size": changes((2, 3, 1)[-rank:] if rank > 1 else 3),
        "stride": changes((2, 1, 2)[:rank] if rank > 1 else 1),
        "padding": changes((0, 1, 0)[:rank] if rank > 1 else 1),
        **more,
    }


def both(
    x: np.ndarray, names: tuple[str, str], usual: dict[str, Any], shape: tuple[int, ...], arguments: dict[str, Row]
) -> tuple[FunctionRow, LayerRow]:
    """The rows of a function of x and of its layer, which has the same arguments."""
    function, layer = getattr(F, names[0]), getattr(nn, names[1])
    return (
        FunctionRow(function, {"x": x, **usual}, {"x": changes(x * x), **arguments}),
        LayerRow(layer, [x], usual, arguments, [(usual, shape)]),
    )


def moved(row: LayerRow, names: tuple[str, ...]) -> LayerRow:
    """The row with its arguments in the layer's order."""
    return LayerRow(row.layer, row.inputs, row.usual, {name: row.arguments[name] for name in names}, row.shapes)


def pools(rank: int) -> list[tuple[FunctionRow, LayerRow]]:
    two = {"kernel_size": 2}
    halved = {1: (2, 4, 3), 2: (2, 3, 2, 3), 3: (2, 2, 2, 1, 3)}[rank]
    ceil = {"ceil_mode": changes(True)}
    gaps, indices = changes((2, 1, 1)[:rank] if rank > 1 else 2), changes(True)
    largest = both(
        IMAGES[rank],
        (f"max_pool{rank}d", f"MaxPool{rank}d"),
        two,
        halved,
        windows(rank, dilation=gaps, **ceil, return_indices=indices),
    )
    order = ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")
    divisor = {"divisor_override": changes(-3)} if rank > 1 else {}
    counted = {"count_include_pad": changes(False, padding=1)}
    powers = {"norm_type": changes(3.0), **{name: windows(rank)[name] for name in ("kernel_size", "stride")}, **ceil}
    size = changes((2, 1, 3)[:rank] if rank > 1 else 3)
    adaptive = {"output_size": 1}
    single = (2, *(1,) * rank, 3)
    return [
        (largest[0], moved(largest[1], order)),
        both(
            IMAGES[rank],
            (f"avg_pool{rank}d", f"AvgPool{rank}d"),
            two,
            halved,
            windows(rank, **ceil, **counted, **divisor),
        ),
        both(IMAGES[rank], (f"lp_pool{rank}d", f"LPPool{rank}d"), {"norm_type": 2.0, **two}, halved, powers),
        both(
            IMAGES[rank],
            (f"adaptive_avg_pool{rank}d", f"AdaptiveAvgPool{rank}d"),
            adaptive,
            single,
            {"output_size": size},
        ),
        both(
            IMAGES[rank],
            (f"adaptive_max_pool{rank}d", f"AdaptiveMaxPool{rank}d"),
            adaptive,
            single,
            {"output_size": size, "return_indices": indices},
        ),
        unpool(rank),
    ]


def unpool(rank: int) -> tuple[FunctionRow, LayerRow]:
    x, two = IMAGES[rank], {"kernel_size": 2}
    doubled = tuple(2 * n for n in x.shape[1:-1])
    wider = (*doubled[:-1], doubled[-1] + 1)
    arguments = {
        "kernel_size": changes(3, stride=2),
        "stride": changes(3, kernel_size=2),
        "padding": changes(1, kernel_size=4),
    }
    function, layer = getattr(F, f"max_unpool{rank}d"), getattr(nn, f"MaxUnpool{rank}d")
    given = {"x": changes(x * x), "indices": changes(PLACES[rank] + 1)}
    return (
        FunctionRow(
            function,
            {"x": x, "indices": PLACES[rank], **two},
            {**given, **arguments, "output_size": changes(wider)},
            constants=("indices",),
        ),
        LayerRow(layer, [x, PLACES[rank]], two, arguments, [(two, (2, *doubled, 3))], constants=(1,)),
    )


def padding(rank: int) -> list[LayerRow]:
    """The layers that make images larger."""
    x, rows = IMAGES[rank], []
    for kind in ("ConstantPad", "ZeroPad", "ReflectionPad", "ReplicationPad", "CircularPad"):
        value = {"value": 2.5} if kind == "ConstantPad" else {}
        sides = (2, 1, 0, 1, 1, 0)[: 2 * rank]
        shape = tuple(n + sum(sides[2 * i : 2 * i + 2]) for i, n in enumerate(reversed(x.shape[1:-1])))
        rows.append(
            LayerRow(
                getattr(nn, f"{kind}{rank}d"),
                [x],
                {"padding": 1, **value},
                {"padding": changes((0, 1, *(1,) * (2 * rank - 2))), **({"value": changes(0.5)} if value else {})},
                [({"padding": sides, **value}, (2, *reversed(shape), 3))],
            )
        )
    return rows


SIZE = {"size": (3, 4)}
GRID = drawn(2, 4, 3, 2)  # places, a third of them outside of the image
FACTORS = instead([2.0, 1.5], of="size")
SAMPLED = {
    "size": changes((3, 5)),
    "scale_factor": FACTORS,
    "mode": changes("bicubic"),
    "align_corners": changes(True, mode="bilinear"),
    "recompute_scale_factor": changes(True, size=None, scale_factor=[1.3, 1.7], mode="bilinear"),
}
PIXELS = np.concatenate([IMAGE, IMAGE[..., :1]], -1)[:, :6, :4].copy()  # four channels, and an even size
SHUFFLES = [
    both(
        PIXELS, ("pixel_shuffle", "PixelShuffle"), {"upscale_factor": 1}, PIXELS.shape, {"upscale_factor": changes(2)}
    ),
    both(
        PIXELS,
        ("pixel_unshuffle", "PixelUnshuffle"),
        {"downscale_factor": 2},
        (2, 3, 2, 16),
        {"downscale_factor": changes(1)},
    ),
    both(PIXELS, ("channel_shuffle", "ChannelShuffle"), {"groups": 1}, PIXELS.shape, {"groups": changes(2)}),
]
SAMPLING = [
    LayerRow(nn.Upsample, [IMAGE], SIZE, SAMPLED, [(SIZE, (2, 3, 4, 3)), ({"scale_factor": 2.5}, (2, 17, 12, 3))]),
    *(
        LayerRow(kind, [IMAGE], SIZE, {"size": changes((3, 5)), "scale_factor": FACTORS}, [(SIZE, (2, 3, 4, 3))])
        for kind in (nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d)
    ),
]


def fractional(rank: int) -> tuple[FunctionRow, LayerRow]:
    """Pools at random places, which are given as samples in one row."""
    x = IMAGES[rank]
    usual = {"kernel_size": 2, "output_size": (3, 2, 2)[:rank]}
    samples = np.random.default_rng(0).uniform(size=(2, 3, rank)).astype(np.float32)
    arguments = {
        "kernel_size": changes((1, 2, 1)[:rank]),
        "output_size": changes((2, 3, 2)[:rank]),
        "output_ratio": instead([0.5, 0.7, 0.7][:rank], of="output_size"),
        "return_indices": changes(True),
        "_random_samples": changes(samples),
    }
    function, layer = getattr(F, f"fractional_max_pool{rank}d"), getattr(nn, f"FractionalMaxPool{rank}d")
    given = {**arguments, "_random_samples": changes(alpha.tensor(samples))}
    return (
        FunctionRow(function, {"x": x, **usual}, {"x": changes(x * x), **arguments}, constants=("_random_samples",)),
        LayerRow(layer, [x], usual, given, [(usual, (2, *usual["output_size"], 3))]),
    )


PAIRS = [pair for rank in (1, 2, 3) for pair in pools(rank)] + SHUFFLES + [fractional(2), fractional(3)]
FUNCTIONS = [
    *(function for function, _ in PAIRS),
    FunctionRow(
        F.interpolate,
        {"x": IMAGE, **SIZE},
        {"x": changes(IMAGE * IMAGE), **SAMPLED, "antialias": changes(True, mode="bilinear")},
    ),
    FunctionRow(
        F.grid_sample,
        {"x": IMAGE, "grid": GRID},
        {
            "x": changes(IMAGE * IMAGE),
            "grid": changes(GRID[:, ::-1].copy()),
            "mode": changes("bicubic"),
            "padding_mode": changes("reflection"),
            "align_corners": changes(True),
        },
    ),
    FunctionRow(
        F.affine_grid,
        {"theta": drawn(2, 2, 3), "size": (2, 4, 3, 1)},
        {"theta": changes(drawn(2, 2, 3)), "size": changes((2, 3, 4, 1)), "align_corners": changes(True)},
    ),
]
LAYERS = [*SAMPLING, *(layer for _, layer in PAIRS), *(row for rank in (1, 2, 3) for row in padding(rank))]
