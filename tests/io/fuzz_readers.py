"""Damages small valid files of every reader, and counts what becomes of them, under a limit of memory and of time.

    python tests/io/fuzz_readers.py --files 1000        # of each reader
    python tests/io/fuzz_readers.py --reader pth --seed 5 --first 17 --files 1

A file is right if it is read as before or refused by an error of Alpha's. It is a fault if another exception comes
out, if the process may not allocate what it asks for, if it takes more than 0.5 s and 2 s for each MB, or if other
values are read though the file has a checksum. `tests/io/test_reading.py` runs some of each, `make gate` a thousand.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import io
import json
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tarfile
import tempfile
import time
import traceback
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from PIL import Image

import alpha
from alpha import nn
from alpha.data import Cifar10, Cifar10Sample, Cifar100, PackedImages, mnist
from alpha.data.cifar import cifar10, cifar100, sample
from alpha.data.images import packed_file
from alpha.io.reading import ALLOWANCE
from alpha.ops.conv2d.select.tune import TuningCache
from alpha.train import Run, load_weights, save_weights
from alpha.train.files.state_file import save_state

SLACK = 32 << 20  # of memory: stacks of threads, and pages that Python keeps
SECONDS, SECONDS_A_MB = 0.5, 2.0
HANG = 30  # seconds of the clock


class Subject(NamedTuple):
    """A reader: makes a valid file, and reads one; whether other values may come out of a damaged one."""

    name: str
    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    checked: bool
    around: Callable[[Path], contextlib.AbstractContextManager[Any]] = lambda folder: contextlib.nullcontext()
    wrap: Callable[[bytes], bytes] = lambda data: data  # the file of what was damaged
    damage: Callable[[bytes, random.Random], bytes] = lambda data, draw: damaged(data, draw)


RANDOM = np.random.default_rng(0)
WEIGHTS = {
    "conv.weight": RANDOM.standard_normal((2, 3, 3, 2)).astype(np.float32),
    "bn.bias": np.arange(3, dtype=np.float64),
    "half": np.arange(4).astype(alpha.bfloat16),
    "step": np.array(7),
    "mask": np.array([True, False]),
}
PLAIN = {"epoch": 3, ("a", 1): [1.5, None, b"\x00\xff"], "set": {1, 2}, "w": WEIGHTS["conv.weight"]}


def pickled(tensors: list[tuple[str, str, str, int, tuple[int, ...]]]) -> bytes:
    """Bytes that `torch.save` writes of a dict of contiguous tensors: name, storage, dtype, elements, shape."""

    def text(value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    def sizes(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(b"J" + struct.pack("<i", n) for n in values) + b"t"

    parts = [b"\x80\x02}q\x00("]
    for name, key, storage, count, shape in tensors:
        strides = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
        parts += [text(name), b"ctorch._utils\n_rebuild_tensor_v2\nq\x01((", text("storage")]
        parts += [
            b"ctorch\n",
            storage.encode(),
            b"\n",
            text(key),
            text("cpu"),
            b"J",
            struct.pack("<i", count),
            b"tQK\x00",
        ]
        parts += [sizes(shape), sizes(strides), b"\x89ccollections\nOrderedDict\n)RtRq\x02"]
    plain = [b"K\x01J\x00\x01\x00\x00", b"G?\xf8", bytes(6), b"\x8a\x09", bytes(8), b"\x01"]  # 1, 256, 1.5, 2**64
    return b"".join([*parts, text("plain"), b"](", *plain, b"eu."])


DATA_PKL = pickled([("w", "0", "FloatStorage", 6, (2, 3)), ("n", "1", "LongStorage", 2, (2,))])


def archive(data_pkl: bytes, compression: int = zipfile.ZIP_STORED, **storages: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as file:
        file.writestr("archive/data.pkl", data_pkl)
        file.writestr("archive/byteorder", b"little")
        for key, data in storages.items():
            file.writestr(f"archive/data/{key.removeprefix('_')}", data)
    return stream.getvalue()


STORAGES = {"_0": np.arange(6, dtype=np.float32).tobytes(), "_1": np.arange(2).tobytes()}


def without_checksum(data: bytes) -> bytes:
    """The file as an older version wrote it."""
    length = int.from_bytes(data[:8], "little")
    header = re.sub(rb'"alpha.checksum":"[^"]*",?', b"", data[8 : 8 + length])
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def old(write: Callable[[Path], None]) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        write(path)
        path.write_bytes(without_checksum(path.read_bytes()))

    return make


def make_checkpoint(path: Path) -> None:
    trainer = {"epoch": 2, "model": WEIGHTS, "optimizer": {"0": {"m": WEIGHTS["conv.weight"]}}}
    save_state(path, {"options": {"lr": 0.1}, "history": [], "trained": None, "trainer": trainer})


def resume(path: Path) -> Any:
    run = Run.resume(path.parent)
    run.close()
    return run.options, run._state, run.history.rows


IDX = b"\0\0\x08\x03" + struct.pack(">3I", 3, 5, 4) + bytes(range(60))


def records(length: int, labels: int) -> bytes:
    """Two records, each of so many bytes of labels and of pixels."""
    return b"".join(bytes(i * 7 % 251 if i >= labels else i + r for i in range(length)) for r in range(2))


@contextlib.contextmanager
def small_cifar10(folder: Path) -> Iterator[None]:
    data = records(cifar10._RECORD, 1)
    files = {"data_batch_1.bin": hashlib.md5(data).hexdigest()}
    with mock.patch.multiple(cifar10, _RECORDS=2, _FILE_SIZE=len(data), TRAIN_FILES=files, TEST_FILES={}):
        yield


@contextlib.contextmanager
def small_cifar100(folder: Path) -> Iterator[None]:
    (folder / "fine_label_names.txt").write_text("\n".join(f"name{i}" for i in range(100)))
    with mock.patch.object(cifar100, "_FILES", {True: ("train.bin", 2)}):
        yield


def make_sample(path: Path) -> None:
    stream = io.BytesIO()
    Image.fromarray(RANDOM.integers(0, 255, (320, 32, 3), np.uint8)).save(stream, "WEBP", lossless=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("train/labels", bytes(range(10)))
        file.writestr("train/000.webp", stream.getvalue())


@contextlib.contextmanager
def small_sample(folder: Path) -> Iterator[None]:
    images, labels = sample._decode(folder / "sample.zip", sample.Split("train", 1, ""))
    with mock.patch.object(sample, "TRAIN", sample.Split("train", 1, sample.digest(images, labels))):
        yield


def make_packed(path: Path) -> None:
    for number, label in enumerate("aab"):
        (path.parent / "photos" / label).mkdir(parents=True, exist_ok=True)
        pixels = RANDOM.integers(0, 255, (5, 4, 3), np.uint8)
        Image.fromarray(pixels).save(path.parent / "photos" / label / f"{number}.png")
    PackedImages(path.parent / "photos", 4, path, workers=1)


def read_packed(path: Path) -> Any:
    found = PackedImages.load(path, check=True)
    return found.images, found.labels, found.classes, found.skipped, found.decoder


def sealed(data: bytes, draw: random.Random) -> bytes:
    """A packed file whose sizes or list are damaged, with the checksums of what they are then."""
    size = packed_file._START.size
    begin = packed_file._START.unpack(data[:size])[4]
    start, rest = data[:size], data[begin:]
    if draw.random() < 0.5:
        start = damaged(start, draw)[:size].ljust(size, b"\0")
    else:
        rest = damaged(rest, draw)
        start = start[:40] + struct.pack("<Q", len(rest)) + start[48:]  # the size of the list, as it is
    start = start[:-4] + struct.pack("<I", zlib.crc32(rest))
    return start + struct.pack("<I", zlib.crc32(start)) + data[size + 4 : begin] + rest


def make_tar(path: Path) -> None:
    with tarfile.open(path, "w:gz") as file:
        for name in ("cifar-10-batches-bin/readme.html", "cifar-10-batches-bin/data_batch_1.bin"):
            member = tarfile.TarInfo(name)
            member.size = 3000
            file.addfile(member, io.BytesIO(bytes(i % 251 for i in range(3000))))


def unpack(path: Path) -> Any:
    target = path.parent / "unpacked"
    shutil.rmtree(target, ignore_errors=True)
    with mock.patch.object(cifar10, "download"):
        copy = path.parent / "copy.tar.gz"
        copy.write_bytes(path.read_bytes())
        cifar10.fetch_cifar10(target, cifar10.Remote("https://x/copy.tar.gz", 0, ""))
    return {file.name: file.read_bytes() for file in target.iterdir()}


def read_tuned(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return TuningCache(path, {})._known
        except RuntimeWarning as warning:
            raise alpha.errors.DataError(str(warning)) from None


def pair(cls: Callable[..., Any]) -> Callable[[Path], Any]:
    def read(path: Path) -> Any:
        found = cls(path.parent)
        return found.images, found.labels

    return read


def subjects() -> list[Subject]:
    def weights(path: Path) -> None:
        save_weights(path, WEIGHTS, {"epoch": 3})

    def saved(path: Path) -> None:
        alpha.save(PLAIN, path)

    def writes(data: bytes) -> Callable[[Path], None]:
        return lambda path: path.write_bytes(data) and None

    tuned = json.dumps({"facts": {}, "milliseconds": {"a shape": {"row": 0.5, "other": 0.25}}}).encode()
    return [
        Subject("saved.pt", saved, alpha.load, True),
        Subject("weights.safetensors", weights, load_weights, True),
        Subject("checkpoint.safetensors", make_checkpoint, resume, True),
        Subject("older.pt", old(saved), alpha.load, False),
        Subject("older.safetensors", old(weights), alpha.load, False),
        Subject("stored.pth", writes(archive(DATA_PKL, **STORAGES)), alpha.load, True),
        Subject("packed.pth", writes(archive(DATA_PKL, zipfile.ZIP_DEFLATED, **STORAGES)), alpha.load, True),
        Subject("pickle.pth", writes(DATA_PKL), alpha.load, False, wrap=lambda data: archive(data, **STORAGES)),
        Subject(
            "programs.pth",
            writes(DATA_PKL),
            alpha.load,
            False,
            wrap=lambda data: archive(data, **STORAGES),
            damage=program,
        ),
        Subject("train-images-idx3-ubyte", writes(IDX), lambda path: mnist.read_idx(path, 3), False),
        Subject("images.gz", writes(gzip.compress(IDX)), lambda path: mnist.read_idx(path.with_suffix(""), 3), True),
        Subject("data_batch_1.bin", writes(records(cifar10._RECORD, 1)), pair(Cifar10), True, small_cifar10),
        Subject("train.bin", writes(records(cifar100._RECORD, 2)), pair(Cifar100), False, small_cifar100),
        Subject("sample.zip", make_sample, lambda path: pair(lambda _: Cifar10Sample(path))(path), True, small_sample),
        Subject("archive.tar.gz", make_tar, unpack, False, small_cifar10),
        Subject("packed.alpha", make_packed, read_packed, True),
        Subject("sealed.alpha", make_packed, read_packed, False, damage=sealed),
        Subject("tuned.json", writes(tuned), read_tuned, False),
        *([Subject("network.onnx", writes(network()), read_network, False)] if find_spec("onnx") else []),
    ]


def network() -> bytes:
    """Bytes of a small convolutional network."""
    layers = [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2, 2)]
    found: bytes = alpha.onnx.export(nn.Sequential(*layers), alpha.ones(1, 4, 4, 1)).SerializeToString()
    return found


def read_network(path: Path) -> Any:
    return {name: value.numpy() for name, value in alpha.onnx.load(path).named_tensors()}


def facts(value: Any) -> Any:
    """Facts of a value that are compared."""
    if isinstance(value, alpha.Tensor):
        return "tensor", facts(value.numpy())
    if isinstance(value, (np.ndarray, np.generic)):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, dict):
        return type(value).__name__, [(repr(key), facts(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [facts(item) for item in value]
    return repr(value)


NUMBERS = (0, 1, 127, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def damaged(data: bytes, draw: random.Random) -> bytes:
    """The file with one fault, or with some."""
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        place, other = draw.randrange(len(found) + 1), draw.randrange(len(found) + 1)
        start, stop = min(place, other), min(max(place, other), min(place, other) + 64)
        kind = draw.randrange(9)
        if kind <= 1 and found:
            found[place - 1] ^= 1 << draw.randrange(8)
        elif kind == 2:
            del found[place:]
        elif kind == 3:
            number, width = draw.choice(NUMBERS), draw.choice((1, 2, 4, 8))
            text = (number % (1 << 8 * width)).to_bytes(width, draw.choice(("little", "big")))
            found[place : place + width] = text
        elif kind == 4:  # a piece once more, elsewhere
            found[other:other] = found[start:stop] * draw.choice((1, 1, 50))
        elif kind == 5:
            del found[start:stop]
        elif kind == 6:
            found[start:stop] = bytes(stop - start)
        elif kind == 7:  # a number of a text
            numbers = list(re.finditer(rb"\d+", found))
            if numbers:
                number_at = draw.choice(numbers)
                new = draw.choice(
                    (b"-1", b"1e400", b"NaN", b"true", b"[" * 3000, b"9" * 5000, str(draw.choice(NUMBERS)).encode())
                )
                found[number_at.start() : number_at.end()] = new
        else:
            found += draw.choice((b"\0", data, draw.randbytes(30)))
    return bytes(found)


def program(_: bytes, draw: random.Random) -> bytes:
    """A pickle of random instructions, many of which use what others made."""
    names = (b"collections\nOrderedDict\n", b"builtins\nset\n", b"torch\nSize\n", b"_codecs\nencode\n", b"os\nsystem\n")
    makes: list[Callable[[], bytes]] = [
        lambda: draw.choice((b"N", b"\x88", b"]", b"}", b"\x8f", b")", b"K\x05", b"U\x01a", b"\x8c\x01a", b"C\x01a")),
        lambda: b"h" + bytes([draw.randrange(8)]),
        lambda: b"h" + bytes([draw.randrange(8)]),
        lambda: b"q" + bytes([draw.randrange(8)]),
        lambda: draw.choice((b"\x85", b"\x86", b"\x87", b"a", b"s", b"R", b"b", b"0", b"Q", b"\x94")),
        lambda: (
            b"("
            + (b"h" + bytes([draw.randrange(8)])) * draw.choice((2, 10, 100))
            + draw.choice((b"t", b"e", b"u", b"\x90", b"\x91"))
        ),
        lambda: b"c" + draw.choice(names),
        lambda: draw.choice((b"\x8e", b"\x8d", b"\x96", b"\x95")) + struct.pack("<Q", draw.choice(NUMBERS)),
        lambda: draw.choice((b"\x8b", b"B", b"X", b"j", b"r")) + struct.pack("<I", draw.choice(NUMBERS) % (1 << 32)),
    ]
    if draw.random() < 0.5:  # tuples of tuples and lists, each many times, under keys
        steps = [draw.choice((b")", b")", b"K\x01", b"]")) + b"q" + bytes([i]) + b"0" for i in range(8)]
        for _ in range(draw.choice((5, 60, 300))):
            parts = b"(" + (b"h" + bytes([draw.randrange(8)])) * draw.choice((1, 10, 100))
            into = b"q" + bytes([draw.randrange(8)]) + b"0"
            of_keys = (
                b"}" + parts + b"tNsq\x080",
                b"cbuiltins\nset\n" + parts + b"t\x85Rq\x080",
                b"cbuiltins\nfrozenset\n" + parts + b"t\x85R" + into,
            )
            steps.append(draw.choice((parts + b"t" + into, parts + b"t" + into, b"]" + parts + b"e" + into, *of_keys)))
        return b"\x80\x04" + b"".join(steps) + b"h\x00."
    weights = (8, 8, 8, 8, 4, 8, 1, 0.1, 0.1)
    begin = b"".join(draw.choice((b"]", b"}", b")", b"\x8f", b"K\x01")) + b"q" + bytes([i]) for i in range(8))
    steps = draw.choices(makes, weights, k=draw.choice((5, 20, 60, 300)))
    return b"\x80\x04" + begin + b"".join(step() for step in steps) + b"."


def run_one(subject: Subject, folder: Path, expected: Any, data: bytes) -> str:
    """Outcome of a file: "equal", "different" or "refused"; or a fault, said in words."""
    (folder / subject.name).write_bytes(data)
    began = time.process_time()
    signal.alarm(HANG)
    try:
        found = facts(subject.read(folder / subject.name))
        result = "equal" if found == expected else "different"
    except alpha.errors.AlphaError as error:
        result = "refused" if "MemoryError" not in str(error) else f"fault: no memory: {error}"
    except BaseException as error:  # whatever else comes out
        where = traceback.extract_tb(error.__traceback__)[-1]
        result = f"fault: {type(error).__name__}: {error!s:.200} ({Path(where.filename).name}:{where.lineno})"
    finally:
        signal.alarm(0)
    seconds = time.process_time() - began
    if seconds > SECONDS + SECONDS_A_MB * len(data) / 1e6:
        result = f"fault: {seconds:.1f} s for {len(data):,} bytes"
    if result == "different" and subject.checked:
        result = "fault: other values were read"
    return result


def limit_memory() -> None:
    """Limit the memory of this process, from here on, to the readers' allowance."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    wanted = used + ALLOWANCE + SLACK
    resource.setrlimit(resource.RLIMIT_AS, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100, help="of each reader")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", default="", help="a part of the names of the readers to try; all by default")
    options = parser.parse_args(arguments)

    def hang(*_: object) -> None:
        raise TimeoutError(f"no end after {HANG} s")

    signal.signal(signal.SIGALRM, hang)
    wrong = 0
    print(f"{'file':24} {'equal':>7} {'different':>9} {'refused':>7} {'faults':>6} {'seconds':>7}")
    for subject in subjects():
        if options.reader not in subject.name:
            continue
        counts = dict.fromkeys(("equal", "different", "refused", "faults"), 0)
        faults, began = [], time.perf_counter()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            subject.make(folder / subject.name)
            whole = (folder / subject.name).read_bytes()
            with subject.around(folder):
                (folder / subject.name).write_bytes(subject.wrap(whole))
                expected = facts(subject.read(folder / subject.name))
                limit_memory()
                for number in range(options.first, options.first + options.files):
                    data = subject.damage(whole, random.Random(f"{options.seed} {subject.name} {number}"))
                    print(f"\r{subject.name} {number}", end="\r", file=sys.stderr, flush=True)
                    result = "equal" if data == whole else run_one(subject, folder, expected, subject.wrap(data))
                    counts[result if result in counts else "faults"] += 1
                    if result not in counts:
                        faults.append(
                            f"  --reader {subject.name} --seed {options.seed} --first {number} --files 1: {result}"
                        )
        values = " ".join(f"{counts[key]:>{width}}" for key, width in zip(counts, (7, 9, 7, 6), strict=True))
        print(
            f"{subject.name:24} {values} {time.perf_counter() - began:7.1f}", *faults[:20], sep="\n" if faults else ""
        )
        wrong += counts["faults"]
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
