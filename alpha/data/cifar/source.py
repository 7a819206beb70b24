"""Choice of the CIFAR-10 on which a program trains: the meaning of `--data`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from alpha import config
from alpha.data.array_datasets import ArrayDataset
from alpha.data.cifar.cifar10 import ARCHIVE, FOLDER, Cifar10, fetch_cifar10, missing_files
from alpha.data.cifar.sample import FILE, Cifar10Sample, restore
from alpha.errors import DataError
from alpha.installation import PACKAGE, checkout, data_dir


@dataclass(frozen=True)
class Source:
    """A choice: "sample" or "full", where it lies, and why it was taken."""

    name: str
    path: Path
    reason: str

    def __str__(self) -> str:
        kind = "sample, 5,000 + 1,000" if self.name == "sample" else "full, 50,000 + 10,000"
        return f"CIFAR-10 {kind} images ({self.reason}): {self.path}"

    def load(self) -> tuple[ArrayDataset, ArrayDataset]:
        """The train set and the test set."""
        read = Cifar10Sample if self.name == "sample" else Cifar10
        return read(self.path, train=True), read(self.path, train=False)


def resolve(spec: str | None, has_gpu: bool, fetch: Callable[[Path], None] = fetch_cifar10) -> Source:
    """Source that `--data` names: "sample", "full" (fetched if it is missing) or the path of a folder.

    None takes the full set if there is a GPU and the set is there or can be fetched, else the
    sample. Raises DataError, which says what to do, if the chosen set is not to be had.
    """
    if spec == "sample":
        return Source("sample", _sample(), "as asked")
    if spec == "full":
        try:
            return _full(fetch)
        except DataError as error:
            raise DataError(
                f"{error}; or unpack {ARCHIVE.url} yourself and pass its folder, or --data sample"
            ) from error
    if spec is not None:
        return Source("full", _folder(config.user_path(spec)), "as asked")
    if not has_gpu:
        return Source("sample", _sample(), "no GPU: --data full takes the whole set")
    try:
        return _full(fetch)
    except DataError as error:
        return Source("sample", _sample(), f"the full set cannot be fetched: {error}")


def _sample() -> Path:
    """The sample's file: in ALPHA_DATA_DIR, else in the checkout or in the installed package."""
    own = PACKAGE / "_datasets" if (folder := checkout()) is None else folder / "datasets"
    folders = dict.fromkeys((data_dir(), own))
    for folder in folders:
        if (folder / FILE).is_file():
            return folder / FILE
    raise DataError(
        f"the CIFAR-10 sample {FILE} is not in {' or '.join(map(str, folders))}: {restore()}, or take the whole set: "
        '--data full, resolve("full")'
    )


def _full(fetch: Callable[[Path], None]) -> Source:
    root = data_dir() / FOLDER
    if not missing_files(root):
        return Source("full", root, "present")
    fetch(root)
    return Source("full", root, "downloaded")


def _folder(path: Path) -> Path:
    """`path`, or the official folder in it, where all files are."""
    if not path.is_dir():
        raise DataError(f"--data {path}: no such folder; expected sample, full or a folder")
    for folder in (path, path / FOLDER):
        if not missing_files(folder):
            return folder
    raise DataError(
        f"--data {path}: has no {', '.join(missing_files(path))}; expected the binary version of "
        f"CIFAR-10, {ARCHIVE.url}"
    )
