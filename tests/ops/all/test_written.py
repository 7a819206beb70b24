"""Launches say what they write, by the parameters of their kernels, on which the order of two branches depends."""

from __future__ import annotations

import conv2d_geometry
import numpy as np
import pytest
from conv2d_cases import CUDA_ROWS, OPERATORS, arrays_of
from primitive_calls import CASES, WITH_LENGTH, run
from written import checked_writes, undeclared

import alpha
from alpha import nn
from alpha.autograd.memory_mode import MODES
from alpha.core.primitive import REGISTRY
from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from alpha.ops.conv2d.plan import compute, cuda_target
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan, State, Table
from alpha.runtime.cuda.planning.driver_dry import DryDevice
from alpha.runtime.registry import standing_in

ARCHITECTURES = ["sm_80", "sm_90a"]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_launches_of_primitives(arch: str) -> None:
    on = DryDevice.of(arch)
    with standing_in(on), checked_writes(computes=False) as writes:
        for name, cases in CASES.items():
            for case in cases:
                run(REGISTRY[name], on, case[:-1] if name in WITH_LENGTH else case)
    assert writes.launches > 500
    assert not writes.found


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_launches_of_convolutions(arch: str) -> None:
    """Each row, with the magnitudes and statistics that it finds."""
    on = DryDevice.of(arch)
    with standing_in(on), checked_writes(computes=False) as writes:
        for row in CUDA_ROWS:
            s = conv2d_geometry.of(row)[0]
            if row.supports(s, cuda_target(on)):
                operands = [on.zeros(getattr(s, name), arrays_of(row)) for name in OPERATORS[row.operator][1]]
                compute(row, *operands, s)
                if row.supports_epilogue:
                    compute(row, *operands, s, None, 0.25)
                if row.supports_statistics:
                    compute(row, *operands, s, None, 1.0, ChannelStatistics())
    assert writes.launches > 50
    assert not writes.found


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("channels", [6, 64])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_launches_of_joined_layers(arch: str, channels: int, precision: str) -> None:
    """A later launch of a plan only reads what an earlier one has made."""
    on = DryDevice.of(arch)
    conv, norm = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
    with standing_in(on), alpha.precision(precision), checked_writes(computes=False) as writes:
        x = alpha.zeros(40, 9, 8, channels, device="cuda", requires_grad=True)
        model = nn.ModuleList([conv, norm]).to("cuda")
        for mode in MODES:
            with alpha.memory_mode(mode):
                y = nn.conv_batch_norm(model[0], model[1], x, nn.LeakyReLU(0.1))
                z = nn.conv_batch_norm(model[0], model[1], y, nn.LeakyReLU(0.1), y)
                z.astype("float32").sum().backward()
    assert writes.launches > 12
    assert not writes.found


@pytest.mark.parametrize("said", [True, False])
def test_what_is_not_said_is_found(said: bool) -> None:
    """A magnitude that is updated, and the words in which blocks meet, are written; a table is not."""
    words = (State if said else Table)(lambda: np.zeros(3, np.uint32))
    magnitude = ArrayArg("absmax_a", updated=said)
    launch = KernelLaunch("reduce/absmax.cu", "absmax", 1, 1, (magnitude, *[None] * 5, words, None))
    found = undeclared(launch, Plan("absmax", (launch,), {}), {"absmax_a": np.zeros(1)})
    expected = ["unsigned* __restrict__ out_a", "unsigned* __restrict__ state"]
    assert found == ([] if said else [f"reduce/absmax.cu:absmax may write {each}" for each in expected])


@pytest.mark.parametrize("said", [True, False])
def test_what_is_said_too_much_is_found(said: bool) -> None:
    """An array that another launch of the plan has made is read."""
    arguments = ArrayArg("out", updated=True), ArrayArg("made", only_read=not said), *[None] * 6
    launch = KernelLaunch("reduce/absmax.cu", "absmax", 1, 1, arguments)
    plan = Plan("absmax", (launch,), {"made": Buffer((1,), np.dtype(np.float32))})
    found = undeclared(launch, plan, {"out": np.zeros(1), "made": np.zeros(1)})
    assert found == (["reduce/absmax.cu:absmax only reads const float* __restrict__ a"] if said else [])
    work = plan.work(launch, {"out": np.zeros(1), "made": np.zeros(1)})
    assert (work.read, work.written) == ((0, 16) if said else (8, 8))
