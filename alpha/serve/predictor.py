"""A trained network that any thread may ask: `Predictor`."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from alpha.autograd.grad_mode import no_grad
from alpha.core.nested import map_tensors
from alpha.core.numerics import BFLOAT16, get_precision, precision
from alpha.core.tensor import Tensor, tensor
from alpha.errors import DeviceError
from alpha.models.saved import load
from alpha.module.module import Module
from alpha.runtime import Device, get_device
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.serve.batcher import Batcher
from alpha.serve.folding import fold_batch_norms
from alpha.step.capturing.captured import Captured, capture


class Predictor(Batcher):
    """A network in evaluation mode that any thread may ask; see `Batcher` for how requests become batches.

        with alpha.serve.Predictor("runs/photos") as predictor:
            scores = predictor.predict(images)            # waits
            future = predictor.submit(images)             # returns at once
            scores = await predictor.predict_async(images)

    The network is copied, so that it may be trained on or changed meanwhile. Batch normalisations become parts of the
    convolutions before them (`fold_batch_norms`) at the first batch. On cuda each size of a batch is a captured graph.

    One thread computes all batches. On cuda it has a turn for each of them (`alpha.cuda.turn`): the GPU is lent as long
    as the predictor is open, and other code that uses it, in the main thread, too, needs turns of its own then.

    Args:
        model: a module; or the folder of a run, or a weights file of one, as `alpha.models.load` takes it, whose images
            are of uint8.
        device: where to compute, "auto", "cpu" or "cuda". On cuda, a predictor is made in the main thread, or in
            another one while the GPU is lent.
        max_batch, max_wait_ms, max_queue: see `Batcher`.
        precision: "float32", "tf32" or "bf16"; None: the one in force. Results in bfloat16 are given as float32.
        fold: False leaves the batch normalisations as they are.

    Attributes:
        folded: how many batch normalisations are folded, None before the first batch.

    Raises:
        CheckpointError: there is no such run.
        DeviceError: the GPU belongs to another thread.
        TypeError: the model is none.
    """

    def __init__(
        self,
        model: Module | str | Path,
        *,
        device: str | Device = "auto",
        max_batch: int = 32,
        max_wait_ms: float = 2.0,
        max_queue: int = 1024,
        precision: str | None = None,
        fold: bool = True,
    ) -> None:
        if not isinstance(model, (Module, str, Path)):
            raise TypeError(f"Predictor: a module, or the path of a run, is needed, not {type(model).__name__}")
        self.device = get_device(device)
        self.precision = _known(get_precision() if precision is None else precision)
        self.folded: int | None = None
        self._fold = fold
        with self.device.turn():
            given = model if isinstance(model, Module) else load(model, "cpu")
            self.model = copy.deepcopy(given).to(self.device).eval()
        self._step: Any = None
        self.device.lend()
        try:
            super().__init__(self._predicted, max_batch=max_batch, max_wait_ms=max_wait_ms, max_queue=max_queue)
        except BaseException:
            self.device.take_back()
            raise

    def predict(self, images: Any, timeout: float | None = None) -> Any:
        """Compute the network's outputs for images and wait for them.

        Args:
            images: (n, H, W, C), or what else the network takes as rows; a tensor is copied to the host.
            timeout: seconds after which a `TimeoutError` is raised and the request is cancelled; None waits for ever.

        Returns:
            An array with a row for each image, or a tuple, list or dict of such arrays, as the network gives them.

        Raises:
            ServingError: the queue is full, or the predictor is closed.
            DeviceError: this thread has a turn with the GPU, for the end of which the computation would wait for ever.
        """
        if isinstance(self.device, CudaDevice) and self.device.driver.owner.here:
            raise DeviceError(
                "predict: called within `alpha.cuda.turn()`, for whose end it would wait; use submit there"
            )
        return super().predict(images, timeout)

    def _predicted(self, images: NDArray[Any]) -> Any:
        with self.device.turn(), precision(self.precision), no_grad():
            x = tensor(images, device=self.device)
            if self._step is None:
                self._prepare(x)
            result = self._step(x)
            return map_tensors(result, lambda y: (y.float() if y.dtype == BFLOAT16 else y).numpy())

    def _prepare(self, x: Tensor) -> None:
        self.model, self.folded = fold_batch_norms(self.model, x) if self._fold else (self.model, 0)
        model = self.model

        def predict(x: Tensor) -> Any:  # it reaches the model alone, on which its graphs depend
            return model(x)

        self._step = capture(predict) if isinstance(self.device, CudaDevice) else predict

    def _end(self) -> None:
        try:
            with self.device.turn():
                if isinstance(self._step, Captured):
                    self._step.clear()
                del self._step, self.model
        finally:
            self.device.take_back()


def _known(name: str) -> str:
    """The name of a precision; `ValueError` for another one."""
    return precision(name).name
