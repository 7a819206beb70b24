"""A web server that says what a trained network takes photos for, and shows how a training goes on.

    pip install -e '.[serve]'
    python examples/serve.py runs/photos                        # then open http://127.0.0.1:8000
    python examples/serve.py runs/photos --watch runs/photos-2  # with the curves of another run, while it trains
    curl --data-binary @photo.jpg http://127.0.0.1:8000/predict
    curl http://127.0.0.1:8000/stats                            # requests, and percentiles of their latency

RUN is the folder of a run of alpha-train, or a weights file of one. Requests that arrive together are computed
together. Ctrl-C ends the server when the requests that it has begun are answered, and prints the statistics.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

from PIL import Image

from alpha.core.numerics import PRECISIONS
from alpha.errors import AlphaError
from alpha.models import load
from alpha.serve import Predictor
from alpha.train.commands.command_line import Parser, command, natural_int, path, positive_float, positive_int

MOST_CONNECTIONS = 512  # further ones get the status 503


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="serve", description="Say on a web page what a trained network takes photos for.")
    add = parser.add_argument
    add("run", type=path, metavar="RUN", help="the folder of a run of alpha-train, or a weights file of one")
    add("--watch", type=path, metavar="RUN", help="whose curves are shown, while it trains, too (default: RUN)")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto", help="default: auto")
    add("--precision", choices=PRECISIONS, default="float32", help="default: float32")
    add("--max-batch", type=positive_int, default=32, help="photos that are computed at once (default: %(default)s)")
    add("--max-wait", type=positive_float, default=2.0, metavar="MS", help="for others (default: %(default)s ms)")
    add("--max-mb", type=positive_float, default=10.0, help="of an upload (default: %(default)s)")
    add("--max-pixels", type=positive_int, default=50_000_000, help="of a photo (default: %(default)s)")
    add("--host", default="127.0.0.1", help="0.0.0.0 lets other machines in (default: %(default)s)")
    add("--port", type=natural_int, default=8000, help="0 takes a free one (default: %(default)s)")
    return parser.parse_args(arguments)


@command("serve")
def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    from serving.app import Limits, Server  # it says what to install if the server library is missing
    from serving.listen import listen

    warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # --max-pixels is the bound
    classifier = load(args.run, "cpu")
    folder: Path = args.watch or (args.run if args.run.is_dir() else args.run.parent)
    if args.watch is not None and not args.watch.is_dir():
        raise AlphaError(f"{args.watch}: there is no such folder of a run")
    size = classifier.description.image_size
    with Predictor(
        classifier, device=args.device, max_batch=args.max_batch, max_wait_ms=args.max_wait, precision=args.precision
    ) as predictor:
        predictor.warm_up((size, size, 3))
        server = Server(classifier, predictor, Limits(round(args.max_mb * 1e6), args.max_pixels), folder)
        try:
            listen(server.app(), args.host, args.port, MOST_CONNECTIONS)
        finally:
            print(predictor.statistics(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
