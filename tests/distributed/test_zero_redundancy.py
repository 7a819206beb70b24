"""ZeroRedundancyOptimizer: training as without it, a share of the state on each rank, runs of any number of ranks."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranks import ran, run_ranks

import alpha
from alpha import distributed as dist
from alpha import nn
from alpha.autograd import shares
from alpha.distributed.optim import ZeroRedundancyOptimizer, shared_out
from alpha.errors import GradientError
from alpha.runtime.recording import Recording, recorded
from alpha.train import Run


@given(st.lists(st.integers(0, 100)), st.integers(1, 5))
def test_shares_are_of_nearly_one_size(sizes: list[int], count: int) -> None:
    loads = [0] * count
    owners = shared_out(sizes, loads)
    found = [sum(size for size, owner in zip(sizes, owners, strict=True) if owner == rank) for rank in range(count)]
    assert found == loads
    assert max(loads) - min(loads) <= max(sizes, default=0)
    assert owners == shared_out(sizes, [0] * count)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "emulated"), [(2, False), (3, False), (2, True)])
def test_ranks_train_as_without_it_and_refuse_what_would_be_wrong(count: int, emulated: bool) -> None:
    told = run_ranks(count, "zero.py", emulated=emulated)
    for found in [] if emulated else told:
        refused = found["refusals"]
        for name in ("not reduced", "norm", "total", "no_sync"):
            assert "were not reduced to the ranks" in refused[name], name
            assert refused[name].startswith("GradientError")
        assert "Adam: a parameter (6, 3, 3, 3) belongs to a ZeroRedundancyOptimizer" in refused["plain"]
        assert "call consolidate_state_dict(to=" in refused["old state"]
        assert f"to={count}, but there are ranks 0 to {count - 1}" in refused["to"]
        assert "updates all parameters together" in refused["together"]
        assert "give the class of the optimizer within" in refused["twice"]
        assert "optimizer_class is Linear" in refused["no class"]
        assert "parameters of ZeroRedundancyOptimizer of rank 1 are not those of rank 0" in refused["other parameters"]
        assert "a parameter that requires no gradient has one" in refused["frozen"]
        assert refused["dropped"] == ""
        assert found["norm of lists"][1] == pytest.approx(found["norm of lists"][0], rel=1e-12)
        assert refused["gone"] == "0"
    exact = 1e-6 if emulated else 1e-12
    for rank, found in enumerate(told):
        assert all(found["equal"])
        assert found["mixed"]
        assert found["dry"]
        assert max(found["passes"]) < exact
        assert found["added"] < exact
        for beside in found["beside"].values():
            assert beside["weights"] < exact
            assert beside["norms"] < exact
            assert beside["shares"]
            assert beside["reloaded"] == beside["copied"] == 0
            assert "belong to another ZeroRedundancyOptimizer that was made later" in beside["replaced"]
            if rank == 1:
                assert beside["state"] < exact
                assert beside["loaded"] == 0
            else:
                assert f"rank {rank} has a share of the state alone" in beside["refused"]
    for name in told[0]["beside"]:
        held = [found["beside"][name]["held"] for found in told]
        assert sum(held) == told[0]["beside"][name]["all"]
        assert max(held) < 1.3 * sum(held) / count
    owners = told[0]["held"][1]
    for rank, found in enumerate(told):
        there, seen, norm, few = found["held"]
        assert seen == owners
        assert there == [owner == rank for owner in owners]
        assert abs(norm) < exact
        assert few == told[0]["held"][3] > 0


@pytest.mark.slow
def test_a_run_goes_on_with_any_number_of_ranks_and_without_it(tmp_path: Path) -> None:
    def same(one: Any, other: Any) -> None:
        np.testing.assert_allclose(one["losses"], other["losses"], rtol=1e-5)
        for mine, theirs in zip(one["weights"], other["weights"], strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-5)

    def alone(folder: Path, *options: object) -> Any:
        found = ran(1, "trainer.py", folder, *options, launcher="alone")
        assert found.status == 0, found.errors[-4000:]
        return found.told[0]

    whole = alone(tmp_path / "whole", 12, 3, "clip")
    told = run_ranks(2, "trainer.py", tmp_path / "2", 12, 2, "zero", "clip")
    assert told[0]["weights"] == told[1]["weights"]
    shutil.copytree(tmp_path / "2", tmp_path / "1")
    same(alone(tmp_path / "1", 12, 3, "clip"), whole)  # without it
    same(run_ranks(3, "trainer.py", tmp_path / "2", 12, 3, "zero", "clip")[2], whole)

    stopped = run_ranks(2, "trainer.py", tmp_path / "stopped", 12, 3, "zero", "clip", "stop=1")
    assert stopped[0]["stopped"] == stopped[1]["stopped"]
    run = Run.resume(tmp_path / "stopped")
    state: Any = run._state
    assert state["optimizer"]["optimizer"] == "Adam"
    epoch, step = stopped[0]["stopped"]
    assert [slots["step"] for slots in state["optimizer"]["state"].values()] == [(epoch - 1) * 4 + step] * 4
    run.close()

    emulated = run_ranks(2, "trainer.py", tmp_path / "emulated", 12, 3, "zero", "clip", emulated=True)
    assert emulated[0]["weights"] == emulated[1]["weights"]
    same(emulated[1], whole)


# -- one process -----------------------------------------------------------------------------------


@pytest.fixture
def alone() -> Iterator[None]:
    dist.init("cpu")
    yield
    dist.shutdown()


@pytest.mark.parametrize("group", [True, False])
def test_alone_it_is_the_optimizer_itself(request: pytest.FixtureRequest, group: bool) -> None:
    if group:
        request.getfixturevalue("alone")
    found = []
    for share in (False, True):
        alpha.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer: Any = alpha.optim.Adam(model.parameters(), lr=0.1)
        if share:
            optimizer = ZeroRedundancyOptimizer(model.parameters(), alpha.optim.Adam, lr=0.1)
        schedule = alpha.optim.StepLR(optimizer, 1)

        def closure(model: Any = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = model(alpha.ones(2, 3)).square().sum()
            loss.backward()
            return loss

        losses = [optimizer.step(closure).item() for _ in range(3) if schedule.step() is None]
        optimizer.reset()
        losses.append(optimizer.step(closure).item())
        if share:
            optimizer.consolidate_state_dict()
        state = optimizer.state_dict()
        optimizer.load_state_dict(state)
        found.append([losses, model.weight.numpy().tolist(), state["param_groups"], state["state"][0]["step"]])
    assert found[0] == found[1]
    assert found[0][3] == 1


def test_a_replay_refuses_gradients_of_other_ranks_than_the_capture_had() -> None:
    x, owner = alpha.ones(2), alpha.optim.SGD([alpha.ones(2, requires_grad=True)])
    shares.give(x, 0, owner, 0)
    shares.mark_reduced([x], True)
    before, notes = shares.reduced_now(), Recording(capturing=False)
    with recorded(notes):
        shares.expect_reduced([x])
        shares.mark_reduced([x], False)
    expected, marked = notes.actions
    with pytest.raises(GradientError, match="gradients of all ranks in one call"):
        expected()
    shares.restore_reduced(before)
    expected()
    (keep,) = notes.keeps
    restore = keep()
    marked()
    assert not shares.is_reduced(x)
    restore()
    assert shares.is_reduced(x)
    del owner
    assert shares.share_of(x) is None
    assert not shares.is_reduced(x)


def test_norms_of_gradients_without_shares_are_as_before() -> None:
    x = alpha.tensor([3.0, 4.0], requires_grad=True)
    x.sum().backward()
    assert nn.utils.get_total_norm([x]).item() == 5
    assert nn.utils.get_total_norm([]).item() == 0
    assert nn.utils.clip_grad_norm_([x], math.inf).item() == pytest.approx(math.sqrt(2))
