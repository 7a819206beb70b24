"""PyTorch's part: cuDNN in both layouts, the operands, and the float64 results."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np

from alpha.ops.conv2d.shape import ConvShape
from bench.operators import Operator, Part
from bench.timing import FILL_BYTES, Clock, Contestant, EventClock, WallClock

LAYOUTS = {"NCHW": "contiguous_format", "channels_last": "channels_last"}


class TorchSide:
    """Contestants of PyTorch: cuDNN on the GPU, else what PyTorch has on the CPU."""

    def __init__(self, torch: Any, gpu: bool) -> None:
        self.torch = torch
        self.device = torch.device("cuda" if gpu else "cpu")
        self.name = "cuDNN" if gpu else "PyTorch"
        self.clock: Clock = self._event_clock() if gpu else WallClock()

    @property
    def version(self) -> str:
        cudnn = f", cuDNN {self.torch.backends.cudnn.version()}" if self.name == "cuDNN" else ""
        return f"PyTorch {self.torch.__version__}{cudnn}"

    def precision(self, name: str) -> AbstractContextManager[Any]:
        """cuDNN chooses its fastest algorithm, and may use TF32 only where it is asked for."""
        return self._flags(enabled=True, benchmark=True, allow_tf32=name == "tf32")

    def _flags(self, **flags: bool) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.torch.backends.cudnn.flags(**flags)
        return context

    def draw(self, s: ConvShape, seed: int = 0) -> dict[str, Any]:
        """X, W, dY in NHWC: normal numbers, W scaled so that Y is of size 1."""
        generator = self.torch.Generator(self.device).manual_seed(seed)
        operands = {
            name: self.torch.randn(shape, generator=generator, device=self.device)
            for name, shape in (("X", s.X), ("W", s.W), ("dY", s.Y))
        }
        operands["W"] /= (s.FH * s.FW * s.IC // s.groups) ** 0.5
        if self.name == "cuDNN":  # Alpha reads them in a stream of its own
            self.torch.cuda.synchronize()
        return operands

    def contestants(
        self, operator: Operator, s: ConvShape, operands: dict[str, Any], precision: str
    ) -> list[Contestant]:
        """One a layout."""
        dtype = self.torch.bfloat16 if precision == "bf16" else self.torch.float32
        take = partial(self._take, operator.result)
        found = []
        for name, memory_format in LAYOUTS.items():
            layout = getattr(self.torch, memory_format)
            images = {key: nchw(tensor).to(dtype).contiguous(memory_format=layout) for key, tensor in operands.items()}
            found.append(Contestant(name, self._call(operator, s, images), self.clock, take))
        return found

    def exact(self, operator: Operator, s: ConvShape, operands: dict[str, Any], part: Part) -> np.ndarray:
        """Part `part` of the result in float64, computed without cuDNN."""
        double = {name: nchw(part.of(name, tensor)).double().contiguous() for name, tensor in operands.items()}
        with self._flags(enabled=False):
            return _host(nhwc(self._call(operator, s, double)()))

    def release(self) -> None:
        """Give cached memory back, for Alpha's arena to have it."""
        if self.name == "cuDNN":
            self.torch.cuda.empty_cache()

    def _call(self, operator: Operator, s: ConvShape, images: dict[str, Any]) -> Any:
        """A function that computes the operator on NCHW tensors."""
        X, W, dY = images["X"], images["W"], images["dY"]
        stride, padding, dilation = [s.sh, s.sw], [s.ph, s.pw], [s.dh, s.dw]
        if operator.result == "Y":
            return partial(self.torch.nn.functional.conv2d, X, W, None, stride, padding, dilation, s.groups)
        wanted = [operator.result == "dX", operator.result == "dW", False]
        sizes = stride, padding, dilation, False, [0, 0], s.groups
        backward = partial(self.torch.ops.aten.convolution_backward, dY, X, W, None, *sizes, wanted)
        return lambda: backward()[wanted.index(True)]

    def _take(self, name: str, result: Any, part: Part) -> np.ndarray:
        return _host(part.of(name, nhwc(result)).double())

    def _event_clock(self) -> EventClock:
        def record() -> Any:
            event = self.torch.cuda.Event(enable_timing=True)
            event.record()
            return event

        def elapsed(start: Any, end: Any) -> float:
            end.synchronize()
            return float(start.elapsed_time(end))

        scratch = self.torch.empty(FILL_BYTES, dtype=self.torch.uint8, device=self.device)
        return EventClock(record, elapsed, scratch.zero_)


def nchw(tensor: Any) -> Any:
    """An NHWC tensor's NCHW view, which PyTorch calls channels_last."""
    return tensor.permute(0, 3, 1, 2)


def nhwc(tensor: Any) -> Any:
    """An NCHW tensor's NHWC view."""
    return tensor.permute(0, 2, 3, 1)


def _host(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.cpu())
