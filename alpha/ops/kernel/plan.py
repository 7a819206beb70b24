"""What an operator will do on a GPU, decided before it is done: which kernels, on which grids, with which workspaces.

A plan depends on sizes, dtypes and the GPU's properties and on no array, so it is made once for each problem and kept.

    plan = ...                              # made by an operator, for instance alpha.ops.conv2d.plan
    print(plan.describe())
    Y = plan.launch(device, {"X": X, "W": W})["Y"]

Arrays have names: the operands, the outputs, and the workspaces, which live only while the plan is launched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.core.primitive import Array
from alpha.errors import DeviceError, ShapeError
from alpha.ops.kernel.kernel_launch import Dim as Dim
from alpha.ops.kernel.kernel_launch import KernelLaunch as KernelLaunch
from alpha.ops.kernel.kernel_launch import Named as Named
from alpha.ops.kernel.kernel_launch import PreparedLaunch
from alpha.ops.kernel.kernel_launch import Table as Table
from alpha.ops.kernel.kernel_launch import TensorMaps as TensorMaps
from alpha.ops.kernel.kernel_launch import Value as Value
from alpha.runtime import recording
from alpha.runtime.cuda.array import ArrayForm, form_of

if TYPE_CHECKING:
    from alpha.runtime.cuda.device import CudaDevice


MOST_INT = 2**31 - 4096  # from which a loop may take a step of a block without an overflow


@dataclass(frozen=True)
class Buffer:
    """An array that the plan makes.

    Attributes:
        beside: the name of an output in whose block this one lies, too, because both are dropped together.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    beside: str = ""

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


@dataclass(frozen=True)
class PreparedPlan:
    """A plan on one device.

    Attributes:
        launches: the kernels, loaded.
        kept: the workspaces, if they lie in memory that the device keeps for all plans.
        workspaces: the others, which are made for each launch of the plan.
    """

    launches: Sequence[PreparedLaunch]
    kept: Mapping[str, Array]
    workspaces: Sequence[tuple[str, ArrayForm]]


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
        prepared = device.prepared.get(self) or self.prepare(device)
        arrays, outputs = {**operands, **prepared.kept}, {}
        for name, form in prepared.workspaces:
            arrays[name] = device.make(form)
        for name, form in self._apart:
            arrays[name] = outputs[name] = device.make(form)
        for names, forms in self._together:
            outputs.update(zip(names, device.make_together(forms), strict=True))
        if self._together:
            arrays.update(outputs)
        noted = recording.active()
        for step in prepared.launches:
            packed = step.pack(arrays)
            if noted is not None:
                noted.note(step.used(arrays), *step.node, packed[0])
            try:
                device.driver.launch(step.function, step.grid, step.block, step.shared_bytes, packed)
            except DeviceError as error:
                raise step.failure(error) from error
        return outputs

    def prepare(self, device: CudaDevice) -> PreparedPlan:
        """The launches on a device, their kernels loaded; the device keeps them for the next launch of this plan."""
        found: PreparedPlan | None = device.prepared.get(self)
        if found is not None:
            return found
        self._check_sizes()
        forms = {name: buffer.form for name, buffer in self.workspaces.items()}
        kept = device.small_workspaces.of(tuple(forms.values())) if forms else []
        arrays = {} if kept is None else dict(zip(forms, kept, strict=True))
        made = () if arrays else tuple(forms.items())
        prepared = PreparedPlan([PreparedLaunch(step, device) for step in self.launches], arrays, made)
        device.keep_prepared(self, prepared)
        return prepared

    def _check_sizes(self) -> None:
        """`ShapeError` for a size that is no int of its kernel, before any memory is asked for."""
        for launch in self.launches:
            for size in launch.arguments:
                if type(size) is int and size > MOST_INT:
                    raise ShapeError(
                        f"{self.name}: a size of {size:,}, at most {MOST_INT:,} are offered by {launch.source} for "
                        "each axis, or for neighbouring axes as one; cut the tensor and compute its parts"
                    )

    @cached_property
    def _apart(self) -> list[tuple[str, ArrayForm]]:
        """The outputs that have a block of their own."""
        shared = {name for names, _ in self._together for name in names}
        return [(name, buffer.form) for name, buffer in self.outputs.items() if name not in shared]

    @cached_property
    def _together(self) -> list[tuple[tuple[str, ...], tuple[ArrayForm, ...]]]:
        """The outputs that share a block: names and forms of each block."""
        groups: dict[str, dict[str, ArrayForm]] = {}
        for name, buffer in self.outputs.items():
            if buffer.beside:
                groups.setdefault(buffer.beside, {buffer.beside: self.outputs[buffer.beside].form})[name] = buffer.form
        return [(tuple(group), tuple(group.values())) for group in groups.values()]

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
