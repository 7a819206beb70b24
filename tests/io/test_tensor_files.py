"""Safetensors files: other programs' and Alpha's are the same, and a flipped bit is found."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from trials import trials

import alpha
from alpha import CheckpointError, Tensor
from alpha.io.tensor_files import CHECKSUM, DTYPES, read_tensor_file, tensor_file
from alpha.module.state_dict import StateDict
from alpha.train import load_metadata, load_weights, save_weights
from alpha.train.files.state_file import load_state, save_state

ARRAYS = {name: (1 + np.arange(6)).reshape(2, 3).astype(dtype) for name, dtype in DTYPES.items()}
METADATA = {"b": "2", "a": 'x"\\\u00e9'}


def write(path: Path, arrays: Any, metadata: Any) -> Path:
    path.write_bytes(b"".join(tensor_file(arrays, metadata)))
    return path


def test_every_dtype_and_shape_comes_back(tmp_path: Path) -> None:
    arrays = {
        **ARRAYS,
        "scalar": np.array(2.5),
        "none": np.zeros((2, 0, 3), np.int8),
        "turned": np.arange(6.0).reshape(2, 3).T,
    }
    arrays["other order"] = np.arange(3, dtype=">i4")
    found, metadata = read_tensor_file(write(tmp_path / "x", arrays, METADATA), "x")
    assert metadata == METADATA
    assert list(found) == sorted(arrays)
    for name, array in arrays.items():
        assert (found[name].dtype.newbyteorder("="), found[name].shape) == (
            array.dtype.newbyteorder("="),
            array.shape,
        ), name
        np.testing.assert_array_equal(found[name], array, err_msg=name)
        assert found[name].flags.writeable
        assert found[name].flags.owndata or array.ndim != 2


def test_other_programs_read_alphas_files_and_alpha_theirs(tmp_path: Path) -> None:
    plain = {name: array for name, array in ARRAYS.items() if array.dtype.isbuiltin == 1 and name != "C64"}
    theirs = load_file(write(tmp_path / "ours", plain, METADATA))
    with safe_open(tmp_path / "ours", framework="np") as file:
        metadata = file.metadata()
    assert {name: value for name, value in metadata.items() if name != CHECKSUM} == METADATA
    save_file(plain, tmp_path / "theirs", metadata=METADATA)
    ours, metadata = read_tensor_file(tmp_path / "theirs", "x")
    assert metadata == METADATA
    assert set(theirs) == set(ours) == set(plain)
    for name, array in plain.items():
        for found in (theirs[name], ours[name]):
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, array)


def test_a_program_that_keeps_the_checksum_is_told(tmp_path: Path) -> None:
    with safe_open(write(tmp_path / "x", {"w": np.ones(3)}, {}), framework="np") as file:
        metadata = file.metadata()
    save_file({"w": np.zeros(3)}, tmp_path / "x", metadata=metadata)
    with pytest.raises(CheckpointError, match=r"x: is damaged: its checksum is .* has to leave out 'alpha.checksum'"):
        load_weights(tmp_path / "x")


def writers(folder: Path) -> dict[str, Any]:
    """Each kind of file with a checksum: how it is written, and read."""
    values = {"w": np.arange(3, dtype=np.float32), "b": np.array([True])}
    state = {"lr": 0.1, "model": values}
    return {
        "smallest": (lambda path: save_weights(path, {"w": np.ones(1, np.uint8)}), load_weights),
        "saved": (lambda path: alpha.save({"x": alpha.ones(2), (1, "a"): [None]}, path), alpha.load),
        "weights": (lambda path: save_weights(path, StateDict(values, "NHWC"), {"epoch": 1}), load_weights),
        "metadata": (lambda path: save_weights(path, values, {"epoch": 1}), load_metadata),
        "state": (lambda path: save_state(path, state), load_state),
    }


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with trials() as trial:
        for name, (write_file, read) in writers(tmp_path).items():
            write_file(path)
            whole = path.read_bytes()
            read(path)
            for bit in range(0, 8 * len(whole), 1 if name == "smallest" else 31):
                changed = bytearray(whole)
                changed[bit // 8] ^= 1 << bit % 8
                path.write_bytes(changed)
                with trial(name, bit), pytest.raises(CheckpointError):
                    read(path)


def test_files_without_a_checksum_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for name, (write_file, read) in writers(tmp_path).items():
        write_file(path)
        expected = read(path)
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header, count = re.subn(rb'"alpha.checksum":"[^"]*",?', b"", data[8 : 8 + length])
        assert count == 1
        path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])
        assert str(read(path)) == str(expected), name


def test_a_checksum_that_is_handed_on_is_not_kept(tmp_path: Path) -> None:
    save_weights(tmp_path / "x", {"w": np.ones(3)}, {"epoch": 1})
    metadata = load_metadata(tmp_path / "x")
    assert metadata == {"epoch": "1"}
    save_weights(tmp_path / "y", {"w": np.zeros(3)}, {**metadata, CHECKSUM: "alpha-crc32:12345678"})
    assert load_metadata(tmp_path / "y") == metadata


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"shape": [3]}, "of shape .3. and float32 has 8 bytes"),
        ({"shape": [2, True]}, "which are not whole numbers"),
        ({"shape": [-2]}, "which are not whole numbers"),
        ({"shape": [2.0]}, "which are not whole numbers"),
        ({"shape": [float("nan")]}, "which are not whole numbers"),
        ({"shape": [1 << 64]}, "which are not whole numbers"),
        ({"shape": 2}, "which are not whole numbers"),
        ({"shape": [1] * 40 + [2]}, "has 41 axes"),
        ({"data_offsets": [0, 8, 8]}, "and 3 offsets"),
        ({"data_offsets": [8, 0]}, "has -8 bytes"),
        ({"data_offsets": [1, 9]}, "begins at byte 1 of the data, expected 0"),
        ({"more": 1}, "has no dtype, shape and data_offsets"),
        ({"dtype": "F4"}, "has the dtype 'F4', which Alpha does not read"),
        ({"dtype": []}, "has the dtype .*, which Alpha does not read"),
    ],
)
def test_sizes_that_lie(tmp_path: Path, entry: dict[str, Any], message: str) -> None:
    header = json.dumps({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **entry}}).encode()
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(CheckpointError, match=message):
        load_weights(tmp_path / "x")


def test_a_key_that_stands_twice_and_bytes_that_are_no_bool(tmp_path: Path) -> None:
    entry = b'{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}'
    for header, message in (
        (b'{"x":%b,"x":%b}' % (entry, entry), "stands twice"),
        (b'{"x":%b}' % entry, "neither True"),
    ):
        (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header + b"\1\2")
        with pytest.raises(CheckpointError, match=message):
            load_weights(tmp_path / "x")


def test_names_and_texts_that_no_file_can_have() -> None:
    for arrays, metadata, message in (
        ({"__metadata__": np.ones(1)}, {}, "cannot be the name of an array"),
        ({"x": np.array(["a"])}, {}, "a dtype that safetensors has not"),
        ({}, {"x": "a" * 100_000_000}, "take 100,000,[0-9]* bytes, in a safetensors file at most 100,000,000"),
        ({"\ud800": np.ones(1)}, {}, "surrogates"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            tensor_file(arrays, metadata)


def test_tensors_of_other_programs_are_tensors(tmp_path: Path, device: str) -> None:
    wider = {"F16": "float32", "I8": "int32", "I16": "int32", "U16": "int32", "U32": "int64"}
    found = alpha.load(write(tmp_path / "x", ARRAYS, {}), map_location=device)
    assert isinstance(found, StateDict)
    for name, value in found.items():
        alone = name in ("U64", "C64") or name.startswith("F8")  # which no tensor has
        assert isinstance(value, np.ndarray if alone else Tensor), name
        assert str(value.dtype) == wider.get(name, DTYPES[name].name), name
        np.testing.assert_array_equal(
            np.asarray(value if alone else value.numpy()).astype(complex), ARRAYS[name].astype(complex)
        )
        assert alone or value.device.name == device
    assert found["BF16"].numpy().dtype == ml_dtypes.bfloat16
