"""Alpha's part: operands on its device, the operators through choose(), and every row that can."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

import alpha
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.core.primitive import Array
from alpha.ops import conv2d
from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from alpha.ops.conv2d.launch import prepare
from alpha.ops.conv2d.magnitudes import needs_magnitude
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.problem import INPUT, Epilogue, seen_by_kernels
from alpha.ops.conv2d.select import time_model
from alpha.ops.conv2d.select.choose import applicable, choose
from alpha.ops.conv2d.select.grouped_table import GROUPED
from alpha.ops.conv2d.select.product_table import PRODUCTS
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.select.time_model import predicted_ms
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.conv2d.step_form import StepForm
from alpha.ops.kernel.plan import Plan
from alpha.ops.kernel.rectifier import FROM_X, FROM_Y, Rectifier, RectifierStep
from alpha.ops.normalization.batch_norm_primitives import channel_statistics
from alpha.runtime import Device, DeviceArray
from alpha.runtime.cuda.compile import compile_units
from alpha.runtime.cuda.planning.driver_dry import DryDevice
from bench.operators import Operator, Part
from bench.timing import FILL_BYTES, Clock, Contestant, EventClock, WallClock

Round: TypeAlias = tuple[Operator, ConvShape, str, bool]  # .., precision, whether every configuration takes part


def on_gpu(device: Device) -> bool:
    """A real one, not the emulated driver."""
    driver = getattr(device, "driver", None)
    return driver is not None and driver.name == "pycuda"


class AlphaSide:
    """Contestants on one of Alpha's devices."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.clock: Clock = event_clock(device, FILL_BYTES) if on_gpu(device) else WallClock()

    def contestants(
        self, operator: Operator, s: ConvShape, arrays: dict[str, Array], every: bool, fused: Collection[str] = ()
    ) -> list[Contestant]:
        """The row that is chosen, under its name; if wanted every other row that can.

        Args:
            fused: "statistics" adds Y with the statistics of its channels, "first-steps" adds dX with each first step
                of the gradient behind it that the chosen kernel takes.
        """
        target = conv2d.CPU if self.device.name == "cpu" else conv2d.cuda_target(self.device)
        first, second = (arrays[name] for name in operator.operands)
        precision = alpha.get_precision()
        chosen = choose(operator.key, s, target, precision)
        calls = {chosen.name: partial(operator.primitive, first, second, s, precision)}
        if every:
            for v in applicable(operator.key, s, target, precision):
                if v.precision == precision:
                    calls.setdefault(v.name, partial(compute, v, first, second, s))
        if "statistics" in fused and operator.result == "Y":
            calls["then statistics"] = partial(_with_moments, first, second, s, precision, True)
            calls["with statistics"] = partial(_with_moments, first, second, s, precision, False)
        if "first-steps" in fused and operator.result == "dX" and self.device.name == "cuda":
            calls |= self._first_steps(first, second, s, precision)
        take = partial(self._take, operator.result)
        return [Contestant(name, call, self.clock, take) for name, call in calls.items()]

    def _first_steps(self, dY: Array, W: Array, s: ConvShape, precision: str) -> dict[str, Callable[[], Array]]:
        """Calls of dX with a first step, by what lies behind: those that the kernel takes.

        Their arrays are such that the step multiplies by 1 and adds 0, so each result is dX.
        """
        device: Any = self.device
        X, zeros = device.upload(np.ones(s.X, dY.dtype)), device.zeros(s.X, dY.dtype)
        mean, bias = (device.zeros((s.IC,), FLOAT32) for _ in range(2))
        var, weight = (device.upload(np.ones((s.IC,), FLOAT32)) for _ in range(2))
        columns = {"mean": mean, "var": var, "weight": weight, "bias": bias, "eps": 1e-5, "smallest": 1e-5}
        steps = {
            "step: rectifier": RectifierStep(Rectifier(), FROM_Y, {"Y": X}),
            "step: norm, rectifier": RectifierStep(Rectifier(), FROM_X, {"X": X}, columns),
            "step: sum, norm, rectifier": RectifierStep(Rectifier(), FROM_X, {"X": X}, columns),
        }
        steps["step: sum, norm, rectifier"].other = zeros
        calls: dict[str, Callable[[], Array]] = {}
        for name, step in steps.items():
            epilogue = Epilogue(step=StepForm.of(step, needs_magnitude(dY)))
            plan, operands = prepare(INPUT, (dY, W), s, precision, None, 1.0, epilogue)
            if plan.facts.get("takes step"):
                calls[name] = partial(_launched, plan, device, {**operands, **step.operands})
        return calls

    def predicted_ms(self, operator: Operator, s: ConvShape, name: str) -> float | None:
        """Time in ms that the model predicts for a configuration; None on the cpu, and for other contestants."""
        v = next(
            (v for v in (*CONFIGURATIONS, *PRODUCTS, *GROUPED) if (v.name, v.operator) == (name, operator.key)), None
        )
        if v is None or not time_model.is_counted(v):
            return None
        target = conv2d.cuda_target(self.device)
        return predicted_ms(v, seen_by_kernels(s, target), target)

    def compile(self, rounds: Iterable[Round], fused: Collection[str] = ()) -> None:
        """Compile what all contestants of these rounds launch, as many kernels at once as there are cores.

        It takes them from a dry run on a device without memory.
        """
        if self.device.name == "cpu":
            return
        device: Any = self.device
        dry = AlphaSide(DryDevice.double(device.properties))
        with dry.device.driver.noting() as found:  # type: ignore[attr-defined]
            for operator, s, precision, every in rounds:
                dtype = self.dtype(precision)
                arrays: dict[str, Array] = {
                    name: dry.device.empty(getattr(s, name.removeprefix("d")), dtype) for name in operator.operands
                }
                with alpha.precision(precision):
                    for contestant in dry.contestants(operator, s, arrays, every, fused):
                        contestant.call()
        compile_units(device.driver, [launch.unit for launch in found])

    def dtype(self, precision: str) -> np.dtype[Any]:
        """Dtype of a layer's operands: bfloat16 on a GPU that is asked for bf16, else float32."""
        return BFLOAT16 if precision == "bf16" and self.device.name == "cuda" else FLOAT32

    def arrays(self, operands: dict[str, Any], dtype: np.dtype[Any]) -> dict[str, Array]:
        """X, W and dY from numpy arrays or PyTorch tensors; on the GPU they do not leave it."""
        return {name: self._array(operand, dtype) for name, operand in operands.items()}

    def _array(self, operand: Any, dtype: np.dtype[Any]) -> Array:
        if not getattr(operand, "is_cuda", False):
            return self.device.upload(np.asarray(operand).astype(dtype))
        cuda: Any = self.device
        operand = operand.bfloat16() if dtype == BFLOAT16 else operand
        array = cuda.empty(tuple(operand.shape), dtype)
        sys.modules["torch"].cuda.synchronize()  # it has written them in a stream of its own
        cuda.driver.copy(array.address, operand.data_ptr(), array.nbytes)
        cuda.synchronize()
        return array

    def _take(self, name: str, result: Array, part: Part) -> np.ndarray:
        if isinstance(result, DeviceArray) and name != "dW":  # whole images, one by one
            rows = [result.slice_rows(n, n + 1) for n in range(len(result))[part.images]]
            part = Part(slice(None), part.outputs, part.inputs)
            host = np.concatenate([self.device.download(row) for row in rows])
        else:
            host = self.device.download(result)
        return np.asarray(part.of(name, host))


def _launched(plan: Plan, device: Any, operands: dict[str, Any]) -> Array:
    """The result dX of a plan."""
    dX: Array = plan.launch(device, operands)["dX"]
    return dX


def _with_moments(X: Array, W: Array, s: ConvShape, precision: str, own_pass: bool) -> Array:
    """Y, and its channels' mean and variance: by a pass of their own, or with Y where the kernel can."""
    statistics = ChannelStatistics()
    Y = conv2d.conv2d_forward(X, W, s, precision, statistics=None if own_pass else statistics)
    found = None if statistics.part is None else statistics
    channel_statistics(Y.reshape(-1, s.OC), None, None, 0.1, found)
    return Y


def event_clock(device: Device, fill_bytes: int) -> EventClock:
    """The clock of Alpha's stream."""
    cuda: Any = device
    scratch = cuda.empty(fill_bytes, np.uint8)
    return EventClock(cuda.record_event, cuda.elapsed_ms, lambda: cuda.driver.fill(scratch.address, 0, scratch.nbytes))
