"""Weights on disk: safetensors, written atomically."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.core.numerics import BFLOAT16
from alpha.core.tensor import Tensor
from alpha.errors import CheckpointError
from alpha.io.files import check_readable, write_atomically
from alpha.io.tensor_files import read_tensor_file, tensor_file
from alpha.module.state_dict import LAYOUTS, StateDict, common_layout


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
    text = {key: str(value) for key, value in (metadata or {}).items()}
    layout = common_layout(state_dict)
    if layout is not None and text.setdefault("layout", layout) != layout:
        raise CheckpointError(f"{path}: the metadata say layout={text['layout']!r}, the weights have {layout!r}")
    try:
        parts = tensor_file(arrays, text)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: the weights cannot be saved ({error}); nothing was written") from error
    write_atomically(Path(path), *parts)


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
    return read_tensor_file(path, name)
