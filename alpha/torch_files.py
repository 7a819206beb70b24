"""Files of `torch.save`, read without PyTorch: tensors and plain data, and nothing that would run code.

Such a file is a zip archive: `data.pkl` is a pickle in which each tensor stands for a view of a storage, and
`data/<key>` are the bytes of the storages (PyTorch's notes on serialization,
https://docs.pytorch.org/docs/stable/notes/serialization.html).
"""

from __future__ import annotations

import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from alpha.errors import CheckpointError
from alpha.numerics import BFLOAT16

__all__ = ["is_torch_file", "read_torch_file"]

STORAGES = {
    "DoubleStorage": np.dtype("f8"),
    "FloatStorage": np.dtype("f4"),
    "HalfStorage": np.dtype("f2"),
    "BFloat16Storage": BFLOAT16,
    "LongStorage": np.dtype("i8"),
    "IntStorage": np.dtype("i4"),
    "ShortStorage": np.dtype("i2"),
    "CharStorage": np.dtype("i1"),
    "ByteStorage": np.dtype("u1"),
    "BoolStorage": np.dtype("?"),
}
DTYPES = {
    "float64": np.dtype("f8"),
    "float32": np.dtype("f4"),
    "float16": np.dtype("f2"),
    "bfloat16": BFLOAT16,
    "int64": np.dtype("i8"),
    "int32": np.dtype("i4"),
    "int16": np.dtype("i2"),
    "int8": np.dtype("i1"),
    "uint8": np.dtype("u1"),
    "bool": np.dtype("?"),
}
Values = npt.NDArray[Any]


def is_torch_file(path: Path) -> bool:
    """Whether it is an archive of `torch.save`."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _index(archive) is not None
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return False


def _index(archive: zipfile.ZipFile) -> str | None:
    return next((name for name in archive.namelist() if name.split("/")[-1] == "data.pkl"), None)


def read_torch_file(path: Path) -> Any:
    """The object, with an array in place of each tensor; tensors that share a storage become arrays of their own.

    Raises:
        CheckpointError: the file is damaged, or holds what is neither a tensor nor plain data.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            index = _index(archive)
            assert index is not None
            folder = index[: -len("data.pkl")]
            if f"{folder}byteorder" in archive.namelist() and archive.read(f"{folder}byteorder") != b"little":
                raise CheckpointError(f"{path}: was written by a big-endian machine, which Alpha does not read")
            with archive.open(index) as file:
                return _Reader(file, path, lambda key: archive.read(f"{folder}data/{key}")).load()
    except CheckpointError:
        raise
    except (zipfile.BadZipFile, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    except Exception as error:  # damage can lead the reader anywhere
        raise CheckpointError(f"{path}: is damaged ({error!r}); restore a copy") from error


_Unpickler: Any = pickle._Unpickler  # written in Python: its instructions can be checked


class _Reader(_Unpickler):  # type: ignore[misc]
    """An unpickler that knows the few names which tensors need, and refuses all others.

    Only an OrderedDict takes a state (PyTorch's state dicts have attributes), so no file changes a function or a dtype.
    """

    dispatch: ClassVar[dict[int, Any]] = dict(_Unpickler.dispatch)

    def __init__(self, file: Any, path: Path, read: Callable[[str], bytes]) -> None:
        super().__init__(file)
        self._path, self._read = path, read
        self._storages: dict[str, Values] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_parameter"):
            return _tensor if name == "_rebuild_tensor_v2" else _parameter
        if module in ("torch", "torch.storage") and name in STORAGES:
            return STORAGES[name]
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        if (module, name) == ("torch", "Size"):
            return tuple
        if (module, name) == ("torch", "device"):
            return _device
        if module in ("builtins", "__builtin__") and name in ("set", "frozenset", "complex", "slice"):
            return {"set": set, "frozenset": frozenset, "complex": complex, "slice": slice}[name]
        raise pickle.UnpicklingError(
            f"it holds a {module}.{name}, which is neither a tensor nor plain data; save a state_dict() in PyTorch"
        )

    def load_build(self) -> None:
        changed = type(self.stack[-2])
        if changed is not OrderedDict:
            raise pickle.UnpicklingError(f"it sets the state of a {changed.__name__}, which is no state dict")
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build

    def persistent_load(self, pid: Any) -> Values:
        kind, dtype, key, _, count = pid
        if kind != "storage":
            raise pickle.UnpicklingError(f"it refers to a {kind!r}, which is no storage")
        if key not in self._storages:
            self._storages[key] = np.frombuffer(self._read(key), np.uint8)
        return self._storages[key][: count * dtype.itemsize].view(dtype)


def _tensor(storage: Values, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *rest: Any) -> Values:
    """A copy of the view of a storage that a tensor is."""
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if 0 in size:
        return np.empty(size, storage.dtype)
    if offset < 0 or min(stride, default=0) < 0 or last >= len(storage):
        raise ValueError(f"a tensor of shape {tuple(size)} reaches beyond its {len(storage)} numbers")
    steps = [step * storage.itemsize for step in stride]
    return np.lib.stride_tricks.as_strided(storage[offset:], tuple(size), steps).copy()


def _parameter(values: Values, requires_grad: bool, hooks: Any) -> Values:
    return values


def _device(name: str, index: int = 0) -> str:
    return name
