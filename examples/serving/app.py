"""The web server's answers: a page, predictions for photos, statistics, and the curves of a run."""

from __future__ import annotations

import asyncio
import csv
import io
import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import alpha
from alpha.data.images.image_files import opened
from alpha.errors import AlphaError, DataError, ServingError
from alpha.installation import install
from alpha.models.saved import Classifier
from alpha.serve import Batcher

try:
    import anyio
    from PIL import Image
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import FileResponse, JSONResponse, Response
    from starlette.routing import Route
except ImportError as error:
    raise AlphaError(f"no web server ({error}): {install('serve')}") from error

PAGE = Path(__file__).with_name("page.html")
FORGOTTEN = 4  # how many times the largest upload is read of one that is too large
HEADERS = {  # the page loads nothing from elsewhere, and stands in no other page
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; img-src 'self' blob: data:; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Limits:
    """Bounds of a request; what is above them is refused.

    Attributes:
        nbytes: of an upload.
        pixels: of a photo, height times width, as its header says.
        seconds: within which an upload must have arrived.
    """

    nbytes: int = 10_000_000
    pixels: int = 50_000_000
    seconds: float = 30.0


class Refused(Exception):
    """A request that is answered by a status and a text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Server:
    """The answers to requests.

    Args:
        classifier: says how photos become images, and what the outputs mean.
        batcher: computes the outputs of images (n, image_size, image_size, 3) of uint8, a `Predictor` or another one.
        limits: of requests.
        run: the folder whose history.csv is shown, or None.
    """

    def __init__(
        self, classifier: Classifier, batcher: Batcher, limits: Limits | None = None, run: Path | None = None
    ) -> None:
        self.classifier, self.batcher, self.run = classifier, batcher, run
        self.limits = limits or Limits()
        # as many photos are decoded at once as there are cores, and no more lie in memory
        self._decoders = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="decode")

    def app(self) -> Starlette:
        """The application of these answers, which any ASGI server can run."""
        routes = [
            Route("/", self.page),
            Route("/predict", self.predict, methods=["POST"]),
            Route("/healthz", self.health),
            Route("/stats", self.stats),
            Route("/history", self.history),
        ]
        return Starlette(routes=routes, exception_handlers=HANDLERS)

    async def page(self, _: Request) -> Response:
        return FileResponse(PAGE, headers=HEADERS)

    async def predict(self, request: Request) -> Response:
        """Answer a photo, the body of the request, by the five likeliest classes, or by what is wrong with it."""
        content = await self._body(request)
        loop = asyncio.get_running_loop()
        image = await loop.run_in_executor(self._decoders, self._pixels, content)
        outputs = await self.batcher.predict_async(image[None])
        (found,) = self.classifier.named(alpha.tensor(np.asarray(outputs), device="cpu"))
        likeliest = list(found.probabilities.items())[:5]
        return JSONResponse({"top": [{"class": name, "probability": round(share, 6)} for name, share in likeliest]})

    async def _body(self, request: Request) -> bytes:
        """The body, of which no more is held than is allowed."""
        seconds, content = self.limits.seconds, bytearray()
        if request.headers.get("content-type", "").startswith("multipart/"):
            raise Refused(415, "send the photo itself as the body, no form: curl --data-binary @photo.jpg URL/predict")
        try:
            with anyio.fail_after(seconds):
                await self._read(request, content)
        except TimeoutError:
            raise Refused(408, f"{len(content):,} bytes came in {seconds:g} seconds; send it faster") from None
        except ClientDisconnect:
            raise Refused(400, f"the upload ended after {len(content):,} bytes") from None
        if not content:
            raise Refused(400, "the body is empty: send a photo as the body, such as the content of a JPEG file")
        return bytes(content)

    async def _read(self, request: Request, content: bytearray) -> None:
        """Read the body to its end, or until it is too large.

        Most clients read an answer only when they have sent everything, so some of what is too much is read, too, and
        forgotten. A client that asks first, by the header Expect, is answered at once.
        """
        most, said, count = self.limits.nbytes, request.headers.get("content-length", ""), 0
        size = int(said) if said.isdecimal() else 0
        refused = Refused(
            413, f"the upload has {f'{size:,}' if size else f'more than {most:,}'} bytes; at most {most:,} are taken"
        )
        if size > most and (size > FORGOTTEN * most or "expect" in request.headers):
            raise refused
        async for chunk in request.stream():
            count += len(chunk)
            if max(size, count) <= most:
                content += chunk
            elif count > FORGOTTEN * most:
                break
        if max(size, count) > most:
            raise refused

    def _pixels(self, content: bytes) -> Any:
        """The image that the network takes. A photo with too many pixels is not decoded."""
        try:
            with opened(io.BytesIO(content), "the photo") as header:
                height, width = header.height, header.width
            if height * width > self.limits.pixels:
                raise Refused(
                    413, f"the photo has {height:,} x {width:,} pixels; at most {self.limits.pixels:,} are decoded"
                )
            return self.classifier.pixels(content)
        except DataError as error:
            bomb = isinstance(error.__cause__, (Image.DecompressionBombError, Image.DecompressionBombWarning))
            raise Refused(413 if bomb else 400, str(error.__cause__ if bomb else error)) from error

    async def health(self, _: Request) -> Response:
        """Say that the server works, what it has, and what it takes."""
        description = self.classifier.description
        return JSONResponse(
            {
                "status": "ok",
                "model": description.model,
                "classes": len(self.classifier.classes),
                "image_size": description.image_size,
                "most_bytes": self.limits.nbytes,
                "run": None if self.run is None else self.run.name,
            }
        )

    async def stats(self, _: Request) -> Response:
        """Numbers of requests, and percentiles of their latency in milliseconds, without that of the network."""
        return JSONResponse(self.batcher.statistics().as_dict())

    async def history(self, _: Request) -> Response:
        """Answer by the rows of history.csv, which training replaces as a whole after each epoch."""
        rows = await asyncio.to_thread(history_of, self.run) if self.run is not None else []
        return JSONResponse({"rows": rows}, headers={"Cache-Control": "no-store"})


def history_of(run: Path) -> list[dict[str, float | None]]:
    """The numbers of the rows of a run's history by name; an empty list if there is none yet, or it is no table."""
    try:
        with (run / "history.csv").open(newline="", encoding="utf-8", errors="replace") as file:
            return [{name: number_of(text) for name, text in row.items() if name} for row in csv.DictReader(file)]
    except (OSError, csv.Error):
        return []


def number_of(text: str | None) -> float | None:
    """The number of a text; None if it is none, or if JSON has no such number."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


async def refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    # the rest of the upload is not read, so no further request can come on this connection
    headers: Mapping[str, str] = {"Connection": "close"} if error.status in (408, 413) else {}
    return JSONResponse({"error": str(error)}, error.status, headers)


async def unavailable(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 503, {"Retry-After": "1"})


async def missing(request: Request, error: Exception) -> Response:
    """Answer a request for an address or a method that the server has not."""
    assert isinstance(error, HTTPException)
    text = f"{request.method} {request.url.path}: {error.detail}; see GET / for a page, and POST /predict for photos"
    return JSONResponse({"error": text}, error.status_code, error.headers)


async def broken(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"the server has failed: {type(error).__name__}; its output says where"}, 500)


HANDLERS = {Refused: refusal, ServingError: unavailable, HTTPException: missing, Exception: broken}
