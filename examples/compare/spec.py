"""Specification of one training run of one side, and the outcome of the run."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from alpha.config import user_path
from alpha.data import ArrayDataset, DataLoader, resolve
from alpha.data.images.image_files import opened
from alpha.errors import DataError

SIDES = ("Alpha", "PyTorch", "PyTorch best")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
RANDOM_IMAGES = {32: 20_480, 128: 4096}


@dataclass(frozen=True)
class Spec:
    """One training run. `steps`: at most so many per epoch; None is all."""

    side: str
    model: str
    data: str
    image_size: int
    device: str
    precision: str
    epochs: int
    batch_size: int
    seed: int
    steps: int | None = None
    lr: float = 1e-3


@dataclass
class Outcome:
    """Outcome of a run: per epoch its seconds, loss and train accuracy; at the end accuracies and memory in bytes.

    Memory is 0 if it is not counted. `note`: what was not as asked, for example a compilation that failed.
    """

    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    train_accuracy: float = 0.0
    test_accuracy: float = 0.0
    live: int = 0
    reserved: int = 0
    process: int = 0
    weights: int = 0
    images: int = 0
    data: str = ""
    version: str = ""
    gpu: str = ""
    note: str = ""

    @property
    def epoch_seconds(self) -> float:
        """The median over the epochs without the first, which compiles and allocates."""
        return float(np.median(self.seconds[1:] or self.seconds))


def load(data: str, image_size: int, seed: int = 0) -> tuple[ArrayDataset, ArrayDataset, str]:
    """The train set, the test set and the title of both.

    Args:
        data: "cifar10" (the full set if it is here or can be fetched, else the sample), "sample", "random", a folder
            with CIFAR-10's files, or a folder with a folder of images for each class.

    Raises:
        DataError: says what is missing.
    """
    if data == "random":
        rng = np.random.default_rng(seed)
        classes = tuple(map(str, range(10 if image_size == 32 else 1000)))
        shape = (RANDOM_IMAGES[image_size], image_size, image_size, 3)
        images = rng.integers(0, 256, shape, np.uint8)
        whole = ArrayDataset(images, rng.integers(0, len(classes), len(images)).astype(np.int32), classes)
        return whole, ArrayDataset(images[:512], whole.labels[:512], classes), "random images"
    folder = user_path(data)
    if data not in ("cifar10", "sample") and folder.is_dir() and not list(folder.rglob("*.bin")):
        return *_image_folder(folder, image_size), folder.name
    source = resolve(None if data == "cifar10" else data, has_gpu=data == "cifar10")
    if image_size != 32:
        raise DataError(f"--data {data}: its images are 32x32; use --image-size 32, or a folder of images")
    return *source.load(), "CIFAR-10" if source.name == "full" else "CIFAR-10's sample"


def _image_folder(folder: Path, size: int) -> tuple[ArrayDataset, ArrayDataset]:
    """Images of one folder for each class, the shorter side scaled to `size` and the middle cut out.

    Folders `train` and `val` (or `test`) are the two sets; else every tenth image is for the test.
    """
    parts = [folder / name for name in ("train", "val", "test") if (folder / name).is_dir()]
    roots = parts[:2] if len(parts) >= 2 else [folder]
    classes = tuple(sorted(path.name for path in roots[0].iterdir() if path.is_dir()))
    if not classes:
        raise DataError(f"--data {folder}: has no folders of images; expected one for each class")
    sets = [
        [
            (path, label)
            for label, name in enumerate(classes)
            for path in sorted((root / name).rglob("*"))
            if path.suffix.lower() in SUFFIXES
        ]
        for root in roots
    ]
    if len(sets) == 1:
        sets = [[item for i, item in enumerate(sets[0]) if (i % 10 == 9) is test] for test in (False, True)]
    made = []
    for items in sets:
        if not items:
            raise DataError(f"--data {folder}: has no images ({', '.join(SUFFIXES)})")
        images = np.stack([_square(path, size) for path, _ in items])
        made.append(ArrayDataset(images, np.array([label for _, label in items], np.int32), classes))
    return made[0], made[1]


def _square(path: Path, size: int) -> np.ndarray:
    with opened(path) as image:
        image.draft("RGB", (size, size))  # a JPEG is decoded smaller
        scale = size / min(image.size)
        whole = image.convert("RGB").resize([max(size, round(side * scale)) for side in image.size])
    left, top = ((side - size) // 2 for side in whole.size)
    return np.asarray(whole.crop((left, top, left + size, top + size)), np.uint8)


def batches(loader: DataLoader, epoch: int, steps: int | None) -> tuple[np.ndarray, list[slice]]:
    """The order of the images in an epoch and the batches in it, as Alpha's Trainer takes them."""
    loader.set_epoch(epoch)
    order, _ = loader.take_epoch()
    count, size = len(loader) if steps is None else min(steps, len(loader)), loader.batch_size
    return order, [slice(number * size, (number + 1) * size) for number in range(count)]


def process_bytes(gpu: bool) -> int:
    """The GPU memory of this process by NVML, or the most host memory that it has had; 0 if nobody tells."""
    if not gpu:
        try:
            import resource
        except ImportError:  # Windows
            return 0
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        processes = [p for handle in handles for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        found = {p.pid: p.usedGpuMemory or 0 for p in processes}
    except Exception:  # no NVML, or another error of its own kind
        return 0
    if os.getpid() in found:
        return int(found[os.getpid()])
    return int(next(iter(found.values()))) if len(found) == 1 else 0  # in a container numbers differ
