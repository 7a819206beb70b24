"""Weights on disk: safetensors, written atomically."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from alpha.errors import CheckpointError
from alpha.numerics import BFLOAT16
from alpha.state_dict import LAYOUTS, StateDict, common_layout
from alpha.tensor import Tensor
from alpha.train.files import check_readable, write_atomically


def save_weights(
    path: str | Path, state_dict: Mapping[str, Tensor | NDArray[Any]], metadata: Mapping[str, object] | None = None
) -> None:
    """Writes a model's `state_dict()` to `path`, with `metadata` as text beside it.

    The metadata gets the layout that the `state_dict()` knows, under the key "layout". The file appears whole or not
    at all; CheckpointError gives the reason, an older file is intact.
    """
    if not state_dict:
        raise CheckpointError(f"{path}: there are no weights to save: the state dict is empty; nothing was written")
    arrays = StateDict(state_dict).numpy()
    for name, array in arrays.items():
        if name == "__metadata__" or not isinstance(array, np.ndarray):
            raise CheckpointError(f"{path}: {name!r} is a {type(array).__name__}, not an array of weights")
        if array.dtype.kind not in "biuf" and array.dtype != BFLOAT16:
            raise CheckpointError(f"{path}: {name!r} is {array.dtype.name}, a dtype that Alpha does not load")
    # safetensors writes the buffer as it lies in memory, so a transposed view must be copied.
    tensors = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = {key: str(value) for key, value in (metadata or {}).items()}
    layout = common_layout(state_dict)
    if layout is not None and text.setdefault("layout", layout) != layout:
        raise CheckpointError(f"{path}: the metadata say layout={text['layout']!r}, the weights have {layout!r}")
    try:
        parts = safetensors_file(tensors, text)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: the weights cannot be saved ({error}); nothing was written") from error
    write_atomically(Path(path), *parts)


def safetensors_file(tensors: dict[str, NDArray[Any]], metadata: dict[str, str]) -> tuple[bytes, memoryview]:
    """The two parts of a file, of which the same tensors and metadata always make the same bytes.

    The package `safetensors` writes metadata in an order that changes from run to run; here it is that of their names.
    """
    data = save(tensors, metadata=metadata)
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    if "__metadata__" in header:
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned
    return len(text).to_bytes(8, "little") + text, memoryview(data)[start:]


def load_weights(path: str | Path) -> StateDict:
    """The state dict in `path`, for `model.load_state_dict`. CheckpointError names a bad file.

    Its layout is the one that `save_weights` wrote, or None for a file of another program.
    """
    tensors, metadata = read_safetensors(Path(path), str(path))
    layout = metadata.get("layout")
    return StateDict(tensors, layout if layout in LAYOUTS else None)


def load_metadata(path: str | Path) -> dict[str, str]:
    """The metadata that was saved with the weights in `path`."""
    return read_safetensors(Path(path), str(path))[1]


def read_safetensors(path: Path, name: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays and the metadata of a file, which errors call `name`."""
    check_readable(path, name)
    try:
        with safe_open(path, framework="np") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            return tensors, dict(file.metadata() or {})
    except (AttributeError, KeyError, TypeError) as error:  # a dtype that numpy has no name for
        raise CheckpointError(f"{name}: has weights of a dtype that Alpha does not read ({error})") from error
    except (OSError, SafetensorError) as error:
        found = _other_kind(path) or (
            f"not a whole safetensors file ({error}); it is damaged, or of a kind that Alpha does not read: "
            "restore a copy, or write it again"
        )
        raise CheckpointError(f"{name}: {found}") from error


_PICKLES = tuple(b"\x80" + bytes([protocol]) for protocol in (2, 3, 4, 5))
_OLD_PYTORCH = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # the number with which its files begin


def _other_kind(path: Path) -> str | None:
    """What a file of another program is, and what to do with it; None if that is not known."""
    with path.open("rb") as file:
        start = file.read(2 + len(_OLD_PYTORCH))
    if not start:
        return "is empty; restore a copy, or write it again"
    if start.startswith(b"\x93NUMPY"):
        return "is an array of numpy; numpy.load reads it"
    if start.startswith(b"PK\x03\x04"):
        return _archive(path)
    if not start.startswith(_PICKLES):
        return None
    if start[2:] == _OLD_PYTORCH:
        return (
            "is a file of PyTorch before 1.6, or of torch.save(.., _use_new_zipfile_serialization=False); load it in "
            "PyTorch, and torch.save it again, for alpha.load"
        )
    return (
        "is a pickle, which runs code when it is read, so Alpha reads none; load it in the program that wrote it, and "
        "write it by alpha.save"
    )


def _archive(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return "is a zip archive, as of torch.save, that is not whole; restore a copy, or write it again"
    if any(name.split("/")[-1] == "data.pkl" for name in names):
        return (
            "is a file of torch.save, not safetensors; alpha.load reads it. Give the state dict in it to "
            "model.load_state_dict"
        )
    if any(name.endswith(".npy") for name in names):
        return "is an archive of numpy's arrays; numpy.load reads it"
    return "is a zip archive, but none of torch.save; Alpha does not read it"
