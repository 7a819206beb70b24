"""A Trainer of several processes: the same training as of one, runs that go on with any number, one stop for all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import ran, run_ranks

from alpha.errors import DistributedError
from alpha.runtime.ranks import set_ranks
from alpha.train import Run, find_learning_rate


def alone(folder: Path, *arguments: object) -> Any:
    found = ran(1, "trainer.py", folder, *arguments, launcher="alone")
    assert found.status == 0, found.errors[-4000:]
    return found.told[0]


def same(one: Any, other: Any, tolerance: float = 1e-5) -> None:
    assert one["accuracies"] == other["accuracies"]  # counts of all images, of whichever rank
    np.testing.assert_allclose(one["losses"], other["losses"], rtol=tolerance)
    for mine, theirs in zip(one["weights"], other["weights"], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("options", [["metrics"], ["sampler", "accumulate=2"]], ids=" ".join)
def test_ranks_train_evaluate_and_go_on_as_one_process(tmp_path: Path, options: list[str]) -> None:
    whole = alone(tmp_path / "alone", 12, 3, *options)
    for count in (2, 3):
        folder = tmp_path / f"of {count}"
        told = run_ranks(count, "trainer.py", folder, 12, 2, *options)
        assert all(found["weights"] == told[0]["weights"] for found in told)
        assert all(found["losses"] == told[0]["losses"] for found in told)
        assert all(found["predicted"] == [19, 4] for found in told)
        assert sorted(path.name for path in folder.iterdir()) == [
            *("checkpoint.safetensors", "history.csv", "run.json", "weights.safetensors")
        ]
        other = tmp_path / f"of {count} alone"
        shutil.copytree(folder, other)
        rest = alone(other, 12, 3, *options)  # the run of several goes on with one
        again = run_ranks(5 - count, "trainer.py", folder, 12, 3, *options)  # and with another number
        same(rest, whole)
        for found in again:
            same(found, whole)
        if "metrics" in options:
            assert again[0]["confusion"] == whole["confusion"]


@pytest.mark.slow
def test_a_run_of_one_process_goes_on_with_two(tmp_path: Path) -> None:
    whole = alone(tmp_path / "whole", 12, 3)
    alone(tmp_path / "begun", 12, 1)
    for found in run_ranks(2, "trainer.py", tmp_path / "begun", 12, 3):
        same(found, whole)


@pytest.mark.slow
def test_two_runs_of_one_world_size_have_the_same_bits_also_on_emulated_gpus(tmp_path: Path) -> None:
    for emulated in (False, True):
        first, second = (
            run_ranks(2, "trainer.py", tmp_path / f"{emulated} {number}", 12, 2, emulated=emulated)
            for number in range(2)
        )
        assert first[0]["weights"] == second[0]["weights"]
        assert first[0]["losses"] == second[0]["losses"]


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_ctrl_c_on_one_rank_stops_all_behind_one_step_and_saves_once(tmp_path: Path, rank: int) -> None:
    whole = alone(tmp_path / "alone", 12, 4)
    told = run_ranks(3, "trainer.py", tmp_path / "stopped", 12, 4, f"stop={rank}")
    places = [found["stopped"] for found in told]
    assert places[0] == places[1] == places[2]
    run = Run.resume(tmp_path / "stopped")
    state: Any = run._state
    assert [state["epoch"], state["step"]] == places[0]
    run.close()
    same(alone(tmp_path / "stopped", 12, 4), whole)  # in the middle of an epoch, and with another number


@pytest.mark.slow
def test_what_makes_ranks_differ() -> None:
    told = run_ranks(2, "trainer_cases.py")
    for found in told:
        assert "made before alpha.distributed.init()" in found["early"]
        for name in ("unfrozen", "adversaries", "averaged", "named", "stopped"):
            assert found[name] == told[0][name], name
        loss, whole, _ = found["averaged"]
        assert loss == pytest.approx(whole, rel=1e-5)
        assert found["named"]["double"] == pytest.approx(2 * found["named"]["loss"])
        assert found["stopped"] == 1
        assert found["steps"] == [3, 2]
    for epoch in range(2):
        assert sorted(image for found in told for image in found["orders"][epoch]) == list(range(12))
    assert told[0]["orders"][0] != told[0]["orders"][1]


@pytest.mark.slow
def test_a_data_set_lies_in_shares_where_a_gpu_has_no_room_for_the_whole() -> None:
    told = run_ranks(2, "resident_shares.py", emulated=True)
    for rank, found in enumerate(told):
        assert found["goes on"] == 4
        for kind, held in (("whole", 13), ("shares", 7 - rank), ("none", 0)):
            assert found[kind]["held"] == held, kind
            for name in ("tested", "streamed"):
                result = found[kind][name]
                assert result["images"] == 13
                assert {key: result[key] for key in found["exact"]} == pytest.approx(found["exact"], rel=1e-5)
            assert found[kind]["trained"] == told[0][kind]["trained"]
            assert found[kind]["trained"]["images"] == 14  # one comes twice, so that parts are of one length
            assert ("held by" in found[kind]["about"]) is (kind == "shares")


@pytest.mark.slow
def test_train_cifar10_goes_on_with_another_number_of_processes(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "train_cifar10.py"
    short = ["--data", "sample", "--steps", "1", "--device", "cpu"]
    found = ran(2, str(script), *short, "--batch-size", "33", "--epochs", "1", "--output", tmp_path / "run")
    assert found.status == 0, found.errors
    alone = ran(1, str(script), "--resume", tmp_path / "run", "--epochs", "2", launcher="alone")
    assert alone.status == 0, alone.errors
    run = Run.resume(tmp_path / "run")
    assert (run.options["batch_size"], run.options["processes"], len(run.history.rows)) == (66, 1, 2)
    run.close()
    four = ran(4, str(script), "--resume", tmp_path / "run", "--epochs", "3")
    assert four.status != 0
    assert "a step of the run has 66 images, which 4 processes cannot share: use one of 1, 2, 3, 6, 11" in four.errors


def test_find_learning_rate_wants_one_process() -> None:
    trainer: Any = None
    set_ranks(0, 2)
    try:
        with pytest.raises(DistributedError, match="find_learning_rate: run it in one process"):
            find_learning_rate(trainer, trainer)
    finally:
        set_ranks(0, 1)


@pytest.mark.slow
def test_ranks_that_differ_in_what_makes_a_step_are_an_error_on_all_of_them() -> None:
    first, second = run_ranks(2, "unlike.py")
    for errors in (first, second):
        assert [name for name, error in errors.items() if not error] == ["nothing"]
    for name in ("rate", "betas", "clip_norm", "order of its parameters"):
        assert "settings of the training of rank 1 are not those of rank 0: " in second[name], name
    assert "1.weight" in second["order of a shared optimizer, model first"]
    assert "gradients of" in first["parameters that are frozen"]
