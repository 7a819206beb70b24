"""Downloads a known file: with progress, resumed after a break, checked before it gets its name."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from alpha.errors import DataError
from alpha.io.reading import note
from alpha.runtime.progress import bar as progress_bar

_CHUNK = 1 << 16
_TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True)
class Remote:
    """A file on a server: its address, its bytes and their sha256."""

    url: str
    size: int
    sha256: str


def download(remote: Remote, path: Path) -> None:
    """Fetches `remote` to `path`, which appears only whole and verified.

    What has arrived is kept in `<path>.part`. A broken transfer is resumed (HTTP Range) as long as
    each try brings more bytes than the last, and by the next call. Raises DataError with the
    address and the reason; a full disk or a folder that cannot be written is an OSError.
    """
    part = path.with_name(path.name + ".part")
    best = -1
    while (have := _size(part)) < remote.size:
        if have <= best:
            raise DataError(
                f"{remote.url}: the transfer broke off, {have:,} of {remote.size:,} bytes are in "
                f"{part}; run again to resume{note(part)}"
            )
        best = have
        _transfer(remote, part, have)
    found = _sha256(part)
    if found != remote.sha256:
        what = note(part)
        part.unlink()
        raise DataError(
            f"{remote.url}: sha256 is {found}, expected {remote.sha256}; {part} was removed, run again{what}"
        )
    part.replace(path)


def _transfer(remote: Remote, part: Path, have: int) -> None:
    """Appends what one connection brings; returns at its end, or where it breaks."""
    request = urllib.request.Request(remote.url, headers={"User-Agent": "alpha"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        raise DataError(f"{remote.url}: HTTP {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise DataError(f"{remote.url}: cannot be reached: {reason}") from error
    with response:
        if response.status != http.client.PARTIAL_CONTENT:
            have = 0  # a server without Range sends the file from its start
        length = response.headers.get("Content-Length")
        if length is not None and not length.isdecimal():
            raise DataError(f"{remote.url}: the server answers Content-Length: {length!r}, not a number")
        if length is not None and have + int(length) != remote.size:
            raise DataError(f"{remote.url}: the server offers {have + int(length):,} bytes, expected {remote.size:,}")
        with (
            part.open("ab" if have else "wb") as file,
            progress_bar(part.stem, remote.size, initial=have, unit="B", unit_scale=True) as bar,
        ):
            while have < remote.size and (chunk := _read(response, remote.size - have)):
                file.write(chunk)
                have += len(chunk)
                bar.update(len(chunk))


def _read(response: http.client.HTTPResponse, limit: int) -> bytes:
    """The next bytes, at most `limit`; none where the connection broke."""
    try:
        return response.read(min(_CHUNK, limit))
    except (OSError, http.client.HTTPException):
        return b""


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
