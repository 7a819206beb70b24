"""What an operator will do on a GPU, decided before it is done: which kernels, on which grids, with which workspaces.

A plan depends on sizes, dtypes and the GPU's properties and on no array, so it is made once for each problem and kept.

    plan = ...                              # made by an operator, for instance alpha.ops.conv2d.plan
    print(plan.describe())
    Y = plan.launch(device, {"X": X, "W": W})["Y"]

Arrays have names: the operands, the outputs, and the workspaces, which live only while the plan is launched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.errors import DeviceError
from alpha.ops.kernel_launch import Dim as Dim
from alpha.ops.kernel_launch import KernelLaunch as KernelLaunch
from alpha.ops.kernel_launch import Named as Named
from alpha.ops.kernel_launch import PreparedLaunch
from alpha.ops.kernel_launch import Table as Table
from alpha.ops.kernel_launch import TensorMaps as TensorMaps
from alpha.ops.kernel_launch import Value as Value
from alpha.primitive import Array
from alpha.runtime import recording
from alpha.runtime.cuda.array import ArrayForm, form_of

if TYPE_CHECKING:
    from alpha.runtime.cuda.device import CudaDevice


@dataclass(frozen=True)
class Buffer:
    """An array that the plan makes."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @cached_property
    def form(self) -> ArrayForm:
        return form_of(self.shape, self.dtype)

    @property
    def size(self) -> int:
        """Elements."""
        return self.form.size

    @property
    def nbytes(self) -> int:
        return self.form.nbytes


@dataclass(frozen=True, eq=False)
class Plan:
    """The launches of one operator for one problem, in their order.

    Attributes:
        name: the name of the kernel configuration.
        reason: why it was chosen.
        launches: the kernels, in their order.
        outputs, workspaces: the arrays that the plan makes, by name.
        cycles: how long it will take by the model, in cycles of the GPU; None if nothing predicts it.
        facts: what a caller may want to know of the choice.
    """

    name: str
    launches: tuple[KernelLaunch, ...]
    outputs: Mapping[str, Buffer]
    workspaces: Mapping[str, Buffer] = field(default_factory=dict)
    reason: str = ""
    cycles: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def launch(self, device: CudaDevice, operands: Mapping[str, Any]) -> dict[str, Array]:
        """Queue the launches; the outputs by name.

        Raises:
            DeviceError: an operand is missing that a kernel needs, or a kernel cannot be launched.
        """
        arrays, outputs = dict(operands), {}
        for name, buffer in self.workspaces.items():
            arrays[name] = device.make(buffer.form)
        for name, buffer in self.outputs.items():
            arrays[name] = outputs[name] = device.make(buffer.form)
        noted = recording.active()
        for step in device.prepared.get(self) or self._prepare(device):
            packed = step.pack(arrays)
            if noted is not None:
                noted.note(step.used(arrays), *step.node, packed[0])
            try:
                device.driver.launch(step.function, step.grid, step.block, step.shared_bytes, packed)
            except DeviceError as error:
                raise step.failure(error) from error
        return outputs

    def _prepare(self, device: CudaDevice) -> list[PreparedLaunch]:
        """The launches on a device, which keeps them for the next launch of this plan."""
        steps = [PreparedLaunch(step, device) for step in self.launches]
        device.keep_prepared(self, steps)
        return steps

    @property
    def workspace_bytes(self) -> int:
        """Memory that is needed only while the plan is launched."""
        return sum(buffer.nbytes for buffer in self.workspaces.values())

    def describe(self) -> str:
        """What will run and why, a few lines."""
        lines = [f"{self.name}: {self.reason}" if self.reason else self.name]
        lines += [f"  {step}" for step in self.launches]
        lines += [
            f"  workspace {name} {buffer.shape} {buffer.dtype.name}, {buffer.nbytes:,} bytes"
            for name, buffer in self.workspaces.items()
        ]
        if self.cycles is not None:
            lines.append(f"  {self.cycles:,.0f} cycles predicted")
        return "\n".join(lines)
