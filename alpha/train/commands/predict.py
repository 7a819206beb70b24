"""Command alpha-predict: what a trained network takes photos for."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from alpha.data.images.image_files import shown
from alpha.data.images.listing import EXTENSIONS, UNREAD, entries_of
from alpha.errors import DataError
from alpha.models.saved import Classifier, Prediction, load
from alpha.train.commands.command_line import Parser, command, path, positive_int


@command("alpha-predict")
def main(arguments: list[str] | None = None) -> int:
    parser = Parser(
        prog="alpha-predict",
        description="Say what a trained network takes photos for: the run's folder, then photos or folders of them.",
    )
    add = parser.add_argument
    add("run", type=path, metavar="RUN", help="the folder of a run of alpha-train, or a weights file of one")
    add("photos", type=path, nargs="+", metavar="PHOTO", help="a photo, or a folder whose photos are taken")
    add("--top", type=positive_int, default=1, metavar="N", help="classes for each photo, the likeliest first")
    add("--json", action="store_true", help="print a line of JSON for each photo, with all probabilities")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto", help="default: auto")
    args = parser.parse_args(arguments)
    network = load(args.run, args.device)
    found = wrong = 0
    for photo, prediction in predictions(network, args.photos):
        found += 1
        if isinstance(prediction, DataError):
            wrong += 1
            print(f"alpha-predict: {prediction}", file=sys.stderr)
        else:
            print(as_json(photo, prediction) if args.json else as_line(photo, prediction, args.top))
    if not found:
        raise DataError(f"{', '.join(shown(p) for p in args.photos)}: has no photos ({', '.join(EXTENSIONS)})")
    return 2 if wrong else 0


def predictions(
    network: Classifier, given: list[Path], batch_size: int = 64
) -> Iterator[tuple[Path, Prediction | DataError]]:
    """The photos of paths and folders, and what the network takes each for, or why it cannot be read."""
    photos = [photo for path in given for photo in files_in(path)]
    for begin in range(0, len(photos), batch_size):
        batch = photos[begin : begin + batch_size]
        try:
            yield from zip(batch, network.predict(batch, batch_size), strict=True)
        except DataError:  # one of them; no photo of this batch has been given yet
            for photo in batch:
                try:
                    yield photo, network.predict(photo)[0]
                except DataError as error:
                    yield photo, error


def files_in(path: Path) -> list[Path]:
    """The photo at a path, or those of a folder and the folders in it, in the order of their names.

    Photos of a kind that cannot be read are among them, so that their errors are seen.

    Raises DataError if there is nothing at the path.
    """
    if not path.exists():
        raise DataError(f"{shown(path)}: there is no such photo or folder")
    if not path.is_dir():
        return [path]
    found: list[Path] = []
    for entry in entries_of(path):
        if entry.is_dir(follow_symlinks=False):
            found += files_in(Path(entry.path))
        elif entry.name.lower().endswith(EXTENSIONS + UNREAD):
            found.append(Path(entry.path))
    return sorted(found)


def as_line(photo: Path, prediction: Prediction, top: int) -> str:
    likeliest = list(prediction.probabilities.items())[:top]
    return f"{shown(photo)}: {', '.join(f'{shown(name)} {share:.1%}' for name, share in likeliest)}"


def as_json(photo: Path, prediction: Prediction) -> str:
    """A line of JSON; bytes of a path that are no UTF-8 are surrogates in it, with which Python opens the file."""
    probabilities = {name: round(share, 6) for name, share in prediction.probabilities.items()}
    return json.dumps({"photo": str(photo), "class": prediction.name, "probabilities": probabilities})


if __name__ == "__main__":
    sys.exit(main())
