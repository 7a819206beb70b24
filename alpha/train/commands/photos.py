"""Photos of a folder as a set to train on and one to test on."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.data import PackedImages, Subset, random_split
from alpha.data.images.image_files import shown
from alpha.data.images.listing import EXTENSIONS, NOT_READ, UNREAD, entries_of, is_folder
from alpha.errors import DataError, first_few

TRAIN_FOLDERS = ("train", "training")
TEST_FOLDERS = ("val", "valid", "validation", "test", "testing")  # the first of them that is there
MARGIN = 1.25  # by which photos to train on are larger than what is cut out of them


@dataclass(frozen=True)
class Photos:
    """Images to train on, which are larger if parts are to be cut out of them, and images to test on.

    Attributes:
        classes: the names of the labels, in order.
        test_files: of the images of `test_set`, in its order.
        skipped: (path, reason) of photos and folders that are left out.
    """

    train_set: Any
    test_set: Any
    classes: tuple[str, ...]
    test_files: list[Path]
    skipped: list[tuple[Path, str]]

    @property
    def test_labels(self) -> NDArray[np.int32]:
        """Classes (N,) of the images to test on, in their order."""
        if isinstance(self.test_set, Subset):
            return np.asarray(self.test_set.dataset.labels[self.test_set.indices])
        return np.asarray(self.test_set.labels)

    @property
    def copies(self) -> Path:
        """The folder with the decoded photos."""
        return Path(getattr(self.test_set, "dataset", self.test_set).path).parent

    def split(self, folder: Path) -> str:
        """Text that is the same only if the same photos of the folder are for training and for testing."""
        names = "\n".join(file.relative_to(folder).as_posix() for file in self.test_files)
        digest = hashlib.sha256(names.encode(errors="surrogateescape")).hexdigest()[:16]
        return f"{len(self.train_set)} and {len(self.test_set)}, {digest}"

    def test_image(self, place: int) -> NDArray[np.uint8]:
        return np.asarray(self.test_set[place][0])


def read_photos(
    folder: Path, image_size: int, cut: bool, share: float, seed: int, on_error: str, workers: int | None
) -> Photos:
    """The photos of a folder of classes, decoded once into packed files.

    With folders train and val in it, those are the two sets. Else a share of the photos of each class is for testing;
    the seed decides which. Instead of train it may be training, and instead of val, in this order, valid, validation,
    test or testing, in small letters or capitals. They hold folders; one of these names that holds photos is a class.

    Args:
        cut: whether parts of the photos to train on are cut out.
        on_error: "raise" or "skip", for damaged photos and classes without one.

    Raises:
        DataError: there are no photos, the two folders have other classes, there is a folder beside them whose name is
            none of these, a test folder without train, or see `PackedImages`.
    """
    train_size = round(image_size * MARGIN) if cut else image_size
    options: dict[str, Any] = {"workers": workers, "on_error": on_error}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* left out", category=RuntimeWarning)  # `skipped` says it
        try:
            return _read(folder, image_size, train_size, share, seed, options)
        except DataError as error:
            if on_error == "raise" and any(
                what in str(error) for what in ("has no image", "cannot be decoded", NOT_READ)
            ):
                raise DataError(f"{error}; --on-error skip leaves it out") from error
            raise


def _read(folder: Path, image_size: int, train_size: int, share: float, seed: int, options: dict[str, Any]) -> Photos:
    sets = set_folders(folder)
    train, test = sets.train, sets.test
    if train is None or test is None:
        found = _split(train or folder, image_size, train_size, share, seed, options)
        return replace(found, skipped=[*sets.skipped, *found.skipped])
    train_set, test_set = PackedImages(train, train_size, **options), PackedImages(test, image_size, **options)
    if train_set.classes != test_set.classes:
        wrong = sorted(set(train_set.classes) ^ set(test_set.classes))
        raise DataError(
            f"{shown(train)} and {shown(test)} have other classes: {shown(', '.join(wrong))} in only one of them"
        )
    skipped = [*sets.skipped, *train_set.skipped, *test_set.skipped]
    return Photos(train_set, test_set, train_set.classes, files_of(test_set), skipped)


@dataclass(frozen=True)
class SetFolders:
    """Folders of classes within a folder: to train on, to test on, and others that are left out, with the reasons."""

    train: Path | None = None
    test: Path | None = None
    skipped: tuple[tuple[Path, str], ...] = ()


def set_folders(folder: Path) -> SetFolders:
    """The folders to train and to test on in a folder; none of them if it holds the classes itself.

    A folder whose name is that of such a set is one if there is a folder in it; else it is a class.

    Raises:
        DataError: there is one to test on but none to train on, another folder beside them, or nothing but folders with
            such names that hold no classes.
    """
    inside = [Path(entry.path) for entry in entries_of(folder) if is_folder(entry)]
    named = [path for path in inside if path.name.lower() in TRAIN_FOLDERS + TEST_FOLDERS]
    known = [path for path in named if any(is_folder(entry) for entry in entries_of(path))]
    flat = ", ".join(path.name for path in named if path not in known)
    if named and not known and named == inside:
        raise DataError(f"{shown(folder)}: {flat} hold no folders; a folder for each class is needed in each of them")
    if not known:
        return SetFolders(skipped=tuple(_stray(folder)))
    names = f"{', '.join(TRAIN_FOLDERS)} and {', '.join(TEST_FOLDERS)}"
    trains = [path for path in known if path.name.lower() in TRAIN_FOLDERS]
    tests = sorted(set(known) - set(trains), key=lambda path: TEST_FOLDERS.index(path.name.lower()))
    if len(trains) != 1:
        what = "no folder to train on" if not trains else f"{len(trains)} folders to train on"
        found = ", ".join(path.name for path in known)
        raise DataError(f"{shown(folder)}: has {what} beside {found}; names of such folders are {names}")
    if flat:
        raise DataError(f"{shown(folder)}: {flat} has no folders of classes in it, as {trains[0].name} has")
    if others := [path.name for path in inside if path not in known]:
        raise DataError(
            f"{shown(folder)}: has {trains[0].name} with folders in it, and beside it {first_few(others, 5)}, which "
            f"would not be used; names of folders to train and test on are {names}"
        )
    skipped = [(path, f"is not used, as there is {tests[0].name}") for path in tests[1:]]
    for path in (folder, trains[0], *tests[:1]):
        skipped += _stray(path)
    return SetFolders(trains[0], next(iter(tests), None), tuple(skipped))


def _stray(folder: Path) -> list[tuple[Path, str]]:
    """Photos that lie beside the folders in a folder, and why they are left out."""
    stray = [e for e in entries_of(folder) if not is_folder(e) and e.name.lower().endswith(EXTENSIONS + UNREAD)]
    return [(Path(entry.path), "is in no folder of a class") for entry in stray]


def _split(folder: Path, image_size: int, train_size: int, share: float, seed: int, options: dict[str, Any]) -> Photos:
    small = PackedImages(folder, image_size, **options)
    if len(small.classes) < 2:
        raise DataError(
            f"{shown(folder)}: has {len(small.classes)} class{'es' * (len(small.classes) != 1)}; two folders of photos "
            "or more are needed, one for each class"
        )
    large = small if train_size == image_size else PackedImages(folder, train_size, **options)
    parts = random_split(small, [1 - share, share], seed=seed, stratify=small.labels)
    counts = np.bincount(small.labels[parts[1].indices], minlength=len(small.classes))
    if not len(parts[1]) or not len(parts[0]):
        side = "larger" if not len(parts[1]) else "smaller"
        raise DataError(
            f"{shown(folder)}: {len(small)} photos are too few to split by --test-share {share:g}, which leaves "
            f"{len(parts[0])} to train on and {len(parts[1])} to test on; make it {side}, add photos, or give a folder "
            "val beside train"
        )
    if (counts == 0).any():
        few = [small.classes[place] for place in np.flatnonzero(counts == 0)]
        raise DataError(
            f"{shown(folder)}: {shown(first_few(few, 5))} {'has' if len(few) == 1 else 'have'} too few photos for one "
            f"to test on; add photos, or make --test-share larger than {share:g}"
        )
    files = files_of(small)
    return Photos(
        Subset(large, parts[0].indices),
        Subset(small, parts[1].indices),
        small.classes,
        [files[place] for place in parts[1].indices],
        small.skipped,
    )


def files_of(packed: PackedImages) -> list[Path]:
    """The files of the images of a packed folder, in their order."""
    assert packed.samples is not None
    return [path for path, _ in packed.samples]
