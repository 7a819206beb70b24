"""What an operator will do on a GPU, decided before it is done: which kernels, on which grids, with which workspaces.

A plan depends on sizes, dtypes and the GPU's properties and on no array, so it is made once for each problem and kept.

    plan = ...                              # made by an operator, for instance alpha.ops.conv2d.plan
    print(plan.describe())
    Y = plan.launch(device, {"X": X, "W": W})["Y"]

Arrays have names: the operands, the outputs, and the workspaces, which live only while the plan is launched.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from alpha.errors import DeviceError
from alpha.primitive import Array

if TYPE_CHECKING:
    from alpha.runtime.cuda.device import CudaDevice, TensorMap

Dim: TypeAlias = int | tuple[int, ...]


@dataclass(frozen=True)
class Buffer:
    """An array that the plan makes; a workspace may be `zeroed`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    zeroed: bool = False

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True)
class Named:
    """A kernel's argument: the address of an array of the plan, or a number.

    An `optional` one is a null pointer if the plan is launched without it. Any other one that is missing is an error.
    """

    name: str
    optional: bool = False


@dataclass(frozen=True, eq=False)
class TensorMaps:
    """A kernel's argument: TMA descriptors of an array of the plan, one after the other in device memory.

    Attributes:
        name: the name of the array.
        layout: what the descriptors depend on, besides the array's address, dtype and shape.
        encode: makes them.
    """

    name: str
    layout: Hashable
    encode: Callable[[Array], Iterable[TensorMap]]


@dataclass(frozen=True, eq=False)
class Table:
    """A kernel's argument: values that are made on the host once and kept on the device as long as the plan is."""

    make: Callable[[], np.ndarray[Any, Any]]


Argument: TypeAlias = Any  # Named, TensorMaps, Table, or what CudaDevice.launch takes


@dataclass(frozen=True, eq=False)
class KernelLaunch:
    """One launch of `entry` of `cuda/<source>`; sizes and macros as for `CudaDevice.launch`."""

    source: str
    entry: str
    grid: Dim
    block: Dim
    arguments: Sequence[Argument]
    defines: Mapping[str, Any] = field(default_factory=dict)
    shared_bytes: int = 0

    def bind(self, device: CudaDevice, arrays: Mapping[str, Any]) -> list[Any]:
        """The arguments for these arrays."""
        bound: list[Any] = []
        for argument in self.arguments:
            kind = type(argument)
            if kind is Named:
                if argument.name not in arrays and not argument.optional:
                    raise DeviceError(
                        f"{self.source}:{self.entry} needs {argument.name!r}, the plan was launched with "
                        f"{', '.join(arrays)}"
                    )
                bound.append(arrays.get(argument.name))
            elif kind is TensorMaps:
                bound.append(_tensor_maps(device, argument, arrays[argument.name]))
            elif kind is Table:
                bound.append(device.table(argument, argument.make))
            else:
                bound.append(argument)
        return bound

    def queue(self, device: CudaDevice, arrays: Mapping[str, Any]) -> None:
        """Launch it on these arrays."""
        bound = self.bind(device, arrays)
        device.launch(self.source, self.entry, self.grid, self.block, bound, self.defines, self.shared_bytes)

    def renamed(self, names: Mapping[str, str]) -> KernelLaunch:
        """The same launch on arrays of other names."""
        if not names:
            return self
        arguments = [
            replace(argument, name=names.get(argument.name, argument.name))
            if isinstance(argument, (Named, TensorMaps))
            else argument
            for argument in self.arguments
        ]
        return replace(self, arguments=tuple(arguments))

    def __str__(self) -> str:
        macros = " ".join(f"{name}={value}" for name, value in sorted(self.defines.items()))
        return (
            f"{self.source}:{self.entry} {macros}  grid {_size(self.grid)} block {_size(self.block)} "
            f"shared {self.shared_bytes:,} bytes"
        )


def _size(dim: Dim) -> str:
    return "x".join(map(str, dim)) if isinstance(dim, tuple) else str(dim)


def _tensor_maps(device: CudaDevice, argument: TensorMaps, array: Array) -> Array:
    return device.tensor_maps(array, argument.layout, lambda: argument.encode(array))


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
        arrays = dict(operands)
        for made in (self.workspaces, self.outputs):
            for name, buffer in made.items():
                make = device.zeros if buffer.zeroed else device.empty
                arrays[name] = make(buffer.shape, buffer.dtype)
        for step in self.launches:
            step.queue(device, arrays)
        return {name: arrays[name] for name in self.outputs}

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
