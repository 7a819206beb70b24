"""Decoding of image files: at reduced scale, and the same pixels and errors by either decoder of JPEGs."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from alpha.data import ImageFolder
from alpha.data.images import decoding
from alpha.data.images.decoding import Decoder, each, reduction
from alpha.errors import DataError

PILLOW = Decoder("test", "Pillow")


def picture(height: int, width: int, seed: int = 0) -> Image.Image:
    """A picture with edges and noise, in RGB."""
    rng = np.random.default_rng(seed)
    rows, columns = np.meshgrid(np.linspace(0, 9, height), np.linspace(0, 7, width), indexing="ij")
    pixels = (
        128 + 60 * np.sign(np.sin(rows * columns))[..., None] * [1, -1, 0.5] + rng.normal(0, 12, (height, width, 3))
    )
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def jpeg(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def outcome(decoder: Decoder, path: Path, size: Any) -> tuple[Any, ...]:
    try:
        image = decoder(str(path), size)
    except DataError as error:
        return ("refused", str(error))
    return image.size, image.tobytes()


@pytest.mark.parametrize(
    ("whole", "size", "by"),
    [
        ((375, 500), (160, 160), 2),
        ((375, 500), (187, 250), 2),
        ((375, 500), (188, 20), 1),  # 375 / 2 is less
        ((375, 500), (93, 93), 4),
        ((375, 500), (46, 46), 8),
        ((375, 500), (1, 1), 8),
        ((100, 1000), (100, 100), 1),
        ((10, 1000), (1, 1), 1),
        ((64, 64), (90, 90), 1),
    ],
)
def test_an_image_is_divided_as_far_as_it_covers_the_size(whole: Any, size: Any, by: int) -> None:
    assert reduction(whole, size) == by
    assert by == 1 or all(length // by >= least for length, least in zip(whole, size, strict=True))


def test_a_reduced_image_is_that_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same part of a smooth picture is shown, also where its sides are no multiples of the reduction."""
    path = tmp_path / "a.jpg"
    for height, width in ((375, 500), (333, 499), (97, 131)):
        rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
        pixels = 127 + 120 * np.stack([np.sin(rows / 30), np.sin(columns / 30), np.sin((rows + columns) / 40)], -1)
        Image.fromarray(pixels.astype(np.uint8)).save(path, quality=98, subsampling=0)
        for size in ((40, 60), (height // 2, width // 2), (11, 17)):
            reduced = np.asarray(PILLOW(str(path), size), float)
            assert reduction((height, width), size) > 1
            with monkeypatch.context() as patch:
                patch.setattr(decoding, "reduction", lambda whole, size: 1)
                expected = np.asarray(PILLOW(str(path), size), float)
            assert np.abs(reduced - expected).mean() < 0.7
            for axis in (0, 1):  # a part of a pixel beside it would be seen
                assert np.abs(np.diff(expected, axis=axis)).mean() > 1.4


def test_the_wanted_size_is_decoded_without_another_filter(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg(picture(128, 192)))
    with Image.open(path, formats=["JPEG"]) as image:
        image.draft(None, (96, 64))  # type: ignore[arg-type]
        np.testing.assert_array_equal(PILLOW(str(path), (64, 96)), image)


KINDS: dict[str, Any] = {
    "plain": lambda: jpeg(picture(90, 120)),
    "4:4:4": lambda: jpeg(picture(91, 121), subsampling=0, quality=98),
    "4:2:2": lambda: jpeg(picture(77, 50), subsampling=1, quality=40),
    "progressive": lambda: jpeg(picture(64, 64), progressive=True),
    "restarts": lambda: jpeg(picture(100, 60), restart_marker_blocks=3),
    "gray": lambda: jpeg(picture(60, 80).convert("L")),
    "RGB": lambda: jpeg(picture(60, 80), keep_rgb=True, subsampling=0),
    "CMYK": lambda: jpeg(picture(60, 80).convert("CMYK")),
    "tiny": lambda: jpeg(picture(3, 2)),
    "narrow": lambda: jpeg(picture(120, 9)),
    "cut off": lambda: jpeg(picture(90, 120))[:2000],
    "without an end": lambda: jpeg(picture(90, 120))[:-2],
    "flipped": lambda: jpeg(picture(90, 120))[:3000] + b"\xff\xd9\x13\x00" + jpeg(picture(90, 120))[3004:],
    "words before it": lambda: b"\xff\xd8\xff" + b"no image at all",
    "another format": lambda: b"P6 4 3 255\n" + bytes(range(36)),
    "empty": lambda: b"",
}


@pytest.mark.parametrize("kind", KINDS)
def test_both_decoders_give_the_same(tmp_path: Path, kind: str) -> None:
    """The same pixels, bit for bit, and the same words of what is refused."""
    if importlib.util.find_spec("simplejpeg") is None:
        pytest.skip("needs simplejpeg")
    path = tmp_path / "a.jpg"
    path.write_bytes(KINDS[kind]())
    fast = Decoder("test", "simplejpeg")
    for size in (None, (32, 32), (20, 33), (7, 5), (1, 1), (200, 100)):
        assert outcome(fast, path, size) == outcome(PILLOW, path, size)
    taken = fast._fast(str(path), (7, 5)) is not None
    assert taken == (list(KINDS).index(kind) < list(KINDS).index("CMYK") or kind in ("tiny", "narrow"))


class Noted:
    """Something in the place of simplejpeg, which notes what it is asked for."""

    def __init__(self, size: tuple[int, int] = (90, 120), colors: str = "YCbCr") -> None:
        self.size, self.colors = size, colors
        self.decoded: list[dict[str, int]] = []

    def decode_jpeg_header(self, content: bytes) -> tuple[int, int, str, str]:
        return *self.size, self.colors, "420"

    def decode_jpeg(self, content: bytes, colors: str, **least: int) -> np.ndarray:
        self.decoded.append(least)
        return np.full((least.get("min_height", self.size[0]), least.get("min_width", self.size[1]), 3), 77, np.uint8)


def test_what_the_fast_decoder_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg(picture(90, 120)))

    def pixels(package: Noted, size: Any = None) -> np.ndarray:
        monkeypatch.setattr(decoding, "_simplejpeg", lambda: package)
        return np.asarray(Decoder("test")(str(path), size))

    package = Noted()
    assert (pixels(package) == 77).all()
    assert (pixels(package, (20, 20)) == 77).all()
    assert package.decoded == [{}, {"min_height": 23, "min_width": 30}]
    expected = np.asarray(PILLOW(str(path), None))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 90 * 120)
    bomb, other = Noted((90, 121)), Noted(colors="CMYK")
    for refused in (bomb, other):
        np.testing.assert_array_equal(pixels(refused), expected)
        assert not refused.decoded
    path.write_bytes(b"P6 4 3 255\n" + bytes(range(36)))  # never given to a decoder of JPEGs
    assert pixels(package).shape == (3, 4, 3)
    assert len(package.decoded) == 2


def test_the_choice_of_a_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.jpg").write_bytes(jpeg(picture(40, 40)))
    with pytest.raises(DataError, match="ImageFolder: decoder is 'gif', expected None or 'simplejpeg' or 'Pillow'"):
        ImageFolder(tmp_path, decoder="gif")
    monkeypatch.setattr(decoding, "_simplejpeg", lambda: None)
    with pytest.raises(DataError, match=r"decoder='simplejpeg', which is not installed; pip install .*\[images\]"):
        ImageFolder(tmp_path, decoder="simplejpeg")
    assert ImageFolder(tmp_path)[0][0].shape == (40, 40, 3)


def test_results_of_threads_come_in_order_and_not_far_ahead() -> None:
    begun: list[int] = []

    def work(index: int) -> int:
        begun.append(index)
        return index * index

    results = each(work, 1000, 2)
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    assert len(begun) <= 8 * decoding.CHUNK
    results.close()
    assert list(each(work, 21, 3)) == [index * index for index in range(21)]
    assert list(each(work, 0, 3)) == []
