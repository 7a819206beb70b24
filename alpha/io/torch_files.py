"""Files of `torch.save`, read without PyTorch: tensors and plain data, and nothing that would run code.

Such a file is a zip archive: `data.pkl` is a pickle in which each tensor stands for a view of a storage, and
`data/<key>` are the bytes of the storages (PyTorch's notes on serialization,
https://docs.pytorch.org/docs/stable/notes/serialization.html).
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from alpha.core.numerics import BFLOAT16
from alpha.errors import CheckpointError
from alpha.io.pickles import Budget, Maker, Reader, Refused
from alpha.io.reading import read_member

__all__ = ["is_torch_file", "read_torch_file"]

DTYPES = {
    **{name: np.dtype(name) for name in ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "bool")},
    **{name: np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64", "complex64", "complex128")},
    **{name: np.dtype(getattr(ml_dtypes, name)) for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2")},
    **{name: np.dtype(getattr(ml_dtypes, name)) for name in ("float8_e5m2fnuz", "float8_e8m0fnu")},
    "bfloat16": BFLOAT16,
}
STORAGES = {
    "DoubleStorage": DTYPES["float64"],
    "FloatStorage": DTYPES["float32"],
    "HalfStorage": DTYPES["float16"],
    "BFloat16Storage": DTYPES["bfloat16"],
    "LongStorage": DTYPES["int64"],
    "IntStorage": DTYPES["int32"],
    "ShortStorage": DTYPES["int16"],
    "CharStorage": DTYPES["int8"],
    "ByteStorage": DTYPES["uint8"],
    "BoolStorage": DTYPES["bool"],
    "ComplexFloatStorage": DTYPES["complex64"],
    "ComplexDoubleStorage": DTYPES["complex128"],
    "UntypedStorage": DTYPES["uint8"],  # of the dtypes that have no storage of their own
}
OPEN_MODULES = ("torch.nn.", "torchvision.models.", "__torch__")  # whose classes have a state_dict
ADVICE = "save tensors and plain data instead: numbers, text, bytes, lists, tuples, dicts and sets"
MOST_AXES = 32  # of numpy 1
Values = npt.NDArray[Any]


def is_torch_file(path: Path) -> bool:
    """True if the file is an archive of `torch.save`."""
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            return False
    try:
        with zipfile.ZipFile(path) as archive:
            return _index(archive) is not None
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return False


def _index(archive: zipfile.ZipFile) -> str | None:
    return next((name for name in archive.namelist() if name.split("/")[-1] == "data.pkl"), None)


def read_torch_file(path: Path, name: str) -> Any:
    """The object, with an array in place of each tensor; tensors that share a storage become arrays of their own.

    Args:
        path: of the file.
        name: what errors call it.

    Raises:
        CheckpointError: the file is damaged, holds what is neither a tensor nor plain data, or needs more memory than
            `most_bytes` of its size.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            index = _index(archive)
            assert index is not None
            folder, names = index[: -len("data.pkl")], set(archive.namelist())
            if len(names) < len(archive.namelist()):
                raise ValueError("two files in the archive have one name")
            if f"{folder}constants.pkl" in names:
                raise CheckpointError(f"{name}: is a TorchScript file; in PyTorch, torch.save its state_dict() instead")
            if f"{folder}byteorder" in names and read_member(archive, f"{folder}byteorder", 16) != b"little":
                raise CheckpointError(f"{name}: was written by a big-endian machine, which Alpha does not read")
            return _Object(archive, folder, path.stat().st_size).read(index)
    except CheckpointError:
        raise
    except Refused as error:
        raise CheckpointError(f"{name}: cannot be read: {error}") from error
    except Exception as error:  # damage can lead the reader anywhere
        raise CheckpointError(f"{name}: is damaged ({error!r:.300}); restore a copy") from error


class _Object:
    """The object of an archive whose files are in `folder`, and which has `size` bytes."""

    def __init__(self, archive: zipfile.ZipFile, folder: str, size: int) -> None:
        self._archive, self._folder, self._budget = archive, folder, Budget(size)
        self._storages: dict[str, Values] = {}
        makers = {**KNOWN, **{(module, name): getattr(self, make) for (module, name), make in COPYING.items()}}
        self._makers = {known: Maker(make) for known, make in makers.items()}

    def read(self, index: str) -> Any:
        return Reader(self._content(index), self._find, self._storage, self._budget).load()

    def _content(self, name: str) -> bytes:
        self._budget.spend(self._archive.getinfo(name).file_size)
        return read_member(self._archive, name, self._archive.getinfo(name).file_size)

    def _find(self, module: str, name: str) -> Any:
        if module in ("torch", "torch.storage") and name in STORAGES:
            return STORAGES[name]
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        if (module, name) in self._makers:
            return self._makers[module, name]
        found = f"{module}.{name}"
        raise Refused(f"it holds a {found:.100}, which is neither a tensor nor plain data; {_advice(module, name)}")

    def _storage(self, pid: Any) -> Values:
        """The numbers of a storage, which is read when it is first named."""
        kind, dtype, key, _, count = pid
        if kind != "storage" or not isinstance(dtype, np.dtype) or type(key) is not str or type(count) is not int:
            raise Refused(f"it refers to a {kind!r:.40}, which is no storage")
        name, declared = f"{self._folder}data/{key}", count * dtype.itemsize
        held = self._archive.getinfo(name).file_size
        if not 0 <= held - declared < dtype.itemsize:  # before anything is unpacked
            raise ValueError(f"storage {key:.40} of {count:,} {dtype.name} needs {declared:,} bytes and has {held:,}")
        if key not in self._storages:
            self._storages[key] = np.frombuffer(self._content(name), np.uint8)
        return self._storages[key][:declared].view(dtype)

    # -- what is called by name and costs memory, which the budget pays

    def _tensor(
        self,
        storage: Values,
        offset: int,
        size: tuple[int, ...],
        stride: tuple[int, ...],
        requires_grad: bool = False,
        hooks: Any = None,
        metadata: Any = None,
    ) -> Values:
        """A copy of the view of a storage that a tensor is."""
        if (
            min(_size(size), default=0) < 0
            or min(_size(stride), default=0) < 0
            or type(offset) is not int
            or offset < 0
        ):
            raise ValueError(f"a tensor of shape {size} begins at {offset!r:.40}, with the steps {stride}")
        if not isinstance(storage, np.ndarray):
            raise TypeError(f"a tensor is no part of a {type(storage).__name__}")
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if 0 in size:
            return np.empty(size, storage.dtype)
        if last >= len(storage):
            raise ValueError(f"a tensor of shape {size!r:.80} reaches beyond its {len(storage)} numbers")
        self._budget.spend(math.prod(size) * storage.itemsize)
        steps = [step * storage.itemsize for step in stride]
        data = storage.view(np.uint8).data
        values = np.ndarray(size, storage.dtype, data, offset * storage.itemsize, steps).copy()
        if values.dtype == bool and values.view(np.uint8).max() > 1:
            raise ValueError("a tensor of bool holds bytes that are neither True nor False")
        lazy = metadata or {}  # operators that PyTorch had not computed yet
        values = np.conj(values) if lazy.get("conj") else values
        return np.negative(values) if lazy.get("neg") else values

    def _tensor_of_bytes(
        self,
        storage: Values,
        offset: int,
        size: tuple[int, ...],
        stride: tuple[int, ...],
        requires_grad: bool,
        hooks: Any,
        dtype: np.dtype[Any],
        metadata: Any = None,
    ) -> Values:
        """A tensor of a dtype that has no storage of its own."""
        if not isinstance(storage, np.ndarray) or not isinstance(dtype, np.dtype) or storage.dtype != np.uint8:
            raise ValueError(f"a tensor of bytes of a {type(storage).__name__}")
        whole = storage[: len(storage) // dtype.itemsize * dtype.itemsize]
        return self._tensor(whole.view(dtype), offset, size, stride, requires_grad, hooks, metadata)

    def _encoded(self, text: str, encoding: str) -> bytes:
        """Bytes, which older pickles write as text."""
        if encoding != "latin1" or type(text) is not str:
            raise ValueError(f"bytes are text that is written as latin1, not {encoding!r:.40}")
        self._budget.spend(len(text))
        return text.encode("latin-1")

    def _bytearray(self, data: str | bytes = b"", encoding: str = "latin-1") -> bytearray:
        if type(data) not in (str, bytes) or encoding != "latin-1":
            raise TypeError(f"a bytearray cannot be made of a {type(data).__name__}")
        self._budget.spend(len(data))
        return bytearray(data.encode("latin-1") if isinstance(data, str) else data)


def _advice(module: str, name: str) -> str:
    """Advice for PyTorch: what to save there, so that a file without this name can be read."""
    if (module, name) == ("torch._utils", "_rebuild_sparse_tensor"):
        return "in PyTorch, save the sparse tensor as x.to_dense()"
    if (module, name) == ("torch._utils", "_rebuild_qtensor"):
        return "in PyTorch, save the quantized tensor as x.dequantize()"
    if module.split(".")[0] == "numpy":
        return "in PyTorch, save arrays of numpy as tensors, and its numbers as x.item()"
    if module.startswith(OPEN_MODULES):
        return "in PyTorch, save the state_dict() of the module"
    return f"in PyTorch, {ADVICE}; of a module or an optimizer save its state_dict()"


# -- what stands in a file as a function; the arguments come from the file, so none of them does more than make a value


def _parameter(values: Values, requires_grad: bool, hooks: Any, state: Any = None) -> Values:
    if not isinstance(values, np.ndarray):
        raise TypeError(f"a parameter is no {type(values).__name__}")
    return values


def _size(axes: tuple[int, ...] = ()) -> tuple[int, ...]:
    if type(axes) is not tuple:
        raise TypeError(f"a size is a tuple, and no {type(axes).__name__}")
    if len(axes) > MOST_AXES:
        raise ValueError(f"a size has {len(axes):,} numbers, at most {MOST_AXES} are read")
    if not all(type(n) is int and -(1 << 63) <= n < 1 << 63 for n in axes):
        raise TypeError("a size has numbers that are not whole, or have more than 64 bits")
    return axes


def _device(name: str, *index: int) -> str:
    if type(name) is not str:
        raise TypeError(f"a device is no {type(name).__name__}")
    return name


def _no_bytes() -> bytes:
    return b""


def _complex(real: float, imag: float = 0.0) -> complex:
    if not {type(real), type(imag)} <= {int, float}:
        raise TypeError(f"a complex number cannot be made of a {type(real).__name__}")
    return complex(real, imag)


def _slice(start: int | None, stop: int | None, step: int | None) -> slice:
    return slice(start, stop, step)


OLD_AND_NEW = ("__builtin__", "builtins")  # Python 2's name and Python 3's
KNOWN: dict[tuple[str, str], Callable[..., Any]] = {  # besides sets and dicts, which pickle_parts.Keyed knows
    ("torch", "Size"): _size,
    ("torch", "device"): _device,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    **{(module, "bytes"): _no_bytes for module in OLD_AND_NEW},
    **{(module, "complex"): _complex for module in OLD_AND_NEW},
    **{(module, "slice"): _slice for module in OLD_AND_NEW},
}
COPYING = {  # methods of _Object
    ("_codecs", "encode"): "_encoded",
    ("torch._utils", "_rebuild_tensor"): "_tensor",
    ("torch._utils", "_rebuild_tensor_v2"): "_tensor",
    ("torch._utils", "_rebuild_tensor_v3"): "_tensor_of_bytes",
    **{(module, "bytearray"): "_bytearray" for module in OLD_AND_NEW},
}
