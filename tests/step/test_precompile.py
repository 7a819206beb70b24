"""`alpha.compile_kernels`: the first step finds every kernel that it launches, compiled at once before it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from builds import Builds

import alpha
import alpha.nn.functional as F
from alpha import nn
from alpha.errors import CompileError, DryRunWarning
from alpha.ops.kernel.elementwise import activation
from alpha.runtime.cuda.cuda_device import CudaDevice


class Program:
    def __init__(self) -> None:
        self.net = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(12, 3)).to("cuda")
        self.optimizer = alpha.optim.SGD(self.net.parameters(), lr=0.1)
        self.data = [alpha.tensor(np.ones((4, 2, 2, 3), np.float32), device="cuda")]
        self.data += [alpha.tensor(np.zeros(4, np.int32), device="cuda")]

    def step(self, x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        loss = F.cross_entropy(self.net(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


@pytest.mark.slow
def test_the_first_step_compiles_nothing(fresh: CudaDevice, builds: Builds) -> None:
    program = Program()
    step = alpha.capture(program.step)
    weight = program.net[2].weight.numpy()  # type: ignore[attr-defined, operator]
    assert alpha.compile_kernels(step, *program.data) == len(builds.units)
    assert len(builds.units) > 8
    assert all(name.startswith("alpha-compile") for name in builds.threads)
    np.testing.assert_array_equal(program.net[2].weight.numpy(), weight)  # type: ignore[attr-defined, operator]
    compiled = len(builds.units)
    losses = [step(*program.data) for _ in range(5)]
    assert len(builds.units) == compiled
    assert np.isfinite([loss.item() for loss in losses]).all()
    assert step.graphs
    assert alpha.compile_kernels(step, *program.data) == 0


@pytest.mark.slow
def test_a_module_and_a_shape(fresh: CudaDevice, builds: Builds) -> None:
    layer = nn.Linear(12, 3).to("cuda")
    assert alpha.compile_kernels(layer, (4, 12)) == len(builds.units) > 1
    compiled = len(builds.units)
    x = alpha.tensor(np.ones((4, 12), np.float32), device="cuda")
    y = layer(x)
    y.backward(alpha.tensor(np.ones((4, 3), np.float32), device="cuda"))
    assert len(builds.units) == compiled


def test_a_kernel_that_does_not_compile(fresh: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alpha.core.primitive.REGISTRY", {})  # its primitives are none of Alpha's
    rule = "a +", lambda y, *_: None
    wrong = activation("wrong_for_precompile", rule, rule)
    x = alpha.tensor(np.ones(4, np.float32), device="cuda")
    messages = []
    for compile_it in (lambda: alpha.compile_kernels(wrong, x), lambda: wrong(x)):
        with pytest.raises(
            CompileError, match=r"map.cu does not compile .*\n  options: .*-DALPHA_EXPRESSION=a \+"
        ) as e:
            compile_it()
        messages.append(str(e.value).splitlines()[:2])
    assert messages[0] == messages[1]
    assert "-DALPHA_EXPRESSION=a + " in messages[0][1]


def test_what_cannot_be_dry_run_is_compiled_later(builds: Builds) -> None:
    x = alpha.tensor(np.ones(4, np.float32), device="cuda")

    def reads(x: alpha.Tensor) -> Any:
        return (x * 2.0).sum().item()

    with pytest.warns(
        DryRunWarning, match=r"^reads cannot be dry-run: .*; its kernels are compiled when they"
    ) as caught:
        assert alpha.compile_kernels(reads, x) == 0
    assert caught[0].filename == __file__
    assert reads(x) == 8.0


def test_on_the_cpu_there_is_nothing_to_do(builds: Builds) -> None:
    alpha.get_device("cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert alpha.compile_kernels(nn.Linear(1234, 77), (5, 1234)) == 0
    assert not builds.units
