"""A nested state (numbers, text, lists, dicts, numpy arrays) in one safetensors file, bit for bit.

Beside it: the facts that decide the bits of a run besides its options and its program (libraries, processor, GPU).
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl
from numpy.typing import NDArray

from alpha import config
from alpha.errors import CheckpointError
from alpha.io.serialization import read_safetensors, save_weights
from alpha.io.tensor_files import unique
from alpha.module.state_dict import StateDict
from alpha.runtime import Device
from alpha.runtime.cuda.cuda_device import CudaDevice

_KEY = "alpha.state"  # of the metadata: the state as JSON, in which {"$array": name} stands for an array
_ARRAY = "$array"


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Writes `state` to `path` atomically. Keys become text; tuples become lists. CheckpointError gives the reason."""
    arrays: dict[str, NDArray[Any]] = {}

    def pack(value: Any, name: str) -> Any:
        if isinstance(value, np.ndarray):
            arrays[f"{len(arrays)}{name}"] = value
            return {_ARRAY: f"{len(arrays) - 1}{name}"}
        if isinstance(value, Mapping):
            return {str(key): pack(item, f"{name}/{key}") for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [pack(item, f"{name}/{i}") for i, item in enumerate(value)]
        return value

    try:
        text = json.dumps(pack(state, ""))
    except TypeError as error:
        raise CheckpointError(f"{path}: the state cannot be saved: {error}; nothing was written") from error
    save_weights(path, arrays, {_KEY: text})


def load_state(path: Path) -> dict[str, Any]:
    """The state in `path`. CheckpointError names a file that `save_state` did not write."""
    arrays, metadata = read_safetensors(Path(path), str(path))
    text = metadata.get(_KEY)
    if text is None:
        raise CheckpointError(f"{path}: holds weights, but not the state of a run; there is nothing to resume")

    def unpack(value: Any) -> Any:
        if isinstance(value, dict):
            return arrays.pop(value[_ARRAY]) if _ARRAY in value else {key: unpack(item) for key, item in value.items()}
        return [unpack(item) for item in value] if isinstance(value, list) else value

    try:
        state: dict[str, Any] = unpack(json.loads(text, object_pairs_hook=unique))
        if arrays or not isinstance(state, dict):
            raise ValueError(f"it is a {type(state).__name__}, and {len(arrays)} arrays belong to nothing")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: its state cannot be read ({error!r:.300}); restore a copy") from error
    return state


def evaluated_weights(state: Mapping[str, Any]) -> Any:
    """The weights that `Trainer.evaluate` measures, of the state of a trainer: their mean, if there is one."""
    if state["averaged"] is None:
        return state["model"]
    prefix = "module."
    mean = {name.removeprefix(prefix): v for name, v in state["averaged"].items() if name.startswith(prefix)}
    return StateDict(mean, state["model"].layout) if isinstance(state["model"], StateDict) else mean


def environment(device: Device) -> dict[str, str]:
    """The versions and kinds of what computes on a device, by name; a run of other ones may have other bits."""
    found = {"Alpha": config.VERSION, "numpy": np.__version__, "device": device.name}
    if isinstance(device, CudaDevice):
        properties = device.properties
        return {**found, "GPU": f"{properties.name}, {properties.arch}", "driver": properties.driver}
    return {**found, "BLAS": blas(), "processor": f"{platform.machine()} with {', '.join(_extensions()) or 'no more'}"}


def blas() -> str:
    """The library that multiplies numpy's matrices, with the processor that its kernels are for."""
    libraries = [library for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
    own = [library for library in libraries if "numpy" in str(library.get("filepath"))]  # beside those of PyTorch, say
    names = [
        f"{library['internal_api']} {library.get('version') or ''} ({library.get('architecture') or 'unknown'})"
        for library in own or libraries
    ]
    return ", ".join(sorted(set(names))) or "unknown"


def _extensions() -> list[str]:
    """The vector extensions that numpy uses here, beyond those for which it was built."""
    build: Any = np.show_config(mode="dicts")
    return [str(name) for name in build.get("SIMD Extensions", {}).get("found", [])]


def changed(now: Mapping[str, str], before: Mapping[str, str]) -> str:
    """Difference between two environments, in words; empty if there is none."""
    names = [name for name in dict.fromkeys([*before, *now]) if now.get(name) != before.get(name)]
    return ", ".join(f"{name} is {now.get(name, 'none')}, was {before.get(name, 'none')}" for name in names)
