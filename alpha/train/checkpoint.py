"""Weights on disk: safetensors, written atomically."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from alpha.errors import CheckpointError
from alpha.nn.state import LAYOUTS, StateDict
from alpha.train.files import write_atomically


def save_weights(
    path: str | Path, state_dict: Mapping[str, NDArray[Any]], metadata: Mapping[str, object] | None = None
) -> None:
    """Writes a model's `state_dict()` to `path`, with `metadata` as text beside it.

    The metadata gets the layout that the `state_dict()` knows, under the key "layout". The file appears whole or not
    at all; CheckpointError gives the reason, an older file is intact.
    """
    # safetensors writes the buffer as it lies in memory, so a transposed view must be copied.
    tensors = {name: np.asarray(array, order="C") for name, array in state_dict.items()}
    text = {key: str(value) for key, value in (metadata or {}).items()}
    layout = state_dict.layout if isinstance(state_dict, StateDict) else None
    if layout is not None and text.setdefault("layout", layout) != layout:
        raise CheckpointError(f"{path}: the metadata say layout={text['layout']!r}, the weights have {layout!r}")
    write_atomically(Path(path), save(tensors, metadata=text))


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
        with safe_open(path, framework="np") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, dict(file.metadata() or {})
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such weights file") from error
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path}: not a whole safetensors file ({error}); train again or restore a copy"
        ) from error
