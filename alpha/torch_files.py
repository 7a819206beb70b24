"""Files of `torch.save`, read without PyTorch: tensors and plain data, and nothing that would run code.

Such a file is a zip archive: `data.pkl` is a pickle in which each tensor stands for a view of a storage, and
`data/<key>` are the bytes of the storages (PyTorch's notes on serialization,
https://docs.pytorch.org/docs/stable/notes/serialization.html).
"""

from __future__ import annotations

import pickle
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import numpy.typing as npt

from alpha.errors import CheckpointError
from alpha.numerics import BFLOAT16

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


def read_torch_file(path: Path, name: str) -> Any:
    """The object, with an array in place of each tensor; tensors that share a storage become arrays of their own.

    Args:
        path: of the file.
        name: what errors call it.

    Raises:
        CheckpointError: the file is damaged, or holds what is neither a tensor nor plain data.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            index = _index(archive)
            assert index is not None
            folder = index[: -len("data.pkl")]
            if f"{folder}constants.pkl" in archive.namelist():
                raise CheckpointError(f"{name}: is a TorchScript file; in PyTorch, torch.save its state_dict() instead")
            if f"{folder}byteorder" in archive.namelist() and archive.read(f"{folder}byteorder") != b"little":
                raise CheckpointError(f"{name}: was written by a big-endian machine, which Alpha does not read")
            with archive.open(index) as file:
                return _Reader(file, lambda key: archive.read(f"{folder}data/{key}")).load()
    except CheckpointError:
        raise
    except _Refused as error:
        raise CheckpointError(f"{name}: cannot be read: {error}") from error
    except Exception as error:  # damage can lead the reader anywhere
        raise CheckpointError(f"{name}: is damaged ({error!r}); restore a copy") from error


class _Refused(Exception):
    """What a file holds is nothing that Alpha reads."""


_Unpickler: Any = pickle._Unpickler  # written in Python: its instructions can be checked


class _Reader(_Unpickler):  # type: ignore[misc]
    """An unpickler that knows the few names which tensors and plain data need, and refuses all others.

    No object takes a state, so no file changes a function or a dtype; the attributes of PyTorch's state dicts, which
    are versions of modules, are passed over.
    """

    dispatch: ClassVar[dict[int, Any]] = dict(_Unpickler.dispatch)

    def __init__(self, file: Any, read: Callable[[str], bytes]) -> None:
        super().__init__(file)
        self._read = read
        self._storages: dict[str, Values] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module in ("torch", "torch.storage") and name in STORAGES:
            return STORAGES[name]
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        if (module, name) in KNOWN:
            return KNOWN[module, name]
        raise _Refused(f"it holds a {module}.{name}, which is neither a tensor nor plain data; {_advice(module, name)}")

    def load_build(self) -> None:
        changed = type(self.stack[-2])
        if changed is not OrderedDict:
            raise _Refused(f"it sets the state of a {changed.__name__}, which is no state dict; {ADVICE}")
        self.stack.pop()

    dispatch[pickle.BUILD[0]] = load_build

    def persistent_load(self, pid: Any) -> Values:
        kind, dtype, key, _, count = pid
        if kind != "storage":
            raise _Refused(f"it refers to a {kind!r}, which is no storage")
        if key not in self._storages:
            self._storages[key] = np.frombuffer(self._read(key), np.uint8)
        return self._storages[key][: count * dtype.itemsize].view(dtype)


def _advice(module: str, name: str) -> str:
    """What to do in PyTorch, so that a file without this name can be read."""
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


def _tensor(
    storage: Values,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool = False,
    hooks: Any = None,
    metadata: Any = None,
) -> Values:
    """A copy of the view of a storage that a tensor is."""
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if 0 in size:
        return np.empty(size, storage.dtype)
    if offset < 0 or min(stride, default=0) < 0 or last >= len(storage):
        raise ValueError(f"a tensor of shape {tuple(size)} reaches beyond its {len(storage)} numbers")
    steps = [step * storage.itemsize for step in stride]
    values = np.ndarray(
        tuple(size), storage.dtype, storage.view(np.uint8).data, offset * storage.itemsize, steps
    ).copy()
    lazy = metadata or {}  # operators that PyTorch had not computed yet
    values = np.conj(values) if lazy.get("conj") else values
    return np.negative(values) if lazy.get("neg") else values


def _tensor_of_bytes(
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
    whole = storage[: len(storage) // dtype.itemsize * dtype.itemsize]
    return _tensor(whole.view(dtype), offset, size, stride, requires_grad, hooks, metadata)


def _parameter(values: Values, requires_grad: bool, hooks: Any, state: Any = None) -> Values:
    return values


def _device(name: str, index: int = 0) -> str:
    return name


def _encoded(text: str, encoding: str) -> bytes:
    """Bytes, which older pickles write as text."""
    if encoding != "latin1":
        raise ValueError(f"bytes are written as latin1, not {encoding!r}")
    return text.encode("latin-1")


def _no_bytes() -> bytes:
    return b""


def _bytearray(text: str = "", encoding: str = "latin-1") -> bytearray:
    return bytearray(text.encode("latin-1") if isinstance(text, str) else memoryview(text))


def _counter(counts: dict[Any, Any]) -> Counter[Any]:
    return Counter(dict(counts))


KNOWN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "Counter"): _counter,
    ("_codecs", "encode"): _encoded,
    ("torch", "Size"): tuple,
    ("torch", "device"): _device,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_of_bytes,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    **{
        (module, name): value
        for module in ("builtins", "__builtin__")
        for name, value in {
            "set": set,
            "frozenset": frozenset,
            "complex": complex,
            "slice": slice,
            "bytes": _no_bytes,
            "bytearray": _bytearray,
        }.items()
    },
}
