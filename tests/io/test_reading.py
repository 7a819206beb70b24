"""Files that are not what they seem: named for what they are, refused at a bounded cost, never taken for whole."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import child
import numpy as np
import pytest
from trials import trials

import alpha
from alpha.data import Cifar10, Cifar100, Mnist
from alpha.errors import AlphaError
from alpha.io.reading import START, kind_of, most_bytes, read_member
from alpha.io.tensor_files import tensor_file
from alpha.train import Run, load_metadata, load_weights

FUZZ = Path(__file__).with_name("fuzz_readers.py")


def tar(form: int) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as file:
        file.addfile(tarfile.TarInfo("weights"), io.BytesIO())
    data = bytearray(stream.getvalue())
    if form == tarfile.USTAR_FORMAT:  # as before POSIX: without the word ustar
        data[257:265] = bytes(8)
        data[148:156] = b"%06o\0 " % (sum(data[:148]) + 8 * 32 + sum(data[156:512]))
    return bytes(data)


def zipped(*names: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name in names:
            file.writestr(name, b"x")
    return stream.getvalue()


def numpy_file() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.arange(3))
    return stream.getvalue()


OTHERS = {
    b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n": "a Git LFS pointer.*git lfs pull",
    b"<!DOCTYPE html>\n<html><body>404</body></html>": "an HTML page.*download the file again",
    b"\xef\xbb\xbf\n <HTML><head>" + b" " * 600: "an HTML page",
    b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>': "an XML text",
    tar(tarfile.USTAR_FORMAT): "a tar archive.*unpack it",
    tar(tarfile.GNU_FORMAT): "a tar archive",
    tar(tarfile.PAX_FORMAT): "a tar archive",
    gzip.compress(b"x" * 99): "a gzip file.*unpack it",
    b"BZh91AY&SY": "a bzip2 file",
    b"\xfd7zXZ\x00\x00\x04": "an xz file",
    b"\x28\xb5\x2f\xfd\x04\x00": "a zstd file",
    zipped("readme.txt"): "a zip archive.*unpack it",
    zipped("a.npy"): "an archive of numpy's arrays.*numpy.load",
    zipped("readme.txt")[:-30]: "a zip archive, as of torch.save, that is not whole",
    numpy_file(): "an array of numpy.*numpy.load",
    **{pickle.dumps([1] * 9, protocol): "a pickle, which runs code" for protocol in (0, 2, 3, 4, 5)},
    b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.": "a file of PyTorch before 1.6.*torch.save it again",
    b"\x89PNG\r\n\x1a\n" + bytes(99): "a PNG image",
    b"\xff\xd8\xff\xe0" + bytes(99): "a JPEG image",
    b"\x89HDF\r\n\x1a\n" + bytes(99): "an HDF5 file",
    b"GGUF\x03\x00\x00\x00" + bytes(99): "a GGUF file",
    b'{"metadata": {"total_size": 5}, "weight_map": {}}': "a JSON text.*index",
    b"epoch,seconds\n1,2\n": "a text, which begins with 'epoch,seconds",
    bytes(5000): "a file that begins with zeros only",
    b"": "empty",
}


def readers(folder: Path, data: bytes) -> dict[str, Callable[[], Any]]:
    """Every reader of a file, each of which finds this one."""
    names = [
        "w",
        "checkpoint.safetensors",
        "train-images-idx3-ubyte",
        "data_batch_1.bin",
        "train.bin",
        "cifar10-sample.zip",
    ]
    for name in names:
        (folder / name).write_bytes(data)
    (folder / "fine_label_names.txt").write_text("x")
    return {
        "load": lambda: alpha.load(folder / "w"),
        "load of an open file": lambda: alpha.load(io.BytesIO(data)),
        "load_weights": lambda: load_weights(folder / "w"),
        "load_metadata": lambda: load_metadata(folder / "w"),
        "resume": lambda: Run.resume(folder),
        "Mnist": lambda: Mnist(folder),
        "Cifar10": lambda: Cifar10(folder),
        "Cifar100": lambda: Cifar100(folder),
        "Cifar10Sample": lambda: alpha.data.Cifar10Sample(folder / "cifar10-sample.zip"),
    }


def test_files_of_other_kinds_are_named_by_every_reader(tmp_path: Path) -> None:
    with trials() as trial:
        for data, message in OTHERS.items():
            for name, read in readers(tmp_path, data).items():
                if name == "Cifar10Sample" and data[:2] == b"PK":
                    continue  # a zip archive is what it needs
                with trial(data[:20], name), pytest.raises(AlphaError, match=f"(?i)is {message}"):
                    read()


def test_what_is_packed_is_unpacked_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(AlphaError, match=r"Not a gzipped file.* It is a Git LFS pointer"):
        Mnist(tmp_path)


def test_a_file_of_weights_is_no_other_kind() -> None:
    for count in range(1, 3000):  # whose header has any length, which is what the file begins with
        kind = kind_of(b"".join(tensor_file({"x" * count: np.ones(1)}, {}))[:START])
        assert kind is not None
        assert kind.what == "a safetensors file"


def test_a_member_of_an_archive_costs_what_it_declares(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("zeros", bytes(1 << 20))
    path.write_bytes(lying(path.read_bytes(), 10))
    with zipfile.ZipFile(path) as file, pytest.raises(zipfile.BadZipFile):
        read_member(file, "zeros", 100)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as file:
        file.writestr("zeros", bytes(10))
    with (
        zipfile.ZipFile(path) as file,
        pytest.raises(ValueError, match="zeros is packed by method 14; pack it by deflate"),
    ):
        read_member(file, "zeros", 100)


# -- what a file may cost: each of these is small, and would need gigabytes, or hours ----------------------------------

P2, P4 = b"\x80\x02", b"\x80\x04"
PRIME = (1 << 61) - 1  # Python's hash of a whole number is its rest


def text(value: bytes) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value


def tensor(count: int, shape: tuple[int, ...], stride: tuple[int, ...] = (1,), offset: int = 0) -> bytes:
    """The pickle of a tensor of float32, of a storage of so many numbers."""

    def number(n: int) -> bytes:
        return b"\x8a\x10" + n.to_bytes(16, "little", signed=True)

    def sizes(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(map(number, values)) + b"t"

    storage = b"(" + text(b"storage") + b"ctorch\nFloatStorage\n" + text(b"0") + text(b"cpu") + number(count) + b"tQ"
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset) + sizes(shape) + sizes(stride) + b"\x89)tR"
    )


def nested(begin: bytes, end: bytes) -> bytes:
    """A part that is ten times in another, which is ten times in another .. sixty deep."""
    first = b")q\x00"
    return first + b"".join(begin + b"(" + (b"h" + bytes([i])) * 10 + end + b"q" + bytes([i + 1]) for i in range(60))


def archive(pickled: bytes, storage: bytes = b"", compression: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression, compresslevel=1) as file:
        file.writestr("a/data.pkl", pickled)
        file.writestr("a/data/0", storage)
    return stream.getvalue()


def lying(archive: bytes, size: int) -> bytes:
    """The archive, whose directory says that its last file has that size."""
    data, at = bytearray(archive), archive.rfind(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", size)
    return bytes(data)


def safetensors(header: Any, data: bytes = b"") -> bytes:
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + data


def saved(value: str, **arrays: Any) -> bytes:
    return safetensors({**arrays, "__metadata__": {"alpha.object": value}}, bytes(1 << 20 if arrays else 0))


def gzipped_idx(length: int, declared: int) -> bytes:
    return gzip.compress(b"\0\0\x08\x03" + struct.pack(">3I", declared, 1, 1) + bytes(length), compresslevel=1)


MILLION = 1 << 20
NUMBERS = b"(" + b"K\x01" * 50_000 + b"tq\x01"
COLLIDING = [(k * PRIME).to_bytes(11, "little") for k in range(30_000)]
ONE = {"dtype": "U8", "shape": [MILLION], "data_offsets": [0, MILLION]}
TENSOR = {"$": "tensor", "values": "0", "device": "cpu", "parameter": False, "requires_grad": False}
COSTLY: dict[str, Callable[[], bytes]] = {
    "a storage that is larger than its tensor": lambda: archive(P2 + tensor(4, (4,)) + b".", bytes(100 * MILLION), 8),
    "a storage that is packed well": lambda: archive(
        P2 + tensor(25 * MILLION, (25 * MILLION,)) + b".", bytes(100 * MILLION), 8
    ),
    "a storage that unpacks to more than it declares": lambda: lying(
        archive(P2 + tensor(4, (4,)) + b".", bytes(100 * MILLION), 8), 16
    ),
    "a storage that is not there": lambda: archive(P2 + tensor(1 << 50, (1 << 50,)) + b"."),
    "tensors that share a storage": lambda: archive(
        P2 + b"(" + tensor(MILLION // 4, (MILLION // 4,)) * 3000 + b"t.", bytes(MILLION)
    ),
    "a tensor that repeats a number": lambda: archive(P2 + tensor(1, (1 << 40,), (0,)) + b".", bytes(4)),
    "a tensor of many axes": lambda: archive(P2 + tensor(1, (1,) * 90, (1,) * 90) + b".", bytes(4)),
    "a tensor beyond its storage": lambda: archive(P2 + tensor(4, (2, 2), (1 << 62, 1)) + b".", bytes(16)),
    "a tensor before its storage": lambda: archive(P2 + tensor(4, (2,), (1,), -1) + b".", bytes(16)),
    "a tensor backwards": lambda: archive(P2 + tensor(4, (2,), (-1,), 3) + b".", bytes(16)),
    "a tensor of no numbers": lambda: archive(P2 + tensor(4, (0, 1 << 62, 1 << 62), (1, 1, 1)) + b".", bytes(16)),
    "tuples in tuples": lambda: archive(P2 + nested(b"", b"t") + b"."),
    "lists in lists": lambda: archive(P2 + nested(b"]", b"e") + b"."),
    "tuples in tuples as a key of a dict": lambda: archive(P2 + nested(b"", b"t") + b"0}h\x3cNs."),
    "tuples in tuples in a set": lambda: archive(P4 + nested(b"", b"t") + b"0\x8f(h\x3c\x90."),
    "frozensets in frozensets": lambda: archive(P4 + nested(b"", b"t").replace(b"t", b"\x91") + b"0}h\x3cNs."),
    **{
        f"{op!r} with a length that lies": lambda op=op, form=form: archive(  # type: ignore[misc]
            b"\x80\x05" + op + struct.pack(form, 1 << 30) + b"abc."
        )
        for op, form in zip((b"\x96", b"\x8e", b"\x8d", b"\x95", b"\x8b", b"B", b"X"), "QQQQiII", strict=True)
    },
    "a size of many numbers, many times": lambda: archive(
        P2 + NUMBERS + b"ctorch\nSize\nq\x02(" + b"h\x02h\x01\x85R" * 50_000 + b"t."
    ),
    "a set of many numbers, many times": lambda: archive(
        P2 + NUMBERS + b"cbuiltins\nset\nq\x02(" + b"h\x02h\x01\x85R" * 50_000 + b"t."
    ),
    "a text to bytes, many times": lambda: archive(
        P2 + text(b"a" * MILLION) + b"q\x01" + text(b"latin1") + b"q\x02c_codecs\nencode\nq\x03("
        b"" + b"h\x03h\x01h\x02\x86R" * 50_000 + b"t."
    ),
    "a long number as a key, many times": lambda: archive(
        P2 + b"\x8b" + struct.pack("<i", MILLION) + b"\x7f" * MILLION + b"q\x01}" + b"h\x01Ns" * 50_000 + b"."
    ),
    "a number of many digits": lambda: archive(P2 + b"L" + b"9" * MILLION + b"L\n."),
    "a size of many digits": lambda: archive(
        P2
        + tensor(1, (1,)).replace(b"\x8a\x10\x01" + bytes(15), b"\x8b" + struct.pack("<i", MILLION) + b"\x7f" * MILLION)
    ),
    "keys that collide": lambda: archive(P2 + b"}(" + b"".join(b"\x8a\x0b" + k + b"N" for k in COLLIDING) + b"u."),
    "keys that collide, one by one": lambda: archive(
        P2 + b"}" + b"".join(b"\x8a\x0b" + k + b"Ns" for k in COLLIDING) + b"."
    ),
    "marks": lambda: archive(P2 + b"(" * MILLION + b"."),
    "lists in lists, deep": lambda: archive(P2 + b"]" * 100_000 + b"a" * 99_999 + b"."),
    "JSON that is deep": lambda: saved("[" * 100_000 + "]" * 100_000),
    "JSON of keys that collide": lambda: saved(
        json.dumps({"$": "dict", "items": [[k * PRIME, None] for k in range(30_000)]})
    ),
    "JSON that names an array many times": lambda: saved(json.dumps([TENSOR] * 5000), **{"0": ONE}),
    "JSON of a header": lambda: safetensors(b'{"a":[' + b"[]," * 300_000 + b"[]]}"),
    "a header that is longer than the file": lambda: safetensors(b"{}")[8:] and struct.pack("<Q", 1 << 40) + b"{}",
    "an array that is larger than the file": lambda: safetensors(
        {"a": {"dtype": "U8", "shape": [1 << 40], "data_offsets": [0, 1 << 40]}}
    ),
    "an array of no numbers": lambda: safetensors(
        {"a": {"dtype": "U8", "shape": [0, 1 << 62, 1 << 62], "data_offsets": [0, 0]}}
    ),
    "arrays that share their numbers": lambda: safetensors({str(i): ONE for i in range(3000)}, bytes(MILLION)),
    "gz: packed well": lambda: gzipped_idx(100 * MILLION, 100 * MILLION),
    "gz: with more than it declares": lambda: gzipped_idx(100 * MILLION, 9),
}
READ = """
import sys, time
sys.path[:0] = ["tests/io", "tests/support"]
from pathlib import Path
import test_reading as cases
from fuzz_readers import limit_memory
from alpha.data import mnist
files = {name: make() for name, make in cases.COSTLY.items()}
path = Path(sys.argv[1])
limit_memory()
for name, data in files.items():
    path.write_bytes(data)
    began = time.process_time()
    try:
        mnist.read_idx(path.with_suffix(""), 3) if name.startswith("gz") else cases.alpha.load(path)
    except cases.AlphaError as error:
        assert "MemoryError" not in str(error), (name, error)
    seconds = time.process_time() - began
    assert seconds < 0.5 + 2 * len(data) / 1e6, f"{name}: {seconds:.1f} s for {len(data):,} bytes"
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_small_files_cost_little(tmp_path: Path) -> None:
    command = [sys.executable, "-c", READ, str(tmp_path / "file.gz")]
    run = child.run(command, cwd=FUZZ.parents[2])
    assert run.returncode == 0, run.stderr[-2000:]


def fuzz(*options: str) -> None:
    command = [sys.executable, str(FUZZ), *options]
    run = child.run(command, cwd=FUZZ.parents[2])
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr[-500:]}"  # which name the seed and the numbers of the files


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_damaged_files_of_every_reader() -> None:
    fuzz("--files", "25")


@pytest.mark.gate
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
@pytest.mark.parametrize("seed", ["1"])
def test_a_thousand_damaged_files_of_every_reader(seed: str) -> None:
    fuzz("--files", "1000", "--seed", seed)


def test_the_bound_is_the_one_that_is_written() -> None:
    page = (FUZZ.parents[2] / "docs" / "data.md").read_text()
    assert most_bytes(0) == 64 << 20
    assert most_bytes(10) - most_bytes(0) == 160
    assert "16 bytes for each byte of the file, and 64 MiB" in page
