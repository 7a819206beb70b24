"""Plans: what they say, and what their launches get."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conv2d_cases import hopper, make, operands
from helpers import choosing
from launch_log import observed_launches

import alpha
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.errors import DeviceError
from alpha.ops.conv2d import conv2d_forward
from alpha.ops.conv2d.launch import plan
from alpha.ops.conv2d.plan import compute, cuda_target, plan_configuration
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, ConvProblem, Epilogue
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan, Table
from alpha.ops.normalization.batch_norm_cuda import plan_statistics
from alpha.runtime.cuda.cuda_device import CudaDevice

LAYER = make(64, (8, 8), (64, 64), (3, 3), p=(1, 1))
BY_NAME = {row.name: row for row in CONFIGURATIONS}


def test_a_plan_says_what_will_run_and_why() -> None:
    target = cuda_target(hopper())
    with choosing(lambda v: v.name == "sk_dilated_sm90_fp16x3_64x64"):
        text = plan(ConvProblem(WEIGHT, LAYER, "float32"), target).describe().splitlines()
    assert text[0] == "sk_dilated_sm90_fp16x3_64x64: Hopper, trimmed; 64 filters, the warpgroups ping-pong"
    assert text[1].startswith("  conv2d/sk_dilated/sm90.cu:sk_dilated_sm90 BM=64 BN=64 DW=1 MATH=FP16X3 NDIM=2 ")
    assert " BM=64 BN=64 " in text[1]
    assert "block 512 shared" in text[1]
    assert text[2].startswith("  conv2d/sk_dilated/sum_splits.cu:sum_splits ")
    assert any(line.startswith("  workspace part (") and line.endswith(" bytes") for line in text)


def test_a_problem_is_planned_once() -> None:
    target = cuda_target(hopper())
    one, same = (plan(ConvProblem(INPUT, LAYER, "tf32"), target) for _ in range(2))
    assert one is same
    assert plan(ConvProblem(INPUT, LAYER, "float32"), target) is not one
    assert plan(ConvProblem(INPUT, LAYER, "tf32", Epilogue(activation=True)), target) is not one


def test_what_a_row_does_not_do_itself_is_in_its_plan() -> None:
    """Casts of bfloat16 operands for a row on float32, with magnitudes of their own; bias and activation after it."""
    target = cuda_target(hopper())
    epilogue = Epilogue(bias=True, activation=True, statistics=True)
    problem = ConvProblem(FORWARD, LAYER, "bf16", epilogue, BFLOAT16)
    halves = plan_configuration(problem, BY_NAME["conv_v2_sm90_fp16x3_128x64"], target)
    assert [x.entry for x in halves.launches] == [*("cast", "cast", "absmax", "filter_terms", "conv_v2_sm90", "cast")]
    assert set(halves.outputs) == {"Y"}
    ffma = plan_configuration(problem, BY_NAME["implicit_gemm_ffma"], target)
    assert [x.entry for x in ffma.launches] == ["cast", "cast", "implicit_gemm_ffma", "map", "map", "cast"]
    plain = plan_configuration(ConvProblem(WEIGHT, LAYER, "bf16", dtype=BFLOAT16), BY_NAME["sk_dilated_ffma"], target)
    assert plain.launches[2].entry == "sk_dilated_ffma"
    assert plain.outputs["dW"].dtype == FLOAT32
    assert "cast" not in [x.entry for x in plain.launches[2:]]


@pytest.mark.parametrize("name", ["conv_v2_sm90_fp16x3_128x64", "implicit_gemm_ffma"])
def test_bfloat16_by_a_row_on_float32(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_CONV_KERNEL", name)
    device, s = hopper(), make(32, (4, 4), (32, 64), (3, 3), p=(1, 1))
    X, W = (device.upload(a.astype(BFLOAT16)) for a in operands(FORWARD, s, "float32"))
    bias = np.linspace(-2, 2, s.OC + 1, dtype=np.float32)
    b = device.upload(bias).slice_rows(1, s.OC + 1)  # between two multiples of 16 bytes
    Y = device.download(conv2d_forward(X, W, s, "bf16", b, 0.25))
    wide = [device.upload(device.download(a).astype(np.float32)) for a in (X, W)]
    expected = device.download(compute(BY_NAME[name], *wide, s, device.upload(bias[1:]), 0.25))
    assert Y.dtype == BFLOAT16
    np.testing.assert_array_equal(Y, expected.astype(BFLOAT16))


def test_tables_are_made_once() -> None:
    made = []

    def table() -> np.ndarray:
        made.append(1)
        return np.array([1, 5, 2, 9], np.float32)

    device: CudaDevice = alpha.get_device("cuda")  # type: ignore[assignment]
    launch = KernelLaunch(
        "reduce/absmax.cu",
        "absmax",
        1,
        256,
        (ArrayArg("largest"), Table(table), np.int64(4), None, None, np.int64(0), ArrayArg("state"), 1),
    )
    operands = {"state": device.zeros((3,), np.uint32)}
    subject = Plan("largest", (launch,), {"largest": Buffer((1,), np.dtype(np.uint32))})
    for _ in range(2):
        with observed_launches(device) as log:
            found = device.download(subject.launch(device, operands)["largest"])
        assert found.view(np.float32)[0] == 9
        assert [x.entry for x in log] == ["absmax"]
    assert made == [1]
    with pytest.raises(
        DeviceError, match=r"reduce/absmax.cu:absmax needs 'nothing', the plan was launched with largest"
    ):
        replace(subject, launches=(replace(launch, arguments=(ArrayArg("largest"), ArrayArg("nothing"))),)).launch(
            device, {}
        )
    renamed = launch.renamed({"largest": "other"})
    assert renamed.arguments[0] == ArrayArg("other")
    assert renamed.arguments[1] is launch.arguments[1]


def test_bytes_of_arrays_that_are_read_in_rare_cases() -> None:
    """Statistics are merged without X, unless squared deviations overflow."""
    R, C = 4096, 64
    made = plan_statistics(R, C, FLOAT32, 4, 8)
    arrays = {"X": np.zeros((R, C), np.float32), "part": np.zeros(made.workspaces["part"].shape, np.float32)}
    arrays |= {name: np.zeros(buffer.shape, np.float32) for name, buffer in made.outputs.items()}
    first, merge = (made.work(launch, arrays) for launch in made.launches)
    assert (first.read, first.written) == (arrays["X"].nbytes, arrays["part"].nbytes)
    assert (merge.read, merge.written) == (arrays["part"].nbytes, arrays["mean"].nbytes + arrays["var"].nbytes)
