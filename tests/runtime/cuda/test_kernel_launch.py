"""Argument packing, macros, and the memo of kernels, over a fake driver."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from fake_driver import FakeDriver
from helpers import python_calls

from alpha.errors import CompileError, DeviceError, ShapeError
from alpha.runtime.cuda import tensor_map
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.kernel import _triple, check_dims, define_options, pack

SHAPE = np.dtype([("n", "i4"), ("big", "i8"), ("w", "i2")], align=True)


@pytest.fixture
def cuda():
    device = CudaDevice(FakeDriver())
    yield device
    device.close()


@pytest.mark.parametrize("grid", [(1, 65536), (1, 1, 65536), (0, 1)], ids=str)
def test_a_grid_that_no_gpu_launches_is_refused(grid: tuple[int, ...]) -> None:
    check_dims((1 << 24, 65535, 65535), 32)
    with pytest.raises(DeviceError, match="a grid has"):
        check_dims(grid, 32)


def test_memory_of_tensor_maps_is_kept_from_others(cuda: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """TMA may still have an old map where a new one lies."""
    monkeypatch.setattr(tensor_map, "MAX_TENSOR_MAPS", 4)
    monkeypatch.setattr(tensor_map, "PAGE_BYTES", 256)
    encoded: list[int] = []

    def encode(dtype: str, address: int, *_: object) -> bytes:
        encoded.append(address)
        return address.to_bytes(128, "little")

    monkeypatch.setattr(cuda.driver, "encode_tiled_map", encode, raising=False)
    places: list[int] = []
    source = cuda.zeros(4, np.float32)
    for key in [*range(4), 0, *range(4, 12)]:
        array = cuda.tensor_maps.of(source, key, lambda: [("float32", key, (), (), ())])  # noqa: B023
        assert cuda.download(array).tobytes() == key.to_bytes(128, "little")
        assert array.address not in places[-4:] or key == 0
        places.append(array.address)
    assert encoded == list(range(12))
    assert places[1] == places[0] + 128, "maps lie side by side in a page"
    assert cuda.memory_stats().allocations <= 6
    cuda.tensor_maps.of(source, 6, lambda: pytest.fail("it is kept"))


def test_arrays_of_one_shape_and_dtype_share_their_form(cuda: CudaDevice) -> None:
    first, second = cuda.empty((4, 6), np.float32), cuda.empty((np.int64(4), 6), "float32")
    assert first.form is second.form is first.reshape(2, -1).reshape(4, 6).form
    assert (first.shape, first.ndim, first.size, first.nbytes) == ((4, 6), 2, 24, 96)
    assert cuda.empty((4, 6), np.int32).form is not first.form
    rows = first.slice_rows(np.int64(1), np.int64(3))
    assert rows.form is cuda.empty((2, 6), np.float32).form
    assert [type(number) for number in (rows.offset, *rows.shape)] == [int] * 3
    assert rows.address == first.address + 24
    for wrong in ((0, 5), (3, 2), (-1, 2)):
        with pytest.raises(ShapeError, match="are not within shape"):
            first.slice_rows(*wrong)
    with pytest.raises(ShapeError, match="no negative size"):
        cuda.empty((-1, 2), np.float32)
    with pytest.raises(DeviceError, match="hold Python objects"):
        cuda.empty((1,), np.dtype(object))


def test_natural_alignment(cuda: CudaDevice) -> None:
    array = cuda.zeros(3, np.float32)
    data, offsets = pack([1, array, np.uint8(7), 2.5, None, np.int16(-3), np.float64(0.5)])
    assert offsets == [0, 8, 16, 20, 24, 32, 40]
    assert data == struct.pack("<i4xQB3xfQh6xd", 1, array.address, 7, 2.5, 0, -3, 0.5)


def test_structures_go_by_value() -> None:
    value = np.zeros((), SHAPE)[()]
    value["n"], value["big"], value["w"] = 1, 2, 3
    data, offsets = pack([True, value, np.float32(4)])
    assert offsets == [0, 8, 32]
    assert data == struct.pack("<i4xi4xqh6xf", 1, 1, 2, 3, 4.0)


def test_structures_of_two_types_are_not_mixed_up() -> None:
    small = np.zeros((), np.dtype([("a", "i4")], align=True))[()]
    large = np.zeros((), SHAPE)[()]
    assert len(pack([small])[0]) == 4
    assert len(pack([large])[0]) == 24


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([0, 2**31], "argument 1: 2147483648 does not fit int32: pass np.int64"),
        ([1e300], "argument 0: 1e.300 does not fit float32"),
        ([np.zeros(3)], "argument 0: a kernel takes no ndarray"),
        ([np.zeros((), [("a", "i1"), ("b", "i4")])[()]], "align=True"),
    ],
)
def test_arguments_that_do_not_fit(args: list[object], message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        pack(args)


def test_no_arguments() -> None:
    assert pack([])[0] == b""


def test_macros() -> None:
    defines = {"BM": 64, "EPS": 1e-5, "OP": "x + 1", "FAST": True, "S": np.float32(0.5)}
    assert define_options(defines) == [
        "-DALPHA_BM=64",
        "-DALPHA_EPS=1e-05f",
        "-DALPHA_FAST=1",
        "-DALPHA_OP=x + 1",
        "-DALPHA_S=0.5f",
    ]
    with pytest.raises(ValueError, match="finite"):
        define_options({"X": float("nan")})


def test_each_configuration_is_compiled_once(cuda: CudaDevice) -> None:
    for _ in range(2):
        for shift in (1, 1.0, 2):
            cuda.launch("runtime/selftest.cu", "selftest", 1, 32, (), {"SHIFT": shift, "A": 0})
    assert [options for _, options in cuda.driver.compiled] == [
        ("-DALPHA_A=0", "-DALPHA_SHIFT=1"),
        ("-DALPHA_A=0", "-DALPHA_SHIFT=1.0f"),
        ("-DALPHA_A=0", "-DALPHA_SHIFT=2"),
    ]
    assert len(cuda.driver.launches) == 6
    kernel = cuda.kernel("runtime/selftest.cu", "selftest", {"A": 0, "SHIFT": 1})
    assert kernel is cuda.kernel("runtime/selftest.cu", "selftest", {"SHIFT": 1, "A": 0})


def test_missing_source(cuda: CudaDevice) -> None:
    with pytest.raises(CompileError, match=r"there is no kernel source .*runtime/none\.cu"):
        cuda.launch("runtime/none.cu", "k", 1, 1, ())


@pytest.mark.parametrize(("grid", "block", "shared"), [(0, 32, 0), (1, 1025, 0), ((1, 2, 3), (32, 2), 300_000)])
def test_launch_errors_name_the_launch(cuda: CudaDevice, grid: object, block: object, shared: int) -> None:
    with pytest.raises(DeviceError) as info:
        cuda.launch("runtime/fill.cu", "fill_32", grid, block, (), shared_bytes=shared)  # type: ignore[arg-type]
    message = str(info.value)
    assert message.startswith(f"runtime/fill.cu:fill_32, grid {grid}, block {block}, ")
    assert f"{shared} bytes of dynamic shared memory" in message


def test_warm_launches_are_quick(cuda: CudaDevice) -> None:
    array = cuda.zeros(4, np.float32)

    def launch() -> None:
        cuda.launch(
            "runtime/fill.cu",
            "fill_32",
            4,
            (32, 2),
            (array, array, 1, 2, 3.0, np.int64(4)),
            {"BM": 64, "BN": 64, "BK": 8},
        )

    launch()
    calls = python_calls(launch)
    assert sum(calls.values()) <= 12, calls


def test_a_grid_of_four_sizes_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"at most three sizes: \(1, 2, 3, 4\)"):
        _triple((1, 2, 3, 4))
    assert [_triple(5), _triple((5,)), _triple((5, 6)), _triple((5, 6, 7))] == [
        (5, 1, 1),
        (5, 1, 1),
        (5, 6, 1),
        (5, 6, 7),
    ]
