"""Latency of a web server with ResNet18, Alpha beside PyTorch: p50 and p99 with 1 client and with many.

    python examples/bench_serve.py                            # on a GPU if there is one; PyTorch if it is installed
    python examples/bench_serve.py --size 128 --clients 1,64 --requests 2000 --precision tf32

Both sides have the same server, the same queue that makes batches, and the same photo, a JPEG; only the function that
computes a batch differs. PyTorch runs channels_last in inference mode, on cuda compiled (torch.compile) and with a CUDA
graph for each size of a batch. Each side is a process of its own; the clients are in one more, and each of them sends
its next request when the one before is answered.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

import alpha
from alpha.core.numerics import PRECISIONS
from alpha.errors import AlphaError
from alpha.models import Classifier, Description
from alpha.serve import Batcher, Predictor
from alpha.train.commands.command_line import Parser, command, positive_int, positive_ints

SIDES = ("Alpha", "PyTorch")
CONNECTIONS = 4096
LINE = "{:10} {:>8} {:>14} {:>10} {:>10}"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="bench_serve", description="Latency of a web server, Alpha beside PyTorch.")
    add = parser.add_argument
    add("--size", type=positive_int, default=128, help="of the images (default: %(default)s)")
    add("--clients", type=positive_ints, default=[1, 64], metavar="N,N", help="default: 1,64")
    add("--requests", type=positive_int, default=1000, help="of each number of clients (default: %(default)s)")
    add("--max-batch", type=positive_int, default=64)
    add("--device", choices=["auto", "cpu", "cuda"], default="auto")
    add("--precision", choices=PRECISIONS, default="float32")
    add("--side", choices=SIDES, help=argparse.SUPPRESS)  # the process of a side
    return parser.parse_args(arguments)


def photo_of(size: int) -> bytes:
    """A JPEG of twice the size of the images."""
    steps = np.linspace(0, 255, 2 * size)
    pixels = np.stack(np.broadcast_arrays(steps[:, None], steps, (steps[:, None] + steps) / 2), -1)
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def torch_side(args: argparse.Namespace) -> Callable[[Any], Any]:
    """The function of PyTorch that computes a batch, images (n, size, size, 3) of uint8."""
    import torch
    from compare.networks import twin

    cuda = torch.cuda.is_available() and args.device != "cpu"
    device, bf16 = torch.device("cuda" if cuda else "cpu"), cuda and args.precision == "bf16"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    model = twin("resnet18", 1000, args.size).to(device, memory_format=torch.channels_last).eval()
    step = torch.compile(model, dynamic=False) if cuda else model
    graphs: dict[int, tuple[Any, Any, Any]] = {}  # of each size of a batch: its input, the graph, its output

    def run(x: Any) -> Any:
        with torch.autocast(device.type, torch.bfloat16, bf16, cache_enabled=False):
            return step(x.permute(0, 3, 1, 2).float() / 127.5 - 1).float()

    def captured(shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
        x = torch.zeros(shape, dtype=torch.uint8, device=device)
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(side):
            for _ in range(3):
                run(x)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            y = run(x)
        return x, graph, y

    def compute(images: Any) -> Any:
        with torch.inference_mode():
            if not cuda:
                return run(torch.from_numpy(images)).numpy()
            if len(images) not in graphs:
                graphs[len(images)] = captured(images.shape)
            x, graph, y = graphs[len(images)]
            x.copy_(torch.from_numpy(images))
            graph.replay()
            return y.cpu().numpy()

    return compute


def serve(args: argparse.Namespace) -> None:
    """Run the server of a side until it is told to end."""
    from serving.app import Server
    from serving.listen import listen

    network = alpha.models.resnet18(1000, args.size)
    classifier = Classifier(network, Description("resnet18", image_size=args.size))
    options = {"max_batch": args.max_batch, "max_queue": CONNECTIONS}
    batcher: Batcher
    if args.side == "Alpha":
        batcher = Predictor(classifier, device=args.device, precision=args.precision, **options)
    else:
        batcher = Batcher(torch_side(args), **options)
    with batcher:
        batcher.warm_up((args.size, args.size, 3))
        listen(Server(classifier, batcher).app(), "127.0.0.1", 0, CONNECTIONS)


def measure(args: argparse.Namespace, side: str, arguments: list[str]) -> None:
    """Start the server of a side, and print a line for each number of clients."""
    from serving.load import ask

    command_line = [sys.executable, __file__, *arguments, "--side", side]
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()
            if not address:
                raise AlphaError(f"the server of {side} did not start")
            host, port = address[0].removeprefix("http://").split(":")
            photo = photo_of(args.size)
            for clients in args.clients:
                ask(host, int(port), photo, clients, max(clients, args.requests // 10))
                found = ask(host, int(port), photo, clients, max(clients, args.requests))
                print(LINE.format(side, clients, *(f"{n:.1f}" for n in (found.per_second, found.p50_ms, found.p99_ms))))
        finally:
            process.terminate()


@command("bench_serve")
def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    if args.side:
        serve(args)
        return 0
    device = alpha.get_device(args.device).name
    print(f"ResNet18 at {args.size} x {args.size} on {device} in {args.precision}, batches of at most {args.max_batch}")
    print(LINE.format("", "clients", "requests/s", "p50 ms", "p99 ms"))
    for side in SIDES:
        if side == "PyTorch" and importlib.util.find_spec("torch") is None:
            print("PyTorch is not installed (pip install torch)")
            continue
        measure(args, side, sys.argv[1:] if arguments is None else arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
