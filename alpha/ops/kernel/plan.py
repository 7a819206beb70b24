"""Plan of an operator on a GPU, decided before it runs: its launches, of which kernels on which grids, and workspaces.

A plan depends on sizes, dtypes and the GPU's properties and on no array, so it is made once for each problem and kept.

    plan = ...                              # made by an operator, for instance alpha.ops.conv2d.plan
    print(plan.describe())
    Y = plan.launch(device, {"X": X, "W": W})["Y"]

Arrays have names: the operands, the outputs, and the workspaces, which live only while the plan is launched.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from alpha.core.numerics import FLOAT32
from alpha.core.primitive import Array
from alpha.errors import DeviceError, ShapeError
from alpha.runtime import recording
from alpha.runtime.cuda.array import ArrayForm, form_of
from alpha.runtime.cuda.driver import PackedArguments
from alpha.runtime.cuda.kernel import POINTER, Layout, check_dims, kind_of
from alpha.runtime.work import NO_WORK, Work

if TYPE_CHECKING:
    from alpha.runtime.cuda.cuda_device import CudaDevice
    from alpha.runtime.cuda.tensor_map import TensorMap


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
        operator: what it computes, for a profile; by default its name.
    """

    name: str
    launches: tuple[KernelLaunch, ...]
    outputs: Mapping[str, Buffer]
    workspaces: Mapping[str, Buffer] = field(default_factory=dict)
    reason: str = ""
    cycles: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    operator: str = ""

    def launch(self, device: CudaDevice, operands: Mapping[str, Any]) -> dict[str, Array]:
        """Queue the launches and return the outputs by name.

        Raises:
            DeviceError: an operand is missing that a kernel needs, or a kernel cannot be launched.
        """
        prepared = device.prepared.get(self) or self.prepare(device)
        noted = recording.state.listener
        beside = noted is not None and noted.beside
        arrays, outputs = {**operands, **prepared.kept}, {}
        for name, form in prepared.workspaces if not beside else self._workspace_forms:
            arrays[name] = device.make(form)
        for name, form in self._apart:
            arrays[name] = outputs[name] = device.make(form)
        for names, forms in self._together:
            outputs.update(zip(names, device.make_together(forms), strict=True))
        if self._together:
            arrays.update(outputs)
        for step in prepared.launches:
            packed = step.pack(arrays, beside)
            if noted is not None:
                noted.note(step.used(arrays), *step.node, packed[0], about=(step, arrays))
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
        forms = dict(self._workspace_forms)
        kept = device.small_workspaces.of(tuple(forms.values())) if forms else []
        arrays = {} if kept is None else dict(zip(forms, kept, strict=True))
        made = () if arrays else tuple(forms.items())
        prepared = PreparedPlan([PreparedLaunch(step, device, self) for step in self.launches], arrays, made)
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
    def _workspace_forms(self) -> list[tuple[str, ArrayForm]]:
        return [(name, buffer.form) for name, buffer in self.workspaces.items()]

    @cached_property
    def made(self) -> frozenset[str]:
        """The names of the arrays that the launches make: outputs and workspaces, or without outputs a given Y."""
        return frozenset((*self.outputs, *self.workspaces, *(() if self.outputs else ("Y",))))

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

    def work(self, launch: KernelLaunch, arrays: Mapping[str, Any]) -> Work:
        """The work of one of the launches: what the launch says of itself, and else the bytes of its arrays.

        It writes what `written` says, but no workspace that a launch before it has; it reads all others.
        """
        if not isinstance(launch.does, Work):
            return launch.does(arrays)
        earlier = self.launches[: self.launches.index(launch)]
        known = {argument.name for step in earlier for argument in step.arguments if _is_array(argument)}
        made = self.written(launch) - (known & self.workspaces.keys())
        counted = [a.name for a in launch.arguments if _is_array(a) and not getattr(a, "rarely", False)]
        sizes = {name: arrays[name].nbytes for name in counted if arrays.get(name) is not None}
        written = sum(nbytes for name, nbytes in sizes.items() if name in made)
        return launch.does._replace(read=sum(sizes.values()) - written, written=written)

    def written(self, launch: KernelLaunch) -> set[str]:
        """The names of the arrays that one of the launches writes: what the plan makes, and what is updated."""
        arrays = [a for a in launch.arguments if _is_array(a)]
        made = {a.name for a in arrays if a.name in self.made and not getattr(a, "only_read", False)}
        return made | {a.name for a in arrays if getattr(a, "updated", False)}

    @property
    def workspace_bytes(self) -> int:
        """Memory that is needed only while the plan is launched."""
        return sum(buffer.nbytes for buffer in self.workspaces.values())

    def describe(self) -> str:
        """Description of what will run and why, in a few lines."""
        lines = [f"{self.name}: {self.reason}" if self.reason else self.name]
        lines += [f"  {step}" for step in self.launches]
        lines += [
            f"  workspace {name} {buffer.shape} {buffer.dtype.name}, {buffer.nbytes:,} bytes"
            for name, buffer in self.workspaces.items()
        ]
        if self.cycles is not None:
            lines.append(f"  {self.cycles:,.0f} cycles predicted")
        return "\n".join(lines)


Dim: TypeAlias = int | tuple[int, ...]


@dataclass(frozen=True)
class ArrayArg:
    """A kernel's argument: the address of an array of the plan.

    An `optional` one is a null pointer if the plan is launched without it. Any other one that is missing is an error.

    Attributes:
        updated: whether the kernel writes it, though the plan does not make it (`Plan.made`).
        only_read: whether the kernel only reads it, though the plan makes it.
        rarely: whether the kernel reads it in rare cases alone, so that its bytes are not counted.
    """

    name: str
    optional: bool = False
    updated: bool = False
    only_read: bool = False
    rarely: bool = False


@dataclass(frozen=True)
class ScalarArg:
    """A kernel's argument: a number, or a structure, that the plan is launched with; it is passed by value."""

    name: str
    dtype: np.dtype[Any] = FLOAT32


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


@dataclass(frozen=True, eq=False)
class State(Table):
    """A kernel's argument: words in which the blocks of a launch meet, which leaves them as they were.

    Launches that may run at the same time have words of their own.
    """

    @cached_property
    def beside(self) -> Table:
        """The words of launches that run beside other ones."""
        return Table(self.make)


def _is_array(argument: Any) -> bool:
    return isinstance(argument, (ArrayArg, TensorMaps))


Argument: TypeAlias = Any  # ArrayArg, ScalarArg, TensorMaps, Table, or a constant that CudaDevice.launch takes


@dataclass(frozen=True, eq=False)
class KernelLaunch:
    """One launch of `entry` of `cuda/<source>`; sizes and macros as for `CudaDevice.launch`.

    Attributes:
        does: its work, if that is more than to read and write its arrays; see `Plan.work`. A function of the arrays if
            they are not among its arguments.
    """

    source: str
    entry: str
    grid: Dim
    block: Dim
    arguments: Sequence[Argument]
    defines: Mapping[str, Any] = field(default_factory=dict)
    shared_bytes: int = 0
    does: Work | Callable[[Mapping[str, Any]], Work] = NO_WORK

    def renamed(self, names: Mapping[str, str]) -> KernelLaunch:
        """The same launch on arrays of other names."""
        if not names:
            return self
        arguments = [
            replace(argument, name=names.get(argument.name, argument.name))
            if isinstance(argument, (ArrayArg, TensorMaps))
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


class PreparedLaunch:
    """A launch on one device: the kernel is loaded, and the arguments that never change are in their places.

    Attributes:
        function, grid, block, shared_bytes: for `Driver.launch`.
        node: what a recording notes of it.
        operator, configuration: the operator and the name of its plan, for a profile.
    """

    def __init__(self, launch: KernelLaunch, device: CudaDevice, plan: Plan) -> None:
        self._launch, self._device, self._plan = launch, device, plan
        self.operator, self.configuration = plan.operator or plan.name, plan.name
        self._kernel = device.kernel(launch.source, launch.entry, launch.defines, launch.shared_bytes)
        self.function, self.shared_bytes = self._kernel.function, launch.shared_bytes
        try:
            self.grid, self.block = check_dims(launch.grid, launch.block)
            self._layout = Layout([_kind(i, argument) for i, argument in enumerate(launch.arguments)])
        except DeviceError as error:
            raise self.failure(error) from error
        self.node = self._kernel.title, self.grid, self.block, self.shared_bytes
        places = list(enumerate(launch.arguments))
        self._addresses = [(i, a.name) for i, a in places if isinstance(a, ArrayArg) and not a.optional]
        self._optional = [(i, a.name) for i, a in places if isinstance(a, ArrayArg) and a.optional]
        self._values = [(i, a.name) for i, a in places if isinstance(a, ScalarArg) and not a.dtype.fields]
        self._structs = [(i, a.name) for i, a in places if isinstance(a, ScalarArg) and a.dtype.fields]
        self._maps = [(i, a) for i, a in places if isinstance(a, TensorMaps)]
        self._tables = {i: device.table(a, a.make) for i, a in places if isinstance(a, Table)}
        self._states = [(i, a) for i, a in places if isinstance(a, State)]
        self._constants = [self._tables[i].address if i in self._tables else _constant(a) for i, a in places]

    def pack(self, arrays: Mapping[str, Any], beside: bool = False) -> PackedArguments:
        """The arguments for these arrays and numbers; `DeviceError` names what is missing or does not fit.

        beside: it runs beside other launches, see `Listener.beside`.
        """
        packed = self._constants.copy()
        if beside:
            for place, table in self._tables_beside.items():
                packed[place] = table.address
        try:
            for place, name in self._addresses:
                array = arrays[name]
                packed[place] = array.block.address + array.offset  # `address`, without a call
            for place, name in self._optional:
                array = arrays.get(name)
                packed[place] = 0 if array is None else array.block.address + array.offset
            for place, name in self._values:
                packed[place] = arrays[name]
            for place, name in self._structs:
                packed[place] = arrays[name].tobytes()
            for place, maps in self._maps:
                array = arrays[maps.name]
                held = self._device.tensor_maps.of(array, maps.layout, partial(maps.encode, array))
                packed[place] = held.block.address + held.offset
            return self._layout.pack(*packed), self._layout.offsets
        except KeyError as missing:
            raise DeviceError(
                f"{self._kernel.title} needs {missing}, the plan was launched with {', '.join(arrays)}"
            ) from None
        except (struct.error, OverflowError, AttributeError) as error:
            raise self.failure(DeviceError(self._misfit(arrays))) from error

    def used(self, arrays: Mapping[str, Any]) -> list[Any]:
        """The arrays that the launch reads or writes."""
        named = [arrays.get(a.name) for a in self._launch.arguments if isinstance(a, (ArrayArg, TensorMaps))]
        maps = [self._device.tensor_maps.of(arrays[a.name], a.layout, tuple) for _, a in self._maps]
        return [*named, *maps, *{**self._tables, **self._tables_beside}.values()]

    def written(self, arrays: Mapping[str, Any]) -> list[Any]:
        """The arrays among these that the launch writes."""
        names = self._plan.written(self._launch)
        written = [arrays.get(a.name) for a in self._launch.arguments if _is_array(a) and a.name in names]
        tables = {**self._tables, **self._tables_beside}
        return [*written, *[tables[i] for i, _ in self._states]]

    @property
    def _tables_beside(self) -> dict[int, Array]:
        """Words in which the blocks meet, by their places, if it runs beside other launches."""
        noted = recording.state.listener
        if noted is None or not noted.beside:
            return {}
        return {i: self._device.table(state.beside, state.make) for i, state in self._states}

    def work(self, arrays: Mapping[str, Any]) -> Work:
        """The work for these arrays."""
        return self._plan.work(self._launch, arrays)

    def failure(self, error: DeviceError) -> DeviceError:
        """The error of this launch, with what was launched."""
        return self._kernel.failure(self._launch.grid, self._launch.block, error)

    def _misfit(self, arrays: Mapping[str, Any]) -> str:
        given = {a.name: arrays.get(a.name) for a in self._launch.arguments if isinstance(a, (ArrayArg, ScalarArg))}
        return "its arguments do not fit: " + ", ".join(f"{name}={value!r}" for name, value in given.items())


def _kind(place: int, argument: Argument) -> tuple[int, int, str]:
    if isinstance(argument, (ArrayArg, TensorMaps, Table)):
        return POINTER
    return kind_of(place, np.zeros((), argument.dtype)[()] if isinstance(argument, ScalarArg) else argument)


def _constant(argument: Argument) -> Any:
    """An argument as `struct` takes it; zero for one that is filled in at each launch."""
    if isinstance(argument, (ArrayArg, ScalarArg, TensorMaps)) or argument is None:
        return 0
    return argument.tobytes() if isinstance(argument, np.void) else argument
