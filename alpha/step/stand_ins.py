"""A copy of a step in which every array is one of a dry device: the same structure, without content.

The copy shares nothing that a step may write with the step itself: modules, optimizers, containers and the program's
own objects are copied by pickle's rules, functions with the variables of their closures and the globals that they
name. What cannot change is shared: code, classes, modules, what the libraries bring.
"""

from __future__ import annotations

import io
import pickle
import types
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from alpha.autograd.derived import Kind, derived_of, put_beside
from alpha.core.primitive import Primitive
from alpha.core.rng import Generator
from alpha.core.tensor import Tensor
from alpha.runtime import Device, get_device
from alpha.runtime.cuda.array import DeviceArray
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.planning.driver_dry import DryDevice
from alpha.runtime.settings import Setting
from alpha.step.capturing.captured import Captured
from alpha.step.sources.code import globals_in, is_library

T = TypeVar("T")

SHARED = (type, types.ModuleType, types.CodeType, np.dtype, np.ufunc, Primitive, Generator, Kind, Setting)
LARGE_COPY = 1 << 20  # bytes; a larger array of numpy is not copied, and the copy of the step may not write it
_MISSING = object()


def stand_in(value: T, device: DryDevice, reached: set[int] | None = None) -> tuple[T, set[Device]]:
    """The copy of `value`, and the devices on which the arrays of its tensors lie.

    Args:
        reached: gets the ids of the blocks of a GPU on which arrays lie.

    Raises:
        TypeError: something in it cannot be copied, such as an open file or a generator.
    """
    file = io.BytesIO()
    pickler = _Pickler(file, device)
    pickler.dump(value)
    if reached is not None:
        reached.update(pickler.blocks)
    return _Unpickler(io.BytesIO(file.getvalue()), pickler.given).load(), pickler.devices


class _Pickler(pickle.Pickler):
    """Writes the structure of a step; what is shared or replaced is in `given`, and written as its number."""

    def __init__(self, file: io.BytesIO, device: DryDevice) -> None:
        super().__init__(file, protocol=5)
        self._device = device
        self.devices: set[Device] = set()
        self.given: list[Any] = []
        self._numbers: dict[int, int] = {}  # by the id of what was met
        self._met: list[Any] = []  # which keeps the ids
        self._arrays: dict[int, DeviceArray] = {}  # the dry array for each array of a tensor, by its id
        self.blocks: dict[int, DeviceArray] = {}  # a dry array for each block of real ones, by its id
        self._cells: dict[int, types.CellType] = {}  # the copies, by the id of the real ones
        self._scopes: dict[int, dict[str, Any]] = {}  # the copies' globals, by the id of the real ones

    def persistent_id(self, value: Any) -> int | None:
        number = self._numbers.get(id(value))
        if number is not None:
            return number
        replacement = self._replacement(value)
        return None if replacement is _MISSING else self._give(value, replacement)

    def _give(self, value: Any, replacement: Any) -> int:
        """Let `replacement` stand for `value`."""
        self._numbers[id(value)] = number = len(self.given)
        self._met.append(value)
        self.given.append(replacement)
        return number

    def _replacement(self, value: Any) -> Any:
        if isinstance(value, SHARED) or _is_shared_function(value):
            return value
        if isinstance(value, DeviceArray):
            return self._array(value)
        if isinstance(value, Device):
            if isinstance(value, CudaDevice) and id(value.driver) not in self._numbers:
                self._give(value.driver, self._device.driver)
            return self._device
        if isinstance(value, np.ndarray) and value.nbytes > LARGE_COPY:
            value = value.view()
            value.flags.writeable = False
            return value
        return _MISSING

    def _array(self, array: Any) -> DeviceArray:
        """The dry array that stands for an array of a tensor."""
        if id(array) not in self._arrays:
            self._arrays[id(array)] = self._make(array)
        return self._arrays[id(array)]

    def _make(self, array: Any) -> DeviceArray:
        """A new dry array; views of one block become views of one block."""
        if isinstance(array, np.ndarray):
            self.devices.add(get_device("cpu"))
            return self._device.empty(array.shape, array.dtype)
        self.devices.add(array.device)
        if array.device is self._device:
            whole = array
        else:
            if id(array.block) not in self.blocks:
                self.blocks[id(array.block)] = self._device.empty((array.block.nbytes,), np.uint8)
            whole = self.blocks[id(array.block)]
        return DeviceArray(self._device, whole.block, array.offset, array.form)

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._reduce_tensor(value)
        if isinstance(value, types.FunctionType):
            return self._reduce_function(value)
        if isinstance(value, Captured):
            state = {"function": value.captured_function, "strict": value.strict}
            return _new, (type(value),), state, None, None, _fill_captured
        return NotImplemented

    def _reduce_tensor(self, tensor: Tensor) -> Any:
        slots = tensor._held()
        beside = [found.state() for found in derived_of(slots["array"])]
        slots["array"] = array = self._array(slots["array"])
        self._give(array, array)
        state = {"attributes": getattr(tensor, "__dict__", {}), "slots": slots, "beside": beside}
        return _new, (type(tensor),), state, None, None, _fill_tensor

    def _reduce_function(self, function: types.FunctionType) -> Any:
        """A function of the same code, whose variables are filled when it is there: they may name it."""
        scope, named = function.__globals__, {}
        if not is_library(scope.get("__name__")):
            named = {name: scope[name] for name in sorted(globals_in(function))}
            scope = self._scopes.setdefault(id(scope), dict(scope))
        cells = function.__closure__ or ()
        closure = tuple([self._cells.setdefault(id(cell), types.CellType()) for cell in cells])
        shell = types.FunctionType(function.__code__, scope, function.__name__, None, closure)
        self._give(shell, shell)
        state = {
            "named": named,
            "contents": [_content(cell) for cell in cells],
            "attributes": {
                name: getattr(function, name)
                for name in ("__module__", "__qualname__", "__doc__", "__defaults__", "__kwdefaults__", "__dict__")
            },
        }
        return _same, (shell,), state, None, None, _fill_function


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, given: list[Any]) -> None:
        super().__init__(file)
        self._given = given

    def persistent_load(self, number: int) -> Any:
        return self._given[number]


def _is_shared_function(value: Any) -> bool:
    """True if the value is a function that holds nothing of the program's: a builtin one, or one of a library."""
    if isinstance(value, types.BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, (types.ModuleType, type))
    if not isinstance(value, types.FunctionType) or value.__closure__:
        return False
    return is_library(value.__globals__.get("__name__"))


def _content(cell: types.CellType) -> list[Any]:
    """Content of a cell, in a list; an empty list if it was not assigned yet."""
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


def _new(kind: type[T]) -> T:
    return kind.__new__(kind)


def _same(shell: T) -> T:
    return shell


def _fill_tensor(tensor: Tensor, state: Mapping[str, Any]) -> None:
    getattr(tensor, "__dict__", {}).update(state["attributes"])
    for name, value in state["slots"].items():
        setattr(tensor, name, value)
    if state["beside"]:
        put_beside(state["slots"]["array"], state["beside"])


def _fill_function(function: types.FunctionType, state: Mapping[str, Any]) -> None:
    function.__globals__.update(state["named"])
    for cell, content in zip(function.__closure__ or (), state["contents"], strict=True):
        for value in content:
            cell.cell_contents = value
    for name, value in state["attributes"].items():
        setattr(function, name, value)


def _fill_captured(captured: Captured[..., Any], state: Mapping[str, Any]) -> None:
    Captured.__init__(captured, state["function"], state["strict"])
