"""Kernels: argument packing, and the memo of loaded entry points."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from alpha.errors import CompileError, DeviceError
from alpha.runtime import recording
from alpha.runtime.cuda.array import DeviceArray
from alpha.runtime.cuda.cache import source_root
from alpha.runtime.cuda.driver import Driver, PackedArguments

Define: TypeAlias = int | float | str
Dim: TypeAlias = int | tuple[int, ...]
MAX_THREADS = 1024  # of a block, on every CUDA architecture
MAX_BLOCKS_ACROSS = 65535  # of a grid, along its second and its third axis

Kind: TypeAlias = tuple[int, int, str]  # alignment, size, struct code
POINTER: Kind = (8, 8, "Q")
_CODES: dict[type, tuple[int, str]] = {  # Python or numpy type -> (alignment = size, struct code)
    DeviceArray: POINTER[1:],
    type(None): POINTER[1:],
    bool: (4, "i"),
    int: (4, "i"),
    float: (4, "f"),
    np.bool_: (1, "?"),
    np.int8: (1, "b"),
    np.uint8: (1, "B"),
    np.int16: (2, "h"),
    np.uint16: (2, "H"),
    np.int32: (4, "i"),
    np.uint32: (4, "I"),
    np.int64: (8, "q"),
    np.uint64: (8, "Q"),
    np.float16: (2, "e"),
    np.float32: (4, "f"),
    np.float64: (8, "d"),
}


class Layout:
    """Layout of arguments of given kinds, as a kernel reads them: each at its natural alignment.

    Attributes:
        offsets: where each argument begins.
        pack: the bytes of the arguments: arrays are given as addresses, null pointers as 0, structures as bytes.
    """

    def __init__(self, kinds: Iterable[Kind]) -> None:
        codes, end = "<", 0
        self.offsets: list[int] = []
        for alignment, size, code in kinds:
            padding = -end % alignment
            self.offsets.append(end + padding)
            codes += f"{padding}x{code}"
            end += padding + size
        self.pack = struct.Struct(codes).pack


class Packer:
    """Packs arguments of given types."""

    def __init__(self, args: Sequence[Any]) -> None:
        self._arrays = [i for i, arg in enumerate(args) if isinstance(arg, DeviceArray)]
        self._nulls = [i for i, arg in enumerate(args) if arg is None]
        self._structs = [i for i, arg in enumerate(args) if isinstance(arg, np.void)]
        self._layout = Layout([kind_of(i, arg) for i, arg in enumerate(args)])

    def pack(self, args: Sequence[Any]) -> PackedArguments:
        values = list(args)
        for i in self._arrays:
            values[i] = values[i].address
        for i in self._nulls:
            values[i] = 0
        for i in self._structs:
            values[i] = values[i].tobytes()
        return self._layout.pack(*values), self._layout.offsets


def kind_of(index: int, arg: Any) -> Kind:
    """Kind as which a kernel takes argument number `index`; `DeviceError` if it takes nothing of that type."""
    if isinstance(arg, np.void):
        if not arg.dtype.isalignedstruct:
            raise DeviceError(
                f"argument {index}: a structure by value needs np.dtype(..., align=True), not {arg.dtype}"
            )
        return arg.dtype.alignment, arg.dtype.itemsize, f"{arg.dtype.itemsize}s"
    if type(arg) not in _CODES:
        raise DeviceError(
            f"argument {index}: a kernel takes no {type(arg).__name__} "
            "(DeviceArray, int, float, numpy scalar, aligned structure, None)"
        )
    size, code = _CODES[type(arg)]
    return size, size, code


_packers: dict[tuple[Any, ...], Packer] = {}


def pack(args: Sequence[Any]) -> PackedArguments:
    """The arguments as the driver takes them; `DeviceError` names one that does not fit."""
    types: tuple[Any, ...] = tuple(map(type, args))
    if np.void in types:
        types += tuple(arg.dtype for arg in args if isinstance(arg, np.void))
    packer = _packers.get(types)
    if packer is None:
        packer = _packers[types] = Packer(args)
    try:
        return packer.pack(args)
    except (struct.error, OverflowError):
        raise DeviceError(_misfit(args)) from None


def _misfit(args: Sequence[Any]) -> str:
    for index, arg in enumerate(args):
        try:
            Packer([arg]).pack([arg])
        except (struct.error, OverflowError):
            kind = "int32: pass np.int64" if isinstance(arg, int) else "float32: pass np.float64"
            return f"argument {index}: {arg!r} does not fit {kind}"
    raise AssertionError("every argument fits alone")


@functools.lru_cache(maxsize=4096)
def check_dims(grid: Dim, block: Dim) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Grid and block as three sizes each; `DeviceError` if no GPU launches them."""
    grid3, block3 = _triple(grid), _triple(block)
    if min(grid3) < 1 or not 1 <= block3[0] * block3[1] * block3[2] <= MAX_THREADS:
        raise DeviceError(f"a grid has 1 block or more, a block 1 to {MAX_THREADS} threads")
    if max(grid3[1:]) > MAX_BLOCKS_ACROSS:
        raise DeviceError(f"a grid has at most {MAX_BLOCKS_ACROSS} blocks along its second and its third axis")
    return grid3, block3


class Kernel:
    """A loaded entry point.

    Attributes:
        function: what the driver launches.
        source, entry, defines: what it was compiled from.
        title: "folder/source.cu:entry".
    """

    def __init__(
        self, driver: Driver, function: Any, source: str, entry: str, defines: Mapping[str, Define], shared_bytes: int
    ) -> None:
        self.function = function
        self.source, self.entry, self.defines = source, entry, defines
        self.title = f"{source}:{entry}"
        self._driver = driver
        self._shared_bytes = shared_bytes

    def launch(self, grid: Dim, block: Dim, args: Sequence[Any], read: int | None = None) -> None:
        """Queue one launch; grid and block are a size or up to three. `read`: see `CudaDevice.launch`."""
        try:
            dims = check_dims(grid, block)
            packed = pack(args)
            noted = recording.state.listener
            if noted is not None:
                noted.note(args, self.title, *dims, self._shared_bytes, packed[0], read=read)
            self._driver.launch(self.function, *dims, self._shared_bytes, packed)
        except DeviceError as error:
            raise self.failure(grid, block, error) from error

    def failure(self, grid: Dim, block: Dim, error: DeviceError) -> DeviceError:
        """The error of a launch, with what was launched."""
        return DeviceError(
            f"{self.title}, grid {grid}, block {block}, {self._shared_bytes} bytes of dynamic shared memory: {error}"
        )


class KernelTable:
    """The kernels of one driver; each is compiled and loaded when first asked for."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._kernels: dict[tuple[Any, ...], Kernel] = {}
        self._modules: dict[Path, Any] = {}

    def get(self, source: str, entry: str, defines: Mapping[str, Define] | None, shared_bytes: int) -> Kernel:
        """The kernel; a warm call is one dictionary look-up."""
        # The type is part of the key: 1 == 1.0, but -DALPHA_X=1 and -DALPHA_X=1.0f are two kernels.
        macros: tuple[Any, ...] = ()
        if defines:
            macros = (*defines.items(), *map(type, defines.values()))
        kernel = self._kernels.get((source, entry, macros, shared_bytes))
        if kernel is None:  # the same macros in another order are the same kernel
            ordered = dict(sorted(defines.items())) if defines else {}
            types = map(type, ordered.values())
            key = (source, entry, (*ordered.items(), *types), shared_bytes)
            kernel = self._kernels.get(key) or self._load(source, entry, ordered, shared_bytes)
            self._kernels[key] = self._kernels[source, entry, macros, shared_bytes] = kernel
        return kernel

    def of(self, function: Any) -> Kernel:
        """The loaded kernel that the driver knows as `function`."""
        return next(kernel for kernel in self._kernels.values() if kernel.function is function)

    def _load(self, source: str, entry: str, defines: Mapping[str, Define], shared_bytes: int) -> Kernel:
        path = source_root() / source
        if not path.is_file():
            raise CompileError(f"there is no kernel source {path}")
        artefact = self._driver.compile(path, define_options(defines))
        if artefact not in self._modules:
            self._modules[artefact] = self._driver.load(artefact)
        try:
            function = self._driver.function(self._modules[artefact], entry, shared_bytes)
        except DeviceError as error:
            raise DeviceError(
                f"{source}:{entry} with {shared_bytes} bytes of dynamic shared memory: {error}"
            ) from error
        return Kernel(self._driver, function, source, entry, defines, shared_bytes)

    def clear(self) -> None:
        self._kernels.clear()
        self._modules.clear()


def define_options(defines: Mapping[str, Define]) -> list[str]:
    """{"BM": 64, "EPS": 1e-5} -> ["-DALPHA_BM=64", "-DALPHA_EPS=1e-05f"], sorted by name.

    A float becomes a float literal, so that it does not turn a kernel's arithmetic into double.
    """
    return [f"-DALPHA_{name}={_literal(value)}" for name, value in sorted(defines.items())]


def _literal(value: Define) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float | np.floating):
        if not math.isfinite(value):
            raise ValueError(f"a macro is a finite number, not {value}")
        return f"{float(value)!r}f"
    return str(value)


def _triple(dim: Dim) -> tuple[int, int, int]:
    if isinstance(dim, int | np.integer):
        return int(dim), 1, 1
    if len(dim) > 3:
        raise DeviceError(f"a grid or block has at most three sizes: {dim}")
    x, y, z = (*dim, 1, 1, 1)[:3]
    return int(x), int(y), int(z)
