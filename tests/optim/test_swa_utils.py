"""Averages of weights: PyTorch's values, state dicts, captured steps, running statistics, the schedule."""

from __future__ import annotations

import inspect
import json
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, optim
from alpha.nn import Parameter
from alpha.optim import swa_utils

KINDS: dict[str, dict[str, Any]] = {
    "mean": {},
    "swa": {"avg_fn": swa_utils.get_swa_avg_fn()},
    "swa multi": {"multi_avg_fn": swa_utils.get_swa_multi_avg_fn()},
    "ema": {"avg_fn": swa_utils.get_ema_avg_fn(0.7)},
    "ema multi": {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.7)},
}


def net(device: str = "cpu") -> nn.Sequential:
    alpha.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 20000), nn.ReLU(), nn.Linear(20000, 3)).to(device)


def move(model: nn.Module, step: int) -> None:
    """Other weights."""
    draw = np.random.default_rng(step)
    for parameter in model.parameters():
        parameter.array = parameter.device.upload(draw.standard_normal(parameter.shape).astype(np.float32))


def weighted(kind: str, history: list[list[np.ndarray]]) -> list[np.ndarray]:
    """The average that should be found."""
    result = [value.astype(np.float64) for value in history[0]]
    for count, values in enumerate(history[1:], 1):
        weight = 0.3 if "ema" in kind else 1 / (count + 1)
        result = [a + weight * (value - a) for a, value in zip(result, values, strict=True)]
    return result


@pytest.mark.torch
@pytest.mark.parametrize(
    "name", ["AveragedModel", "SWALR", "update_bn", *(f"get_{k}_fn" for k in ("ema_avg", "ema_multi_avg", "swa_avg"))]
)
def test_the_signatures_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = (inspect.signature(getattr(room, name)).parameters for room in (swa_utils, torch.optim.swa_utils))
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_averages(device: str, kind: str) -> None:
    model = net(device)
    averaged = swa_utils.AveragedModel(model, **KINDS[kind])
    history = []
    for step in range(4):
        move(model, step)
        averaged.update_parameters(model)
        history.append([p.numpy() for p in model.parameters()])
    for parameter, expected in zip(averaged.module.parameters(), weighted(kind, history), strict=True):
        np.testing.assert_allclose(parameter.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert averaged.n_averaged.item() == 4
    x = alpha.tensor(np.ones((2, 4), np.float32), device=device)
    np.testing.assert_array_equal(averaged(x).numpy(), averaged.module(x).numpy())


@pytest.mark.torch
@pytest.mark.parametrize("kind", KINDS)
def test_averages_are_pytorchs(device: str, kind: str) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = nn.Linear(3, 2).to(device), torch.nn.Linear(3, 2)
    name = {"avg_fn": "avg_fn", "multi_avg_fn": "multi_avg_fn"}.get(next(iter(KINDS[kind]), ""), "")
    maker = f"get_{kind.split(' ')[0]}_{'multi_' if 'multi' in kind else ''}avg_fn"
    options = {name: getattr(torch.optim.swa_utils, maker)(*([0.7] if "ema" in kind else []))} if name else {}
    averaged, other = (
        swa_utils.AveragedModel(ours, **KINDS[kind]),
        torch.optim.swa_utils.AveragedModel(theirs, **options),
    )
    for step in range(4):
        move(ours, step)
        with torch.no_grad():
            for a, b in zip(theirs.parameters(), ours.parameters(), strict=True):
                a.copy_(torch.tensor(b.numpy()))
        averaged.update_parameters(ours)
        other.update_parameters(theirs)
    for a, b in zip(averaged.parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert set(averaged.state_dict()) == set(other.state_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_of_ones_own_does_the_same(kind: str) -> None:
    """The functions can be called, and others be given in their place."""
    options = {name: lambda *args, f=f: f(*args) for name, f in KINDS[kind].items()}
    model, first, second = net(), *(swa_utils.AveragedModel(net(), **o) for o in (KINDS[kind], options))
    for step in range(3):
        move(model, step)
        first.update_parameters(model)
        second.update_parameters(model)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("use_buffers", [False, True])
def test_buffers_are_copied_or_averaged(device: str, use_buffers: bool) -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)).to(device)
    averaged = swa_utils.AveragedModel(model, use_buffers=use_buffers)
    seen = []
    for value in (1.0, 2.0, 6.0):
        model[1].running_mean.device.fill(model[1].running_mean.array, value)
        averaged.update_parameters(model)
        seen.append(value)
    expected = np.mean(seen) if use_buffers else seen[-1]
    np.testing.assert_allclose(averaged.module[1].running_mean.numpy(), expected, rtol=1e-6)


def test_a_copy_on_another_device(device: str) -> None:
    model = net("cpu")
    averaged = swa_utils.AveragedModel(model, device)
    assert {p.device.name for p in averaged.module.parameters()} == {averaged.n_averaged.device.name} == {device}
    for step in range(2):
        move(model, step)
        averaged.update_parameters(model)
    first, second = (np.random.default_rng(step).standard_normal((20000, 4)).astype(np.float32) for step in (0, 1))
    np.testing.assert_allclose(next(averaged.parameters()).numpy(), (first + second) / 2, rtol=1e-5, atol=1e-6)


def test_a_state_goes_on(device: str) -> None:
    model, whole = net(device), swa_utils.AveragedModel(net(device))
    for step in range(2):
        move(model, step)
        whole.update_parameters(model)
    again = swa_utils.AveragedModel(net(device))
    again.load_state_dict(whole.state_dict())
    move(model, 2)
    for averaged in (whole, again):
        averaged.update_parameters(model)
    for a, b in zip(whole.state_dict().values(), again.state_dict().values(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_average_that_moves_before_the_backward_pass_is_seen(device: str) -> None:
    model = nn.Linear(4, 3).to(device)
    x = alpha.tensor(np.ones((1, 4), np.float32), device=device, requires_grad=True)
    averaged = swa_utils.AveragedModel(model)
    y = averaged(x)
    averaged.update_parameters(model)
    with pytest.raises(alpha.GradientError, match="written in place by update_parameters"):
        y.sum().backward()
    y = x * model.weight[0].detach()
    weight = model.weight.detach()
    swa_utils.get_ema_multi_avg_fn(0.7)([weight], [weight * 2.0], 1)
    with pytest.raises(alpha.GradientError, match="written in place by average_parameters"):
        y.sum().backward()


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="give avg_fn or multi_avg_fn, not both"):
        swa_utils.AveragedModel(net(), None, swa_utils.get_swa_avg_fn(), swa_utils.get_swa_multi_avg_fn())
    averaged = swa_utils.AveragedModel(nn.Linear(3, 2))
    with pytest.raises(alpha.ShapeError, match=r"weight has shape \(2, 4\) in the model, here it has shape \(2, 3\)"):
        averaged.update_parameters(nn.Linear(4, 2))
    with pytest.raises(alpha.ShapeError, match="bias is missing in the model"):
        averaged.update_parameters(nn.Linear(3, 2, bias=False))
    with pytest.raises(ValueError, match="is not between 0 and 1"):
        swa_utils.get_ema_avg_fn(1.5)


@pytest.mark.parametrize("kind", ["mean", "ema multi"])
def test_in_a_captured_step(kind: str) -> None:
    device: Any = alpha.get_device("cuda")
    if device.driver.why_no_capture:
        pytest.skip(device.driver.why_no_capture)

    def run(captured: bool) -> tuple[list[np.ndarray], Any]:
        alpha.manual_seed(3)
        model = nn.Linear(3, 2).to("cuda")
        averaged = swa_utils.AveragedModel(model, **KINDS[kind])
        optimizer = optim.SGD(model.parameters(), lr=0.1)

        def step(x: alpha.Tensor) -> None:
            optimizer.zero_grad()
            (model(x) ** 2).sum().backward()
            optimizer.step()
            averaged.update_parameters(model)

        function = alpha.capture(step) if captured else step
        for number in range(7):
            function(alpha.tensor(np.full((2, 3), number / 7, np.float32), device="cuda"))
        return [v.copy() for v in averaged.state_dict().numpy().values()], function

    (ours, function), (expected, _) = run(True), run(False)
    for a, b in zip(ours, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(function.graphs) == 1


@pytest.mark.torch
def test_running_statistics_are_pytorchs(device: str) -> None:
    torch = pytest.importorskip("torch")
    ours = nn.Sequential(nn.BatchNorm2d(3, momentum=0.3), nn.ReLU()).to(device).eval()
    theirs = torch.nn.Sequential(torch.nn.BatchNorm2d(3, momentum=0.3), torch.nn.ReLU()).eval()
    draw = np.random.default_rng(0)
    batches = [draw.standard_normal((4, 5, 6, 3)).astype(np.float32) + step for step in range(3)]
    swa_utils.update_bn([(batch, 0) for batch in batches], ours)
    torch.optim.swa_utils.update_bn([torch.tensor(batch.transpose(0, 3, 1, 2).copy()) for batch in batches], theirs)
    for name in ("running_mean", "running_var"):
        np.testing.assert_allclose(getattr(ours[0], name).numpy(), getattr(theirs[0], name).numpy(), rtol=1e-5)
    assert ours[0].momentum == 0.3
    assert not ours[0].training


@pytest.mark.parametrize(
    ("kind", "options"),
    [(nn.SqBatchNorm, {}), *((nn.BatchNorm1d, o) for o in ({}, {"momentum": None}, {"bias_correction": True}))],
    ids=str,
)
def test_running_statistics_are_means_over_the_batches(device: str, kind: Any, options: dict[str, Any]) -> None:
    """The means do not depend on what the layer met before, NaN included."""
    norm = kind(2, **options).to(device)
    batches = [np.random.default_rng(0).standard_normal((4, 2)).astype(np.float32) + step for step in range(3)]
    norm(alpha.tensor(np.nan * batches[0], device=device))
    momentum = norm.momentum
    swa_utils.update_bn(batches, norm)
    second = [np.square(x).mean(0) if kind is nn.SqBatchNorm else x.var(0, ddof=1) for x in batches]
    found, *count = (buffer.numpy() for name, buffer in norm.named_buffers() if name != "running_mean")
    np.testing.assert_allclose(norm.running_mean.numpy(), np.mean(batches, (0, 1)), rtol=1e-5)
    np.testing.assert_allclose(found, np.mean(second, 0), rtol=1e-5)
    assert count == ([3] if options else [])
    assert (norm.momentum, norm.training) == (momentum, True)


@pytest.mark.parametrize("kind", [nn.GlobalBatchNorm, nn.GlobalSqBatchNorm])
def test_running_statistics_that_do_not_move_stay(kind: Any) -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), kind(2))
    given = {name: value + 0.5 for name, value in model[1].state_dict().items()}
    model[1].load_state_dict(given)
    swa_utils.update_bn([np.arange(8, dtype=np.float32).reshape(4, 2)], model)
    for name, value in model[1].state_dict().items():
        np.testing.assert_array_equal(value, given[name])
    np.testing.assert_array_equal(model[0].running_mean.numpy(), [3, 4])


def test_a_model_without_running_statistics_is_not_called() -> None:
    swa_utils.update_bn([None], nn.Linear(2, 2))


SCHEDULES = [
    {"swa_lr": 0.05},
    {"swa_lr": [0.05, 0.5], "anneal_epochs": 4, "anneal_strategy": "linear"},
    {"swa_lr": 0.2, "anneal_epochs": 0},
]


@pytest.mark.torch
@pytest.mark.parametrize("options", SCHEDULES)
def test_the_schedule_is_pytorchs(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    ours = optim.SGD([{"params": [Parameter(np.ones(2, np.float32))], "lr": lr} for lr in (0.5, 1.0)])
    theirs = torch.optim.SGD([{"params": [torch.ones(2, requires_grad=True)], "lr": lr} for lr in (0.5, 1.0)])
    schedule = swa_utils.SWALR(ours, **options)
    other = torch.optim.swa_utils.SWALR(theirs, **options)
    for _ in range(14):
        rates = [[group["lr"] for group in side.param_groups] for side in (ours, theirs)]
        np.testing.assert_allclose(*rates, rtol=1e-12)
        theirs.step()
        schedule.step()
        other.step()


def test_the_schedule_is_resumed() -> None:
    def make() -> tuple[optim.SGD, swa_utils.SWALR]:
        subject = optim.SGD([Parameter(np.ones(2, np.float32))], 0.5)
        return subject, swa_utils.SWALR(subject, 0.05, 6)

    (whole, first), (resumed, second) = make(), make()
    for _ in range(3):
        first.step()
    resumed.load_state_dict(whole.state_dict())
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for _ in range(5):
        first.step()
        second.step()
    assert whole.param_groups[0]["lr"] == resumed.param_groups[0]["lr"] == 0.05
    assert first.state_dict() == second.state_dict()
    with pytest.raises(ValueError, match="SWALR: anneal_strategy='x' is not one of cos, linear"):
        swa_utils.SWALR(whole, 0.1, anneal_strategy="x")  # type: ignore[arg-type]
