"""A training step on up to 1,024 GPUs, computed from one that was measured on one GPU; docs/scaling.md explains it.

    python examples/simulate_scaling.py                                        # ResNet18 at 32x32, float32
    python examples/simulate_scaling.py --models vgg16 --image-size 128 --gradients bf16
    python examples/simulate_scaling.py --models resnet18,vgg16 --precision bf16 --output scaling.png
    python examples/simulate_scaling.py --models torchvision.resnet50 --image-size 224 --step-ms MS --batch-size N
    python examples/simulate_scaling.py --network-gbs 1.56 --network-us 30     # 100 Gb/s for a machine of 8 GPUs

Each GPU has the same number of images, whatever the number of GPUs. Buckets of gradients are averaged on a stream of
their own beside the backward pass; what is not done when it ends is exposed, and makes the step longer. The others make
the backward pass slower, since both need the GPU. Measured are the step on one GPU, and how much slower.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from scaling.allreduce import Links
from scaling.networks import BATCH, PRECISIONS, layers_of, measured_ms
from scaling.picture import Curves, save_picture
from scaling.step import BESIDE_SHARE, MB, Bucket, Outcome, Step, buckets_of, gradients_of, simulate

from alpha.distributed.data_parallel import LAST_BUCKET
from alpha.train import make_folder
from alpha.train.commands.chosen_network import arguments_of, built, networks
from alpha.train.commands.command_line import Parser, command, fraction, path, positive_float, positive_int

BYTES = {"float32": 4, "bf16": 2}  # of a gradient that is sent
DRAWN = {"fastest": None, "ring": "ring", "tree": "tree"}
HEAD = "{:>5} {:>9} {:>9} {:>10} {:>7} {:>6} {:>10}  {}"  # milliseconds but for the first two and the efficiency


def share(text: str) -> float:
    """The type of an option that takes 0, or a number above it."""
    return 0.0 if text == "0" else positive_float(text)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="simulate_scaling", description="Computes a training step on many GPUs from one on one GPU.")
    add, links = parser.add_argument, Links()
    add("--models", type=networks, default=["resnet18"], metavar="NAMES", help="with commas between, as resnet18,vgg16")
    add("--image-size", type=positive_int, default=32, metavar="PIXELS", help="default: 32")
    add("--classes", type=positive_int, default=10, metavar="N", help="default: 10")
    add("--precision", choices=PRECISIONS, default="float32", help="of the measured step (default: float32)")
    add("--gradients", choices=list(BYTES), default="float32", help="in which they are sent (default: float32)")
    add("--step-ms", type=positive_float, metavar="MS", help="a step on one GPU (default: that of docs/benchmarks.md)")
    add("--batch-size", type=positive_int, metavar="N", help="images a GPU, of the step that --step-ms gives")
    add("--backward-share", type=fraction, default=2 / 3, metavar="SHARE", help="of a step (default: two thirds)")
    add(
        "--beside-share",
        type=share,
        default=BESIDE_SHARE,
        metavar="SHARE",
        help="of the time of an all-reduce beside the backward pass, by which that becomes longer (default: 0.9)",
    )
    add("--gpus", type=positive_int, default=1024, metavar="N", help="the largest number (default: 1024)")
    add("--gpus-per-machine", type=int, choices=[1, 2, 4, 8, 16], default=links.gpus_per_machine, help="default: 8")
    for name, unit, what in (
        ("nvlink-gbs", "GB/S", "bus bandwidth within a machine"),
        ("nvlink-us", "US", "latency of a step within a machine"),
        ("network-gbs", "GB/S", "bandwidth between machines, of each GPU"),
        ("network-us", "US", "latency of a step between machines"),
    ):
        default = getattr(links, name.replace("-", "_"))
        add(f"--{name}", type=positive_float, default=default, metavar=unit, help=f"{what} (default: {default:g})")
    add("--first-bucket-mb", type=positive_float, default=1.0, metavar="MB", help="default: 1")
    add("--bucket-mb", type=positive_float, default=25.0, metavar="MB", help="of the buckets between (default: 25)")
    add("--last-bucket-mb", type=positive_float, default=LAST_BUCKET / MB, metavar="MB", help="default: 3")
    add("--output", type=path, metavar="FILE.png", help="draw the efficiency (needs matplotlib)")
    args: argparse.Namespace = parser.parse_args(arguments)
    if args.step_ms and len(args.models) > 1:
        parser.error("--step-ms is the step of one network: give one in --models")
    if (args.step_ms is None) != (args.batch_size is None):
        parser.error("--step-ms and --batch-size belong together: the time of a step and its images")
    if args.output and args.output.suffix != ".png":
        parser.error(f"--output {args.output}: the picture is a .png file")
    return args


def links_of(args: argparse.Namespace) -> Links:
    return Links(args.gpus_per_machine, args.nvlink_gbs, args.nvlink_us, args.network_gbs, args.network_us)


def counts(most: int) -> list[int]:
    """1, 2, 4, 8 .. up to the largest number."""
    return [1 << power for power in range(most.bit_length())]


def batch_of(args: argparse.Namespace) -> int:
    """Images a GPU."""
    return args.batch_size or BATCH[args.image_size]


def heading(name: str, buckets: Sequence[Bucket], step: Step, args: argparse.Namespace) -> list[str]:
    """Lines that say what the table is about."""
    elements = sum(bucket.elements for bucket in buckets)
    sizes = [f"{bucket.elements * BYTES[args.gradients] / MB:.1f}" for bucket in buckets]
    shown = sizes if len(sizes) <= 6 else [*sizes[:5], f".. {sizes[-1]}"]
    source = "given" if args.step_ms else f"measured in {args.precision}"
    return [
        f"{name} at {args.image_size}x{args.image_size}, {batch_of(args)} images a GPU, {elements:,} parameters",
        f"a step on one GPU: {step.ms:.2f} ms ({source}), {step.backward_ms:.2f} ms of it backward",
        f"gradients in {args.gradients}, buckets of {' '.join(shown)} MB",
        f"in a machine of {args.gpus_per_machine}: {args.nvlink_gbs:g} GB/s, {args.nvlink_us:g} us a step; "
        f"between: {args.network_gbs:g} GB/s a GPU, {args.network_us:g} us",
    ]


def table(outcomes: Sequence[Outcome], batch: int) -> list[str]:
    """A line for each number of GPUs, below a line of headings."""
    lines = [HEAD.format("GPUs", "batch", "step ms", "all-reduce", "exposed", "slower", "efficiency", "by")]
    for outcome in outcomes:
        times = outcome.step_ms, outcome.communication_ms, outcome.exposed_ms, outcome.slower_ms
        lines.append(
            HEAD.format(
                f"{outcome.gpus:,}",
                f"{outcome.gpus * batch:,}",
                *(f"{ms:.3f}" for ms in times),
                f"{outcome.efficiency:.1%}",
                ", ".join(outcome.algorithms),
            ).rstrip()
        )
    return lines


def curves_of(buckets: Sequence[Bucket], step: Step, args: argparse.Namespace) -> Curves:
    """Outcomes of each algorithm and of the fastest, for both kinds of gradients."""
    return {
        (drawn, gradients): [
            simulate(buckets, gpus, step, links_of(args), size, algorithm) for gpus in counts(args.gpus)
        ]
        for drawn, algorithm in DRAWN.items()
        for gradients, size in BYTES.items()
    }


@command("simulate_scaling")
def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    panels: dict[str, Curves] = {}
    for name in args.models:
        ms = args.step_ms or measured_ms(name, args.image_size, args.precision)
        step = Step(ms, args.backward_share, args.beside_share)
        layers = layers_of(
            built(name, arguments_of(name, args.classes, args.image_size), args.image_size), args.image_size
        )
        buckets = buckets_of(gradients_of(layers), args.first_bucket_mb, args.bucket_mb, args.last_bucket_mb)
        size = BYTES[args.gradients]
        outcomes = [simulate(buckets, gpus, step, links_of(args), size) for gpus in counts(args.gpus)]
        print(*heading(name, buckets, step, args), "", *table(outcomes, batch_of(args)), "", sep="\n", flush=True)
        title = f"{name} at {args.image_size}x{args.image_size}, {step.ms:g} ms alone"
        panels[title] = curves_of(buckets, step, args)
    if args.output:
        make_folder(args.output.parent)
        print(save_picture(args.output, panels))
    return 0


if __name__ == "__main__":
    sys.exit(main())
