"""Basics of all readers of files: the kind of a file by its first bytes, and how much memory it may ask for.

A file may be anything: of another program, cut off, or made by someone who means harm. So a reader compares the sizes
that a file declares with those it has before it reads or allocates, and what is packed, or used many times, may
become at most `most_bytes` of memory.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import NamedTuple

EXPANSION = 16  # bytes that a reader makes of a byte of a file ..
ALLOWANCE = 64 << 20  # .. besides these, so that a small file may be packed as well as it can be
START = 512  # bytes that tell what a file is; the first block of a tar archive


def most_bytes(size: int) -> int:
    """The most bytes that a reader makes of a file of `size` bytes."""
    return EXPANSION * size + ALLOWANCE


class Kind(NamedTuple):
    """Kind of a file, in words, and advice for it."""

    what: str
    advice: str


UNPACK = "unpack it, and give the file that is in it"
COPY = "restore a copy, or write it again"
IN_ITS_PROGRAM = "load it in the program that wrote it, and write it by alpha.save"
PICTURE = "alpha.data.ImageFolder reads folders of images"
PICKLE = Kind("a pickle, which runs code when it is read, so Alpha reads none", IN_ITS_PROGRAM)
LFS = Kind("a Git LFS pointer", "it stands for a file that was not fetched; fetch it with git lfs pull")
HTML = Kind(
    "an HTML page",
    "a server sends one in the place of a file that it does not have or does not give; open it in a browser, "
    "and download the file again",
)
XML = Kind(
    "an XML text", "a server may send one in the place of a file that it does not give; read it, and download it again"
)
ZIP = Kind("a zip archive", UNPACK)
OLD_PYTORCH = Kind(
    "a file of PyTorch before 1.6, or of torch.save(.., _use_new_zipfile_serialization=False)",
    "load it in PyTorch, and torch.save it again, for alpha.load",
)
KINDS = {  # from the place and the bytes there; the first that fits
    (8, b'{"'): Kind("a safetensors file", "alpha.load reads it"),
    (0, b"version https://git-lfs.github.com/"): LFS,
    (0, b"version https://hawser.github.com/"): LFS,
    (0, b"/annex/objects/"): Kind("a git-annex pointer", "fetch the file with git annex get"),
    (0, b"\x93NUMPY"): Kind("an array of numpy", "numpy.load reads it"),
    (0, b"PK\x03\x04"): ZIP,
    (0, b"PK\x05\x06"): Kind("a zip archive without files", COPY),
    (0, b"\x1f\x8b"): Kind("a gzip file", UNPACK),
    (0, b"BZh"): Kind("a bzip2 file", UNPACK),
    (0, b"\xfd7zXZ\x00"): Kind("an xz file", UNPACK),
    (0, b"\x28\xb5\x2f\xfd"): Kind("a zstd file", UNPACK),
    (0, b"7z\xbc\xaf\x27\x1c"): Kind("a 7z archive", UNPACK),
    (0, b"Rar!\x1a\x07"): Kind("a rar archive", UNPACK),
    (0, b"\x89HDF\r\n\x1a\n"): Kind("an HDF5 file, as of Keras", IN_ITS_PROGRAM),
    (0, b"GGUF"): Kind("a GGUF file, as of llama.cpp", IN_ITS_PROGRAM),
    (4, b"TFL3"): Kind("a TFLite file", IN_ITS_PROGRAM),
    (0, b"\x89PNG\r\n\x1a\n"): Kind("a PNG image", PICTURE),
    (0, b"\xff\xd8\xff"): Kind("a JPEG image", PICTURE),
    (0, b"GIF8"): Kind("a GIF image", PICTURE),
    (8, b"WEBP"): Kind("a WebP image", PICTURE),
    (0, b"%PDF-"): Kind("a PDF document", COPY),
    (0, b"%!PS"): Kind("a PostScript document", COPY),
    (0, b"\x7fELF"): Kind("a program", COPY),
    (2, b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."): OLD_PYTORCH,  # the number with which its files begin
    **{(0, b"\x80" + bytes([protocol])): PICKLE for protocol in (2, 3, 4, 5)},
    **{(0, start): PICKLE for start in (b"(dp", b"(lp", b"ccopy_reg\n", b"cnumpy", b"ctorch")},
    (0, b"\0\0\x08\x01"): Kind("an IDX file of bytes with one axis", "alpha.data.Mnist reads the labels in it"),
    (0, b"\0\0\x08\x03"): Kind("an IDX file of bytes with three axes", "alpha.data.Mnist reads the images in it"),
}


def kind_of(start: bytes) -> Kind | None:
    """Kind of the file that begins with these bytes (`START` of them, or all it has); None if that is not known."""
    if not start:
        return Kind("empty", COPY)
    for (place, magic), kind in KINDS.items():
        if start.startswith(magic, place):
            return kind
    if _is_tar(start):
        return Kind("a tar archive", UNPACK)
    if not any(start):
        return Kind("a file that begins with zeros only", f"its writer or its download broke off; {COPY}")
    return _text(start)


def _is_tar(start: bytes) -> bool:
    """True if the bytes are the first block of a tar archive, which holds their sum (that sum itself as spaces)."""
    try:
        declared = int(start[148:156].strip(b"\0 "), 8)
    except ValueError:
        return False
    return len(start) >= START and declared == sum(start[:148]) + 8 * ord(" ") + sum(start[156:START])


def _text(start: bytes) -> Kind | None:
    try:
        text = start.decode("utf-8-sig", "strict" if len(start) < START else "ignore")
    except UnicodeDecodeError:
        return None
    words = text.strip().lower()
    if words.startswith(("<!doctype html", "<html", "<head", "<body", "<!--")):
        return HTML
    if words.startswith("<?xml"):
        return HTML if "<html" in words or "html public" in words else XML
    printable = sum(c.isprintable() or c in "\t\r\n\f" for c in text)
    if printable < len(text) or 4 * len(text.encode()) < 3 * len(start):
        return None
    if words.startswith(("{", "[")):
        return Kind("a JSON text", "of a model in several files it is the index; give each of the files that it names")
    return Kind(f"a text, which begins with {text.strip()[:20]!r}", COPY)


def other_kind(path: Path, expected: str = "") -> Kind | None:
    """Kind of a file; None if it is the expected one, or unknown."""
    with path.open("rb") as file:
        kind = kind_of(file.read(START))
    kind = _archive(path) if kind is ZIP else kind
    return kind if kind and kind.what != expected else None


def note(path: Path) -> str:
    """Sentence to put behind a message: what a file is and what to do with it; empty if that is unknown."""
    try:
        kind = other_kind(path)
    except OSError:
        return ""
    return f". It is {kind.what}: {kind.advice}" if kind else ""


def _archive(path: Path) -> Kind:
    """Kind of a zip archive, by the names in it."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return Kind("a zip archive, as of torch.save, that is not whole", COPY)
    if any(name.split("/")[-1] == "data.pkl" for name in names):
        advice = "alpha.load reads it; give the state dict in it to model.load_state_dict"
        return Kind("a file of torch.save, a zip archive", advice)
    return (
        Kind("an archive of numpy's arrays", "numpy.load reads it") if any(n.endswith(".npy") for n in names) else ZIP
    )


def read_member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """The content of a file in an archive.

    Raises:
        ValueError: it has more than `most` bytes, or is packed by a method that may unpack more than it declares;
            nothing was unpacked then.
        KeyError: there is no such file. What zipfile raises of a damaged one goes through.
    """
    member = archive.getinfo(name)
    if member.file_size > most:
        raise ValueError(f"{name} has {member.file_size:,} bytes, expected at most {most:,}")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} is packed by method {member.compress_type}; pack it by deflate, or not at all")
    with archive.open(member) as file:
        data = file.read(member.file_size)  # without a number zipfile unpacks all, however much that is
    if len(data) != member.file_size:
        raise ValueError(f"{name} has {len(data):,} bytes, of which the archive declares {member.file_size:,}")
    return data
