"""The file of the autotuner: the measurements for one GPU, driver, compiler and version of the kernels, as JSON.

Files are replaced whole. If two processes write at once, one may lose its newest entries, which are then measured
again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from alpha import config
from alpha.errors import CompileError
from alpha.runtime import Device
from alpha.runtime.cuda.cache import folder_of, source_root
from alpha.runtime.cuda.compile import cuda_compiler, target

Times = dict[str, float]  # name of a candidate -> median milliseconds


class TuningCache:
    """The measurements for one GPU, driver, compiler and version of the kernels, and their file."""

    def __init__(self, path: Path, facts: Mapping[str, str]) -> None:
        self.path, self.facts = path, facts
        self._unwritable = False
        self._known = self._read()

    def times(self, key: str, names: Sequence[str]) -> Times | None:
        """The measurements for `key`, if all of them belong to present candidates; otherwise None."""
        times = self._known.get(key)
        return times if times and times.keys() <= set(names) else None

    def add(self, key: str, times: Times) -> None:
        """Add measurements to the file, together with what other processes have written in the meantime."""
        self._known = {**self._read(), **self._known, key: times}
        content = {"facts": self.facts, "milliseconds": self._known}
        try:
            _replace(self.path, json.dumps(content, indent=1))
        except OSError as error:
            if not self._unwritable:
                self._unwritable = True
                warnings.warn(
                    f"{self.path}: what ALPHA_TUNE measured cannot be kept ({error.strerror}) and "
                    f"is measured again in every process: set {config.CACHE_DIR.name} to a writable "
                    "folder",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def _read(self) -> dict[str, Times]:
        try:
            text = self.path.read_bytes()
        except OSError:  # usually there is no file yet; `add` reports what is wrong with the folder
            return {}
        try:
            content = json.loads(text)
            found = {
                str(key): {str(name): float(ms) for name, ms in times.items()}
                for key, times in content["milliseconds"].items()
            }
            if not all(0 < ms < math.inf for times in found.values() for ms in times.values()):
                raise ValueError("a time is not a positive number")
            return found
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            aside = self.path.with_suffix(".damaged")
            with contextlib.suppress(OSError):
                self.path.replace(aside)
            warnings.warn(
                f"{self.path}: not a file of ALPHA_TUNE ({type(error).__name__}: {error}); it is kept as "
                f"{aside.name} and its shapes are measured again",
                RuntimeWarning,
                stacklevel=2,
            )
            return {}


def _replace(path: Path, text: str) -> None:
    """Write a file completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".tuned-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def folder() -> Path:
    """The folder of the files."""
    return folder_of("tuned")


@functools.cache
def tuning_cache(device: Device, home: Path) -> TuningCache:
    facts = facts_of(device)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    gpu = "".join(c if c.isalnum() else "-" for c in facts["gpu"])
    return TuningCache(home / f"{gpu}.{digest}.json", facts)


def facts_of(device: Any) -> dict[str, str]:
    """Everything besides the shape on which a measurement depends."""
    properties = device.properties
    major, minor = properties.compute_capability
    try:
        compiler = cuda_compiler(target((major, minor))).identity
    except CompileError as error:  # the emulated driver needs none
        compiler = str(error)
    return {
        "gpu": properties.name,
        "compute capability": f"{major}.{minor}",
        "driver": properties.driver,
        "compiler": compiler,
        "kernels": sources_digest(),
    }


@functools.cache
def sources_digest() -> str:
    """A hash of the kernels, and of the Python files that choose and launch them."""
    digest = hashlib.sha256()
    for path in _sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:32]


def _sources() -> Iterable[Path]:
    package, root = Path(__file__).parent, source_root()
    yield from sorted(package.glob("*.py"))
    for folder in ("gemm", "matmul"):
        yield from sorted((package.parent / folder).glob("*.py"))
    for family in ("common", "conv2d", "matmul", "reduce"):
        yield from sorted(path for path in (root / family).iterdir() if path.is_file())
