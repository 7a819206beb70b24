"""Drawn geometries of convolutions: small, and different in everything that one index could be mistaken for.

`of(row)` gives the shapes on which a kernel configuration is tried: one or two drawn shapes, each also with its rows
and columns exchanged. The draw is seeded by the row's name. Every shape is `irregular`, and together the shapes have
all of the row's checklist (`properties`): the edges of its tiles, strides, paddings and paths through its kernel.

Drawing takes minutes for all rows, so the shapes are kept in tests/golden/conv2d_geometry.json. A row that is not
there, or whose shapes lack something of its checklist, draws its shapes again, and
`python tests/support/conv2d/conv2d_geometry.py` keeps them.
"""

from __future__ import annotations

import functools
import json
import math
import random
import zlib
from dataclasses import astuple
from pathlib import Path

import grouped_geometry
import numpy as np

from alpha.core.numerics import BFLOAT16
from alpha.errors import ShapeError
from alpha.ops.conv2d import cuda_target, direct
from alpha.ops.conv2d.hopper import output_tiles, weight_schedule, weight_tiles
from alpha.ops.conv2d.hopper.output_tiles import Tile
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Configuration, MathMode
from alpha.ops.conv2d.select.grouped_table import GROUPED
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import ConvShape, conv_shape, valid_outputs
from alpha.runtime.cuda.planning.driver_dry import DryDevice

FILE = Path(__file__).parents[2] / "golden" / "conv2d_geometry.json"
FIELDS = 13  # of a shape without groups and dilation
LONGEST = 7  # row of a filter, for Sk-dilated on Hopper
FIRST_DRAWS, MORE_DRAWS = 60, 800  # of one shape, of which the best is taken
STRIDES = ((1, 2), (1, 3), (2, 3))


@functools.cache
def recording(arch: str) -> DryDevice:
    return DryDevice.of(arch)


def is_hopper(row: Configuration) -> bool:
    return "BLOCKS" in row.tile


def launched(row: Configuration, s: ConvShape) -> dict[str, str]:
    """The macros of the kernel that the row launches last of its source files: those of the convolution itself."""
    on = DryDevice.of("sm_90a" if is_hopper(row) else "sm_80")
    names = {FORWARD: ("X", "W"), INPUT: ("Y", "W"), WEIGHT: ("X", "Y")}[row.operator]
    dtype = BFLOAT16 if row.precision == "bf16" else np.dtype(np.float32)
    first, second = (on.empty(getattr(s, name), dtype) for name in names)
    compute(row, first, second, s)
    launches = [x for x in on.driver.launches if x.source.endswith("/sm90.cu")]
    return {name: value for x in launches for name, value in x.macros.items()}


def transposed(s: ConvShape) -> ConvShape:
    """The same with rows and columns exchanged."""
    return conv_shape(
        "test", (s.N, s.IW, s.IH, s.IC), (s.OC, s.FW, s.FH, s.IC), (s.sw, s.sh), (s.pw, s.ph), (s.OW, s.OH)
    )


def irregular(row: Configuration, s: ConvShape) -> bool:
    """No two sizes, strides, paddings or channel counts are equal that could be mistaken for each other.

    Rows for few output channels have stride 1 alone.
    """
    sizes = {s.IH, s.IW, s.OH, s.OW}
    strides = s.sh != s.sw or row.base is not None
    return len(sizes) == 4 and s.FH != s.FW and strides and s.ph != s.pw and s.IC != s.OC


# -- the checklist ----------------------------------------------------------------------------------


def _off(length: int, step: int) -> bool:
    """Several steps, and the last is not whole."""
    return length > step and length % step != 0


def _axes(s: ConvShape) -> dict[str, bool]:
    """Facts that are true of the rows and columns of any row's shapes."""
    over = s.ph >= s.FH, s.pw >= s.FW
    rest = (s.IH + 2 * s.ph - s.FH) % s.sh, (s.IW + 2 * s.pw - s.FW) % s.sw
    return {
        "padding >= filter in rows only": over == (True, False),
        "padding >= filter in columns only": over == (False, True),
        "a row stride that leaves a rest": rest[0] > 0,
        "a column stride that leaves a rest": rest[1] > 0,
        "several taps of one residue in rows": 1 < s.sh < s.FH,
        "several taps of one residue in columns": 1 < s.sw < s.FW,
        "column stride 1": s.sw == 1,
    }


def _of_output_pixels(row: Configuration, s: ConvShape) -> dict[str, bool]:
    """Hopper's ConvV2 and KS-deconv: tile_ow output pixels of one map row, by images, by output channels."""
    tile = Tile.of(row)
    forward = row.operator == FORWARD
    output = output_tiles.conv_v2_tiles(s, tile) if forward else output_tiles.ks_deconv_tiles(s, tile)
    length = s.OW if forward else -(-s.IW // s.sw)
    K, GN = (s.IC, s.OC) if forward else (s.OC, s.IC)
    macros = launched(row, s)
    tiles = len(output.rows) * len(output.starts) * -(-s.N * output.tile_ow // tile.BM) * -(-GN // tile.BN)
    found = {}
    if not forward and tile.math is MathMode.BF16 and tile.BN % 64 == 0:
        found["taps of one residue, of W as it is"] = macros["B_MN"] == "1" and 1 < s.sw < s.FW
    return found | {
        "tiles off the map row": output.tile_ow > 1 and _off(length, output.tile_ow),
        "tiles off the map row, strided": output.tile_ow > 1 and _off(length, output.tile_ow) and s.sw > 1,
        "images off the tile": _off(s.N, output.images),
        "steps of K off the channels": _off(K, tile.BK),
        "output channels off the tile": _off(GN, tile.BN),
        "output channels off 16 bytes": macros["RAGGED"] == "1",
        "fewer instructions in the last step": macros["LAST_STEPS"] != "4",
        "an input-row tile that taps share": output.tile_iw > output.tile_ow,
        "split-K": macros["SPLIT_K"] == "1",
        "no split-K": macros["SPLIT_K"] == "0",
        "more tiles than SMs": tiles > 132 and macros["BLOCKS"] == str(tile.blocks),
    }


def _of_taps(row: Configuration, s: ConvShape) -> dict[str, bool]:
    """Hopper's Sk-dilated: tile_ow output pixels x images per step, several taps of a filter row, tiles of channels."""
    block = weight_tiles.weight_tile(s, Tile.of(row))
    most = max(weight_tiles.weight_tile(_wide(s, n), Tile.of(row)).taps for n in (5, LONGEST))
    found = {
        "images off the step": _off(s.N, block.images),
        "tiles off the map row": block.tile_ow > 1 and s.OW % block.tile_ow != 0,
        "input channels off the tile": _off(s.IC, block.tile.BN),
        "output channels off the tile": _off(s.OC, block.tile.BM),
        "several steps": weight_schedule.steps_of_rows(s, block).max() > 2 * block.stages(),
    }
    if 1 < most < LONGEST:
        found["taps off the filter row"] = block.taps > 1 and _off(s.FW, block.taps)
    if most > 1:
        found["several input-row tiles"] = block.num_input_tiles > 1
    return found


def _wide(s: ConvShape, FW: int) -> ConvShape:
    return conv_shape("test", s.X, (s.OC, s.FH, FW, s.IC), (s.sh, s.sw), (s.ph, max(s.pw, FW)))


def _of_images(row: Configuration, s: ConvShape) -> dict[str, bool]:
    """mma.sync: one output pixel per block, tiles of images."""
    K, GN = (s.IC, s.OC) if row.operator == FORWARD else (s.OC, s.IC)
    step = 64 if row.precision == "bf16" else 32
    if row.operator == WEIGHT:
        return {
            "images off the step": _off(s.N, step),
            "input channels off the tile": _off(s.IC, row.tile["BN"]),
            "output channels off the tile": _off(s.OC, row.tile["BM"]),
            "a filter row that meets no pixel": _meets_nothing(s.FH, s.OH, s.IH, s.sh, s.ph),
            "a filter column that meets no pixel": _meets_nothing(s.FW, s.OW, s.IW, s.sw, s.pw),
        }
    return {
        "images off the tile": _off(s.N, row.tile["BM"]),
        "steps of K off the channels": _off(K, step),
        "output channels off the tile": _off(GN, row.tile["BN"]),
    }


def _meets_nothing(F: int, O: int, size: int, s: int, p: int) -> bool:
    ranges = [valid_outputs(f, O, size, s, p) for f in range(F)]
    return any(begin == end for begin, end in ranges) and any(begin < end for begin, end in ranges)


def _of_first_layers(row: Configuration, s: ConvShape) -> dict[str, bool]:
    found = {"output channels off the tile": _off(s.OC, direct.CHANNELS), "several channels": s.IC > 1}
    if row.operator == WEIGHT:
        found["output rows off a pixel group"] = _off(s.OW, 8)
        item = 2 if row.precision == "bf16" else 4
        rows = (direct.ffma_rows(s) if row.is_ffma else direct.weight_rows(s, item))[0]
        found["blocks of several rows off the image"] = rows > 1 and _off(s.OH, rows)
        if not row.is_ffma:
            found["several chunks"] = s.OW > 128  # 64 or 128 pixels of a row are brought at a time
            # the warps of a pair share the pixel groups of a chunk: four each
            found["pairs of warps"] = direct.weight_fragments(s)[0] == 2 and rows * -(-s.OW // 8) > 4
        return found
    rows = (direct.ffma_rows(s) if row.is_ffma else direct.forward_rows(s, row.math.terms))[0]
    found["output channels off a vector"] = s.OC % 4 != 0
    found["blocks of rows off the image"] = rows > 1 and _off(s.OH, rows)
    found["filter rows of an odd length"] = s.FW * s.IC % 2 == 1
    found["filter rows of an even length"] = s.FW * s.IC % 2 == 0
    if not row.is_ffma:
        found["a long K"] = direct.depth_blocks(s) > 1
    return found


def _of_products(row: Configuration, s: ConvShape) -> dict[str, bool]:
    """FFMA of any shape: a GEMM of 64 x 64 tiles and steps of 16."""
    taps = s.FH * s.FW
    M, N, K = {
        FORWARD: (s.N * s.OH * s.OW, s.OC, taps * s.IC),
        INPUT: (s.N * (s.IH // s.sh) * (s.IW // s.sw), s.IC, taps // (s.sh * s.sw) * s.OC),
        WEIGHT: (s.OC, taps * s.IC, s.N * s.OH * s.OW),
    }[row.operator]
    found = {"M off the tile": _off(M, 64), "N off the tile": _off(N, 64), "K off the step": _off(K, 16)}
    if row.operator == INPUT:  # residues without a pixel
        found |= {"fewer rows than their stride": s.sh > s.IH, "fewer columns than their stride": s.sw > s.IW}
    return found


def _of_last_layers(row: Configuration, s: ConvShape) -> dict[str, bool]:
    """Facts of the first layer that the kernel computes; the padding ends where the filter does."""
    assert row.base is not None
    return _of_first_layers(row.base, direct.swapped(s)) | {
        "no padding of rows": s.ph == 0 < s.FH - 1,
        "no padding of columns": s.pw == 0 < s.FW - 1,
        "no padding of rows of dY": s.ph == s.FH - 1 > 0,
        "no padding of columns of dY": s.pw == s.FW - 1 > 0,
    }


def properties(row: Configuration, s: ConvShape) -> dict[str, bool]:
    """Each line of the row's checklist, and whether the shape has it."""
    if row.base is not None:
        return _of_last_layers(row, s)
    if is_hopper(row):
        its_own = _of_taps(row, s) if row.operator == WEIGHT else _of_output_pixels(row, s)
    elif row.name.startswith("direct"):
        its_own = _of_first_layers(row, s)
    else:
        its_own = _of_products(row, s) if row.is_ffma else _of_images(row, s)
    if row.operator == INPUT:
        its_own |= _of_residues(s)
    return {**_axes(s), **its_own}


def _of_residues(s: ConvShape) -> dict[str, bool]:
    """KS-deconv: split filters after the first one have taps, and pixels that need them."""
    rows = {(g.start + s.ph) % s.sh for g in s.row_splits if g.c_s < g.c_e}
    columns = {(g.start + s.pw) % s.sw for g in s.column_splits if g.c_s < g.c_e}
    return {"several residues of rows": len(rows) > 1, "several residues of columns": len(columns) > 1}


def missing(row: Configuration, shapes: tuple[ConvShape, ...]) -> set[str]:
    """The lines of the checklist that none of the shapes has."""
    found = [properties(row, s) for s in shapes]
    return {name for each in found for name in each if not any(other.get(name) for other in found)}


# -- drawing ----------------------------------------------------------------------------------------


def _channels(row: Configuration, rng: random.Random) -> tuple[int, int]:
    """(IC, OC) about the row's tile."""
    if row.name.startswith("direct"):
        return rng.choice((2, 3, 3)), rng.choice((72, 80) if row.operator == WEIGHT else (70, 72, 80))
    if row.base is not None:
        return _channels(row.base, rng)[::-1]
    tile = row.tile
    step = 64 if row.precision == "bf16" or (is_hopper(row) and row.math.in_fp16) else 32
    if row.operator == WEIGHT:
        across, down = tile["BN"] + 8 * rng.randint(1, 4), tile["BM"] + 8 * rng.randint(1, 4)
        return across, down + 8 * (across == down)
    K, GN = step + 8 * rng.randint(1, 3), tile.get("BN", 64) + 8 * rng.randint(1, 2)
    if row.is_ffma:
        K, GN = rng.randint(5, 11), 64 + rng.randint(3, 12)
    if is_hopper(row):
        K += step * rng.choice((0, 0, 1, 3))
        if rng.random() < 0.6:  # one tile of output channels, so that many output pixels are cheap
            GN = 8 * rng.randint(1, 3)
            K = rng.choice((K, 16))
        GN -= rng.choice((0, 0, 3, 4))
    K += 8 * (K == GN)
    return (K, GN) if row.operator == FORWARD else (GN, K)


def _draw_last_layer(row: Configuration, rng: random.Random) -> ConvShape:
    """A shape of stride 1 whose rows are long or whose columns are."""
    F = rng.sample(range(2, 6) if row.operator == WEIGHT else range(1, 5), 2)
    p = [rng.choice((0, f // 2, f - 1)) for f in F]
    I = [rng.randint(4, 9), rng.randint(10, 33) if rng.random() < 0.7 else rng.randint(129, 140)]
    rng.shuffle(I)
    IC, OC = _channels(row, rng)
    N = rng.choice((2, 3, 131) if row.operator == WEIGHT and not row.is_ffma else (2, 3))
    return conv_shape("test", (N, I[0], I[1], IC), (OC, F[0], F[1], IC), (1, 1), (p[0], p[1]))


def _draw(row: Configuration, rng: random.Random) -> ConvShape:
    """A shape whose rows are long or whose columns are."""
    if row.base is not None:
        return _draw_last_layer(row, rng)
    first_layer, hopper = row.name.startswith("direct"), is_hopper(row)
    F = rng.sample(range(1, LONGEST + 1 if hopper and row.operator == WEIGHT and row.tile["BN"] < 256 else 5), 2)
    if row.name.startswith("direct_weight"):
        F = rng.sample(range(2, 6), 2)
    s = list(rng.choice(STRIDES))
    rng.shuffle(s)
    p = [rng.randint(0, f - 1) for f in F]
    over = rng.randrange(2)
    p[over] = F[over] + rng.randint(0, 1)
    O = [rng.randint(1, 5), rng.randint(6, 23)]
    if (hopper or first_layer) and rng.random() < 0.4:
        O = [rng.randint(14, 30), rng.randint(17, 33)]
    if row.name.startswith("direct_weight") and not row.is_ffma and rng.random() < 0.3:
        O = [rng.randint(1, 3), rng.randint(129, 140)]
    rng.shuffle(O)
    I = [(o - 1) * t + f - 2 * q + rng.randrange(t) for o, t, f, q in zip(O, s, F, p, strict=True)]
    if hopper:
        N = rng.choice((9, 11, 17, 19, 35))
    elif first_layer or row.is_ffma:
        N = rng.choice((2, 3, 131) if row.name.startswith("direct_weight") and not row.is_ffma else (2, 3))
    else:
        tile = row.tile["BM"] if row.operator != WEIGHT else 64 if row.precision == "bf16" else 32
        N = tile + rng.randint(1, 7)
        I = [min(i, rng.randint(1, 7)) for i in I]
    IC, OC = _channels(row, rng)
    return conv_shape("test", (N, I[0], I[1], IC), (OC, F[0], F[1], IC), (s[0], s[1]), (p[0], p[1]))


def cost(row: Configuration, s: ConvShape) -> float:
    """Multiplications of the emulator, whose tiles are whole."""
    BN, step = row.tile.get("BN", 64), 64
    K, GN = (s.OC, s.IC) if row.operator == INPUT else (s.IC, s.OC)
    if row.operator == WEIGHT:
        across = -(-GN // row.tile.get("BM", 64)) * row.tile.get("BM", 64) * -(-K // BN) * BN
    else:
        across = -(-GN // BN) * BN * -(-K // step) * step
    pixels = s.N * (math.prod(s.Y[1:3]) if row.operator != INPUT else math.prod(s.X[1:3]) / (s.sd * s.sh * s.sw))
    return pixels * s.taps * s.useful * across


def _most(row: Configuration) -> float:
    """The cost of a shape that takes the emulator about three seconds."""
    return 4e8 if row.math.terms == 2 or not is_hopper(row) else 8e8


def _pair(row: Configuration, rng: random.Random, needed: set[str] | None) -> tuple[ConvShape, ...]:
    """The drawn shape that lacks the least of what is needed (None: of all), itself and transposed; the cheapest."""
    target = cuda_target(recording("sm_90a" if is_hopper(row) else "sm_80"))
    best: tuple[float, tuple[ConvShape, ...]] = (math.inf, ())
    for _ in range(FIRST_DRAWS if needed is None else MORE_DRAWS):
        try:
            s = _draw(row, rng)
        except ShapeError:
            continue
        both, price = (s, transposed(s)), cost(row, s) / _most(row)
        if not irregular(row, s) or price > 1 or not all(row.supports(x, target) for x in both):
            continue
        few_lines = [] if row.base is not None else [_axes]  # all lines take longer
        for lines in (*few_lines, functools.partial(properties, row)):
            found = [lines(x) for x in both]
            left = {name for each in found for name in each if not any(other.get(name) for other in found)}
            if needed is not None:
                left &= needed
            if len(left) + price >= best[0]:
                break
        else:
            best = len(left) + price, both
            if not left:
                break
    return best[1]


def of(row: Configuration) -> tuple[ConvShape, ...]:
    if row in GROUPED:
        return grouped_geometry.of(row)
    return (*_of(row.name), *_first_taps(row))


def whole(row: Configuration) -> ConvShape | None:
    """A shape of whole tiles and steps, as most layers of networks are; None for the direct kernels and groups.

    A tile has images of one pixel, and a filter row behind the first, so that a tap too many is a tap of another row.
    """
    if row.name.startswith("direct") or row.base is not None or row in GROUPED:
        return None
    BM, BN = row.tile.get("BM", 64), row.tile.get("BN", 64)
    if row.operator == WEIGHT:
        return conv_shape("test", (64, 3, 4, 2 * BN), (2 * BM, 1, 3, 2 * BN), (1, 1), (0, 1))
    K, N = 128, 2 * BN
    IC, OC = (K, N) if row.operator == FORWARD else (N, K)
    return conv_shape("test", (2 * BM, 2, 3, IC), (OC, 2, 2, IC), (1, 1), (0, 0))


def _first_taps(row: Configuration) -> tuple[ConvShape, ...]:
    """Shapes for Hopper's smallest tiles: groups that lack the first taps of a filter row, and of a column."""
    if not is_hopper(row) or row.operator == WEIGHT or (row.tile["BM"], row.tile["BN"]) != (128, 64):
        return ()
    IC, OC = (72, 24) if row.operator == FORWARD else (24, 72)
    s = conv_shape("test", (120, 3, 4, IC), (OC, 1, 5, IC), (1, 2), (2, 1))
    return s, transposed(s)


@functools.cache
def _kept() -> dict[str, list[list[int]]]:
    """Fields of each of a row's shapes, by the row's name."""
    kept: dict[str, list[list[int]]] = json.loads(FILE.read_text())
    return kept


def are_kept(row: Configuration) -> bool:
    """True if the file has shapes of the row that have all of its checklist."""
    return _kept_of(row) is not None


def _kept_of(row: Configuration) -> tuple[ConvShape, ...] | None:
    kept = tuple(ConvShape(*fields) for fields in _kept().get(row.name, ()))
    return kept if kept and all(irregular(row, s) for s in kept) and not missing(row, kept) else None


@functools.cache
def _of(name: str) -> tuple[ConvShape, ...]:
    row = next(v for v in CONFIGURATIONS if v.name == name)
    if kept := _kept_of(row):
        return kept
    for seed in range(8):
        rng = random.Random(zlib.crc32(f"{name} {seed}".encode()))
        shapes = _pair(row, rng, None)
        if left := missing(row, shapes):
            shapes = (*shapes, *_pair(row, rng, left))
        if not missing(row, shapes):
            return shapes
    raise AssertionError(f"{name}: no shapes were drawn that have all of its checklist")


if __name__ == "__main__":
    drawn = {v.name: [list(astuple(s))[:FIELDS] for s in _of(v.name)] for v in CONFIGURATIONS if v.device == "cuda"}
    lines = ",\n".join(f'"{name}": {json.dumps(shapes)}' for name, shapes in drawn.items())
    FILE.write_text(f"{{\n{lines}\n}}\n")
