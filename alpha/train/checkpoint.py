"""Weights on disk: safetensors, written atomically."""

from __future__ import annotations

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
from alpha.state_dict import LAYOUTS, StateDict
from alpha.tensor import Tensor
from alpha.train.files import write_atomically


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
    layout = state_dict.layout if isinstance(state_dict, StateDict) else None
    if layout is not None and text.setdefault("layout", layout) != layout:
        raise CheckpointError(f"{path}: the metadata say layout={text['layout']!r}, the weights have {layout!r}")
    try:
        data = save(tensors, metadata=text)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: the weights cannot be saved ({error}); nothing was written") from error
    write_atomically(Path(path), data)


def load_weights(path: str | Path) -> StateDict:
    """The state dict in `path`, for `model.load_state_dict`. CheckpointError names a bad file.

    Its layout is the one that `save_weights` wrote, or None for a file of another program.
    """
    tensors, metadata = _load(Path(path))
    layout = metadata.get("layout")
    return StateDict(tensors, layout if layout in LAYOUTS else None)


def load_metadata(path: str | Path) -> dict[str, str]:
    """The metadata that was saved with the weights in `path`."""
    return _load(Path(path))[1]


def _load(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
            raise CheckpointError(f"{path}: not a whole safetensors file (it is not a regular file)")
        with safe_open(path, framework="np") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, dict(file.metadata() or {})
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such weights file") from error
    except (AttributeError, KeyError, TypeError) as error:  # a dtype that numpy has no name for
        raise CheckpointError(f"{path}: has weights of a dtype that Alpha does not read ({error})") from error
    except (OSError, SafetensorError) as error:
        if _is_pickle(path):
            raise CheckpointError(
                f"{path}: is a PyTorch (pickle) file, not safetensors; alpha.load(path) reads one of PyTorch 1.6 and "
                "newer. Convert an older one by safetensors.torch.save_file(model.state_dict(), 'weights.safetensors') "
                'in PyTorch, and load that with model.load_state_dict(load_weights(path), layout="NCHW")'
            ) from error
        raise CheckpointError(
            f"{path}: not a whole safetensors file ({error}); train again or restore a copy"
        ) from error


def _is_pickle(path: Path) -> bool:
    """Whether torch.save or pickle wrote the file."""
    try:
        with path.open("rb") as file:
            start = file.read(2)
        if start != b"PK":
            return start in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("data.pkl") for name in archive.namelist())
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return False
