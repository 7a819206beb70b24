"""Decoding of image files: at reduced scale, and the same pixels and errors by either decoder of JPEGs."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

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


def turned(image: Image.Image, orientation: int) -> Image.Image:
    """The picture as a camera stores it: `orientation` says how to bring it back."""
    rows, columns = np.meshgrid(np.arange(image.height), np.arange(image.width), indexing="ij")
    last_row, last_column = image.height - 1, image.width - 1
    stored = {  # EXIF: where row 0 and column 0 of what is stored belong: top left, top right, ..
        1: lambda: (rows, columns),
        2: lambda: (rows, last_column - columns),
        3: lambda: (last_row - rows, last_column - columns),
        4: lambda: (last_row - rows, columns),
        5: lambda: (rows.T, columns.T),
        6: lambda: (rows.T, last_column - columns.T),
        7: lambda: (last_row - rows.T, last_column - columns.T),
        8: lambda: (last_row - rows.T, columns.T),
    }
    return Image.fromarray(np.asarray(image)[stored[orientation]()])


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_photos_are_turned_upright(tmp_path: Path, format_: str, orientation: int) -> None:
    """Each decoder turns them, from a path, a file and an image that is open, as a whole and divided by 2 and 4."""
    upright = picture(120, 200)
    options: dict[str, Any] = {"JPEG": {"quality": 98, "subsampling": 0}, "WEBP": {"lossless": True}}.get(format_, {})
    exif = Image.Exif()
    exif[0x0112] = orientation
    path, straight = tmp_path / "turned", tmp_path / "upright"
    turned(upright, orientation).save(path, format_, exif=exif, **options)
    upright.save(straight, format_, **options)
    most = 0.0 if format_ != "JPEG" else 2.5  # blocks of a JPEG lie in another way
    names = ["Pillow"] if importlib.util.find_spec("simplejpeg") is None else list(decoding.DECODERS)
    for decoder in [Decoder("test", name) for name in names]:
        for size in (None, (120, 200), (60, 50), (30, 40)):
            found, expected = (np.asarray(decoder(str(p), size), float) for p in (path, straight))
            assert found.shape == expected.shape
            assert np.abs(found - expected).mean() <= most
            with path.open("rb") as file:
                np.testing.assert_array_equal(np.asarray(PILLOW(file, size, "a"), float), found)
    with Image.open(path, formats=[format_]) as photo:
        np.testing.assert_array_equal(decoding.in_colour(photo), PILLOW(str(path), None))
        for made in (photo.convert("RGB"), ImageOps.exif_transpose(photo)):
            np.testing.assert_array_equal(decoding.in_colour(made), PILLOW(str(path), None))


@pytest.mark.filterwarnings("ignore:.*EXIF:UserWarning")  # Pillow says it
@pytest.mark.parametrize(
    "exif", [b"", b"Exif\0\0", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff", b"Exif\0\0no data of this kind"]
)
def test_broken_exif_data_are_passed_over(tmp_path: Path, exif: bytes) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg(picture(90, 120), exif=exif))
    plain = tmp_path / "b.jpg"
    plain.write_bytes(jpeg(picture(90, 120)))
    for size in (None, (30, 30)):
        np.testing.assert_array_equal(Decoder("test")(str(path), size), PILLOW(str(plain), size))


@pytest.mark.parametrize("most", [0.25, 1.0, 1.5, 255.0])
def test_gray_images_of_floats(tmp_path: Path, most: float) -> None:
    """Floats up to 1 are shares of white; others are those of 8 bits."""
    values = np.linspace(0, most, 12, dtype=np.float32).reshape(3, 4)
    path = tmp_path / "a.tif"
    Image.fromarray(values).save(path)
    found = np.asarray(PILLOW(str(path), None))
    expected = np.rint(values * 255) if most <= 1 else np.trunc(values)
    np.testing.assert_array_equal(found, np.repeat(expected.astype(np.uint8)[..., None], 3, -1))


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_an_open_image_has_the_pixels_of_its_file(tmp_path: Path, kind: Any) -> None:
    values = np.linspace(0, np.iinfo(kind).max, 24).astype(kind).reshape(4, 6)
    path = tmp_path / "a.png"
    Image.fromarray(values).save(path)
    with Image.open(path, formats=["PNG"]) as photo:
        np.testing.assert_array_equal(decoding.in_colour(photo), PILLOW(str(path), None))
    np.testing.assert_array_equal(decoding.in_colour(Image.fromarray(values)), PILLOW(str(path), None))
