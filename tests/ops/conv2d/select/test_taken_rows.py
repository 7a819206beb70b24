"""The row that is taken: every shape has one, the paper's networks have theirs, and a user can force one."""

from __future__ import annotations

import itertools

import pytest
from conv2d_cases import OPERATORS, cuda_shapes, make

import alpha
from alpha.ops.conv2d.prepare import shape_for
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Target
from alpha.ops.conv2d.select.choose import applicable, choose

TARGETS = (Target("cpu"), Target("cuda", (7, 5), 40), Target("cuda", (8, 0), 108), Target("cuda", (9, 0), 132))
AMPERE = Target("cuda", (8, 0), 108)


@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_every_shape_has_a_row(operator: str, target: Target) -> None:
    """The row has the precision that is asked for, or a better one."""
    for s, precision in itertools.product(cuda_shapes(), ("float32", "tf32", "bf16")):
        chosen = choose(operator, s, target, precision)
        assert shape_for(chosen, s, target), f"{chosen.name} cannot compute {s} on {target}"
        assert chosen.precision in ("float32", precision)
        assert chosen in applicable(operator, s, target, precision)


def test_choice_of_the_paper_networks() -> None:
    h200 = Target("cuda", (9, 0), 132)
    stem, deep = (make(512, (32, 32), (3, 64), (7, 7), (2, 2), (3, 3)), make(512, (4, 4), (256, 256), (3, 3), p=(1, 1)))
    assert choose(FORWARD, stem, h200).name == "direct_sm80_fp16x3"
    assert choose(FORWARD, deep, h200).name.startswith("conv_v2")
    assert choose(INPUT, deep, h200).name.startswith("ks_deconv")
    assert choose(WEIGHT, deep, h200).name.startswith("sk_dilated")
    assert choose(FORWARD, deep, Target("cuda", (7, 5), 40)).name == "implicit_gemm_ffma"
    for precision in ("tf32", "bf16"):
        for operator, algorithm in ((FORWARD, "conv_v2"), (INPUT, "ks_deconv"), (WEIGHT, "sk_dilated")):
            name = choose(operator, deep, AMPERE, precision).name
            assert name.startswith(f"{algorithm}_sm80_{precision}_")


def test_a_row_can_be_forced(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    s = make(64, (4, 4), (64, 64), (3, 3), p=(1, 1))
    monkeypatch.setenv("ALPHA_CONV_KERNEL", "conv_v2_patches")
    monkeypatch.setenv("ALPHA_DEBUG", "1")
    assert choose(FORWARD, s, Target("cpu")).name == "conv_v2_patches"
    choose(FORWARD, s, Target("cpu"))
    printed = capsys.readouterr().err
    assert printed.count("conv_v2_patches (forced)") == 1
    assert "69.4%" in printed


def test_the_gpu_of_a_target_is_no_part_of_it() -> None:
    """One choice is remembered for all GPUs of a kind."""
    assert Target("cuda", (9, 0), 132, gpu=alpha.get_device("cpu")) == Target("cuda", (9, 0), 132)
