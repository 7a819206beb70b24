"""Images per second from files, Alpha beside torchvision: by decoders, threads, processes, and from a packed file.

    python examples/bench_images.py FOLDER                     # FOLDER/CLASS/NAME.jpg, to 128 x 128
    python examples/bench_images.py FOLDER --size 160 --workers 8 --images 20000

All sides scale and cut the images in the same way, to uint8. A figure is the difference of two epochs, a short one and
a long one, so the start of workers does not count. "per core" is images per second of processor time, of all threads
and processes together, which other programs on the machine do not change much; "ratio" is that to torchvision's line
with the same workers. The sides run in turns; each figure is the median of the rounds. The cache of the system holds
the files after the first round.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from alpha.data import DataLoader, ImageFolder, PackedImages, Subset
from alpha.train.commands.command_line import Parser, command, positive_int

Batches = Callable[[int], Iterable[Any]]  # of the first images of an order, as many as are asked for
LINE = "{:44} {:>9} {:>9} {:>7}"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="bench_images", description="Images per second from files, beside torchvision's.")
    add = parser.add_argument
    add("folder", type=Path, help="with a folder for each class")
    add("--size", type=positive_int, default=128, help="of both sides (default: %(default)s)")
    add("--workers", type=positive_int, default=2, help="threads, or processes (default: %(default)s)")
    add("--images", type=positive_int, default=4000, help="of a long epoch (default: %(default)s)")
    add("--batch-size", type=positive_int, default=64)
    add("--rounds", type=positive_int, default=3, help="of each side, in turns (default: %(default)s)")
    return parser.parse_args(arguments)


def of(dataset: Any, batch_size: int, processes: int = 0) -> Batches:
    """Batches of a dataset in one order, which any number of worker processes makes."""
    options = {"num_workers": processes, "multiprocessing_context": "spawn"} if processes else {"prefetch": 0}
    order = DataLoader(dataset, shuffle=True, seed=0).take_epoch()[0]
    return lambda count: DataLoader(Subset(dataset, order[:count]), batch_size, **options)  # type: ignore[arg-type]


def of_torchvision(folder: Path, size: int, batch_size: int, processes: int = 0) -> Batches:
    import torch
    from torchvision import datasets, transforms

    torch.set_num_threads(1)
    steps = [transforms.Resize(size), transforms.CenterCrop(size), transforms.PILToTensor()]
    dataset = datasets.ImageFolder(str(folder), transforms.Compose(steps))
    order = DataLoader(dataset, shuffle=True, seed=0).take_epoch()[0].tolist()
    context = "spawn" if processes else None
    return lambda count: torch.utils.data.DataLoader(
        torch.utils.data.Subset(dataset, order[:count]),
        batch_size,
        num_workers=processes,
        multiprocessing_context=context,
    )


def seconds(batches: Iterable[Any]) -> tuple[float, float]:
    """Seconds of an epoch, and of processor time in this process and in those that ended within it."""

    def now() -> tuple[float, float]:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return time.perf_counter(), sum(each.ru_utime + each.ru_stime for each in used)

    begin = now()
    for _ in batches:
        pass
    del batches
    end = now()
    return end[0] - begin[0], end[1] - begin[1]


def rates(batches: Batches, many: int, few: int) -> tuple[float, float]:
    """Images per second, and per second of processor time."""
    (short, short_used), (long, long_used) = seconds(batches(few)), seconds(batches(many))
    return (many - few) / max(long - short, 1e-9), (many - few) / max(long_used - short_used, 1e-9)


def sides(args: argparse.Namespace, packed: PackedImages) -> dict[str, tuple[Batches, str]]:
    """Names of what is measured: its batches, and the line of torchvision that it is compared with."""
    n, size, batch_size = args.workers, args.size, args.batch_size
    alone, many = "torchvision, 0 workers", f"torchvision, {n} processes"
    found: dict[str, tuple[Batches, str]] = {}
    if importlib.util.find_spec("torchvision"):
        found[alone] = of_torchvision(args.folder, size, batch_size), ""
        found[many] = of_torchvision(args.folder, size, batch_size, n), ""
    else:
        print("torchvision is not installed, so there are no ratios")
    for decoder in ["Pillow", *(["simplejpeg"] if importlib.util.find_spec("simplejpeg") else [])]:
        one = ImageFolder(args.folder, size, workers=1, decoder=decoder)
        threads = ImageFolder(args.folder, size, workers=n, decoder=decoder)
        found[f"ImageFolder, {decoder}, 1 thread"] = of(one, batch_size), alone
        found[f"ImageFolder, {decoder}, {n} threads"] = of(threads, batch_size), many
        found[f"ImageFolder, {decoder}, {n} processes"] = of(one, batch_size, n), many
    found["PackedImages, 1 thread"] = of(packed, batch_size), alone
    return found


@command("bench_images")
def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        packed = PackedImages(args.folder, args.size, Path(folder) / "bench.alpha", workers=args.workers)
        print(
            f"{len(packed)} images, packed in {time.perf_counter() - begin:.1f} s by {args.workers} threads; ", end=""
        )
        print(f"{packed.decoder}; {os.cpu_count()} cores")
        measure(args, packed)
    return 0


def measure(args: argparse.Namespace, packed: PackedImages) -> None:
    many = min(args.images, len(packed))
    few = min(many // 2, 4 * args.batch_size)
    measured = sides(args, packed)
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in measured}
    turns = [(name, batches) for _ in range(args.rounds) for name, (batches, _) in measured.items()]
    for name, batches in tqdm(turns, desc="measured", leave=False, dynamic_ncols=True):
        runs[name].append(rates(batches, many, few))
    medians = {name: [statistics.median(values) for values in zip(*found, strict=True)] for name, found in runs.items()}
    print(LINE.format("", "images/s", "per core", "ratio"))
    for name, (whole, per_core) in medians.items():
        base = medians.get(measured[name][1])
        print(LINE.format(name, f"{whole:.0f}", f"{per_core:.0f}", f"{per_core / base[1]:.2f}x" if base else ""))


if __name__ == "__main__":
    sys.exit(main())
