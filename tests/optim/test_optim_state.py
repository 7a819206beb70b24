"""Checkpoints of optimizers: what is understood, what is refused, and that a refusal changes nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows.optimizers import OPTIMIZERS

import alpha
from alpha import CheckpointError, nn, optim
from alpha.nn import Parameter
from alpha.train.files.state_file import load_state, save_state

SHAPES = [(3, 4), (), (5,)]
ROWS = {row.name: row for row in OPTIMIZERS}
KINDS = [(row.name, settings) for row in OPTIMIZERS for settings in row.settings]


def made(name: str, options: dict[str, Any], device: str = "cpu") -> optim.Optimizer:
    shapes = ROWS[name].fitting(SHAPES)
    parameters = [Parameter(alpha.tensor(np.ones(shape, np.float32), device=device)) for shape in shapes]
    return getattr(optim, name)([{"params": parameters[:1]}, {"params": parameters[1:]}], **options)


def run(optimizer: optim.Optimizer, first: int, last: int) -> list[np.ndarray]:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for step in range(first, last):
        draw = np.random.default_rng(step)
        for parameter in parameters:
            gradient = np.asarray(draw.standard_normal(parameter.shape), np.float32)
            parameter.grad = alpha.tensor(gradient, device=parameter.device)
        optimizer.step()
    return [p.numpy() for p in parameters]


@pytest.mark.parametrize(("name", "options"), KINDS)
def test_a_state_is_loaded_twice_and_with_0d_parameters(device: str, name: str, options: dict[str, Any]) -> None:
    whole = made(name, options, device)
    expected = run(whole, 0, 6)
    first = made(name, options, device)
    values = run(first, 0, 3)
    state = first.state_dict()
    for _ in range(2):  # the second load is of a state that was loaded
        optimizer = made(name, {}, device)
        for parameter, value in zip((p for g in optimizer.param_groups for p in g["params"]), values, strict=True):
            parameter.array = parameter.device.upload(value)
        optimizer.load_state_dict(state)
        state = optimizer.state_dict()
        assert [a["step"] for a in state["state"].values()] == [3, 3, 3]
    for a, b in zip(run(optimizer, 3, 6), expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("name", "options"), KINDS)
def test_a_reset_optimizer_begins_anew_in_the_same_memory(device: str, name: str, options: dict[str, Any]) -> None:
    optimizer = made(name, options, device)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    start = [p.numpy() for p in parameters]
    expected = run(optimizer, 0, 3)
    before = {p: dict(slots) for p, slots in optimizer.state.items()}
    optimizer.reset()
    for parameter, slots in before.items():
        now = optimizer.state[parameter]
        assert now["step"] == 0
        kept = slots if not options.get("dampening") else {}  # whose first gradient is not dampened
        assert all(now[key] is value for key, value in kept.items() if key in optimizer.slots)
    for parameter, value in zip(parameters, start, strict=True):
        parameter.array = parameter.device.upload(value)
    for a, b in zip(run(optimizer, 0, 3), expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_reset_drops_what_an_optimizer_with_its_own_step_keeps() -> None:
    weight = Parameter(np.ones(3, np.float32))
    optimizer = optim.LBFGS([weight])

    def closure() -> alpha.Tensor:
        optimizer.zero_grad()
        loss = (weight * weight).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert optimizer.state
    optimizer.reset()
    assert not optimizer.state
    optimizer.step(closure)


def double_run(optimizer: optim.Optimizer, first: int, last: int) -> list[np.ndarray]:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for step in range(first, last):
        draw = np.random.default_rng(step)
        for parameter in parameters:
            parameter.grad = alpha.tensor(np.asarray(draw.standard_normal(parameter.shape), parameter.dtype))
        optimizer.step()
    return [p.numpy() for p in parameters]


@pytest.mark.parametrize(("name", "options"), KINDS)
def test_the_state_follows_parameters_to_another_dtype(name: str, options: dict[str, Any]) -> None:
    optimizer, other = made(name, options), made(name, options)
    values, state = run(optimizer, 0, 2), optimizer.state_dict()
    own, others = ([p for group in one.param_groups for p in group["params"]] for one in (optimizer, other))
    nn.ParameterList(own).double()
    for parameter, value in zip(others, values, strict=True):
        parameter.array = np.asarray(value, np.float64)
    for slots in state["state"].values():
        arrays = {key: value for key, value in slots.items() if isinstance(value, np.ndarray)}
        slots.update({key: np.asarray(value, np.float64) for key, value in arrays.items()})
    other.load_state_dict(state)
    for mine, expected in zip(double_run(optimizer, 2, 4), double_run(other, 2, 4), strict=True):
        assert mine.dtype == np.float64
        np.testing.assert_array_equal(mine, expected)
    found = optimizer.state_dict()
    held = [value for slots in found["state"].values() for value in slots.values() if isinstance(value, np.ndarray)]
    assert {array.dtype.name for array in held} <= {"float64"}
    optimizer.load_state_dict(found)
    nn.ParameterList(own).float()
    assert all(value.dtype == np.float32 for value in run(optimizer, 4, 6))


def test_keys_and_lists_that_went_through_json_are_understood() -> None:
    optimizer = made("AdamW", {})
    run(optimizer, 0, 2)
    state = optimizer.state_dict()
    arrays = {(i, n): value for i, slots in state["state"].items() for n, value in slots.items() if n != "step"}
    bare = {**state, "state": {i: {"step": slots["step"]} for i, slots in state["state"].items()}}
    text: dict[str, Any] = json.loads(json.dumps(bare))
    assert set(text["state"]) == {"0", "1", "2"}
    for (i, n), value in arrays.items():
        text["state"][str(i)][n] = value
    other = made("AdamW", {"betas": (0.1, 0.1)})
    other.load_state_dict(text)
    assert other.param_groups[0]["betas"] == (0.9, 0.999)
    for a, b in zip(other.state.values(), optimizer.state.values(), strict=True):
        np.testing.assert_array_equal(a["first"], b["first"])


def spoilt(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    optimizer = made("Adam", {})
    run(optimizer, 0, 2)
    state = optimizer.state_dict()
    change(state)
    return state


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("optimizer"), "Adam: the state has no optimizer"),
        (lambda s: s.pop("state"), "Adam: the state has no state"),
        (lambda s: s.clear(), "Adam: the state has no optimizer, state, param_groups"),
        (lambda s: s.update(optimizer="SGD"), "Adam: the state is that of SGD"),
        (lambda s: s["param_groups"].pop(), r"Adam: groups of \[1\] parameters, here \[1, 2\]"),
        (lambda s: s["param_groups"][1].update(lr=np.inf), "group 1: lr=inf is not finite"),
        (lambda s: s["param_groups"][1].update(lr="x"), "group 1: lr='x' is a str, not a number"),
        (lambda s: s["param_groups"][0].pop("eps"), "group 0: eps is missing"),
        (lambda s: s["param_groups"][1].update(params=[0, 2]), r"params \[0, 0, 2\] are not different"),
        (lambda s: s["param_groups"][1].update(params=["a", 2]), r"are not different whole numbers"),
        (lambda s: s["state"].update({7: {"step": 1}}), "parameter 7 is in no group"),
        (lambda s: s["state"].update({"x": {"step": 1}}), "parameter 'x' is in no group"),
        (lambda s: s["state"][0].pop("step"), "parameter 0: step=None is not a whole number"),
        (lambda s: s["state"][0].update(step=1.5), "parameter 0: step=1.5 is not a whole number"),
        (lambda s: s["state"][0].pop("second"), "parameter 0: second is missing"),
        (lambda s: s["state"][0].update(velocity=np.zeros((3, 4))), "parameter 0: velocity is unknown"),
        (lambda s: s["state"][1].update(first=np.zeros(1, np.float32)), r"parameter 1: first has shape \(1,\)"),
        (lambda s: s["state"][1].update(first=np.zeros((), np.int64)), "parameter 1: first is int64, .* float32"),
        (lambda s: s["state"][1].update(first=0.5), "parameter 1: first is a float, not an array"),
        (lambda s: s["param_groups"][0].update(amsgrad=True), "parameter 0: largest is missing"),
        (lambda s: s["state"][0].update(mu_product=0.5), "parameter 0: mu_product is unknown"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(change: Any, message: str) -> None:
    optimizer = made("Adam", {"lr": 0.5})
    run(optimizer, 5, 7)
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(CheckpointError, match=message):
        optimizer.load_state_dict(spoilt(change))
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    for i, slots in before["state"].items():
        for name, value in slots.items():
            np.testing.assert_array_equal(after["state"][i][name], value)


def test_keys_of_the_programs_own_stay_in_groups(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    own = {"name": "body", "lr_scale": 0.5, "tags": ["a"]}
    groups = [{"params": net[0].named_parameters(), **own}, {"params": net[1].named_parameters(), "lr": 0.5}]
    optimizer = optim.SGD(groups, lr=0.1, momentum=0.5)
    first, second = optimizer.param_groups
    assert {name: first[name] for name in own} == own
    assert first["param_names"] == ["weight", "bias"]
    assert first["params"] == list(net[0].parameters())
    assert set(first) - set(second) == set(own)
    net(alpha.ones(1, 2)).sum().backward()
    optimizer.step()
    second["note"] = "mine"
    save_state(tmp_path / "s", optimizer.state_dict())
    other = optim.SGD(
        [{"params": net[0].parameters(), "name": "x", "kept": 1}, {"params": net[1].parameters()}], lr=1.0
    )
    other.load_state_dict(load_state(tmp_path / "s"))
    assert other.param_groups[0] == {**first, "kept": 1}
    assert other.param_groups[1] == second


def test_parameters_with_names() -> None:
    net = nn.Linear(2, 3)
    for make in (optim.SGD, optim.AdamW, optim.Lion):
        optimizer = make(net.named_parameters(), lr=0.25)
        assert optimizer.param_groups[0]["params"] == list(net.parameters())
        assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    with pytest.raises(ValueError, match="SGD: 1 of 2 parameters have names; give all a name or none"):
        optim.SGD([("weight", net.weight), net.bias])
    with pytest.raises(TypeError, match="SGD: int is not a tensor"):
        optim.SGD([("weight", 3)])
    for first, second in ((net.named_parameters(), alpha.zeros(1)), (net.parameters(), [("more", alpha.zeros(1))])):
        optimizer = optim.SGD(first)
        with pytest.raises(ValueError, match="SGD: give the parameters of all groups a name or none"):
            optimizer.add_param_group({"params": second})
        assert len(optimizer.param_groups) == 1


def test_an_older_checkpoint_means_what_it_meant() -> None:
    """No optimizer had an L1 decay at first, and Adam had no decoupled one."""
    for name, decoupled in (("SGD", None), ("Adam", False), ("AdamW", True)):
        optimizer = made(name, {"lr": 0.5})
        state = optimizer.state_dict()
        for group in state["param_groups"]:
            for added in ("l1_decay", "decoupled_weight_decay"):
                group.pop(added, None)
        optimizer.load_state_dict(state)
        assert optimizer.param_groups[0]["l1_decay"] == 0
        assert optimizer.param_groups[0].get("decoupled_weight_decay") == decoupled


def test_every_mismatch_is_listed() -> None:
    def change(state: dict[str, Any]) -> None:
        state["param_groups"][0]["lr"] = np.nan
        state["state"][0].pop("first")
        state["state"][2]["second"] = np.zeros(4, np.float32)

    with pytest.raises(CheckpointError) as error:
        made("Adam", {}).load_state_dict(spoilt(change))
    assert len(str(error.value).splitlines()) == 4


@pytest.mark.parametrize(("name", "other"), [("SGD", "Adam"), ("Adam", "SGD"), ("Adam", "AdamW"), ("AdamW", "Adam")])
def test_another_optimizers_state_is_refused(name: str, other: str) -> None:
    with pytest.raises(CheckpointError, match=f"^{other}: the state is that of {name}"):
        made(other, {}).load_state_dict(made(name, {}).state_dict())


def test_nesterov_without_momentum_is_refused_in_a_state() -> None:
    state = made("SGD", {}).state_dict()
    state["param_groups"][0]["nesterov"] = True
    with pytest.raises(CheckpointError, match="nesterov needs momentum"):
        made("SGD", {}).load_state_dict(state)


def test_parameters_are_told_apart_by_identity() -> None:
    """Equal tensors are different parameters, and one tensor is found again, whatever == compares."""
    first, second = (Parameter(np.ones(3, np.float32)) for _ in range(2))
    optimizer = optim.Adam([first, second])
    with pytest.raises(ValueError, match="comes twice"):
        optimizer.add_param_group({"params": [second]})
    with pytest.raises(TypeError, match="params is a set"):
        optimizer.add_param_group({"params": {Parameter(np.ones(3, np.float32))}})
    with pytest.raises(ValueError, match="the group has no 'params'"):
        optimizer.add_param_group({"lr": 0.1})


def test_step_takes_a_closure() -> None:
    parameter = Parameter(np.ones(3, np.float32))
    optimizer = optim.SGD([parameter], 0.5)

    def closure() -> alpha.Tensor:
        optimizer.zero_grad()
        loss = (parameter * parameter).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 3.0
    np.testing.assert_array_equal(parameter.numpy(), 0)
    assert optimizer.step() is None


def test_zero_grad_fills_or_drops(device: str) -> None:
    parameter = Parameter(alpha.tensor(np.ones(3, np.float32), device=device))
    optimizer = optim.SGD([parameter])
    parameter.grad = alpha.tensor(np.ones(3, np.float32), device=device)
    optimizer.zero_grad(False)
    np.testing.assert_array_equal(parameter.grad.numpy(), 0)
    optimizer.zero_grad()
    assert parameter.grad is None


@pytest.mark.parametrize("shape", [(1,), (3, 1), (4,)])
def test_a_gradient_of_another_shape_changes_nothing(device: str, shape: tuple[int, ...]) -> None:
    good, bad = (Parameter(alpha.tensor(np.ones(3, np.float32), device=device)) for _ in range(2))
    optimizer = optim.SGD([good, bad], 1.0)
    good.grad = alpha.tensor(np.ones(3, np.float32), device=device)

    def step() -> None:
        bad.grad = alpha.tensor(np.ones(shape, np.float32), device=device)
        optimizer.step()

    with pytest.raises(alpha.AlphaError):
        step()
    np.testing.assert_array_equal(good.numpy(), 1)


def test_arrays_that_are_no_parameters_size() -> None:
    """Adafactor has a row and a column of each matrix, and an array of each vector."""
    optimizer = made("Adafactor", {})
    run(optimizer, 0, 2)
    state = optimizer.state_dict()["state"]
    assert {name: value.shape for name, value in state[0].items() if name != "step"} == {
        "row": (3, 1),
        "column": (1, 4),
    }
    assert {name: value.shape for name, value in state[2].items() if name != "step"} == {"second": (5,)}
    changes: list[tuple[Callable[[dict[int, Any]], Any], str]] = [
        (
            lambda s: s[0].update(row=np.zeros((3, 4), np.float32)),
            r"row has shape \(3, 4\), that of the parameter \(3, 1\)",
        ),
        (lambda s: s[0].pop("column"), "parameter 0: column is missing"),
        (lambda s: s[2].pop("second"), "parameter 2: second is missing"),
        (lambda s: s[0].update(second=np.zeros((3, 4), np.float32)), "parameter 0: second is unknown"),
        (lambda s: s[2].update(row=np.zeros(5, np.float32)), "parameter 2: row is unknown"),
    ]
    for change, message in changes:
        saved = copy.deepcopy(optimizer.state_dict())
        change(saved["state"])
        with pytest.raises(CheckpointError, match=message):
            made("Adafactor", {}).load_state_dict(saved)


@pytest.mark.parametrize("name", ["Adam", "LBFGS", "Adafactor"])
def test_a_state_whose_parts_are_no_dicts_or_lists_names_them(name: str) -> None:
    p = alpha.ones(2, 2, requires_grad=True)
    optimizer = getattr(optim, name)([p])
    optimizer.step(lambda: (p * p).sum())
    p.grad = alpha.ones(2, 2)
    optimizer.step(lambda: (p * p).sum())
    for state in (None, 5, [1], "x", np.ones(1)):
        with pytest.raises(TypeError, match=f"^{name}: the state is a .*, not a dict; give what state_dict"):
            optimizer.load_state_dict(state)
    changes: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
        (lambda s: s.update(state=None), "state is a NoneType, not a dict"),
        (lambda s: s["state"].update({0: [1]}), r"state\[0\] is a list, not a dict"),
        (lambda s: s.update(param_groups={"lr": 1}), "param_groups is a dict, not a list of dicts"),
        (lambda s: s.update(param_groups=["x"]), r"param_groups\[0\] is a str, not a dict"),
        (lambda s: s["param_groups"][0].update(params=5), r"param_groups\[0\]\['params'\] is a int, not a list of wh"),
    ]
    if name == "LBFGS":
        changes.append((lambda s: s["state"][0].update(old_dirs=5), "old_dirs is a int, not a list of arrays"))
    before = optimizer.state_dict()
    for change, message in changes:
        saved = copy.deepcopy(before)
        change(saved)
        with pytest.raises(CheckpointError, match=f"^{name}: (state does not fit:\n  )?{message}"):
            optimizer.load_state_dict(saved)
    optimizer.load_state_dict(before)
