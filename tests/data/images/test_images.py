"""Opening images: no program is started and no other file is read, whatever a file holds and is named."""

from __future__ import annotations

import ast
import io
import os
import re
import struct
import subprocess
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from alpha.data import ImageFolder
from alpha.data.images.image_files import formats, opened
from alpha.errors import DataError

ROOT = Path(__file__).parents[3]
PIXELS = np.arange(12 * 8 * 3, dtype=np.uint8).reshape(12, 8, 3)
BY_HAND = {  # what Pillow reads and does not write, or writes otherwise
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 12\n%%EndComments\n(x) print\n%%EOF\n",
    "WMF": b"\xd7\xcd\xc6\x9a\x00\x00" + bytes(60),
    "FITS": b"SIMPLE  =                    T".ljust(2880),
    "PSD": b"8BPS\0\1" + bytes(60),
}


def written() -> dict[str, bytes]:
    """A file of each format that Pillow knows how to write, and of some others."""
    Image.init()
    found = dict(BY_HAND)
    for name in sorted(set(Image.SAVE) & set(Image.OPEN) - set(found)):
        for mode in ("RGB", "L", "P", "1", "RGBA"):
            file = io.BytesIO()
            try:
                Image.fromarray(PIXELS).convert(mode).save(file, name)
            except (OSError, ValueError, KeyError, TypeError, AttributeError, DeprecationWarning):
                continue
            found[name] = file.getvalue()
            break
    return found


def test_each_format_of_pillow_is_read_or_refused_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*arguments: Any, **options: Any) -> Any:
        raise AssertionError(f"{arguments} is started")

    for owner, name in ((subprocess, "Popen"), (os, "system"), (os, "popen"), (os, "posix_spawn")):
        monkeypatch.setattr(owner, name, started)
    files = written()
    assert len(files) > 20
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "x.jpg"
    for name, content in files.items():
        path.write_bytes(content)
        data = ImageFolder(tmp_path)
        if name in formats():
            assert data[0][0].shape == (12, 8, 3), name
        else:
            with pytest.raises(DataError, match=re.escape(f"{path}: cannot be decoded: it is ")) as error:
                data[0]
            assert "expected " in str(error.value)
    assert {"EPS", "PDF", "PSD", "WMF"}.isdisjoint(formats())
    assert {"BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF"} <= set(formats())


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "empty"),
        (BY_HAND["EPS"], "PostScript, which is a program"),
        (b"%PDF-1.7\n", "a PDF document"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "a pointer of Git LFS; run `git lfs pull`"),
        (b"\n<!DOCTYPE HTML><html>", "an HTML page"),
        (b"PK\x03\x04", "a zip archive"),
        (b"\x89PNG\r\n\x1a\n", "a damaged PNG"),
        (b"DDS " + bytes(12), "DDS, which is not read"),
        (b"\xff\xd8", "none of the formats that are read"),
        (b"no image at all", "none of the formats that are read"),
    ],
)
def test_a_file_that_is_no_image_is_said_to_be_what_it_is(tmp_path: Path, content: bytes, kind: str) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(content)
    for source in (path, str(path), io.BytesIO(content)):
        with pytest.raises(DataError, match=re.escape(f"it is {kind}; expected")), opened(source, only=["PNG"]):
            pass


def test_a_decompression_bomb_is_refused_with_its_size(tmp_path: Path) -> None:
    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    path = tmp_path / "a" / "bomb.png"
    path.parent.mkdir()
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b""))
    with pytest.raises(DataError, match=r"bomb\.png: cannot be decoded: .*3600000000 pixels.*MAX_IMAGE_PIXELS higher"):
        ImageFolder(tmp_path)[0]


@pytest.mark.slow
def test_every_image_is_opened_with_a_list_of_formats() -> None:
    """No code of Alpha, its examples, tests and scripts runs Ghostscript."""
    wrong, found = [], 0
    for folder in ("alpha", "examples", "tests", "datasets"):
        for path in sorted(ROOT.joinpath(folder).glob("**/*.py")):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.Call) and re.search(r"\bImage\.open$", ast.unparse(node.func)):
                    found += 1
                    if "formats" not in [keyword.arg for keyword in node.keywords]:
                        wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
                if isinstance(node, ast.ImportFrom) and node.module == "PIL.Image":
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} imports names of PIL.Image")
    assert found > 2
    assert not wrong, wrong
