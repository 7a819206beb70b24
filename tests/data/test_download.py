"""The downloader against a server of our own: resumed, refused, checked."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from alpha.data import fetch_cifar10
from alpha.data.cifar import cifar10
from alpha.data.download import Remote, download
from alpha.errors import DataError

CONTENT = np.random.default_rng(0).bytes(300_000)


@dataclass
class Server:
    """Behaviour of the server, and the Range headers that were sent to it."""

    content: bytes = CONTENT
    ranges: bool = True
    breaks_after: int | None = None  # bytes a connection
    status: int = 200
    length: str | None = None  # what it says, if not the truth
    asked: list[str | None] = field(default_factory=list)
    port: int = 0

    def remote(self, content: bytes = CONTENT) -> Remote:
        sha256 = hashlib.sha256(content).hexdigest()
        return Remote(f"http://127.0.0.1:{self.port}/data.tar.gz", len(content), sha256)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            state.asked.append(asked)
            if state.status != 200:
                self.send_error(state.status)
                return
            start = 0
            if asked and state.ranges:
                start = int(asked.removeprefix("bytes=").rstrip("-"))
            body = state.content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", state.length or str(len(body)))
            self.end_headers()
            self.wfile.write(body[: state.breaks_after])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        state.port = http.server_port
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield state
        http.shutdown()
        thread.join()


def test_a_whole_file(server: Server, tmp_path: Path) -> None:
    download(server.remote(), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert server.asked == [None]


@pytest.mark.parametrize("ranges", [True, False])
def test_an_earlier_part_is_resumed(server: Server, tmp_path: Path, ranges: bool) -> None:
    server.ranges = ranges
    (tmp_path / "f.part").write_bytes(CONTENT[:100_000])
    download(server.remote(), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert server.asked == ["bytes=100000-"]


def test_a_broken_transfer_is_resumed_while_it_brings_bytes(server: Server, tmp_path: Path) -> None:
    server.breaks_after = 120_000
    download(server.remote(), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=120000-", "bytes=240000-"]


def test_a_server_that_always_breaks(server: Server, tmp_path: Path) -> None:
    server.breaks_after, server.ranges = 120_000, False
    with pytest.raises(DataError, match=r"broke off, 120,000 of 300,000 bytes .* run again"):
        download(server.remote(), tmp_path / "f")
    assert [path.name for path in tmp_path.iterdir()] == ["f.part"]


def test_another_content_is_removed(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT[::-1]
    with pytest.raises(DataError, match=r"sha256 is [0-9a-f]{64}, expected [0-9a-f]{64}"):
        download(server.remote(), tmp_path / "f")
    assert not list(tmp_path.iterdir())


def test_another_size_is_refused_before_it_is_written(server: Server, tmp_path: Path) -> None:
    server.content = b"<html>please log in</html>"
    with pytest.raises(DataError, match="offers 26 bytes, expected 300,000"):
        download(server.remote(), tmp_path / "f")
    assert not list(tmp_path.iterdir())


def test_an_http_error_and_a_missing_server(server: Server, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(DataError, match="HTTP 404"):
        download(server.remote(), tmp_path / "f")
    nowhere = Remote("http://127.0.0.1:9/f", 10, "")
    with pytest.raises(DataError, match=r"cannot be reached: .*refused"):
        download(nowhere, tmp_path / "f")


def archive(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def test_fetch_unpacks_the_six_files_and_nothing_else(server: Server, tmp_path: Path) -> None:
    names = [*cifar10.TRAIN_FILES, *cifar10.TEST_FILES]
    files = {f"cifar-10-batches-bin/{name}": name.encode() for name in names}
    server.content = archive(files | {"../escaped": b"!", "cifar-10-batches-bin/readme.html": b""})
    root = tmp_path / "data" / "cifar-10-batches-bin"
    fetch_cifar10(root, server.remote(server.content))
    assert {path.name: path.read_bytes() for path in root.iterdir()} == {name: name.encode() for name in names}
    assert [path.name for path in root.parent.iterdir()] == [root.name]
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_fetch_of_an_incomplete_archive(server: Server, tmp_path: Path) -> None:
    server.content = archive({"cifar-10-batches-bin/data_batch_1.bin": b"1"})
    with pytest.raises(DataError, match=r"has no data_batch_2.bin, .*, test_batch.bin"):
        fetch_cifar10(tmp_path / "root", server.remote(server.content))


def test_fetch_into_a_folder_that_cannot_be_made(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot be fetched"):
        fetch_cifar10(tmp_path / "file" / "below" / "root", server.remote())


def test_a_length_that_is_no_number_is_refused(server: Server, tmp_path: Path) -> None:
    server.length = "many"
    with pytest.raises(DataError, match="answers Content-Length: 'many', not a number"):
        download(server.remote(), tmp_path / "f")
    assert not list(tmp_path.iterdir())
