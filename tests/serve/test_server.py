"""The answers of examples/serve.py: to photos, to what is none, and to uploads that are too large."""

from __future__ import annotations

import asyncio
import html
import importlib
import io
import json
import re
import shutil
import signal
import socket
import struct
import sys
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import child
import numpy as np
import pytest
from PIL import Image

import alpha
from alpha.models import saved
from alpha.models.saved import Description
from alpha.serve import Batcher
from alpha.train.files.history import History, Row

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ["blue", "green", "red", "white", "a <b>grey</b> one", "black"]
NETWORK = """
import alpha
from alpha import nn
from alpha.models import saved

def tiny(num_classes=6):
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(8, num_classes))

saved.NETWORKS["tiny"] = tiny
"""


def photo(color: tuple[int, int, int] = (200, 30, 30), side: int = 40, kind: str = "JPEG") -> bytes:
    """A file of one colour."""
    file = io.BytesIO()
    Image.new("RGB", (side, side + 9), color).save(file, kind)
    return file.getvalue()


def bomb(side: int) -> bytes:
    """A PNG of a few bytes, whose header promises many pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"0")) + chunk(b"IEND", b"")


def row(epoch: int) -> Row:
    return Row(epoch, 31.0, 2.0 * 0.9**epoch, 1 - 0.9**epoch, 1 - 0.92**epoch, 800.0, 90.0, "float32", 2.1 * 0.9**epoch)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run, of a network that takes no time."""
    names: dict[str, Any] = {}
    exec(NETWORK, names)
    folder = tmp_path_factory.mktemp("runs") / "photos"
    folder.mkdir()
    alpha.manual_seed(0)
    about = {"network": json.dumps(Description("tiny", {}, NAMES, 16).as_option())}
    alpha.train.save_weights(folder / "weights.safetensors", names["tiny"]().state_dict(), about)
    history = History(folder / "history.csv")
    history.rows = [row(epoch) for epoch in range(1, 6)]
    history.save()
    yield folder
    del saved.NETWORKS["tiny"]


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A module of examples/."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


@pytest.fixture
def client(run: Path, rooms: Callable[[str], Any]) -> Iterator[Any]:
    testclient = pytest.importorskip("starlette.testclient")
    app = rooms("serving.app")
    classifier = saved.load(run, "cpu")
    with alpha.serve.Predictor(classifier, device="cpu", max_batch=4) as predictor:
        limits = app.Limits(nbytes=20_000, pixels=1_000_000)
        yield testclient.TestClient(app.Server(classifier, predictor, limits, run).app(), base_url="http://x")


def test_a_photo(client: Any, run: Path) -> None:
    """The answer is that of alpha-predict, for any kind of file."""
    for content in (photo(), photo(kind="PNG"), photo((3, 3, 3), side=150, kind="WEBP")):
        answer = client.post("/predict", content=content)
        assert answer.status_code == 200
        (expected,) = saved.load(run, "cpu").predict(Image.open(io.BytesIO(content), formats=["JPEG", "PNG", "WEBP"]))
        found = {one["class"]: one["probability"] for one in answer.json()["top"]}
        likeliest = dict(list(expected.probabilities.items())[:5])
        assert list(found) == list(likeliest)
        np.testing.assert_allclose(list(found.values()), list(likeliest.values()), atol=2e-3)  # of a JPEG's reduction
    done = client.get("/stats").json()
    assert (done["requests"], done["failed"]) == (3, 0)
    assert done["p50_ms"] > 0


def stream(nbytes: int) -> Iterator[bytes]:
    for _ in range(nbytes // 1000):
        yield bytes(1000)


WRONG: dict[str, tuple[Any, int, str]] = {
    "empty": (b"", 400, "the body is empty"),
    "no photo": (b"hello", 400, "the photo: cannot be decoded: it is none of the formats that are read"),
    "a page": (b"<!doctype html>", 400, "it is an HTML page"),
    "a part of a photo": (photo(side=99)[:300], 400, "the photo: cannot be decoded: "),
    "large": (bytes(20_001), 413, "the upload has 20,001 bytes; at most 20,000 are taken"),
    "very large": (bytes(90_000), 413, "the upload has 90,000 bytes; at most 20,000 are taken"),
    "large, in parts": (stream(30_000), 413, "the upload has more than 20,000 bytes; at most 20,000 are taken"),
    "many pixels": (bomb(1001), 413, "the photo has 1,001 x 1,001 pixels; at most 1,000,000 are decoded"),
    "more pixels than Pillow opens": (bomb(50_000), 413, "2500000000 pixels"),
    "more pixels than Pillow warns of": (bomb(10_000), 413, "100000000 pixels"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(client: Any, name: str) -> None:
    content, status, text = WRONG[name]
    answer = client.post("/predict", content=content)
    assert (answer.status_code, set(answer.json())) == (status, {"error"})
    assert text in answer.json()["error"]
    assert client.post("/predict", content=photo()).status_code == 200


def test_a_form_and_a_client_that_asks_first(client: Any) -> None:
    answer = client.post("/predict", files={"photo": photo()})
    assert (answer.status_code, answer.json()["error"][:26]) == (415, "send the photo itself as t")
    asks = {"Content-Length": "70000", "Expect": "100-continue"}
    answer = client.post("/predict", content=stream(1000), headers=asks)
    assert answer.status_code == 413
    assert client.get("/predict").status_code == 405


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("GET", "/predict", 405), ("DELETE", "/stats", 405), ("POST", "/predict/", 404)],
)
def test_an_address_that_is_not_there_is_answered_in_json(client: Any, method: str, path: str, status: int) -> None:
    answer = client.request(method, path, follow_redirects=False)
    if answer.status_code == 307:  # to the address without the last stroke
        return
    assert (answer.status_code, set(answer.json())) == (status, {"error"})
    assert answer.json()["error"].startswith(f"{method} {path}: ")
    assert status != 405 or answer.headers["allow"]


def test_a_fault_of_the_server_is_answered_in_json(
    run: Path, rooms: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    testclient = pytest.importorskip("starlette.testclient")
    app = rooms("serving.app")
    monkeypatch.setattr(app, "history_of", lambda run: 1 / 0)
    server = app.Server(saved.load(run, "cpu"), None, run=run).app()
    answer = testclient.TestClient(server, raise_server_exceptions=False, base_url="http://x").get("/history")
    assert (answer.status_code, set(answer.json())) == (500, {"error"})
    assert "ZeroDivisionError" in answer.json()["error"]


def test_a_slow_upload(run: Path, rooms: Callable[[str], Any]) -> None:
    app, classifier, sent = rooms("serving.app"), saved.load(run, "cpu"), []

    async def receive() -> Any:
        await asyncio.sleep(child.HANG_S)

    async def send(message: Any) -> None:
        sent.append(message)

    with Batcher(lambda rows: rows) as batcher:
        answers = app.Server(classifier, batcher, app.Limits(seconds=0.01)).app()
        scope = {"type": "http", "method": "POST", "path": "/predict", "headers": [], "query_string": b""}
        asyncio.run(answers(scope, receive, send))
    assert sent[0]["status"] == 408
    assert json.loads(sent[1]["body"]) == {"error": "0 bytes came in 0.01 seconds; send it faster"}


def test_a_server_that_cannot_take_more(run: Path, rooms: Callable[[str], Any]) -> None:
    testclient = pytest.importorskip("starlette.testclient")
    app, classifier = rooms("serving.app"), saved.load(run, "cpu")
    batcher = Batcher(lambda rows: rows)
    batcher.close()
    client = testclient.TestClient(app.Server(classifier, batcher).app())
    answer = client.post("/predict", content=photo())
    assert (answer.status_code, answer.json()) == (503, {"error": "Batcher: it is closed"})
    assert client.get("/history").json() == {"rows": []}


def test_the_page_and_the_curves(client: Any, run: Path, tmp_path: Path, rooms: Callable[[str], Any]) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http" not in page.text.replace("http://www.w3.org/2000/svg", "")  # it loads nothing from elsewhere
    assert client.get("/healthz").json()["status"] == "ok"
    rows = client.get("/history").json()["rows"]
    assert [line["epoch"] for line in rows] == [1, 2, 3, 4, 5]
    assert rows[0]["train_loss"] == 1.8
    assert rows[0]["precision"] is None
    history_of = rooms("serving.app").history_of
    assert history_of(tmp_path) == []
    (tmp_path / "history.csv").write_text("epoch,train_loss\n1,nan\n2,inf\n3")
    assert history_of(tmp_path)[1] == {"epoch": 2, "train_loss": None}
    for content in (b"\xff\xfe\x80", b"epoch,l\xe4\n1,\xff\n", b"epoch\n\0\n", b"a" * 200_000, b"epoch\n1,2,3\n"):
        (tmp_path / "history.csv").write_bytes(content)
        assert all(isinstance(line, dict) for line in history_of(tmp_path))
    assert history_of(tmp_path) == [{"epoch": 1}]


# -- as a process, and in a browser ---------------------------------------------------------------

# The page in a frame, on which a photo and then a text is dropped; then a further epoch is trained.
HARNESS = """<!doctype html><iframe id="frame" src="/" width="1000" height="900"></iframe><pre id="out"></pre><script>
const frame = document.getElementById("frame"), out = document.getElementById("out");
const until = async (found) => { while (!found()) await new Promise((go) => setTimeout(go, 50)); };
frame.onload = async () => {
  const page = frame.contentDocument, own = frame.contentWindow, $ = (id) => page.getElementById(id), found = {};
  const drop = (content, name) => {
    const data = new own.DataTransfer();
    data.items.add(new own.File([content], name));
    page.body.dispatchEvent(new own.DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
  };
  try {
    await until(() => !$("curves").hidden);
    found.lines = page.querySelectorAll("polyline").length;
    found.before = $("epoch").textContent;
    const canvas = Object.assign(document.createElement("canvas"), { width: 60, height: 50 });
    drop(await new Promise((go) => canvas.toBlob(go)), "black.png");
    await until(() => $("top").children.length);
    found.top = [...$("top").children].map((item) => item.textContent);
    found.bars = [...page.querySelectorAll(".track div")].map((bar) => bar.offsetWidth);
    await until(() => $("stats").textContent);
    found.shown = $("photo").naturalWidth;
    drop("hello", "notes.txt");
    await until(() => $("error").textContent);
    found.error = $("error").textContent;
    found.left = $("top").children.length;
    await fetch("/train");
    await until(() => $("epoch").textContent !== found.before);
    found.after = $("epoch").textContent;
  } catch (error) { found.failed = String(error); }
  out.textContent = JSON.stringify(found);
};
</script>"""
PROGRAM = (
    NETWORK
    + """
import sys
import test_server
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route
import serve
from serving.app import Server
from alpha.train.files.history import History

def train(_):
    history = History(sys.argv[1] + "/history.csv")
    history.rows = [test_server.row(epoch) for epoch in range(1, 8)]
    history.save()
    return PlainTextResponse("trained")

answers = Server.app

def app(self):
    made = answers(self)
    made.routes.append(Route("/harness", lambda _: HTMLResponse(test_server.HARNESS)))
    made.routes.append(Route("/train", train))
    return made

Server.app = app
sys.exit(serve.main([*sys.argv[1:], "--port", "0", "--device", "cpu", "--max-batch", "8"]))
"""
)


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[tuple[Any, str]]:
    """The server as a process, and its address."""
    env = child.environment(EXAMPLES, Path(__file__).parent, Path(child.__file__).parent, PYTHONUNBUFFERED="1")
    process = child.start([sys.executable, "-c", PROGRAM, str(run)], env=env, stdout=-1, stderr=-1)
    line = process.stdout.readline()
    if not line.startswith("http://127.0.0.1:"):
        raise AssertionError(child.finish(process))
    yield process, line.split()[0]
    if process.poll() is None:
        process.kill()
    child.finish(process)


def ask(url: str, content: bytes | None = None) -> Any:
    with urllib.request.urlopen(url, content, timeout=child.HANG_S) as answer:
        return json.load(answer)


@pytest.mark.slow
def test_an_upload_without_an_end(server: tuple[Any, str]) -> None:
    """The server answers, and ends the connection, after some multiples of what it takes."""
    _, url = server
    address = "127.0.0.1", int(url.rpartition(":")[2])
    with socket.create_connection(address, timeout=child.HANG_S) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        part = b"f4240\r\n" + bytes(1_000_000) + b"\r\n"
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            connection.sendall(part * 500)
    assert ask(f"{url}/healthz")["status"] == "ok"


def test_two_hundred_clients(server: tuple[Any, str]) -> None:
    _, url = server
    photos = [photo((number, 255 - number, 90)) for number in range(200)]
    with ThreadPoolExecutor(50) as pool:
        together = list(pool.map(lambda content: ask(f"{url}/predict", content)["top"], photos))
    for number in range(0, 200, 20):  # alone
        for a, b in zip(ask(f"{url}/predict", photos[number])["top"], together[number], strict=True):
            assert a["probability"] == pytest.approx(b["probability"], abs=2e-6)
    done = ask(f"{url}/stats")
    assert (done["requests"], done["failed"], done["waiting"]) == (210, 0, 0)
    assert done["batches"] < 210


@pytest.mark.slow
def test_the_load_program(
    server: tuple[Any, str],
    rooms: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, url = server
    port, load = int(url.rpartition(":")[2]), rooms("serving.load")
    found = load.ask("127.0.0.1", port, photo(), clients=5, requests=23)
    assert found.clients == 5
    assert 0 < found.p50_ms <= found.p99_ms
    with pytest.raises(RuntimeError, match=r"http/1\.1 400 bad request: .*cannot be decoded"):
        load.ask("127.0.0.1", port, b"no photo", clients=1, requests=1)
    bench = rooms("bench_serve")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # without PyTorch
    few = ["--size", "16", "--clients", "1,2", "--requests", "2", "--max-batch", "1", "--device", "cpu"]
    assert bench.main(few) == 0
    first, _, one, two, last = capsys.readouterr().out.splitlines()
    assert first == "ResNet18 at 16 x 16 on cpu in float32, batches of at most 1"
    assert one.split()[:2] == ["Alpha", "1"]
    assert two.split()[:2] == ["Alpha", "2"]
    assert last == "PyTorch is not installed (pip install torch)"


def test_the_page_in_a_browser(server: tuple[Any, str], tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("needs chromium")
    _, url = server
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    options += [f"--user-data-dir={tmp_path}", "--virtual-time-budget=30000", "--dump-dom"]
    result = child.run([browser, *options, f"{url}/harness"])
    assert '<pre id="out">{' in result.stdout, result.stdout[-500:] + result.stderr[-2000:]
    found = json.loads(html.unescape(result.stdout.split('<pre id="out">')[1].split("</pre>")[0]))
    assert "failed" not in found, found
    assert len(found["top"]) == 5
    shares = [float(re.search(r"([\d.]+) %$", text)[1]) for text in found["top"]]  # type: ignore[index]
    assert {re.sub(r"[\d.]+ %$", "", text) for text in found["top"]} < set(NAMES)  # as text, not as HTML
    assert shares == sorted(shares, reverse=True)
    assert found["bars"] == sorted(found["bars"], reverse=True)
    assert found["bars"][0] > found["bars"][-1] > 0
    assert found["shown"] == 60
    assert found["error"].startswith("the photo: cannot be decoded: it is none of the formats")
    assert found["left"] == 0
    assert found["lines"] == 4
    assert (found["before"], found["after"]) == ("epoch 5, which took 31.0 s", "epoch 7, which took 31.0 s")


def test_ctrl_c_ends_the_server(server: tuple[Any, str]) -> None:
    """The last test of this server: it prints the percentiles."""
    process, _ = server
    process.send_signal(signal.SIGINT)
    out, errors = child.finish(process)
    assert (process.returncode, errors) == (130, "")
    assert " requests, " in out
    assert "; latency p50 " in out


def test_mistakes_are_answered_in_one_line(
    run: Path, rooms: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    serve = rooms("serve")
    for arguments, text in (
        (["/nowhere"], "serve: /nowhere"),
        ([str(run), "--watch", "/nowhere"], "serve: /nowhere: there is no such folder of a run\n"),
        (
            [str(run), "--device", "cpu", "--port", "0", "--host", "192.0.2.1"],
            "serve: cannot listen on 192.0.2.1, port 0",
        ),
        *[
            (
                [str(run), "--device", "cpu", "--port", port, "--host", host],
                f"serve: cannot listen on {host}, port {port}",
            )
            for port, host in (("99999999", "127.0.0.1"), ("65536", "127.0.0.1"), ("0", "a" * 80))
        ],
    ):
        assert serve.main(arguments) == 2
        errors = capsys.readouterr().err
        assert errors.startswith(text)
        assert errors.count("\n") == 1
