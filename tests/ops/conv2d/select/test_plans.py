"""Launches for many layers, on paper: a change of the choice or of the cost model shows as a change of a file.

Most numbers of a launch (tiles, output pixels per block, stages, splits) change its speed and not its result, so no
other test sees them. tests/golden/conv2d_plans.txt has a line for each launch. If a change is meant, write the file
anew and measure what has changed with examples/bench_conv.py:

    python tests/ops/conv2d/select/test_plans.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_choose import KERNELS, OPERANDS, make, run

from alpha.core.numerics import PRECISIONS
from alpha.ops.conv2d.hopper import output_tiles, tile_schedule
from alpha.ops.conv2d.hopper.output_tiles import Tile
from alpha.ops.conv2d.problem import FORWARD, INPUT, Target
from alpha.ops.conv2d.select.choose import choose
from alpha.ops.conv2d.shape import ConvShape

FILE = Path(__file__).parents[3] / "golden" / "conv2d_plans.txt"
HOPPER = Target("cuda", (9, 0), 132, 227 << 10)
ARCHITECTURES = {"sm_75": ("float32",), "sm_80": PRECISIONS, "sm_90": PRECISIONS}


def square(N: int, I: int, IC: int, OC: int, F: int, s: int = 1) -> ConvShape:
    return make(N, (I, I), (IC, OC), (F, F), (s, s), (F // 2, F // 2))


LAYERS = [
    # of the paper's networks on CIFAR-10, batch 512, and on images of 128 x 128, batch 256
    *(square(512, I, C, C, 3) for I, C in ((32, 64), (16, 128), (8, 256), (4, 512), (2, 512))),
    *(square(512, I, C, 2 * C, 3, 2) for I, C in ((32, 64), (16, 128), (8, 256))),
    *(square(512, I, C, 2 * C, 1, 2) for I, C in ((32, 64), (8, 256))),
    *(square(256, I, C, C, 3) for I, C in ((64, 64), (32, 128), (16, 256), (8, 512))),
    square(512, 32, 3, 64, 3),
    square(256, 128, 3, 64, 7, 2),
    # of the paper's experiment 1
    *(square(N, I, C, C, 5, s) for I, C, N in ((128, 64, 32), (32, 256, 128), (4, 512, 512)) for s in (1, 2)),
    # small batches, few tiles, few channels, long filters, images that are not square
    *(square(32, I, C, C, 3) for I, C in ((28, 128), (14, 256), (7, 512))),
    *(square(32, 14, 256, 1024, 1), square(32, 14, 1024, 256, 1), square(16, 56, 64, 64, 3, 2)),
    *(square(64, 16, 16, 24, 3), square(64, 32, 40, 72, 4, 2), square(64, 9, 8, 8, 3, 3)),
    *(square(16, 28, 3, 24, 5, 2), square(16, 30, 1, 64, 8), square(8, 224, 4, 32, 3, 2)),
    make(8, (300, 300), (3, 64), (7, 7), (3, 3), (3, 3)),
    make(512, (9, 9), (256, 256), (4, 4), (1, 1), (1, 1)),
    make(96, (17, 35), (80, 136), (1, 7), (1, 1), (0, 3)),
    make(96, (35, 17), (80, 136), (7, 1), (1, 1), (3, 0)),
    make(48, (20, 50), (96, 160), (3, 6), (2, 3), (1, 4)),
    # last layers
    *(make(8, (256, 256), (64, OC), (F, F), p=(F // 2, F // 2)) for OC, F in ((2, 1), (3, 3), (4, 3), (1, 5))),
]


def splits(operator: str, s: ConvShape, precision: str) -> str:
    """Counts of the splits into which the K of the output tiles is cut on an H100."""
    tile = Tile.of(choose(operator, s, HOPPER, precision))
    forward = operator == FORWARD
    output = output_tiles.conv_v2_tiles(s, tile) if forward else output_tiles.ks_deconv_tiles(s, tile)
    K, N = (s.IC, s.OC) if forward else (s.OC, s.IC)
    copies = -(-s.N // output.images) * -(-N // tile.BN)
    schedule = tile_schedule.tile_schedule(output, K, copies, HOPPER.num_sms)
    counts = Counter(work.num_splits for work in schedule if work.split == 0)
    return "splits " + " ".join(f"{count}x{n}" for n, count in sorted(counts.items()))


def lines() -> Iterator[str]:
    for s in LAYERS:
        yield f"{s.N}x{s.IH}x{s.IW}x{s.IC} -> {s.OC}, {s.FH}x{s.FW} / {s.sh}x{s.sw}, padding {s.ph}x{s.pw}"
        for operator in OPERANDS:
            yield f"  {operator:21} cpu   float32  {choose(operator, s, Target('cpu')).name}"
            for arch, precisions in ARCHITECTURES.items():
                for precision in precisions:
                    for x in run(arch, operator, s, precision):
                        if x.entry in KERNELS:
                            macros = " ".join(f"{name}={value}" for name, value in sorted(x.macros.items()))
                            sizes = f"grid {'x'.join(map(str, x.grid))} block {x.threads} shared {x.shared_bytes}"
                            if x.entry.endswith("_sm90") and operator in (FORWARD, INPUT):
                                sizes += f" {splits(operator, s, precision)}"
                            yield f"  {operator:21} {arch} {precision:8} {x.entry} {macros} {sizes}"


@pytest.mark.slow
def test_plans_are_those_of_the_file() -> None:
    found, expected = list(lines()), FILE.read_text().splitlines()
    changed = [f"- {a}\n+ {b}" for a, b in zip(expected, found, strict=False) if a != b]
    assert not changed, f"{len(changed)} lines differ, write the file anew if that is meant (see above):\n{changed[0]}"
    assert len(found) == len(expected)


if __name__ == "__main__":
    FILE.write_text("\n".join(lines()) + "\n")
