"""Values that optimizers write beside weights, copies and magnitudes, change no bit, whoever else writes the weights.

Programs are compared with themselves without anything beside their weights. The fixture of tests/conftest.py also
compares each value with its weight wherever it is read, in every test.
"""

from __future__ import annotations

import ast
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from beside.checks import bits_of, expected, nothing_beside, values_of
from beside.written_weights import WAYS, Parts, Program, Step, compare, computing, drawn, of_weights, passes, trains
from rows.optimizers import OPTIMIZERS, OptimizerRow

import alpha
from alpha import GradientError, Tensor, nn, optim
from alpha.autograd.derived import ask
from alpha.nn import functional as F
from alpha.ops.conv2d.magnitudes import MAGNITUDE
from alpha.ops.kernel.casts import COPY
from alpha.ops.kernel.tables.chunk_tables import CHUNK
from alpha.optim.fused import FusedOptimizer

# -- the kernels -------------------------------------------------------------------------------------------------------

SIZES = (1, 3), (CHUNK - 1, 1), (5, 4), (2 * CHUNK + 7, 1), (64, 3)
ODD = np.float32([np.inf, -np.inf, np.nan, 1e-40, -3e38, 3.3999e38, 1 + 2.0**-8, 1 + 3 * 2.0**-8, -0.0])
FUSED = [row for row in OPTIMIZERS if issubclass(row.kind, (FusedOptimizer, optim.Adafactor))]


@pytest.mark.parametrize("row", FUSED, ids=lambda row: row.name)
@pytest.mark.parametrize("odd", [False, True], ids=["normal", "odd values"])
def test_a_fused_update_writes_what_a_pass_of_its_own_would(
    row: OptimizerRow, odd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice, because a second update may find nothing of the first; one weight has both, one each, one nothing.

    The second update runs its blocks in another order.
    """
    wanted = [(COPY, MAGNITUDE), (COPY,), (MAGNITUDE,), (COPY, MAGNITUDE), ()]
    weights = [nn.Parameter(drawn(i, *shape) * (4.0 - i)) for i, shape in enumerate(row.fitting([*SIZES]))]
    if odd:
        for weight in weights:
            values = weight.numpy().reshape(-1)
            values[-len(ODD) :] = ODD[-values.size :]
            weight.data.copy_(alpha.tensor(values.reshape(weight.shape), device="cuda"))
    plain = [nn.Parameter(weight) for weight in weights]
    one, other = (row.kind(group, **row.settings[-1]) for group in (weights, plain))
    for turn, order in enumerate(("ascending", "descending")):
        monkeypatch.setattr(alpha.get_device("cuda").driver, "block_order", order, raising=False)
        for i, (weight, same) in enumerate(zip(weights, plain, strict=True)):
            weight.grad, same.grad = (drawn(10 * turn + i, *weight.shape) for _ in range(2))
            for kind in wanted[i]:
                ask(weight.array, kind)
        one.step()
        other.step()
        for i, (weight, same) in enumerate(zip(weights, plain, strict=True)):
            np.testing.assert_array_equal(weight.numpy(), same.numpy())
            found = values_of(weight)
            assert set(found) == {kind.name for kind in wanted[i]}
            for value in found.values():
                assert value.right_for == weight._version.value
                written = bits_of(value)
                np.testing.assert_array_equal(written, expected(value.kind, weight.numpy()))
                value.forget()
                value.refresh()
                np.testing.assert_array_equal(written, bits_of(value))
            assert not values_of(same)


# Magnitudes have the same rule as copies, and their kernels take the emulated driver longer.
OF_MAGNITUDES = "mul_", "other memory", "another library", "another_captured_step", "cut_off", "in_another_precision"
CASES = [*((name, "bf16") for name in WAYS), *((name, "float32") for name in OF_MAGNITUDES)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "precision"), CASES)
def test_a_write_between_two_steps_is_seen(name: str, precision: str) -> None:
    compare(precision, WAYS[name])


def test_every_place_that_counts_a_write_is_reached_by_a_way() -> None:
    """Another place needs a way of `WAYS`, or a word here of what it writes."""
    known = {
        "function.give": "mul_",
        "copied_parts.write": "by a part",
        "module.load_state_dict": "loaded",
        "init._write": "nn.init",
        "optimizer._run": "a longer optimizer",
        "averaged_model.update_parameters": "averaged",
        "averages.__call__": "averaged",  # the same kernel, as a function of lists
        "rebound.settle": "in its own step",  # below
        **dict.fromkeys(("optim._send", "data_parallel._send"), "in tests/distributed"),
        **dict.fromkeys(("collectives.all_reduce", "collectives.broadcast"), "in tests/distributed"),
        **dict.fromkeys(("engine._deposit", "clip_grad._clip", "replay._take_back"), "gradients"),
        **dict.fromkeys(("batch_norm_primitives.note_moved", "batch_statistics.update_bn"), "running statistics"),
        "numpy_protocols.array_ufunc": "arrays on the cpu",
    }
    found = set()
    for path in sorted(Path(alpha.__file__).parent.rglob("*.py")):
        text = path.read_text()
        for function in ast.walk(ast.parse(text if ".bump(" in text else "")):
            if isinstance(function, ast.FunctionDef):
                calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
                if any(isinstance(called, ast.Attribute) and called.attr == "bump" for called in calls):
                    found.add(f"{path.stem}.{function.name}")
    assert found == set(known)


# -- writes within a step ----------------------------------------------------------------------------------------------


def clips_afterwards(parts: Parts, x: Tensor, y: Tensor) -> Tensor:
    loss = trains(parts, x, y)
    of_weights(lambda weight: weight.clamp_(-0.05, 0.05))(parts)
    return loss


def scales_before(parts: Parts, x: Tensor, y: Tensor) -> Tensor:
    of_weights(lambda weight: weight.mul_(0.99))(parts)
    return trains(parts, x, y)


def scales_between_two_passes(parts: Parts, x: Tensor, y: Tensor) -> Tensor:
    first = passes(parts, x, y)
    return first.detach() + scales_before(parts, x, y)


def updates_twice_for_a_pass(parts: Parts, x: Tensor, y: Tensor) -> Tensor:
    loss = trains(parts, x, y)
    parts.optimizer.step()
    return loss


def trains_twice(parts: Parts, x: Tensor, y: Tensor) -> Tensor:
    return trains(parts, x, y).detach() + trains(parts, x, y)


def has_two_optimizers(parts: Parts, x: Tensor, y: Tensor) -> Tensor:
    loss = trains(parts, x, y)
    parts.second.step()
    return loss


def gives_other_memory(parts: Parts, x: Tensor, y: Tensor) -> Tensor:
    loss = trains(parts, x, y)
    with alpha.no_grad():
        for weight in parts.weights:
            weight.data = weight.data * 0.99
    return loss


STEPS: list[Step] = [clips_afterwards, scales_before, scales_between_two_passes, updates_twice_for_a_pass, trains_twice]
STEPS += [has_two_optimizers]


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
@pytest.mark.parametrize("way", ["nothing", "mul_"])
def test_a_write_within_a_step_is_seen(step: Step, way: str) -> None:
    compare("bf16", WAYS[way], step)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["nothing", "mul_"])
def test_a_step_may_give_weights_other_memory(way: str) -> None:
    compare("bf16", WAYS[way], gives_other_memory, keeps=False)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["nothing", "mul_", "loaded"])
def test_a_captured_pass_reads_what_an_eager_update_has_written(way: str) -> None:
    compare("bf16", WAYS[way], passes, updates=True)


# -- graphs, captures and layers that share a weight -------------------------------------------------------------------


def test_a_graph_whose_copies_were_written_is_refused() -> None:
    """The gradients would be those of other weights; in float32 the weights themselves are saved, and refused."""
    for precision in ("bf16", "float32"):
        with computing(precision):
            program = Program(False)
            program.train(2)
            loss = F.cross_entropy(program.net(program.x), program.y)
            loss.backward(retain_graph=True)
            program.optimizer.step()
            with pytest.raises(GradientError, match="written in place by Adam"):
                loss.backward()


def test_a_capture_that_fails_leaves_no_value_right() -> None:
    """The updates are taken back, versions and all, and no kernel has run."""

    def run(fails: bool) -> list[np.ndarray]:
        failing: list[bool] = []

        def may_fail(parts: Parts, x: Tensor, y: Tensor) -> Tensor:
            loss = trains(parts, x, y)
            if failing:
                raise RuntimeError("the program's own")
            return loss

        program = Program(True, may_fail)
        program.train(1)
        if fails:
            failing.append(True)
            with pytest.raises(RuntimeError, match="the program's own"):
                program.train(1)
            failing.clear()
        for _ in range(3):  # the versions that the step had, and more
            of_weights(lambda weight: weight.mul_(0.5))(program)
            program.predict()
        return program.seen

    with computing("bf16"):
        for found, wanted in zip(run(True), run(False), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_layers_share_a_weight_and_its_copy() -> None:
    found = []
    for nothing in (True, False):
        with nothing_beside() if nothing else nullcontext(), computing("bf16"):
            alpha.manual_seed(2)
            net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).to("cuda")
            net[2].weight = net[0].weight
            optimizer, x = optim.SGD(net.parameters(), lr=0.1), drawn(3, 4, 8)
            for _ in range(3):
                optimizer.zero_grad()
                net(x).square().mean().backward()
                optimizer.step()
            with alpha.no_grad():
                found.append(net(x).numpy())
            assert bool(values_of(net[2].weight)) is not nothing
    np.testing.assert_array_equal(*found)


@pytest.mark.slow
def test_a_captured_prediction_follows_training() -> None:
    """Two graphs read and write what lies beside the same weights, in turns, and a write between them."""

    def run(captured: bool) -> list[np.ndarray]:
        program = Program(captured)
        net = program.net

        def predict(x: Tensor) -> Tensor:
            with alpha.no_grad():
                return net(x) * 1.0  # type: ignore[no-any-return]

        prediction, seen = alpha.capture(predict) if captured else predict, []
        for turn in range(6):
            program.train(1)
            seen.append(prediction(program.x).numpy())
            if turn % 2:
                of_weights(lambda weight: weight.mul_(0.5))(program)
                seen.append(prediction(program.x).numpy())
        return [*seen, *program.seen]

    with nothing_beside(), computing("bf16"):
        wanted = run(False)
    for captured in (False, True):
        with computing("bf16"):
            for found, other in zip(run(captured), wanted, strict=True):
                np.testing.assert_array_equal(found, other)
