"""The emulated driver finds planted faults and names them; without the fault it is silent."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_emulator import Emulator, source_line

from alpha.errors import DeviceError

SOURCE = "faults.cu"
CORRECT = {"CORRECT": 1}
Maker = Callable[..., Emulator]


def floats(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


ANY_THREAD = r", in block \(0, 0, 0\) thread \(\d+, 0, 0\)"
FIRST = r"\(first \(0, 0, 0\)\)"

# (kernel, grid, block, arguments, the parts of the message in their order)
STOPPED: list[tuple[str, int, int, tuple[Any, ...], tuple[str, ...]]] = [
    (
        "read_beside",
        2,
        64,
        (floats(128), floats(128), np.int64(64)),
        (
            "read_beside<<<",
            "memory access out of bounds, ",
            r"in block \(1, 0, 0\) thread \(\d+, 0, 0\), faults.cu:{line: read}: 0x",
            r"\d+ bytes past the end of an allocation of 512 bytes",
        ),
    ),
    (
        "read_beside",
        1,
        32,
        (floats(1024), floats(1024), np.int64(-1)),
        (
            "memory access out of bounds, in block",
            r"thread \(0, 0, 0\)",
            "4 bytes before the start of an allocation of 4096 bytes",
        ),
    ),
    (
        "write_beside",
        2,
        64,
        (floats(128), floats(128), np.int64(1)),
        (
            "write_beside<<<",
            "memory access out of bounds, ",
            r"block \(1, 0, 0\) thread \(63, 0, 0\)",
            "0 bytes past the end of an allocation of 512 bytes",
        ),
    ),
    (
        "write_beside",
        1,
        60,
        (floats(60), floats(60), np.int64(3)),
        ("write_beside<<<", "write out of bounds", "0 bytes past the end of an allocation of 240 bytes"),
    ),
    (
        "write_beside",
        1,
        60,
        (floats(60), floats(60), np.int64(-2)),
        ("write_beside<<<", "write out of bounds", "8 bytes before the start of an allocation of 240 bytes"),
    ),
    (
        "shared_overrun",
        1,
        64,
        (floats(64),),
        ("shared_overrun<<<", "write outside the 256 bytes of dynamic shared memory, ", r"in block \(0, 0, 0\)"),
    ),
    (
        "early_exit",
        3,
        64,
        (floats(192),),
        (
            "early_exit<<<",
            r"divergent __syncthreads in block \(2, 0, 0\); 40 threads ",
            FIRST,
            " wait at __syncthreads, faults.cu:{barrier: early exit}; 24 threads ",
            r"\(first \(40, 0, 0\)\) have exited",
        ),
    ),
    (
        "two_barriers",
        1,
        64,
        (floats(64),),
        (
            "two_barriers<<<",
            r"divergent __syncthreads in block \(0, 0, 0\); 10 threads ",
            FIRST,
            " wait at __syncthreads, faults.cu:{barrier: the few}; 54 threads ",
            r"\(first \(10, 0, 0\)\)",
            " wait at __syncthreads, faults.cu:{barrier: the many}",
        ),
    ),
    (
        "barrier_in_branch",
        1,
        64,
        (floats(64),),
        (
            "barrier_in_branch<<<",
            r"divergent __syncthreads in block \(0, 0, 0\); 32 threads ",
            FIRST,
            " wait at __syncthreads",
            r"; 32 threads \(first \(32, 0, 0\)\) have exited",
        ),
    ),
    (
        "different_collectives",
        1,
        32,
        (floats(32),),
        ("lanes of warp 0 meet at different operations: ", r"lane \d+ at a (shuffle|vote)"),
    ),
    ("half_a_warp_multiplies", 1, 32, (floats(32),), ("mma_m16n8k8_tf32: only lanes 0xffff of warp 0 are there",)),
    (
        "lonely_named_barrier",
        1,
        64,
        (floats(64),),
        (
            r"deadlock in block \(0, 0, 0\); 32 threads ",
            FIRST,
            " wait at named barrier 3 where 32 of 64 threads have arrived",
        ),
    ),
    ("misaligned_copy", 1, 64, (floats(128), floats(64)), ("cp.async of 16 bytes from .*: not aligned", ANY_THREAD)),
    ("endless_stack", 1, 32, (floats(32), 10**6), ("endless_stack<<<", "the thread's stack overflowed", ANY_THREAD)),
    ("null_pointer", 1, 32, (None, floats(32)), ("null_pointer<<<", "access through a null pointer", ANY_THREAD)),
]


def shared_bytes(kernel: str) -> int:
    return 256 if kernel in ("shared_overrun", "uninitialised_dynamic") else 0


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize(("kernel", "grid", "block", "args", "pieces"), STOPPED, ids=[row[0] for row in STOPPED])
def test_fault_that_stops_the_launch(
    kernel: str, grid: int, block: int, args: Any, pieces: tuple[str, ...], seed: int, emulator_for: Maker
) -> None:
    launch = emulator_for(ALPHA_EMULATED_SEED=seed)
    message = ".*".join(pieces)
    for label in re.findall(r"\{(\w+: \w[\w ]+)\}", message):
        message = message.replace(f"{{{label}}}", str(source_line(SOURCE, f"// {label}")))
    nbytes = shared_bytes(kernel)
    launch(SOURCE, kernel, grid, block, *args, shared_bytes=nbytes, defines=CORRECT)
    for _ in range(2):  # a fault leaves nothing behind that changes the next launch
        with pytest.raises(DeviceError, match=message):
            launch(SOURCE, kernel, grid, block, *args, shared_bytes=nbytes)
    launch(SOURCE, kernel, grid, block, *args, shared_bytes=nbytes, defines=CORRECT)


# (kernel, grid, block, arguments without the result, the right result)
X = floats(512)
LANES = np.arange(128)
SPOILED: list[tuple[str, int, int, tuple[Any, ...], Any]] = [
    ("missing_barrier", 1, 128, (X,), np.roll(X[:128], -1)),
    ("missing_second_barrier", 1, 128, (X,), np.roll(X.reshape(4, 128).sum(0), -64)),
    ("missing_syncwarp", 1, 32, (X,), X[np.arange(32) ^ 1]),
    ("missing_copy_wait", 1, 128, (X,), X[127 - LANES]),
    ("weak_copy_wait", 1, 128, (X,), X[LANES] + X[255 - LANES]),
    ("uninitialised_static", 1, 64, (), np.full(64, 64)),
    ("uninitialised_dynamic", 2, 64, (), np.full(128, 64)),
]


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize(("kernel", "grid", "block", "args", "expected"), SPOILED, ids=[row[0] for row in SPOILED])
def test_fault_that_spoils_the_result(
    kernel: str, grid: int, block: int, args: Any, expected: Any, seed: int, emulator_for: Maker
) -> None:
    launch = emulator_for(ALPHA_EMULATED_SEED=seed)
    y = np.zeros(expected.shape, np.float32)
    nbytes = shared_bytes(kernel)
    launch(SOURCE, kernel, grid, block, *args, y, shared_bytes=nbytes, defines=CORRECT)
    np.testing.assert_array_equal(y, expected)
    launch(SOURCE, kernel, grid, block, *args, y, shared_bytes=nbytes)
    assert not np.array_equal(y, expected)
    if "second" not in kernel:  # there old values are read, elsewhere poison
        assert np.isnan(y).any()


def test_copy_into_a_tile_still_read_is_seen_with_a_seed(emulator_for: Maker) -> None:
    expected = X[127 - LANES] + X[128 + LANES]
    y = np.zeros(128, np.float32)
    launch = emulator_for(ALPHA_EMULATED_SEED=5)
    launch(SOURCE, "early_copy", 1, 128, X, y, defines=CORRECT)
    np.testing.assert_array_equal(y, expected)
    launch(SOURCE, "early_copy", 1, 128, X, y)
    assert not np.array_equal(y, expected)


def test_fresh_device_memory_is_nan(emulator: Emulator) -> None:
    driver = emulator.driver
    for nbytes in (4, 516, 70_000):
        address = driver.allocate(nbytes)
        assert address % 512 == 0
        fresh = np.zeros(nbytes // 4, np.float32)
        driver.download(fresh, address)
        assert np.isnan(fresh).all()
        driver.free(address)


def test_freed_memory_is_guarded(emulator: Emulator) -> None:
    driver = emulator.driver
    stale = np.uint64(driver.allocate(256))
    driver.free(int(stale))
    message = r"thread \(0, 0, 0\).*inside a freed allocation of 256 bytes"
    with pytest.raises(DeviceError, match=message):
        emulator(SOURCE, "read_beside", 1, 64, stale, floats(64), np.int64(0))


def test_copies_outside_an_allocation(emulator: Emulator) -> None:
    driver = emulator.driver
    address = driver.allocate(100)
    with pytest.raises(DeviceError, match=r"upload: 104 bytes at .* 3 bytes past the end of an"):
        driver.upload(address, np.zeros(26, np.float32))
    with pytest.raises(DeviceError, match=r"fill: 1 bytes at .* 4 bytes before the start of an"):
        driver.fill(address - 4, 0, 1)
    with pytest.raises(DeviceError, match="free: 0x1234 is not an allocation"):
        driver.free(0x1234)


def test_arguments_that_do_not_fit(emulator: Emulator) -> None:
    x = floats(64)
    with pytest.raises(DeviceError, match=r"read_beside<<<.*takes 3 arguments, given 2"):
        emulator(SOURCE, "read_beside", 1, 64, x, x)
    with pytest.raises(DeviceError, match=r"parameter 2 of 8 bytes ends at byte 24, .* 20 bytes"):
        emulator(SOURCE, "read_beside", 1, 64, x, x, 0)
    with pytest.raises(DeviceError, match=r"has no extern .* function 'nobody'"):
        emulator(SOURCE, "nobody", 1, 64)
    with pytest.raises(DeviceError, match=r"early_exit.*the grid or the block is too large"):
        emulator(SOURCE, "early_exit", 1, 1025, x)
    with pytest.raises(DeviceError, match=r"early_exit: 200000 bytes of dynamic .* the limit is 166912"):
        emulator(SOURCE, "early_exit", 1, 64, x, shared_bytes=200_000)


def test_block_beyond_its_launch_bounds(emulator: Emulator) -> None:
    x = floats(512)
    with pytest.raises(DeviceError, match=r"a block of 256 threads; __launch_bounds__ allows 128"):
        emulator("semantics.cu", "block_sum", 1, 256, x, x, shared_bytes=4)


def test_same_seed_same_order(emulator_for: Maker) -> None:
    """A racy kernel gives one wrong result a seed, and another under another seed."""
    results = []
    for seed in (3, 3, 4):
        y = np.zeros(128, np.float32)
        emulator_for(ALPHA_EMULATED_SEED=seed)(SOURCE, "missing_barrier", 1, 128, X, y)
        results.append(y)
    np.testing.assert_array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2], equal_nan=True)
