"""Optimizers as PyTorch's programs write them, hooks of a step, and how an optimizer is shown."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

import alpha
from alpha import CheckpointError, optim
from alpha.nn import Parameter
from alpha.optim.fused import FusedOptimizer
from alpha.optim.hyper import decays, flag, natural


def own(lib: Any, base: type, zeros_like: Callable[[Any], Any]) -> type:
    """An optimizer written for PyTorch; only the module's name differs."""

    class Own(base):  # type: ignore[misc]
        def __init__(self, params: Any, lr: float = 0.1, momentum: float = 0.9) -> None:
            super().__init__(params, dict(lr=lr, momentum=momentum))

        @lib.no_grad()  # type: ignore[untyped-decorator]
        def step(self, closure: Any = None) -> Any:
            loss = None
            if closure is not None:
                with lib.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    if len(state) == 0:
                        state["step"] = 0
                        state["buffer"] = zeros_like(p)
                        state["note"] = "text"
                    state["step"] += 1
                    state["buffer"].mul_(group["momentum"]).add_(p.grad)
                    p.add_(state["buffer"], alpha=-group["lr"] / state["step"] ** 0.5)
            return loss

    return Own


START = [np.arange(6, dtype=np.float32).reshape(2, 3) / 5, np.array(0.5, np.float32)]


def train(lib: Any, kind: type, steps: int, **where: Any) -> tuple[Any, list[Any]]:
    parameters = [lib.tensor(value, requires_grad=True, **where) for value in START]
    groups = [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.05}]
    optimizer = kind(groups, lr=0.2)
    for _ in range(steps):

        def closure() -> Any:
            optimizer.zero_grad()
            loss = ((parameters[0] - parameters[1]) ** 2).sum()
            loss.backward()
            return loss

        assert optimizer.step(closure).item() >= 0
    return optimizer, parameters


@pytest.mark.torch
def test_an_optimizer_that_was_written_for_pytorch(device: str) -> None:
    torch = pytest.importorskip("torch")
    _, found = train(alpha, own(alpha, optim.Optimizer, alpha.zeros_like), 4, device=device)
    _, wanted = train(torch, own(torch, torch.optim.Optimizer, torch.zeros_like), 4)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-5)


def test_its_state_goes_on(device: str) -> None:
    kind = own(alpha, optim.Optimizer, alpha.zeros_like)
    _, wanted = train(alpha, kind, 4, device=device)
    optimizer, parameters = train(alpha, kind, 2, device=device)
    state = optimizer.state_dict()
    assert isinstance(state["state"][0]["buffer"], np.ndarray)
    assert state["state"][1]["note"] == "text"
    other = kind([{"params": parameters[:1]}, {"params": parameters[1:]}], lr=7.0)
    other.load_state_dict(copy.deepcopy(state))
    assert [group["lr"] for group in other.param_groups] == [0.2, 0.05]
    assert other.state[parameters[0]]["buffer"].device.name == device
    for _ in range(2):
        other.zero_grad()
        ((parameters[0] - parameters[1]) ** 2).sum().backward()
        other.step()
    for a, b in zip(parameters, wanted, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize(("key", "told"), [("global", "'global'"), (alpha.ones(2), "a tensor that no group has")])
def test_a_state_of_no_parameter_is_refused_in_words(key: Any, told: str) -> None:
    subject = optim.SGD([Parameter(np.ones(2, np.float32))], lr=0.1)
    subject.state[key] = {"n": 0}
    with pytest.raises(alpha.CheckpointError, match=f"SGD: its state has an entry of {told}; what belongs to no param"):
        subject.state_dict()


def test_hyper_parameters_of_a_state_go_through_the_rules_of_the_optimizer() -> None:
    """Lists and numpy's numbers become what the rules make of them, and all that mean nothing are listed."""

    class Ruled(optim.Optimizer):
        rules: ClassVar[Any] = {"lr": natural, "betas": decays, "amsgrad": flag}

    def made() -> Any:
        return Ruled([Parameter(START[0])], lr=0.5, betas=(0.5, 0.5), amsgrad=False)

    state, optimizer = made().state_dict(), made()
    state["param_groups"][0].update(lr=np.float64(0.1), betas=[0.1, np.float32(0.25)], amsgrad=np.bool_(True))
    optimizer.load_state_dict(state)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["amsgrad"]) == (0.1, (0.1, 0.25), True)
    assert [type(group[name]) for name in Ruled.rules] == [float, tuple, bool]
    state["param_groups"][0].update(lr=np.nan, betas=[0.1, 2], amsgrad=5)
    with pytest.raises(CheckpointError) as error:
        optimizer.load_state_dict(state)
    assert str(error.value).splitlines() == [
        "Ruled: state does not fit:",
        "  group 0: lr=nan is not finite",
        "  group 0: betas=[0.1, 2] are not two numbers in [0, 1)",
        "  group 0: amsgrad=5 is a int, not True or False",
    ]
    optimizer.param_groups[0]["params"][0].grad = alpha.tensor(START[0])
    with pytest.raises(TypeError, match="Ruled defines no update"):
        optimizer.step()


def test_defaults_as_a_dict_or_by_name() -> None:
    p = Parameter(np.ones(2, np.float32))
    for optimizer in (
        optim.Optimizer([p], {"lr": 0.5}),
        optim.Optimizer([p], defaults={"lr": 0.5}),
        optim.Optimizer(params=[p], lr=0.5),
    ):
        assert optimizer.defaults == {"lr": 0.5}
        assert optimizer.param_groups == [{"params": [p], "lr": 0.5}]
    with pytest.raises(TypeError, match="Optimizer: defaults is a float, not a dict"):
        optim.Optimizer([p], 0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Optimizer: lr=-1 is negative"):
        optim.Optimizer([p], {"lr": -1})


@pytest.mark.parametrize("make", [optim.SGD, own(alpha, optim.Optimizer, alpha.zeros_like)])
def test_hooks_of_a_step(device: str, make: Any) -> None:
    p = Parameter(alpha.tensor([1.0], device=device))
    optimizer = make([p], lr=0.5)
    log: list[Any] = []
    first = optimizer.register_step_pre_hook(lambda *given: log.append((*given, p.item())))
    optimizer.register_step_post_hook(lambda *given: log.append((*given, p.item())))
    p.grad = alpha.tensor([1.0], device=device)
    optimizer.step()
    assert log == [(optimizer, (), {}, 1.0), (optimizer, (), {}, 0.5)]
    first.remove()
    log.clear()
    optimizer.register_step_pre_hook(lambda o, args, kwargs: ((lambda: 7,), {}))
    assert optimizer.step() == 7
    assert len(log) == 1
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 5)
    with pytest.raises(TypeError, match=r"\w+: a hook before the step returned a int; it returns None or"):
        optimizer.step()


def test_a_step_that_calls_the_step_above_it_has_its_hooks_once() -> None:
    class Louder(optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    p = Parameter(np.ones(1, np.float32))
    optimizer, log = Louder([p]), []
    optimizer.register_step_pre_hook(lambda *_: log.append("before"))
    optimizer.register_step_post_hook(lambda *_: log.append("after"))
    p.grad = alpha.ones(1)
    optimizer.step()
    optimizer.step()
    assert log == ["before", "after"] * 2
    other = Louder([p])
    other.load_state_dict(optimizer.state_dict())
    other.step()


def test_a_captured_step_has_no_hooks() -> None:
    p = Parameter(alpha.tensor([1.0], device="cuda"))
    optimizer = optim.SGD([p], lr=0.5)
    optimizer.register_step_post_hook(lambda *_: None)

    def step(x: alpha.Tensor) -> alpha.Tensor:
        loss = (p * x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    captured = alpha.capture(step, strict=True)
    x = alpha.ones(1, device="cuda")
    with pytest.raises(alpha.CaptureError, match="SGD: hooks of its step run on the host"):
        [captured(x) for _ in range(5)]


def test_it_is_shown_as_pytorchs() -> None:
    p, q = (Parameter(np.ones(1, np.float32)) for _ in range(2))
    optimizer = optim.SGD([{"params": [p]}, {"params": [q], "lr": 0.5, "name": "q"}], lr=0.1)
    lines = repr(optimizer).splitlines()
    assert lines[0] == "SGD ("
    assert lines[-1] == ")"
    assert lines[1] == "Parameter Group 0"
    assert "    lr: 0.1" in lines[: lines.index("Parameter Group 1")]
    assert {"    lr: 0.5", "    name: q"} < set(lines[lines.index("Parameter Group 1") :])
    assert "params" not in repr(optimizer)


def test_a_fused_optimizer_without_the_numbers_of_a_step_says_so() -> None:
    class Own(FusedOptimizer):
        update = optim.Lion.update
        slots = optim.Lion.slots

    weight = alpha.ones(3, requires_grad=True)
    (weight * 2).sum().backward()
    with pytest.raises(TypeError, match="Own defines no update"):
        Own([weight], {"lr": 0.1}).step()
