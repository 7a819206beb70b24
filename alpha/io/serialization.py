"""`alpha.save` and `alpha.load`: nested objects with tensors in one file, under PyTorch's names.

    alpha.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, "run.pt")
    state = alpha.load("run.pt")
    model.load_state_dict(state["model"])

A file is a safetensors file, whose metadata hold everything but the arrays as JSON. So reading one runs no code, and a
file is written whole or not at all. `load` also reads plain safetensors files, and files that `torch.save` wrote
(torch_files.py).
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from alpha.core.host_values import DTYPES, MASKED, WIDER, is_masked
from alpha.core.numerics import BFLOAT16
from alpha.core.origins import LAYOUTS, layout_of, mark, unmark
from alpha.core.tensor import Tensor, tensor
from alpha.errors import AlphaError, CheckpointError, type_name
from alpha.io.files import check_readable, write_atomically
from alpha.io.pickles import filled, with_results, without_gc
from alpha.io.tensor_files import METADATA, read_tensor_file, tensor_file, unique
from alpha.io.torch_files import is_torch_file, read_torch_file
from alpha.module.module import Module, Parameter
from alpha.module.state_dict import StateDict, common_layout
from alpha.runtime import Device
from alpha.runtime.registry import get_device

__all__ = ["load", "save"]


KEY = "alpha.object"  # of the metadata
KIND = "$"  # of a JSON object: what it stands for
DEEPEST = 100  # parts in parts in parts: more than programs have, and less than Python's own limit
Values: TypeAlias = npt.NDArray[Any]
Location: TypeAlias = "str | Device | Mapping[str, str | Device] | None"


class Writable(Protocol):
    def write(self, data: bytes, /) -> Any: ...


class Readable(Protocol):
    def read(self) -> bytes: ...


def save(obj: Any, f: str | os.PathLike[str] | Writable) -> None:
    """Save an object to a file, or to what has a `write`.

    Args:
        obj: a Tensor, an array of numpy, a number, text, bytes, None, or dicts, lists, tuples and sets of them. A state
            dict keeps its layout, a Tensor its device, its dtype and `requires_grad`; the tensors of a state dict are
            loaded on the host. A state dict alone is stored under its names, so that any reader of safetensors reads
            it: `safetensors.torch.load_file` that of `model.state_dict(layout="NCHW")`, for PyTorch.
        f: a path, whose file appears whole or not at all, or a binary file.

    Raises:
        TypeError: a part of obj is none of these; the message says where. Nothing is written.
        ValueError: a part contains itself, or parts are nested in more than 100 others.
        CheckpointError: the file cannot be written; an older one is intact.

    Examples:
        >>> import alpha, tempfile
        >>> file = tempfile.mkdtemp() + "/net.safetensors"
        >>> alpha.save({"weight": alpha.ones(2), "epoch": 3}, file)
        >>> alpha.load(file)["epoch"]
        3
    """
    if isinstance(f, io.TextIOBase) or not (isinstance(f, (str, os.PathLike)) or hasattr(f, "write")):
        raise TypeError(f"save: f is a {type_name(f)}; a path or a file that is open for writing bytes is needed")
    arrays = _Arrays(obj if isinstance(obj, StateDict) else {})
    text = json.dumps(_packed(obj, "obj", arrays))
    try:
        parts = tensor_file(arrays, {KEY: text})
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"save: the arrays cannot be saved ({error}); nothing was written") from error
    if isinstance(f, (str, os.PathLike)):
        write_atomically(Path(f), *parts)
    else:
        f.write(b"".join(parts))


def load(
    f: str | os.PathLike[str] | Readable, map_location: Location = None, *, weights_only: bool | None = None
) -> Any:
    """The object in a file that `save` or `torch.save` wrote, or the state dict of a safetensors file of any program.

    Args:
        f: a path, or a binary file.
        map_location: the device of all tensors, or a dict from the devices that they were on to others. By default they
            come back to the device that they were on; those of PyTorch's files are on the cpu.
        weights_only: changes nothing, as a file is never more than data.

    A file is checked before anything in it is used: that it is a regular one (`files.py`), then the sizes, offsets,
    dtypes and checksums of the tensors (`tensor_files.py`); of PyTorch's files that a pickle names nothing but data
    (`pickles.py`), and the parts of the archive (`torch_files.py`).

    Returns:
        What was saved. PyTorch's state dicts are state dicts of the layout "NCHW", which `load_state_dict` turns; those
        of safetensors files have tensors on the cpu, and the layout that `save_weights` wrote. Without one, as in files
        of other programs, they are taken for PyTorch's; `load_state_dict(.., layout="NHWC")` says otherwise. Other
        programs' tensors of a dtype that Alpha has not come as the next wider one (int16 as int32), or, if there is
        none (complex numbers, uint64, float8), as arrays of numpy.

    Raises:
        CheckpointError: there is no such file, it is no regular one, it is damaged, or it holds what is no data.
        DeviceError: a tensor was on cuda, and there is none; give map_location="cpu".

    Examples:
        >>> import alpha, tempfile
        >>> model = alpha.nn.Linear(3, 2)
        >>> file = tempfile.mkdtemp() + "/net.safetensors"
        >>> alpha.save(model.state_dict(), file)
        >>> model.load_state_dict(alpha.load(file))
        IncompatibleKeys(missing_keys=[], unexpected_keys=[])
    """
    if not isinstance(weights_only, (bool, type(None))):
        raise TypeError(f"load: weights_only is a {type_name(weights_only)}, not a bool")
    place = _places(map_location)
    if isinstance(f, (str, os.PathLike)):
        return _read(Path(f), str(f), place)
    if isinstance(f, io.TextIOBase) or not hasattr(f, "read"):
        raise TypeError(f"load: f is a {type_name(f)}; a path or a file that is open for reading bytes is needed")
    name, data = getattr(f, "name", None), f.read()
    name = name if isinstance(name, str) else f"a {type_name(f)}"
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"load: {name} gives a {type_name(data)}, not bytes")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "read")
        path.write_bytes(data)
        return _read(path, name, place)


Placed: TypeAlias = "Callable[[str], str | Device]"


def _places(location: Location) -> Placed:
    """Function from the name of the device that a tensor was on to the device that it gets."""
    if location is None:
        return lambda name: name
    if isinstance(location, Mapping):
        known = {str(name): get_device(place) for name, place in location.items()}
        return lambda name: known.get(name, known.get(f"{name}:0", name))
    if isinstance(location, (str, Device)):
        device = get_device(location)
        return lambda name: device
    raise TypeError(f"load: map_location is a {type_name(location)}; a device, or a dict of devices is needed")


def _read(path: Path, name: str, place: Placed) -> Any:
    """The object in a file, which errors call `name`."""
    check_readable(path, name)
    try:
        with without_gc():
            return _object(path, name, place)
    except AlphaError:
        raise
    except RecursionError as error:
        raise CheckpointError(f"{name}: its parts contain themselves, or are nested too deeply") from error
    except Exception as error:  # damage can lead anywhere
        raise CheckpointError(f"{name}: is damaged ({error!r:.300}); restore a copy") from error


def _object(path: Path, name: str, place: Placed) -> Any:
    if is_torch_file(path):
        return _of_torch(read_torch_file(path, name), place)
    arrays, metadata = read_safetensors(path, name)
    if KEY not in metadata:
        layout = metadata.get("layout")
        tensors = ((key, _of_array(arrays.pop(key), place)) for key in list(arrays))
        return StateDict(tensors, layout if layout in LAYOUTS else None)
    found = _unpacked(json.loads(metadata[KEY], object_pairs_hook=unique), arrays, place)
    if arrays:
        raise ValueError(f"{len(arrays)} arrays belong to nothing")
    return found


# -- Alpha's files ----------------------------------------------------------------------------------------------------


class _Arrays(dict[str, Values]):
    """The arrays of a file: those of a state dict by their names in it, if it is all that is saved, others by number.

    Args:
        named: the state dict, or an empty dict.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        super().__init__()
        self._names = iter(list(named))
        self._named = all(
            isinstance(key, str) and key != METADATA and isinstance(part, (Tensor, np.ndarray))
            for key, part in named.items()
        )

    def put(self, array: Values) -> str:
        """Keep an array and return the name under which the file has it."""
        name = next(self._names, None) if self._named else None
        name = str(len(self)) if name is None else name
        self[name] = np.asarray(array, order="C")
        return name


def _packed(value: Any, where: str, arrays: _Arrays, around: tuple[Any, ...] = ()) -> Any:
    """Value as JSON, with arrays by their names in the file; `around` are the parts that the value is in."""

    def put(array: Values) -> str:
        if array.dtype.kind not in "biuf" and array.dtype != BFLOAT16:
            raise TypeError(f"save: {where} is an array of {array.dtype.name}, which no tensor has")
        return arrays.put(array)

    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Tensor):
        found: dict[str, Any] = {KIND: "tensor", "values": put(value.numpy()), "device": value.device.name}
        if (origin := layout_of(value)) != "NHWC":
            found["layout"] = origin
        return {**found, "requires_grad": value.requires_grad, "parameter": isinstance(value, Parameter)}
    if is_masked(value):
        raise TypeError(f"save: {where} {MASKED}")
    if isinstance(value, (np.ndarray, np.generic)):
        return {KIND: "array", "values": put(np.asarray(value)), "scalar": isinstance(value, np.generic)}
    if any(value is part for part in around):
        raise ValueError(f"save: {where} contains itself, so it has no end")
    if len(around) > DEEPEST:
        raise ValueError(f"save: {where[:80]}.. is nested in more than {DEEPEST} others; save a flat list or dict")
    inner = (*around, value)
    if isinstance(value, Mapping):
        items = [
            [_packed(key, f"a key of {where}", arrays, inner), _packed(item, f"{where}[{key!r}]", arrays, inner)]
            for key, item in value.items()
        ]
        layout = {"layout": common_layout(value)} if isinstance(value, StateDict) else {}
        return {KIND: "dict", "items": items, **layout}
    if isinstance(value, (list, tuple, set, frozenset)):
        ordered = value if isinstance(value, (list, tuple)) else sorted(value, key=repr)  # the same in each run
        parts = [_packed(item, f"{where}[{i}]", arrays, inner) for i, item in enumerate(ordered)]
        kind = next(kind for kind in (list, tuple, set, frozenset) if isinstance(value, kind))
        return parts if kind is list else {KIND: kind.__name__, "items": parts}
    if isinstance(value, bytes):
        return {KIND: "bytes", "text": value.decode("latin-1")}
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return {KIND: "dtype", "name": np.dtype(value).name}
    if isinstance(value, Module):
        raise TypeError(f"save: {where} is a {type_name(value)}; save its state_dict(), and load that into a new one")
    raise TypeError(f"save: {where} is a {type_name(value)}, which is neither a tensor nor plain data")


def _on_host(place: Placed) -> Placed:
    """Function that places all tensors of a state dict on the host: a model copies them from there."""
    return lambda _: place("cpu")


def _unpacked(value: Any, arrays: dict[str, Values], place: Placed) -> Any:
    """Value that a part of the JSON stands for. Each array belongs to one part, so it is taken out of `arrays`."""
    if isinstance(value, list):
        return [_unpacked(item, arrays, place) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value[KIND]
    if kind == "tensor":
        if value["device"] not in ("cpu", "cuda"):
            raise ValueError(f"there is no device {value['device']!r}")
        values, device = arrays.pop(value["values"]), place(value["device"])
        made = tensor(values, device=device, requires_grad=value["requires_grad"])
        if value["parameter"]:
            made = Parameter(made, requires_grad=value["requires_grad"])
        unmark(made)
        return mark(made, _layout_named(value["layout"])) if "layout" in value else made
    if kind == "array":
        array = arrays.pop(value["values"])
        return array[()] if value["scalar"] else array
    if kind == "bytes":
        return _of_type(str, value["text"]).encode("latin-1")
    if kind == "dtype":
        name = _of_type(str, value["name"])
        return BFLOAT16 if name == "bfloat16" else np.dtype(name)
    parts = _of_type(list, value["items"])
    if kind != "dict":
        items = [_unpacked(item, arrays, place) for item in parts]
        return filled({"tuple": tuple, "set": set, "frozenset": frozenset}[kind], items)
    place = _on_host(place) if "layout" in value else place
    pairs = [_of_type(list, part) for part in parts]
    items = filled(dict, [(_unpacked(key, arrays, place), _unpacked(item, arrays, place)) for key, item in pairs])
    return StateDict(items, _layout_named(value["layout"])) if "layout" in value else items


def _layout_named(layout: Any) -> str | None:
    if layout not in (*LAYOUTS, None):
        raise ValueError(f"the layout {layout!r:.40} is not one of {LAYOUTS}")
    found: str | None = layout
    return found


def _of_type(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value


# -- PyTorch's --------------------------------------------------------------------------------------------------------


def _of_torch(value: Any, place: Placed) -> Any:
    """The object of a PyTorch file, in which arrays stand for tensors; a dict of arrays alone is a state dict."""
    return with_results(value, lambda array: _of_array(array, place), lambda arrays: StateDict(arrays, "NCHW"))


def _of_array(value: Values, place: Placed) -> Tensor | Values:
    """A tensor, or the array itself if no tensor of Alpha has its dtype: complex numbers, uint64, float8."""
    known = value.dtype.name in DTYPES or value.dtype.name in WIDER
    return mark(tensor(value, device=place("cpu")), "NCHW") if known else value


def save_weights(
    path: str | Path, state_dict: Mapping[str, Tensor | NDArray[Any]], metadata: Mapping[str, object] | None = None
) -> None:
    """Writes a model's `state_dict()` to `path`, with `metadata` as text beside it: lists and dicts as JSON.

    With an entry "network", the `as_option()` of an `alpha.models.Description`, `alpha.models.load` takes the file.
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
    try:
        text = {key: _as_text(value) for key, value in (metadata or {}).items()}
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: the metadata cannot be saved ({error}); nothing was written") from error
    layout = common_layout(state_dict)
    if layout is not None and text.setdefault("layout", layout) != layout:
        raise CheckpointError(f"{path}: the metadata say layout={text['layout']!r}, the weights have {layout!r}")
    try:
        parts = tensor_file(arrays, text)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: the weights cannot be saved ({error}); nothing was written") from error
    write_atomically(Path(path), *parts)


def _as_text(value: object) -> str:
    """An entry of the metadata."""
    return json.dumps(value, default=_as_json) if isinstance(value, (dict, list, tuple)) else str(value)


def _as_json(value: Any) -> Any:
    """A value that JSON has not: of arrays, tensors and numpy's numbers their numbers, of others the text."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic, Tensor)) else str(value)


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
