"""Names that PyTorch's programs ask for and Alpha does not need: they change nothing, or they are refused."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.backends.cudnn as cudnn
from alpha import backends, nn
from alpha.autograd import Variable
from alpha.cuda.amp import GradScaler, autocast


def test_compile_returns_what_it_is_given() -> None:
    model = nn.Linear(2, 3)
    assert alpha.compile(model) is model
    assert alpha.compile(model, mode="max-autotune", fullgraph=True) is model

    @alpha.compile(dynamic=False)
    def double(x: alpha.Tensor) -> alpha.Tensor:
        return x * 2

    assert double(alpha.ones(2)).tolist() == [2, 2]
    with pytest.raises(TypeError, match="'fast' is no option"):
        alpha.compile(model, fast=True)
    with pytest.raises(TypeError, match="int cannot be called"):
        alpha.compile(3)  # type: ignore[call-overload]


@pytest.mark.parametrize("form", ["channels_last", "channels_last_3d", "contiguous_format", "preserve_format"])
def test_memory_formats_change_nothing(form: str) -> None:
    memory_format = getattr(alpha, form)
    x, model = alpha.ones(1, 2, 2, 3), nn.Linear(3, 2)
    assert x.to(memory_format=memory_format) is x
    assert x.to("cpu", non_blocking=True, memory_format=memory_format) is x
    assert x.contiguous(memory_format=memory_format) is x
    assert x.clone(memory_format=memory_format).shape == x.shape
    assert model.to(memory_format=memory_format) is model
    assert pickle.loads(pickle.dumps(memory_format)) is memory_format
    for wrong in (x.to, x.clone, x.contiguous, model.to):
        with pytest.raises(TypeError, match="memory_format=3 is not"):
            wrong(memory_format=3)


SWITCHES: list[tuple[Any, str, list[Any], list[Any]]] = [  # what is taken, what is refused
    (backends.cudnn, "benchmark", [True, False], []),
    (backends.cudnn, "deterministic", [True, False], []),
    (backends.cudnn, "enabled", [True, False], []),
    (backends.cudnn, "benchmark_limit", [0, 5], []),
    (backends.cudnn, "allow_tf32", [False], [True]),
    (backends.cudnn, "fp32_precision", ["ieee", "none"], ["tf32"]),
    (backends.cuda.matmul, "allow_tf32", [False], [True]),
    (backends.cuda.matmul, "fp32_precision", ["ieee"], ["tf32"]),
    (backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", [True, False], []),
    (backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", [True, False], []),
]


@pytest.mark.parametrize(("owner", "name", "taken", "refused"), SWITCHES)
def test_switches(owner: Any, name: str, taken: list[Any], refused: list[Any]) -> None:
    first = getattr(owner, name)
    for value in taken:
        setattr(owner, name, value)
        assert getattr(owner, name) == value
    for value in refused:
        with pytest.raises(ValueError, match=rf"{name} = {value!r} would change results: alpha.set_precision"):
            setattr(owner, name, value)
    setattr(owner, name, first)


def test_every_switch_is_tried() -> None:
    for owner in (backends.cudnn, backends.cuda.matmul):
        assert {name for space, name, *_ in SWITCHES if space is owner} == set(owner._switches)
        with pytest.raises(AttributeError, match="has no switch 'bench', but"):
            owner.bench = True
    assert cudnn is backends.cudnn
    assert not backends.mps.is_available()
    assert not cudnn.is_available()


def test_precisions_of_products() -> None:
    alpha.set_float32_matmul_precision(alpha.get_float32_matmul_precision())
    for name in ("high", "medium"):
        with pytest.raises(ValueError, match=f"'{name}' would change results; use alpha.set_precision"):
            alpha.set_float32_matmul_precision(name)
    with pytest.raises(ValueError, match="'low' is not one of"):
        alpha.set_float32_matmul_precision("low")
    alpha.use_deterministic_algorithms(False, warn_only=True)
    assert alpha.are_deterministic_algorithms_enabled()


def test_a_variable_is_a_tensor() -> None:
    x = alpha.ones(3)
    wrapped = Variable(x, requires_grad=True)
    (wrapped * 2).sum().backward()
    assert wrapped.grad is not None
    assert wrapped.grad.tolist() == [2, 2, 2]
    assert not x.requires_grad
    assert Variable(wrapped).array is x.array
    with pytest.raises(TypeError, match="a Tensor is needed, not a float"):
        Variable(1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("scaler", [alpha.amp.GradScaler("cuda", enabled=True), GradScaler(2.0**10)])
def test_a_scaler_steps_as_the_optimizer(scaler: alpha.amp.GradScaler, device: str) -> None:
    weights = []
    for scaled in (False, True):
        alpha.manual_seed(0)
        model = nn.Linear(2, 1).to(device)
        optimizer = alpha.optim.SGD(model.parameters(), lr=0.1)
        with autocast():
            loss = model(alpha.ones(4, 2, device=device)).sum()
        if scaled:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        weights.append(model.weight.numpy())
    np.testing.assert_array_equal(*weights)
    scaler.load_state_dict({"scale": 65536.0})
    assert (scaler.get_scale(), scaler.is_enabled(), scaler.state_dict()) == (1.0, False, {})


def test_base_classes_of_layers() -> None:
    is_norm = [isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in (nn.BatchNorm2d(3), nn.GroupNorm(1, 3))]
    assert is_norm == [True, False]
    layers = (nn.Conv2d(3, 3, 1), nn.ConvTranspose1d(3, 3, 1), nn.Linear(3, 3))
    assert [isinstance(layer, nn.modules.conv._ConvNd) for layer in layers] == [True, True, False]


def test_the_accelerator_is_the_gpu() -> None:
    works = alpha.cuda.is_available()
    assert alpha.accelerator.is_available() == works
    assert alpha.accelerator.device_count() == int(works)
    assert alpha.accelerator.current_accelerator() is (alpha.get_device("cuda") if works else None)
