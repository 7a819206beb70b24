"""Specification of one training run of one side, and the outcome of the run."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from alpha.config import user_path
from alpha.data import ArrayDataset, DataLoader, PackedImages, Subset, resolve
from alpha.errors import DataError
from alpha.runtime.cuda.planning.gpu_process import process_bytes as gpu_bytes

Dataset = ArrayDataset | Subset
SIDES = ("Alpha", "PyTorch", "PyTorch best")
LOSS_STEPS = 10  # of a point of the loss curves, as in the paper
BUSY_LOAD, BUSY_GPU = 0.5, 5  # processes that wait for a CPU; percent of a GPU's time
RANDOM_IMAGES = {32: 20_480, 128: 4096}


@dataclass(frozen=True)
class Spec:
    """One training run.

    Attributes:
        steps: at most so many per epoch; None is all.
        busy: how the machine was used by something else before the first run, or empty.
        stream: copy batch by batch, also of a data set that the device has room for.
        batch_size: images of a step, on each rank.
        ranks: processes that train the network together, each on a GPU of its own, or all on the CPU.
        meeting: URL of a file by which the ranks of PyTorch find each other.
        memory_mode: of Alpha.
    """

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
    stream: bool = False
    busy: str = ""
    ranks: int = 1
    meeting: str = ""
    memory_mode: str = "fast"


@dataclass
class Outcome:
    """Outcome of a run: the seconds and the loss of each epoch; at the end accuracies and memory in bytes.

    Memory is 0 if it is not counted.

    Attributes:
        points: (steps of the run, mean loss of the steps since the last point), about every ten steps, on rank 0.
        batch_size: images of a step, on each rank.
        streamed: whether images were copied batch by batch.
        busy: that of the `Spec`.
        note: what was not as asked, for example a compilation that failed.
        ranks: that of the `Spec`.
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
    batch_size: int = 0
    streamed: bool = False
    busy: str = ""
    points: list[tuple[int, float]] = field(default_factory=list)
    ranks: int = 1

    @property
    def steps(self) -> int:
        """Steps of an epoch, 0 if there are no points."""
        return self.points[-1][0] // len(self.seconds) if self.points else 0

    @property
    def epoch_seconds(self) -> float:
        """The median over the epochs without the first, which compiles and allocates."""
        return float(np.median(self.seconds[1:] or self.seconds))


def load(data: str, image_size: int, seed: int = 0) -> tuple[Dataset, Dataset, str]:
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


def _image_folder(folder: Path, size: int) -> tuple[Dataset, Dataset]:
    """Images of one folder for each class, decoded once into a packed file, of which none is held in memory.

    The shorter side is scaled to `size` and the middle is cut out. Folders `train` and `val` (or `test`) are the two
    sets; else every tenth image is for the test.
    """
    parts = [folder / name for name in ("train", "val", "test") if (folder / name).is_dir()]
    if len(parts) >= 2:
        train_set, test_set = (PackedImages(part, size) for part in parts[:2])
        if train_set.classes != test_set.classes:
            raise DataError(f"--data {folder}: the folders {parts[0].name} and {parts[1].name} have other classes")
        return train_set, test_set
    whole = PackedImages(folder, size)
    places = np.arange(len(whole))
    return Subset(whole, places[places % 10 != 9]), Subset(whole, places[places % 10 == 9])


def fits(dataset: Any, gpu_bytes: int) -> bool:
    """True if a set may lie on a GPU with this free memory, by the rule of Alpha's Trainer: a quarter of it."""
    images = (dataset.dataset if isinstance(dataset, Subset) else dataset).images
    return bool(4 * len(dataset) * int(np.prod(images.shape[1:])) <= gpu_bytes)


def busy(device: str, gpus: int = 1) -> str:
    """Text that says how busy the machine, of which so many GPUs are used, is before the first run begins; or ""."""
    if device == "cpu":
        load_average = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        return f"load average {load_average:.1f}" if load_average > BUSY_LOAD else ""
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(gpus))
        used = max(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu for handle in handles)
    except Exception:  # no NVML: nobody tells
        return ""
    return f"GPU {used} % in use" if used > BUSY_GPU else ""


def batches(loader: DataLoader, epoch: int, steps: int | None) -> tuple[np.ndarray, list[slice]]:
    """The order of the images in an epoch and the batches in it, as Alpha's Trainer takes them."""
    loader.set_epoch(epoch)
    order, _ = loader.take_epoch()
    count, size = len(loader) if steps is None else min(steps, len(loader)), loader.batch_size
    return order, [slice(number * size, (number + 1) * size) for number in range(count)]


def process_bytes(gpu: bool, own: str = "") -> int:
    """The GPU memory of this process by NVML, or the most host memory that it has had; 0 if nobody tells.

    Args:
        own: the GPU of this process, a number or a UUID as in CUDA_VISIBLE_DEVICES, if others have GPUs of their own.
    """
    if not gpu:
        try:
            import resource
        except ImportError:  # Windows
            return 0
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return gpu_bytes(own)
