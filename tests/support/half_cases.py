"""Batch normalisations and gradients of them that also write an fp16 copy of their result (`Given.HALF`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpha.core.primitive import REGISTRY, Array
from alpha.ops.conv2d.channel_statistics import StatisticsArguments
from alpha.ops.conv2d.magnitudes import HALVES
from alpha.ops.conv2d.problem import Given
from alpha.ops.kernel.casts import HalfAlone
from alpha.ops.kernel.rectifier import GradientParts, KeptOutput, Rectified, RectifiedInput, Rectifier
from alpha.runtime.cuda.cuda_device import CudaDevice

SHAPE = (9, 5, 7, 24)  # rows that no block fills
LARGE = (23, 16, 16, 72)  # of several blocks in rows and in channels
FEW = (1, 2, 4, 512)  # rows, so that the channels of a block are those of several warps
EPS, SLOPE = 1e-5, 0.25


@dataclass(frozen=True)
class Operands:
    """Arrays of normal numbers on the host.

    Attributes:
        X, dY, residual: of one shape (N, H, W, C).
        Y: the batch normalisation of X behind a rectifier of the slope SLOPE.
        total: the same with the residual added before the rectifier.
        var, weight, bias, mean: (C,), weights of both signs.
    """

    X: np.ndarray
    dY: np.ndarray
    residual: np.ndarray
    Y: np.ndarray
    total: np.ndarray
    mean: np.ndarray
    var: np.ndarray
    weight: np.ndarray
    bias: np.ndarray

    @classmethod
    def draw(cls, shape: tuple[int, ...] = SHAPE, seed: int = 0) -> Operands:
        rng = np.random.default_rng(seed)
        X, dY, residual = (rng.standard_normal(shape).astype("float32") for _ in range(3))
        bias = rng.standard_normal(shape[-1]).astype("float32")
        weight = (rng.uniform(0.5, 2, shape[-1]) * rng.choice((-1, 1), shape[-1])).astype("float32")
        rows = tuple(range(X.ndim - 1))
        mean, var = X.mean(rows), X.var(rows)
        Z = (X - mean) / np.sqrt(var + np.float32(EPS)) * weight + bias
        Y, total = (np.where(z > 0, z, np.float32(SLOPE) * z) for z in (Z, Z + residual))
        return cls(X, dY, residual, Y, total, mean, var, weight, bias)

    def upload(self, on: CudaDevice, **changed: np.ndarray) -> dict[str, Array]:
        return {name: on.upload(value) for name, value in {**vars(self), **changed}.items()}


def magnitude_of(on: CudaDevice, array: np.ndarray) -> Array:
    """The word of the largest finite magnitude of an array."""
    largest = np.abs(array[np.isfinite(array)]).max(initial=0).astype("float32")
    return on.upload(largest.reshape(1).view(np.uint32))


@dataclass(frozen=True)
class Case:
    """An operator, and how it is called on arrays that lie on the device, by name."""

    name: str
    call: Callable[[dict[str, Any]], Array]
    forward: bool = False

    def run(
        self, on: CudaDevice, operands: Operands | None = None, wanted: Given = Given.HALF, **changed: np.ndarray
    ) -> Array:
        """The result, whose magnitude has the copy if it is `wanted` and can be had, or the copy alone."""
        a = (operands or Operands.draw()).upload(on, **changed)
        a["part"] = on.upload(np.ones((2, 3, a["X"].shape[-1]), np.float32))
        for name in ("residual", "dY"):
            a[name].magnitude = magnitude_of(on, changed.get(name, vars(operands or Operands.draw())[name]))
        token = HALVES.set(wanted)
        try:
            return self.call(a)
        finally:
            HALVES.reset(token)

    def __str__(self) -> str:
        return self.name


def _training(name: str, residual: bool, rectifier: Rectifier | None) -> Case:
    def call(a: dict[str, Any]) -> Array:
        wanted = StatisticsArguments(None, None, 0.1)
        given = a["X"], wanted, a["weight"], a["bias"], EPS, a["residual"] if residual else None, rectifier
        Y: Array = REGISTRY["batch_norm_training"](*given)[0]
        return Y

    return Case(name, call, forward=True)


def copied(a: dict[str, Any], name: str) -> HalfAlone:
    """The copy in fp16 of an array, without the array; its scale is that of a limit four times as large as a number."""
    array = a[name]
    host = array.device.download(array)
    largest = 4 * np.abs(host).max().astype("float32")
    scale = np.float32(2.0 ** (15 - np.frexp(largest)[1]))
    magnitude = array.device.upload(largest.reshape(1).view(np.uint32))
    magnitude.half, magnitude.limit = array.device.upload((host * scale).astype(np.float16).view(np.uint16)), True
    return HalfAlone(array, magnitude)


def _gradient(a: dict[str, Any], in_parts: bool) -> Array | GradientParts:
    return GradientParts(a["dY"], a["residual"]) if in_parts else a["dY"]


def _gradients(
    name: str,
    own: Callable[[dict[str, Any]], Rectified] | None,
    behind: Rectifier | None = None,
    in_parts: bool = False,
) -> Case:
    def call(a: dict[str, Any]) -> Array:
        X = a["X"] if behind is None else RectifiedInput(a["X"], behind)
        numbers = a["mean"], a["var"], a["weight"], EPS, True
        rectified = None if own is None else own(a)
        dX: Array = REGISTRY["batch_norm_gradients"](_gradient(a, in_parts), X, *numbers, rectified)[0]
        return dX

    return Case(name, call)


def _kept(a: dict[str, Any], residual: bool, copy: bool) -> KeptOutput:
    Y = "total" if residual else "Y"
    return KeptOutput(copied(a, Y) if copy else a[Y], a["residual"] if residual else None, Rectifier(SLOPE))


def _from_output(name: str, residual: bool, copy: bool = False, in_parts: bool = False) -> Case:
    def call(a: dict[str, Any]) -> Array:
        given = _gradient(a, in_parts), _kept(a, residual, copy), a["var"], a["weight"], a["bias"], EPS
        dX: Array = REGISTRY["batch_norm_gradients_from_output"](*given)[0]
        return dX

    return Case(name, call)


def _begun(name: str, kept: Callable[[dict[str, Any]], Any], bias: bool = False) -> Case:
    def call(a: dict[str, Any]) -> Array:
        numbers = a["mean"], a["var"], a["weight"], a["bias"] if bias else None, EPS
        dX: Array = REGISTRY["batch_norm_gradients_begun"](a["dY"], a["part"], kept(a), *numbers)[0]
        return dX

    return Case(name, call)


CASES = [
    _training("training", False, None),
    _training("training, rectifier", False, Rectifier(0.25)),
    _training("training, steep rectifier", False, Rectifier(3.0)),
    _training("training, residual", True, None),
    _training("training, residual and rectifier", True, Rectifier()),
    _gradients("gradients", None),
    _gradients("gradients, sign from X", lambda a: Rectified(Rectifier(0.25), a["bias"], None)),
    _gradients("gradients, sign from Y", lambda a: Rectified(Rectifier(3.0), None, a["Y"])),
    _gradients("gradients, sign from a copy", lambda a: Rectified(Rectifier(3.0), None, copied(a, "Y"))),
    _gradients("gradients, rectifier behind", None, Rectifier(0.25)),
    _gradients("gradients in parts", None, in_parts=True),
    _gradients("gradients in parts, sign from Y", lambda a: Rectified(Rectifier(3.0), None, a["Y"]), in_parts=True),
    _gradients(
        "gradients in parts, sign from a copy", lambda a: Rectified(Rectifier(3.0), None, copied(a, "Y")), in_parts=True
    ),
    _from_output("gradients in parts from the output", False, in_parts=True),
    _from_output("gradients in parts from a copy of the output", False, True, in_parts=True),
    _from_output("gradients from the output", False),
    _from_output("gradients from the output, residual", True),
    _from_output("gradients from a copy of the output", False, True),
    _begun("gradients, begun", lambda a: a["X"]),
    _begun("gradients, begun, rectifier behind", lambda a: RectifiedInput(a["X"], Rectifier(0.25))),
    _begun("gradients, begun, from the output", lambda a: _kept(a, False, False), True),
    _begun("gradients, begun, from the output, residual", lambda a: _kept(a, True, False), True),
    _begun("gradients, begun, from a copy of the output", lambda a: _kept(a, False, True), True),
]
