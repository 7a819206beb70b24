"""Opening image files: only by decoders that start no program and read no other file."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from PIL import Image, UnidentifiedImageError

from alpha.errors import DataError

# Pillow's names of formats of pixels. Others hold programs or drawings: Pillow runs Ghostscript for PostScript (EPS).
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")

_NO_IMAGES = {  # how they begin; Pillow knows some of these, too
    b"%!PS": "PostScript, which is a program",
    b"\xc5\xd0\xd3\xc6": "PostScript, which is a program",
    b"%PDF": "a PDF document",
    b"version https://git-lfs": "a pointer of Git LFS; run `git lfs pull`",
    b"<!doctype html": "an HTML page",
    b"<html": "an HTML page",
    b"<svg": "an SVG drawing",
    b"<?xml": "XML, perhaps an SVG drawing",
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "compressed by gzip",
    b"\x93NUMPY": "an array of numpy",
}


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    code: f"\\u{code:04x}" for code in (0x2028, 0x2029)
}


@functools.cache
def formats() -> tuple[str, ...]:
    """Formats of `FORMATS` that this Pillow can read."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


@contextmanager
def opened(source: str | Path | BinaryIO, name: str = "", only: Sequence[str] = ()) -> Iterator[Image.Image]:
    """The image of a file, closed afterwards; it is decoded when its pixels are asked for.

    Args:
        name: of the image in messages, by default the path.
        only: Pillow's names of the formats that are expected, by default all of `FORMATS`.

    Raises:
        DataError: the file has another format, which the message names, or it cannot be decoded, also by what is done
            with the image inside the `with` block.
    """
    name = name or shown(source)
    wanted = tuple(only) or formats()
    try:
        with Image.open(source, formats=wanted) as image:
            yield image
    except UnidentifiedImageError as error:
        raise DataError(f"{name}: cannot be decoded: it is {_kind(source)}; expected {', '.join(wanted)}") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(
            f"{name}: cannot be decoded: {error} If the file is to be trusted, set PIL.Image.MAX_IMAGE_PIXELS higher"
        ) from error
    except Exception as error:  # a decoder may raise anything if a file is damaged
        raise DataError(f"{name}: cannot be decoded: {error or type(error).__name__}") from error


def shown(path: object) -> str:
    """A path or a name as text that can be printed: bytes that are no UTF-8, and controls, become escapes, as \\xff."""
    return str(path).encode(errors="surrogateescape").decode(errors="backslashreplace").translate(_CONTROLS)


def _kind(source: str | Path | BinaryIO) -> str:
    """Description, in words, of a file that has none of the formats."""
    if not isinstance(source, (str, os.PathLike)):
        source.seek(0)
        begin = source.read(64)
    else:
        with Path(source).open("rb") as file:
            begin = file.read(64)
    if not begin:
        return "empty"
    for prefix, kind in _NO_IMAGES.items():
        if begin.lstrip()[: len(prefix)].lower() == prefix.lower():
            return kind
    for kind, (_, accepts) in Image.OPEN.items():
        if kind in formats() and _accepted(accepts, begin):
            return f"a damaged {kind}"
    for kind, (_, accepts) in Image.OPEN.items():
        if _accepted(accepts, begin):
            return f"{kind}, which is not read"
    return "none of the formats that are read"


def _accepted(accepts: Callable[[bytes], bool | str] | None, begin: bytes) -> bool:
    """True if a format of Pillow takes a file for its own by how it begins."""
    try:
        return accepts is not None and accepts(begin[:16]) is True
    except Exception:  # of a file of a few bytes
        return False
