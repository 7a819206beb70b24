"""Scaling over several GPUs of one machine: a step of training with averaged gradients, beside PyTorch's DDP.

    python examples/bench_scaling.py --gpus 2
    python examples/bench_scaling.py --gpus 2,4,8 --scaling both --output runs/scaling          # tables and a picture
    python examples/bench_scaling.py --gpus 2 --models resnet18/128,vgg16/32 --precision bf16 --sides Alpha
    python -m alpha.run --gpus 2 examples/bench_scaling.py --here Alpha                # the processes of a launcher

Images are random and lie on the GPUs. With weak scaling each GPU has a batch of its own, with strong scaling the GPUs
share one. Alpha's step is captured, with the exchange of the gradients in it; PyTorch's is compiled, channels_last,
with a fused Adam and DistributedDataParallel; "DDP graphs" compiles it with mode="reduce-overhead".

Three steps are measured in the same processes, and each time is that of the slowest GPU: "alone" exchanges nothing, so
no GPU waits for another one; "in step" exchanges one number, so that each step takes the time of the slowest GPU; and
the last one averages the gradients. They are measured in turns. Efficiency is the first over the last one. The weights
of all GPUs must be equal after 50 steps.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

from compare.ranks import launcher
from scaling.measured import HEAD, Row, save, table
from scaling.sides import ALONE, COMPARED, EXCHANGED, NETWORKS, SIDES, TOGETHER, Case, Side, measured_ms, weights_after

from alpha.core.numerics import PRECISIONS
from alpha.errors import DeviceError
from alpha.train import make_folder
from alpha.train.commands.command_line import Parser, command, names, path, positive_float, positive_int, positive_ints

BATCHES = {32: 512, 128: 256, 224: 128}  # images of a GPU, or of all of them with strong scaling, by their size
WEAK, STRONG = "weak", "strong"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="bench_scaling", description="Scaling of a training step, beside PyTorch's DDP.")
    add = parser.add_argument
    add("--gpus", type=positive_ints, default=[2], metavar="N[,N..]", help="of this machine (default: 2)")
    add("--scaling", choices=[WEAK, STRONG, "both"], default=WEAK, help="default: weak")
    add("--models", type=names(tuple(NETWORKS)), default=list(NETWORKS), help=f"of {','.join(NETWORKS)}")
    add("--precision", choices=[*PRECISIONS, "all"], default="all", help="default: all")
    add(
        "--sides",
        type=names(tuple(SIDES)),
        default=["Alpha", "DDP"],
        help=f"of {','.join(SIDES)} (default: the first two)",
    )
    add("--batch-size", type=positive_int, help="default: 512, 256, 128 at 32, 128, 224 pixels")
    add("--bucket-cap-mb", type=positive_float, metavar="MIB", help="gradients sent together (default: 25)")
    add("--steps", type=positive_int, default=COMPARED, help=f"before weights are compared (default: {COMPARED})")
    add("--most", type=positive_int, default=100, help="steps in a window of time (default: 100)")
    add("--device", choices=["cuda", "cpu"], default="cuda")
    add("--here", choices=SIDES, help="measure this side in the processes that a launcher has started")
    add("--output", type=path, metavar="FOLDER", help="write table.md, table.csv and scaling.png there")
    add("--rows", type=path, help=argparse.SUPPRESS)  # a file, in which processes tell the program what they measured
    return parser.parse_args(arguments)


def measure(args: argparse.Namespace, side: Side, name: str, precision: str, scaling: str) -> Row:
    """The row of a network."""
    whole = args.batch_size or BATCHES[NETWORKS[name][1]]
    if scaling == STRONG and whole % side.count:
        raise DeviceError(f"--scaling strong: {side.count} GPUs cannot share a batch of {whole} images")
    batch = whole // side.count if scaling == STRONG else whole
    case = partial(Case, name, precision, device=args.device, bucket_cap_mb=args.bucket_cap_mb)

    side.forget()
    step, weights, nbytes = side.step(case(batch, EXCHANGED))
    digest = weights_after(side, step, weights, args.steps)
    steps = [side.step(case(whole, ALONE))[0], side.step(case(batch, TOGETHER))[0], step]
    if side.count > 1:
        steps.append(side.all_reduce(nbytes))
    alone, together, taken, *exchange = measured_ms(side, steps, args.most)
    return Row(name, precision, args.here, scaling, side.count, batch, alone, together, taken, sum(exchange), digest)


def here(args: argparse.Namespace) -> list[Row]:
    """Rows that this process, one of those that a launcher started, has measured."""
    side = SIDES[args.here](args.device)
    if not args.rows:
        print(HEAD, flush=True)
    rows = []
    for name in args.models:
        for precision in PRECISIONS if args.precision == "all" else [args.precision]:
            for scaling in (WEAK, STRONG) if args.scaling == "both" else [args.scaling]:
                rows.append(measure(args, side, name, precision, scaling))
                print(table(rows[-1:]).splitlines()[-1], flush=True)
                if args.rows and side.rank == 0:
                    args.rows.write_text(json.dumps([asdict(row) for row in rows]))
    return rows


def started(args: argparse.Namespace, side: str, count: int) -> Iterator[Row]:
    """Rows of a side on so many GPUs, measured by processes of its own."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "rows.json"
        options = ["--here", side, "--models", ",".join(args.models), "--precision", args.precision]
        options += ["--steps", str(args.steps), "--most", str(args.most), "--scaling", args.scaling]
        options += ["--device", args.device, "--rows", str(result)]
        options += ["--batch-size", str(args.batch_size)] if args.batch_size else []
        options += ["--bucket-cap-mb", str(args.bucket_cap_mb)] if args.bucket_cap_mb else []
        done = subprocess.run([*launcher(args.device, count), __file__, *options], check=False)
        if result.exists():  # what was measured before a failure, too
            yield from (Row(**row) for row in json.loads(result.read_text()))
        if done.returncode:
            print(f"bench_scaling: {side} on {count} GPUs ended with status {done.returncode}", file=sys.stderr)


@command("bench_scaling")
def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    if args.here:
        here(args)
        return 0
    print(HEAD, flush=True)
    rows = [row for count in args.gpus for side in args.sides for row in started(args, side, count)]
    if not rows:
        raise DeviceError("nothing was measured")
    print(f"\n{table(rows)}")
    if args.output:
        make_folder(args.output)
        print("written:", ", ".join(save(args.output, rows)))
    wanted = len(args.gpus) * len(args.sides) * len(args.models)
    wanted *= (len(PRECISIONS) if args.precision == "all" else 1) * (2 if args.scaling == "both" else 1)
    return 0 if len(rows) == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
