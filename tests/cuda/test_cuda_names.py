"""`alpha.cuda`: what PyTorch's programs ask of the GPU, and the counts of memory that any device has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.errors import DeviceError

MIB = 1 << 20


@pytest.fixture
def gpu() -> alpha.Device:
    try:
        return alpha.get_device("cuda")
    except DeviceError as error:
        pytest.skip(str(error))


def test_the_peak_starts_again(device: str) -> None:
    kept = alpha.zeros(MIB, device=device)
    dropped = alpha.zeros(3 * MIB, device=device)
    live = alpha.memory_stats(device).live
    del dropped
    assert alpha.memory_stats(device).peak >= live
    alpha.reset_peak_memory_stats(device)
    stats = alpha.memory_stats(device)
    assert stats.peak == stats.live <= live - 12 * MIB
    assert kept.shape == (MIB,)


def test_unused_memory_goes_back(device: str) -> None:
    kept = alpha.ones(16 * MIB, device=device)
    dropped = alpha.ones(16 * MIB, device=device)
    reserved = alpha.memory_stats(device).reserved
    del dropped
    if not alpha.get_device(device).arena.is_isolated:  # type: ignore[attr-defined]  # as the emulated GPU's
        assert alpha.memory_stats(device).reserved == reserved
    alpha.empty_cache(device)
    assert alpha.memory_stats(device).reserved <= reserved - 64 * MIB
    assert float(kept.sum().item()) == 16 * MIB


def test_counts_of_the_gpu(gpu: alpha.Device) -> None:
    before = alpha.cuda.memory_allocated()
    x = alpha.zeros(MIB, device="cuda")
    assert alpha.cuda.memory_allocated("cuda:0") == before + 4 * MIB <= alpha.cuda.memory_reserved(0)
    assert alpha.cuda.max_memory_allocated(gpu) >= before + 4 * MIB
    y = alpha.zeros(2 * MIB, device="cuda")
    del y
    assert alpha.cuda.max_memory_allocated() >= before + 12 * MIB
    alpha.cuda.reset_peak_memory_stats("cuda")
    assert alpha.cuda.max_memory_allocated() == alpha.cuda.memory_allocated() == before + 4 * MIB
    alpha.cuda.empty_cache()
    free, total = alpha.cuda.mem_get_info()
    assert 0 < free <= total
    del x


def test_the_gpu_is_named(gpu: alpha.Device) -> None:
    properties: Any = gpu.properties  # type: ignore[attr-defined]
    assert alpha.cuda.get_device_name(0) == properties.name
    assert alpha.cuda.get_device_capability() == properties.compute_capability
    assert alpha.cuda.current_device() == 0


def test_another_device_is_refused(gpu: alpha.Device) -> None:
    with pytest.raises(ValueError, match="a cuda device is needed, not 'cpu'"):
        alpha.cuda.memory_allocated("cpu")
    with pytest.raises(DeviceError, match="no device 'cuda:1': use 'cuda', the only one"):
        alpha.cuda.get_device_name(1)


def test_time_between_two_events(gpu: alpha.Device) -> None:
    start, end = (alpha.cuda.Event(enable_timing=True) for _ in range(2))
    assert start.query()
    start.synchronize()
    start.record()
    alpha.ones(MIB, device="cuda").sum()
    end.record()
    end.synchronize()
    assert end.query()
    assert 0 < start.elapsed_time(end) < 1e5
    assert end.elapsed_time(start) < 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda plain, timed: plain.elapsed_time(timed), "this event was made without enable_timing=True"),
        (lambda plain, timed: timed.elapsed_time(plain), "this event was not recorded"),
    ],
)
def test_events_without_a_time(gpu: alpha.Device, call: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"elapsed_time: {message}"):
        call(alpha.cuda.Event(), alpha.cuda.Event(enable_timing=True))


@pytest.mark.parametrize("seed", [alpha.cuda.manual_seed, alpha.cuda.manual_seed_all])
def test_seeds_are_those_of_both_devices(seed: Callable[[int], None]) -> None:
    draws = []
    for start in (alpha.manual_seed, seed):
        start(7)
        draws.append(alpha.randn(5).numpy())
    np.testing.assert_array_equal(*draws)


MARK = alpha.cuda.Event(enable_timing=True)
OF_THIS_MOMENT: dict[str, tuple[Callable[[], Any], str]] = {
    "empty_cache": (alpha.cuda.empty_cache, "memory is given back to the system"),
    "memory_stats": (lambda: alpha.memory_stats("cuda"), "the counts of memory are read"),
    "reset_peak": (lambda: alpha.reset_peak_memory_stats("cuda"), "the peak of memory starts again"),
    **{
        name: (getattr(alpha.cuda, name), "the GPU is asked for its state of this moment")
        for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "mem_get_info")
    },
    "reset_peak_memory_stats": (alpha.cuda.reset_peak_memory_stats, "the GPU is asked for its state"),
    "query": (MARK.query, "the GPU is asked for its state"),
    "synchronize": (MARK.synchronize, "the GPU is asked for its state"),
    "elapsed_time": (lambda: MARK.elapsed_time(MARK), "the GPU is asked for its state"),
    "record": (alpha.cuda.Event().record, "an event is recorded"),
}


@pytest.mark.parametrize("name", OF_THIS_MOMENT)
def test_no_captured_step_keeps_what_holds_for_a_moment(gpu: alpha.Device, name: str) -> None:
    if gpu.driver.why_no_capture:  # type: ignore[attr-defined]
        pytest.skip("no graphs")

    @alpha.capture(strict=True)
    def step(x: alpha.Tensor) -> alpha.Tensor:
        call()
        return x * 2

    call, message = OF_THIS_MOMENT[name]
    MARK.record()
    x = alpha.ones(3, device="cuda")
    with pytest.raises(alpha.CaptureError, match=message):
        step(x)
