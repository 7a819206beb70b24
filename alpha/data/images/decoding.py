"""Pixels of image files: JPEGs at reduced scale and by the fast decoder if it is there, and cut to a size."""

from __future__ import annotations

import functools
import importlib
import io
import os
import struct
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, TypeVar

import numpy as np
import PIL
from PIL import Image

from alpha.data.images.image_files import opened
from alpha.errors import DataError
from alpha.installation import install

Size = tuple[int, int]  # height, width
T = TypeVar("T")

DECODERS = ("simplejpeg", "Pillow")
REDUCTIONS = (8, 4, 2, 1)  # of the scales that libjpeg-turbo knows, those that Pillow asks for
CHUNK = 8  # images that a thread decodes at once
ORIENTATION = 0x0112  # a tag of EXIF
TURNS = {  # by its value, 1 if the image is upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
QUARTERS = (TURNS[5], TURNS[6], TURNS[7], TURNS[8])  # which exchange height and width
_SAY_TURN = b"Exif\0\0", b"tiff:Orientation"  # in a JPEG that may have one
_JPEG = b"\xff\xd8\xff"
_MOST_BYTES = 1 << 28  # of a file that is read at once; a larger one is left to Pillow, which reads a part at a time


@functools.cache
def _simplejpeg() -> Any:
    """The package simplejpeg, or None if it is not installed."""
    try:
        return importlib.import_module("simplejpeg")
    except ImportError:
        return None


class Decoder:
    """Decodes image files to RGB: JPEGs by simplejpeg or by Pillow, and all other formats by Pillow.

    Images are turned upright, as the orientation in their EXIF data says, which cameras and phones write.

    Both use libjpeg-turbo in the same way, so the pixels are the same bit for bit. What simplejpeg refuses, or what it
    would convert in another way than Pillow, is given to Pillow, so the same files are refused, with the same errors.

    Args:
        owner: the class in whose name errors are raised.
        name: "simplejpeg" or "Pillow"; None takes simplejpeg if it is installed.

    Raises:
        DataError: there is no such decoder, or it is not installed.
    """

    def __init__(self, owner: str, name: str | None = None) -> None:
        if name not in (None, *DECODERS):
            raise DataError(f"{owner}: decoder is {name!r}, expected None or {' or '.join(map(repr, DECODERS))}")
        if name == "simplejpeg" and _simplejpeg() is None:
            raise DataError(f"{owner}: decoder='simplejpeg', which is not installed; {install('images')}")
        self.name = name or ("Pillow" if _simplejpeg() is None else "simplejpeg")

    @property
    def version(self) -> str:
        """The packages that decode, with their versions."""
        packages = [f"simplejpeg {_simplejpeg().__version__}"] if self.name == "simplejpeg" else []
        return ", ".join([*packages, f"Pillow {PIL.__version__}"])

    def __call__(self, source: str | BinaryIO, size: Size | None, name: str = "") -> Image.Image:
        """The image of a file in RGB; if a size is given, the middle of the image, which is scaled to just cover it.

        Args:
            source: the path of the file, or the file.
            name: of the image in messages, by default the path.

        Raises:
            DataError: the file cannot be decoded; the message names it.
        """
        found = self._fast(source, size) if self.name == "simplejpeg" and isinstance(source, str) else None
        if found is None:
            with opened(source, name) as file:
                whole, by = (file.height, file.width), 1
                if size is not None and file.format in ("JPEG", "MPO"):
                    lying = _as_stored(size, _turn(file))
                    if (by := reduction(whole, lying)) > 1:
                        file.draft(None, (lying[1], lying[0]))
                image = _rgb(file)
                if by == 1:
                    whole = image.height, image.width  # that of a TIFF which Pillow has turned is another one now
                found = _turned(image, whole, by, _turn(file))
        return found[0] if size is None else _covering(*found, size)

    def _fast(self, path: str, size: Size | None) -> tuple[Image.Image, Size, int] | None:
        """The image, the size of the whole of it, and by what it was divided; None for what is to be left to Pillow."""
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                if file.read(len(_JPEG)) != _JPEG or os.fstat(file.fileno()).st_size > _MOST_BYTES:
                    return None
                file.seek(0)
                content = file.read()
        except OSError:
            return None  # Pillow meets the same error, and says it
        package = _simplejpeg()
        try:
            height, width, colors, _ = package.decode_jpeg_header(content)
            limit = Image.MAX_IMAGE_PIXELS
            if colors not in ("YCbCr", "RGB", "Gray") or (limit is not None and height * width > limit):
                return None
            turn = None
            if any(name in content for name in _SAY_TURN):
                with Image.open(io.BytesIO(content), formats=["JPEG"]) as file:
                    turn = _turn(file)
            by = 1 if size is None else reduction((height, width), _as_stored(size, turn))
            reduced = -(-height // by), -(-width // by)
            least = {} if by == 1 else {"min_height": reduced[0], "min_width": reduced[1]}
            pixels = package.decode_jpeg(content, "RGB", **least)
        except Exception:  # also where the file is damaged in a way that Pillow passes over
            return None
        if pixels.shape != (*reduced, 3):
            return None
        return _turned(Image.fromarray(pixels), (height, width), by, turn)


def reduction(whole: Size, size: Size) -> int:
    """The largest of 8, 4, 2 and 1 by which an image may be divided, so that it is nowhere smaller than `size`.

    It is 1 for images of less than 16 rows or columns, for which libjpeg-turbo has several scales of the same size.
    """
    if min(whole) < 16:
        return 1
    return next((by for by in REDUCTIONS if whole[0] // by >= size[0] and whole[1] // by >= size[1]), 1)


def _turn(file: Image.Image) -> Image.Transpose | None:
    """The turn that brings the pixels of an image upright, as its EXIF data says; None if they are.

    Pillow turns those of a TIFF by itself.
    """
    if file.format == "TIFF":
        return None
    try:
        return TURNS.get(file.getexif().get(ORIENTATION, 1))
    except (OSError, SyntaxError, TypeError, ValueError, UserWarning, struct.error):  # the pixels may be whole
        return None


def _as_stored(size: Size, turn: Image.Transpose | None) -> Size:
    """The size of an image before a turn, of the one behind it."""
    return size[::-1] if turn in QUARTERS else size


def _turned(image: Image.Image, whole: Size, by: int, turn: Image.Transpose | None) -> tuple[Image.Image, Size, int]:
    """An image upright, the size of the whole of it, and by what it was divided."""
    return (image, whole, by) if turn is None else (image.transpose(turn), _as_stored(whole, turn), by)


def in_colour(photo: Image.Image) -> Image.Image:
    """An image that a program has opened, as `Decoder` gives that of its file: upright, in RGB."""
    image = _rgb(photo)
    turn = _turn(photo)
    return image if turn is None else image.transpose(turn)


def _rgb(file: Image.Image) -> Image.Image:
    """The image in RGB; of gray ones of 16 bits the upper 8, as Pillow keeps them of coloured ones.

    Gray floats up to 1 are shares of white, and larger ones, up to 255, are as those of 8 bits.
    """
    if file.mode == "F" or file.mode.startswith("I"):  # which Pillow would cut off at 255
        values = np.asarray(file)
        if file.mode.startswith("I;16") or file.format in ("PNG", "PPM"):
            return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
        if not (values.min() >= 0 and values.max() <= 255):
            raise ValueError(
                f"its pixels have 32 bits, from {values.min()} to {values.max()}; only 0 to 255 can be shown in 8 bits"
            )
        if file.mode == "F" and values.max() <= 1:
            return Image.fromarray(np.rint(values * 255).astype(np.uint8)).convert("RGB")
    return file.convert("RGB")


def covering(image: Image.Image, size: Size) -> Image.Image:
    """The middle of an image that is in memory, scaled to just cover a size."""
    return _covering(image, (image.height, image.width), 1, size)


def _covering(image: Image.Image, whole: Size, by: int, size: Size) -> Image.Image:
    """The middle of an image, scaled to just cover a size; `whole` is its size before it was divided by `by`."""
    (height, width), (h, w) = size, whole
    if image.size == (width, height):
        return image
    scale = max(width / w, height / h)
    left, top = max(0.0, (w - width / scale) / 2), max(0.0, (h - height / scale) / 2)  # of the part that is shown
    box = (left / by, top / by, (w - left) / by, (h - top) / by)
    return image.resize((width, height), Image.Resampling.BILINEAR, box=box, reducing_gap=3.0)


def each(function: Callable[[int], T], count: int, workers: int) -> Iterator[T]:
    """The results of `function` for 0, 1, .., count - 1, in order, which several threads make.

    They are a few chunks ahead of what is taken, and no more, so any number of images fits in memory.
    """

    def chunk(begin: int) -> list[T]:
        return [function(index) for index in range(begin, min(begin + CHUNK, count))]

    waiting: deque[Future[list[T]]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="images") as pool:
        try:
            for begin in range(0, count, CHUNK):
                waiting.append(pool.submit(chunk, begin))
                if len(waiting) > 2 * workers:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
