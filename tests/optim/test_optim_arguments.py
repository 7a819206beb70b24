"""Every argument of every optimizer reaches its update: values and order against PyTorch's, on both devices."""

from __future__ import annotations

import inspect
from itertools import cycle, product
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
from rows.optimizers import ALPHAS, CHANGES, OPTIMIZERS, REFUSED, WITHOUT_EFFECT, OptimizerRow
from trials import trials

import alpha
from alpha import optim
from alpha.nn import Parameter
from alpha.optim.adafactor import least, not_positive, threshold
from alpha.optim.hyper import Rule, closed_share, decays, flag, natural, number, share, written
from alpha.optim.muon import coefficients, iterations, ratio_name
from alpha.optim.rprop import bounds, factors

SHAPES = [(3, 4), (5,), (), (2, 3, 3, 2)]
STEPS = 7
BY_NAME = {row.name: row for row in OPTIMIZERS}
EVERY_ROW = pytest.mark.parametrize("row", OPTIMIZERS, ids=lambda row: row.name)


def offered(row: OptimizerRow) -> list[tuple[str, dict[str, Any]]]:
    """(argument, settings in which it changes the result)"""
    tried = {**CHANGES, **row.changes}
    return [(argument, settings) for argument in row.offered for settings in tried.get(argument, [])]


def values(seed: int, scale: float = 1.0, shapes: list[tuple[int, ...]] = SHAPES) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [(scale * np.asarray(draw.standard_normal(shape))).astype(np.float32) for shape in shapes]


def run(device: str, row: OptimizerRow, options: dict[str, Any], gradients: list[list[np.ndarray]]) -> list[np.ndarray]:
    """The parameters after a step for each of the gradients, and their means if the optimizer has some."""
    start = values(0, shapes=[g.shape for g in gradients[0]])
    parameters = [Parameter(alpha.tensor(value, device=device)) for value in start]
    optimizer = row.kind(parameters, **options)
    for given in gradients:
        for parameter, gradient in zip(parameters, given, strict=True):
            parameter.grad = alpha.tensor(gradient, device=device)
        optimizer.step()
    arrays = [optimizer.state[parameter][row.averages[0]] for parameter in parameters] if row.averages else []
    return [tensor.numpy() for tensor in (*parameters, *map(alpha.Tensor, arrays))]


def run_torch(
    row: OptimizerRow, options: dict[str, Any], gradients: list[list[np.ndarray]], dtype: str
) -> list[np.ndarray]:
    torch = pytest.importorskip("torch")
    start = values(0, shapes=[g.shape for g in gradients[0]])
    parameters = [torch.nn.Parameter(torch.tensor(value, dtype=getattr(torch, dtype))) for value in start]
    plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in options.items()}
    if "betas" in plain:
        plain["betas"] = tuple(float(beta) for beta in plain["betas"])
    optimizer = getattr(torch.optim, row.name)(parameters, **plain)
    for given in gradients:
        for parameter, gradient in zip(parameters, given, strict=True):
            parameter.grad = torch.tensor(gradient, dtype=parameter.dtype)
        with row.twin():
            optimizer.step()
    means = [optimizer.state[parameter][row.averages[1]] for parameter in parameters] if row.averages else []
    return [tensor.detach().numpy() for tensor in (*parameters, *means)]


def test_every_optimizer_has_a_row() -> None:
    exported = {name for name in optim.__all__ if issubclass(getattr(optim, name), optim.Optimizer)}
    assert exported - {"Optimizer", "LBFGS"} == set(BY_NAME), "an optimizer needs one row in tests/rows/optimizers.py"


@EVERY_ROW
def test_every_argument_is_tried(row: OptimizerRow) -> None:
    missing = [name for name in row.offered if not {**CHANGES, **row.changes}.get(name)]
    assert not missing, f"{row.name}: settings in which {missing} change the result are missing in its row"
    assert not set(row.changes) - set(row.offered)


@pytest.mark.slow
@EVERY_ROW
def test_an_argument_reaches_the_update(device: str, row: OptimizerRow) -> None:
    gradients = [values(step, shapes=row.fitting(SHAPES)) for step in range(1, STEPS + 1)]
    with trials() as trial:
        for argument, options in offered(row):
            with trial(argument, options):
                without = {key: value for key, value in options.items() if key != argument}
                result = run(device, row, options, gradients)
                assert any((a != b).any() for a, b in zip(result, run(device, row, without, gradients), strict=True))


@pytest.mark.torch
@EVERY_ROW
def test_values_are_pytorchs(device: str, row: OptimizerRow) -> None:
    row.needs_a_twin({})
    gradients = [values(step, shapes=row.fitting(SHAPES)) for step in range(1, STEPS + 1)]
    with trials() as trial:
        for argument, options in offered(row):
            if ALPHAS & set(options):
                continue  # PyTorch does not have them
            with trial(argument, options):
                result, expected = run(device, row, options, gradients), run_torch(row, options, gradients, "float64")
                for a, b in zip(result, expected, strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(b).max())


@EVERY_ROW
def test_what_pytorch_has_and_alpha_does_not_is_refused(row: OptimizerRow) -> None:
    for argument in REFUSED.keys() & set(row.arguments):
        for options in REFUSED[argument]:
            with pytest.raises(ValueError, match=f"^{row.name}: {argument}.* is not offered"):
                row.kind([Parameter(np.zeros(3, np.float32))], **options)


@EVERY_ROW
def test_what_chooses_an_implementation_of_pytorchs_changes_nothing(row: OptimizerRow) -> None:
    names = [name for name in row.arguments if name in WITHOUT_EFFECT]
    gradients = [values(1, shapes=row.fitting(SHAPES))]
    wanted = run("cpu", row, {}, gradients)
    for name in names:
        for value in (True, False, None):
            for found, expected in zip(run("cpu", row, {name: value}, gradients), wanted, strict=True):
                np.testing.assert_array_equal(found, expected)
        with pytest.raises(TypeError, match=f"^{row.name}: {name}='x' is a str, not True or False"):
            run("cpu", row, {name: "x"}, gradients)
    if len(names) > 1:
        with pytest.raises(ValueError, match=f"^{row.name}: foreach and fused cannot be True together"):
            run("cpu", row, dict.fromkeys(names, True), gradients)


@pytest.mark.torch
@pytest.mark.parametrize("name", BY_NAME)
def test_order_kinds_and_defaults_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    BY_NAME[name].needs_a_twin({})

    def signature(room: Any) -> dict[str, tuple[Any, Any]]:
        parameters = inspect.signature(getattr(room, name)).parameters
        return {key: (parameter.kind, parameter.default) for key, parameter in parameters.items()}

    ours = signature(optim)
    theirs = signature(torch.optim)
    for own in ALPHAS & set(ours):
        assert ours.pop(own)[0] is inspect.Parameter.KEYWORD_ONLY
    assert ours == theirs

    def positional(table: dict[str, tuple[Any, Any]]) -> list[str]:
        return [key for key, (kind, _) in table.items() if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]

    assert positional(ours) == positional(theirs)


SCALES = (1e-20, 1e-12, 1.0, 1e12, 1e20)


@pytest.mark.torch
@EVERY_ROW
def test_extremes_are_pytorchs(device: str, row: OptimizerRow) -> None:
    """Gradients fall, too: after large ones a moment must forget them as PyTorch's does."""
    row.needs_a_twin({})
    with trials() as trial:
        for options, scale in product(row.extremes, [scale for scale in SCALES if scale <= row.largest]):
            with trial(options, scale):
                assert not ALPHAS & set(options), "PyTorch does not have them"
                compare_extremes(device, row, options, scale)


def compare_extremes(device: str, row: OptimizerRow, options: dict[str, Any], scale: float) -> None:
    shapes = row.fitting(SHAPES)
    gradients = [values(step, scale * (1e-4 if step == 3 else 1), shapes) for step in range(1, 5)]
    with np.errstate(all="ignore"):
        result = run(device, row, options, gradients)
    expected = run_torch(row, options, gradients, "float32")
    for a, b, start in zip(result, expected, cycle(values(0, shapes=shapes)), strict=False):
        # compared is how far the parameters went; squares of 1e-20 are subnormal and have few bits
        moved = np.abs(b.astype(np.float64) - start)
        largest = moved[np.isfinite(moved)].max(initial=0)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=max((2e-2 if scale < 1e-15 else 1e-5) * largest, 1e-7))


def test_a_second_moment_does_not_cancel(device: str) -> None:
    """A gradient of 0.01 after one of 100 moves a parameter by lr again."""
    gradients = [[np.full(shape, g, np.float32) for shape in SHAPES] for g in (100, 0.01)]
    result = run(device, BY_NAME["Adam"], {"betas": (0, 0), "lr": 0.1}, gradients)
    for a, start in zip(result, values(0), strict=True):
        np.testing.assert_allclose(a, start - 0.2, rtol=1e-5, atol=1e-6)


def test_dampening_leaves_the_first_gradient_of_each_parameter(device: str) -> None:
    """The second parameter has its first gradient at the third step, the third one at the first with momentum."""
    a, b, c = (Parameter(alpha.tensor(np.zeros(4, np.float32), device=device)) for _ in range(3))
    optimizer = optim.SGD([{"params": [a, b]}, {"params": [c], "momentum": 0.0}], 1.0, 0.5, 0.5)
    for step in range(4):
        a.grad = c.grad = alpha.tensor(np.ones(4, np.float32), device=device)
        b.grad = alpha.tensor(np.ones(4, np.float32), device=device) if step >= 2 else None
        if step == 2:
            optimizer.param_groups[1]["momentum"] = 0.5
        optimizer.step()
    np.testing.assert_array_equal(a.numpy(), -4.0)  # v = 1, then 0.5 + 0.5
    np.testing.assert_array_equal(b.numpy(), -2.0)
    np.testing.assert_array_equal(c.numpy(), -4.0)


WRONG: dict[Rule, list[tuple[type[Exception], tuple[Any, ...]]]] = {
    number: [(ValueError, (np.nan, np.inf, np.float32("nan"))), (TypeError, ("x", None, True, [1]))],
    natural: [(ValueError, (-1, np.nan, np.inf, np.float32("nan"))), (TypeError, ("x", None, True, [1]))],
    flag: [(TypeError, (1, "yes", None))],
    share: [(ValueError, (-0.1, 1.0, np.nan)), (TypeError, ("x", None, True))],
    closed_share: [(ValueError, (-0.1, 1.01, np.nan)), (TypeError, ("x", None, True))],
    coefficients: [(ValueError, ((1.0, np.nan, 1.0),)), (TypeError, (1.0, (1.0, 2.0), ("a", 1.0, 2.0)))],
    factors: [(ValueError, ((1.0, 1.2), (0.5, 1.0), (0.0, 1.2))), (TypeError, (0.5, (0.5, 1.2, 1.3), ("a", 1.2)))],
    bounds: [(ValueError, ((-1.0, 1.0), (2.0, 1.0))), (TypeError, (0.5, (0.1, 1.0, 2.0), ("a", 1.0)))],
    iterations: [(ValueError, (-1, 100, 1.5, True, "x"))],
    not_positive: [(ValueError, (0.1, np.nan)), (TypeError, ("x", None, True))],
    threshold: [(ValueError, (0.9, np.inf)), (TypeError, ("x", None, True))],
    least: [(ValueError, ((-1.0, 1.0), (None, -1.0), (np.nan, 1.0))), (TypeError, (0.1, (None, None), (1.0,) * 3))],
    ratio_name: [(ValueError, ("Original", 1, True, []))],
    decays: [(ValueError, ((0.9, 1.0), (0.9, np.nan), (-0.1, 0.9))), (TypeError, (0.9, (0.9, 0.9, 0.9), ("a", 0.9)))],
}


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        (decays, (0.9, 0.99)),
        (least, (None, 1e-3)),
        (coefficients, (1.0, 2.0, 3.0)),
        (factors, (0.5, 1.2)),
        (bounds, (1e-6, 50.0)),
    ],
)
def test_a_tuple_that_is_right_stays_the_same_object(rule: Rule, value: tuple[Any, ...]) -> None:
    """A captured step sees at once that nothing has changed."""
    assert rule(value) is value
    assert rule(list(value)) == value
    given = (*value[:-1], np.float64(value[-1]))
    checked = rule(given)
    assert checked is not given
    assert checked == value
    assert type(checked[-1]) is float


@pytest.mark.parametrize(("row", "argument"), [(row, argument) for row in OPTIMIZERS for argument in row.kind.rules])
def test_a_hyper_parameter_that_means_nothing_is_refused_wherever_it_comes_in(row: OptimizerRow, argument: str) -> None:
    name, kind = row.name, row.kind
    for error, value in [(error, value) for error, values in WRONG[kind.rules[argument]] for value in values]:
        parameter, late = (Parameter(np.ones((3, 1), np.float32)) for _ in range(2))
        with pytest.raises(error, match=f"^{name}: {argument}="):
            kind([parameter], **{argument: value})
        if kind.rules[argument] is natural and value == -1:
            continue  # which a group may have
        optimizer = kind([parameter])
        with pytest.raises(error, match=f"^{name}: {argument}="):
            optimizer.add_param_group({"params": [late], argument: value})
        assert len(optimizer.param_groups) == 1
        state = optimizer.state_dict()
        state["param_groups"][0][argument] = value
        with pytest.raises(alpha.CheckpointError, match=f"group 0: {argument}="):
            optimizer.load_state_dict(state)
        optimizer.param_groups[0][argument] = value
        parameter.grad = alpha.tensor(np.ones((3, 1), np.float32))
        with pytest.raises(error, match=f"^{name}: {argument}="):
            optimizer.step()
        np.testing.assert_array_equal(parameter.numpy(), 1)
        assert not optimizer.state


@EVERY_ROW
def test_a_group_may_have_negative_numbers(device: str, row: OptimizerRow) -> None:
    """Written into a group, given with it, or loaded; in a group without gradients, too. The numbers are PyTorch's."""
    names = [name for name, rule in row.kind.rules.items() if rule is natural and name not in FIXED]
    assert {name for name, rule in row.kind.rules.items() if written(rule) is not rule} == {*names, *FIXED} & {
        *row.kind.rules
    }
    gradients = [values(step, shapes=row.fitting(SHAPES)) for step in (1, 2)]
    start = values(0, shapes=row.fitting(SHAPES))
    with trials() as trial:
        for name in names:
            ends = []
            for way in ("written", "given", "loaded"):
                parameters = [Parameter(alpha.tensor(value, device=device)) for value in start]
                idle = Parameter(np.ones((2, 2), np.float32))
                given = {name: -0.05} if way == "given" else {}
                optimizer = row.kind([{"params": parameters, **given}, {"params": [idle], **given}])
                for group in optimizer.param_groups if way == "written" else ():
                    group[name] = -0.05
                if way == "loaded":
                    state = optimizer.state_dict()
                    for group in state["param_groups"]:
                        group[name] = -0.05
                    optimizer.load_state_dict(state)
                for step in gradients:
                    for parameter, gradient in zip(parameters, step, strict=True):
                        parameter.grad = alpha.tensor(gradient, device=device)
                    with np.errstate(all="ignore"):
                        optimizer.step()
                ends.append([parameter.numpy() for parameter in parameters])
            with trial(name):
                for other in ends[1:]:
                    for a, b in zip(ends[0], other, strict=True):
                        np.testing.assert_array_equal(a, b)
                if hasattr(row, "twin") and name not in ALPHAS and in_pytorch(row):
                    for a, b in zip(ends[0], written_in_torch(row, name, start, gradients), strict=True):
                        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


FIXED = {"initial_accumulator_value"}  # of which PyTorch reads no group's


def in_pytorch(row: OptimizerRow) -> bool:
    try:
        import torch
    except ImportError:
        return False
    return hasattr(torch.optim, row.name)


def written_in_torch(
    row: OptimizerRow, name: str, start: list[np.ndarray], gradients: list[list[np.ndarray]]
) -> list[np.ndarray]:
    import torch

    parameters = [torch.nn.Parameter(torch.tensor(value)) for value in start]
    optimizer = getattr(torch.optim, row.name)(parameters)
    optimizer.param_groups[0][name] = -0.05
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = torch.tensor(gradient)
        with row.twin():
            optimizer.step()
    return [parameter.detach().numpy() for parameter in parameters]


def test_the_first_total_of_adagrad_is_one_for_all_groups() -> None:
    """PyTorch passes over that of a group, which was given or written."""
    for given in (True, False):
        parameter = Parameter(np.ones(3, np.float32))
        optimizer = optim.Adagrad([{"params": [parameter], **({"initial_accumulator_value": 1.0} if given else {})}])
        optimizer.param_groups[0]["initial_accumulator_value"] = 1.0
        parameter.grad = alpha.ones(3)
        with pytest.raises(ValueError, match=r"initial_accumulator_value=1.0 of a group .* begins with the 0.0"):
            optimizer.step()
        assert not optimizer.state


@EVERY_ROW
def test_a_set_of_parameters_is_refused(row: OptimizerRow) -> None:
    """A set has no order, and the state of a parameter is found by its place; anything with an order is taken."""
    a, b = (Parameter(np.ones((2, 2), np.float32)) for _ in range(2))
    weak = WeakSet([a, b])
    for params in ({a, b}, frozenset([a, b]), weak, {("a", a), ("b", b)}):
        for given in (params, [{"params": params}], ({"params": params},)):
            with pytest.raises(TypeError, match=f"^{row.name}: params is a set, whose order changes"):
                row.kind(given)
    named = {"a": a, "b": b}
    for ordered in ((a, b), dict.fromkeys([a, b]), dict.fromkeys([a, b]).keys(), named.values(), named.items()):
        for given in (ordered, [{"params": ordered}], (p for p in ordered)):
            assert row.kind(given).param_groups[0]["params"] == [a, b]
    for twice in ([a, b, a], [{"params": [a]}, {"params": [b, a]}]):
        with pytest.raises(ValueError, match="comes twice"):
            row.kind(twice)


ENDS = (-1.0, -1e-3, 0.0, 1e-30, 0.5, 1.0, 1.001, 2.0)
# numbers that PyTorch does not check, or takes for a pair of which one is no float
ALONE_REFUSED = {
    ("RMSprop", "alpha"): (1.001, 2.0),
    ("Muon", "eps"): (-1.0, -1e-3),
    ("Muon", "ns_steps"): ENDS,  # no whole numbers
    ("Rprop", "step_sizes[0]"): (-1.0, -1e-3),
    ("Rprop", "step_sizes[1]"): (-1.0, -1e-3, 0.0, 1e-30),
}


@pytest.mark.torch
@EVERY_ROW
def test_the_ends_of_intervals_are_pytorchs(row: OptimizerRow) -> None:
    torch = pytest.importorskip("torch")
    row.needs_a_twin({})
    with trials() as trial:
        for argument, parameter in inspect.signature(getattr(torch.optim, row.name)).parameters.items():
            usual = parameter.default if isinstance(parameter.default, tuple) else (parameter.default,)
            if not all(type(number) in (int, float) for number in usual):
                continue
            for place, end in product(range(len(usual)), ENDS):
                value: Any = tuple([end if index == place else number for index, number in enumerate(usual)])
                name = f"{argument}[{place}]" if len(usual) > 1 else argument
                taken = []
                for kind, made in (
                    (row.kind, Parameter(np.ones((2, 2), np.float32))),
                    (getattr(torch.optim, row.name), torch.nn.Parameter(torch.ones(2, 2))),
                ):
                    try:
                        kind([made], **{argument: value if len(usual) > 1 else end})
                        taken.append(True)
                    except (ValueError, TypeError):
                        taken.append(False)
                with trial(name, end):
                    assert taken == [end not in ALONE_REFUSED.get((row.name, name), ()) and taken[1], taken[1]]


def test_numpy_scalars_are_numbers() -> None:
    optimizer = optim.Adam([Parameter(np.ones(3, np.float32))], np.float32(0.5), (np.float64(0.5), np.float32(0.25)))
    group = optimizer.param_groups[0]
    assert (group["lr"], group["betas"]) == (0.5, (0.5, 0.25))
    assert {type(group["lr"]), *map(type, group["betas"])} == {float}


def test_the_rules_of_every_optimizer() -> None:
    assert set(optim.Optimizer.rules) == {"lr", "weight_decay"}
    for row in OPTIMIZERS:
        assert set(row.kind.rules) == set(row.offered), f"{row.name}: an argument has no rule that checks it"


def test_a_parameter_that_was_given_another_array_is_not_updated() -> None:
    a, b = (Parameter(np.ones(3, np.float32)) for _ in range(2))
    optimizer = optim.SGD([a, b], lr=0.1)
    a.grad, b.grad = (alpha.tensor(np.ones(3, np.float32)) for _ in range(2))
    b.array = np.ones(4, np.float32)
    with pytest.raises(alpha.GradientError, match=r"^SGD: a gradient is float32 \(3,\) on cpu, its parameter .*\(4,\)"):
        optimizer.step()
    np.testing.assert_array_equal(a.numpy(), 1)
