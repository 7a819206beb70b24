"""Safetensors files: arrays by name and a text for each key of the metadata (https://huggingface.co/docs/safetensors).

A file is the length of its header, the header, which is JSON, and the numbers of the arrays without gaps. One that
Alpha writes has a checksum of all its other bytes in the metadata, so a flipped bit anywhere is found when it is
read. Other programs read such a file as any other, and files without a checksum are read, too.
"""

from __future__ import annotations

import json
import math
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np
import numpy.typing as npt

from alpha.errors import CheckpointError
from alpha.io.reading import other_kind

Values = npt.NDArray[Any]
DTYPES: dict[str, np.dtype[Any]] = {
    **{
        f"{kind}{8 * n}": np.dtype(f"{kind.lower()}{n}")
        for kind in "FIU"
        for n in (8, 4, 2, 1)
        if kind + str(n) != "F1"
    },
    "BOOL": np.dtype(bool),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "C64": np.dtype("complex64"),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
METADATA = "__metadata__"
CHECKSUM = "alpha.checksum"  # of the metadata
_SUM = re.compile("alpha-crc32:[0-9a-f]{8}")  # its form, which tells it if its key is damaged
_UNKNOWN = "alpha-crc32:00000000"  # what stands in its place while the sum is taken
LONGEST_HEADER = 100_000_000  # bytes; safetensors' own limit
_MOST_AXES = 32  # of numpy 1; safetensors has no limit
_CHUNK = 1 << 24


def tensor_file(arrays: Mapping[str, Values], metadata: Mapping[str, str]) -> list[bytes | memoryview]:
    """The parts of a file, one after the other; the same arrays and metadata always make the same bytes.

    Raises:
        TypeError, ValueError: a name, a dtype or the length of the header is not one of safetensors.
    """
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))  # so that all numbers are aligned
    header: dict[str, Any] = {METADATA: {CHECKSUM: _UNKNOWN, **dict(sorted(metadata.items()))}}
    header[METADATA][CHECKSUM] = _UNKNOWN
    data, place = [], 0
    for name in names:
        array = np.asarray(arrays[name], order="C")
        array = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
        if not isinstance(name, str) or name == METADATA:
            raise TypeError(f"{name!r} cannot be the name of an array")
        if array.dtype not in NAMES:
            raise TypeError(f"{name!r} is {array.dtype.name}, a dtype that safetensors has not")
        offsets = [place, place + array.nbytes]
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": offsets}
        data.append(array.reshape(-1).view(np.uint8).data)
        place += array.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > LONGEST_HEADER:
        raise ValueError(
            f"names and plain data take {len(text):,} bytes, in a safetensors file at most {LONGEST_HEADER:,}; save "
            "long lists of numbers as tensors"
        )
    length = len(text).to_bytes(8, "little")
    found = zlib.crc32(text, zlib.crc32(length))
    for part in data:
        found = zlib.crc32(part, found)
    return [length, text.replace(_UNKNOWN.encode(), _of_sum(found), 1), *data]


def read_tensor_file(path: Path, name: str) -> tuple[dict[str, Values], dict[str, str]]:
    """The arrays of a file, in the order of their names, and its metadata without the checksum.

    Args:
        path: of a regular file.
        name: what errors call it.

    Raises:
        CheckpointError: it is another kind of file, it is not whole, its checksum is another one, or it has a dtype
            that numpy has not. No more is read, or allocated, than the file has.
    """
    try:
        with path.open("rb") as file:
            return _read(file, os.fstat(file.fileno()).st_size, name)
    except CheckpointError:
        raise
    except _Other as error:
        kind = other_kind(path, "a safetensors file")
        found = f"is {kind.what}; {kind.advice}" if kind else f"not a whole safetensors file ({error}); {_ADVICE}"
        raise CheckpointError(f"{name}: {found}") from error
    except OSError as error:
        raise CheckpointError(f"{name}: cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{name}: not a whole safetensors file ({_short(error)}); {_ADVICE}") from error


_ADVICE = "it is damaged or cut off, or of a kind that Alpha does not read: restore a copy, or write it again"


class _Other(Exception):
    """The first bytes are not those of a safetensors file."""


def _short(error: Exception) -> str:
    return "its header is nested too deeply" if isinstance(error, RecursionError) else f"{error!s:.200}"


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dict of pairs, for JSON; ValueError if a key comes twice, of which one value would be lost."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one dict")
    return found


def _read(file: BinaryIO, size: int, name: str) -> tuple[dict[str, Values], dict[str, str]]:
    head = file.read(8)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or length > LONGEST_HEADER or length > size - 8:
        raise _Other(f"it has {size:,} bytes, of which its first eight declare {length:,} for the header")
    text = file.read(length)
    if not text.startswith(b"{"):
        raise _Other("its header does not begin with '{'")
    header = json.loads(text.decode(), object_pairs_hook=unique)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("its metadata are not texts by their keys")
    sums = [value for key, value in metadata.items() if key == CHECKSUM or _SUM.fullmatch(value)]
    metadata.pop(CHECKSUM, None)
    found = zlib.crc32(text.replace(sums[0].encode(), _UNKNOWN.encode(), 1), zlib.crc32(head)) if sums else None
    arrays = {}
    for key, dtype, shape in _checked(header, size - 8 - length, name):
        array = arrays[key] = np.empty(shape, dtype)
        found = _fill(file, array, found)
        if dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
            raise ValueError(f"{key!r:.80} holds bytes that are neither True nor False")
    if found is not None and sums[0].encode() != _of_sum(found):
        raise CheckpointError(
            f"{name}: is damaged: its checksum is {sums[0]!r:.40}, its content has {_of_sum(found).decode()!r}; "
            f"restore a copy. A program that changes the file on purpose has to leave out {CHECKSUM!r} of its metadata"
        )
    return dict(sorted(arrays.items())), metadata


def _checked(header: dict[str, Any], size: int, name: str) -> list[tuple[str, np.dtype[Any], tuple[int, ...]]]:
    """The name, dtype and shape of each array, in the order of their numbers, which are `size` bytes."""
    found = []
    for key, entry in header.items():
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"{key!r:.80} has no dtype, shape and data_offsets")
        shape, offsets = entry["shape"], entry["data_offsets"]
        for numbers in (shape, offsets):
            if not isinstance(numbers, list) or not all(type(n) is int and 0 <= n < 1 << 63 for n in numbers):
                raise ValueError(f"{key!r:.80} has sizes {numbers!r:.80}, which are not whole numbers of 63 bits")
        if len(offsets) != 2 or len(shape) > _MOST_AXES:
            raise ValueError(
                f"{key!r:.80} has {len(shape)} axes and {len(offsets)} offsets, of at most {_MOST_AXES} and 2"
            )
        if not isinstance(entry["dtype"], str) or entry["dtype"] not in DTYPES:
            known = ", ".join(DTYPES)
            raise CheckpointError(
                f"{name}: {key!r:.80} has the dtype {entry['dtype']!r:.40}, which Alpha does not read; it reads {known}"
            )
        dtype = DTYPES[entry["dtype"]]
        if offsets[1] - offsets[0] != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{key!r:.80} of shape {shape} and {dtype.name} has {offsets[1] - offsets[0]:,} bytes")
        found.append((*offsets, key, dtype, tuple(shape)))
    place = 0
    for start, stop, key, _, _ in sorted(found, key=lambda entry: entry[:2]):
        if start != place:
            raise ValueError(f"{key!r:.80} begins at byte {start:,} of the data, expected {place:,}")
        place = stop
    if place != size:
        raise ValueError(f"the header declares {place:,} bytes of data, the file has {size:,}")
    return [entry[2:] for entry in sorted(found, key=lambda entry: entry[:2])]


def _fill(file: BinaryIO, array: Values, checksum: int | None) -> int | None:
    """Reads the numbers of an array, and returns the checksum with them."""
    data = memoryview(array.reshape(-1).view(np.uint8).data)
    for start in range(0, len(data), _CHUNK):
        part = data[start : start + _CHUNK]
        if file.readinto(part) != len(part):  # type: ignore[attr-defined]
            raise ValueError("it became shorter while it was read")
        checksum = None if checksum is None else zlib.crc32(part, checksum)
    return checksum


def _of_sum(value: int) -> bytes:
    return f"alpha-crc32:{value:08x}".encode()
