"""The autotuner: what it takes, what it keeps, and what a bad file, folder or GPU does to it."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import alpha
from alpha import config
from alpha.errors import OutOfMemoryError
from alpha.nn import functional as F
from alpha.ops.conv2d import cuda_target
from alpha.ops.conv2d.launch import _cached_plan
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Given
from alpha.ops.conv2d.select import choose as choose_module
from alpha.ops.conv2d.select import tune
from alpha.ops.conv2d.select.choose import _choose, _fastest, applicable, choose
from alpha.ops.conv2d.select.product_table import as_convolution
from alpha.ops.conv2d.shape import conv_shape
from alpha.ops.gemm.tiles import Product
from alpha.ops.matmul import cuda as matmul_cuda
from alpha.runtime import Device
from alpha.runtime.cuda.planning.driver_dry import DryDevice, Launch

SHAPE = conv_shape("test", (64, 2, 2, 16), (16, 3, 3, 16), (1, 1), (1, 1))


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """The cuda device, tuned, with a cache folder of its own: the kernels' are still where they were."""
    device = alpha.get_device("cuda")
    monkeypatch.setenv("ALPHA_TUNE", "1")
    for module in (tune, tune):
        monkeypatch.setattr(module, "folder", lambda: tmp_path / "tuned")
    forget()
    yield device
    forget()


def forget() -> None:
    """Forget everything, as in a new process."""
    for cached in (tune.tuning_cache, _fastest, _choose, _cached_plan, matmul_cuda._choose_configuration):
        cached.cache_clear()


def file_of(folder: Path) -> Path:
    (path,) = (folder / "tuned").glob("*.json")
    return path


def measuring(monkeypatch: pytest.MonkeyPatch, times: Mapping[str, float]) -> list[set[str]]:
    """Replaces the clock; which candidates it was asked for."""
    asked: list[set[str]] = []

    def measure(device: Device, calls: Mapping[str, tune.Call]) -> tune.Times:
        asked.append(set(calls))
        return {name: times.get(name, 9.0) for name in calls}

    monkeypatch.setattr(tune, "measure", measure)
    return asked


def name(operator: str = FORWARD, precision: str = "float32") -> str:
    return choose(operator, SHAPE, cuda_target(alpha.get_device("cuda")), precision).name


@pytest.mark.slow
def test_every_operator_is_timed_on_the_device(
    gpu: Device, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALPHA_DEBUG", "1")
    chosen = {operator: name(operator) for operator in (FORWARD, INPUT, WEIGHT)}
    kept = json.loads(file_of(tmp_path).read_text())
    assert kept["facts"]["gpu"] == gpu.properties.name  # type: ignore[attr-defined]
    target = cuda_target(gpu)
    for (operator, row), (key, times) in zip(chosen.items(), kept["milliseconds"].items(), strict=True):
        assert key.startswith(operator)
        assert key.endswith("float32")
        assert set(times) == {v.name for v in applicable(operator, SHAPE, target)}
        assert times[row] <= min(times.values()) / tune.MARGIN
    printed = capsys.readouterr().err
    assert printed.count(": tuned: ") == 3
    assert f"tuned: {chosen[INPUT]} (" in printed
    assert " ms), runner-up " in printed


def test_a_later_run_reads_what_was_measured(gpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = measuring(monkeypatch, {"implicit_gemm_ffma": 1.0})
    assert name() == "implicit_gemm_ffma"
    assert name() == "implicit_gemm_ffma"
    forget()
    assert name() == "implicit_gemm_ffma"
    assert len(asked) == 1
    monkeypatch.setenv("ALPHA_CONV_KERNEL", "conv_v2_sm80_tf32x3_64x64")
    if any(v.name == "conv_v2_sm80_tf32x3_64x64" for v in applicable(FORWARD, SHAPE, cuda_target(gpu))):
        assert name() == "conv_v2_sm80_tf32x3_64x64"
    monkeypatch.delenv("ALPHA_CONV_KERNEL")
    monkeypatch.delenv("ALPHA_TUNE")
    file_of(tmp_path).write_text("{}")
    assert name() != "implicit_gemm_ffma"
    assert len(asked) == 1


def test_the_table_keeps_its_row_unless_another_is_clearly_faster(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    for other, expected in ((0.98, "table's"), (0.96, "other")):
        measuring(monkeypatch, {"table's": 1.0, "other": other})
        calls = dict.fromkeys(("table's", "other"), lambda: None)
        assert tune.best_of(gpu, f"key {other}", tuple(calls), lambda on, c=calls: c) == expected  # type: ignore[misc]
    assert tune.best_of(gpu, "key", ("only",), dict) == "only"


TIMES = '{"milliseconds": {"a": {"b": %s}}}'  # none of which is one
DAMAGED = ["", "{", "[]", '{"milliseconds": []}', '{"milliseconds": {"a": 1}}', "[" * 100_000, TIMES % ("9" * 400)]
DAMAGED += [TIMES % time for time in ("NaN", "-1", "1e999", "[]")]


@pytest.mark.parametrize("text", DAMAGED, ids=lambda text: text[:30])
def test_a_damaged_file_is_put_aside(gpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    asked = measuring(monkeypatch, {"implicit_gemm_ffma": 1.0})
    name()
    path = file_of(tmp_path)
    path.write_text(text)
    forget()
    with pytest.warns(RuntimeWarning, match=r"\.json: not a file of ALPHA_TUNE .*measured again"):
        assert name() == "implicit_gemm_ffma"
    assert len(asked) == 2
    assert path.with_suffix(".damaged").read_text() == text
    assert len(json.loads(path.read_text())["milliseconds"]) == 1


def test_entries_of_rows_that_are_gone_are_measured_again(
    gpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = measuring(monkeypatch, {"implicit_gemm_ffma": 1.0})
    name()
    path = file_of(tmp_path)
    path.write_text(path.read_text().replace("implicit_gemm_ffma", "an_older_row"))
    forget()
    assert name() == "implicit_gemm_ffma"
    assert len(asked) == 2


def test_processes_add_to_one_file(gpu: Device, tmp_path: Path) -> None:
    caches = [tune.TuningCache(tmp_path / "tuned" / "a.json", {"gpu": "any"}) for _ in range(2)]
    for number, book in enumerate(caches):
        book.add(f"shape {number}", {"row": 1.0})
    assert tune.TuningCache(caches[0].path, {}).times("shape 0", ["row", "other"]) == {"row": 1.0}
    assert tune.TuningCache(caches[0].path, {}).times("shape 1", ["row"]) == {"row": 1.0}
    assert tune.TuningCache(caches[0].path, {}).times("shape 1", ["other"]) is None
    assert [path.name for path in (tmp_path / "tuned").iterdir()] == ["a.json"]


def test_a_folder_that_cannot_be_written_warns_once(
    gpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tuned").write_text("a file")
    measuring(monkeypatch, {"implicit_gemm_ffma": 1.0, "ks_deconv_ffma": 1.0})
    with pytest.warns(RuntimeWarning, match="set ALPHA_CACHE_DIR to a writable folder") as caught:
        assert (name(), name(INPUT)) == ("implicit_gemm_ffma", "ks_deconv_ffma")
    assert len(caught) == 1


def test_without_memory_the_table_decides(gpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> None:
        raise OutOfMemoryError("scratch operands")

    tuned = name()
    with monkeypatch.context() as patch:
        patch.setattr(tune, "scratch", no_memory)
        name(WEIGHT)
    assert len(json.loads(file_of(tmp_path).read_text())["milliseconds"]) == 1
    assert tuned == name()
    fine = tune.measure(gpu, {"too large": no_memory, "fits": lambda: None})
    assert list(fine) == ["fits"]
    with pytest.raises(OutOfMemoryError, match="scratch operands"):
        tune.measure(gpu, {"too large": no_memory})


def test_another_gpu_compiler_or_kernel_is_another_file(
    gpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = tune.facts_of(gpu)
    assert set(facts) == {"gpu", "compute capability", "driver", "compiler", "kernels"}
    paths = {tune.tuning_cache(gpu, tmp_path).path}
    for fact in facts:
        with monkeypatch.context() as patch:
            patch.setattr(tune, "facts_of", lambda device, f=fact: {**facts, f: "another"})
            tune.tuning_cache.cache_clear()
            paths.add(tune.tuning_cache(gpu, tmp_path).path)
    assert len(paths) == len(facts) + 1


def test_another_cache_folder_is_measured_again(gpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(tune, "fastest", lambda *args: asked.append(config.CACHE_DIR.get()) or args[-1])
    folders = [str(tmp_path / name) for name in "aab"]
    for folder in folders:
        monkeypatch.setenv("ALPHA_CACHE_DIR", folder)
        name()
    assert asked == folders[1:]


def test_tuning_begins_when_it_is_asked_for(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuning may begin for a shape that was computed before."""
    asked = measuring(monkeypatch, {})
    x, w = (alpha.zeros(*shape, device=gpu) for shape in (SHAPE.X, SHAPE.W))
    for tuned in ("0", "1"):
        monkeypatch.setenv("ALPHA_TUNE", tuned)
        F.conv2d(x, w, padding=1)
        assert len(asked) == int(tuned)


def test_a_shape_with_dilation_is_another_one(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[str] = []
    monkeypatch.setattr(tune, "best_of", lambda on, key, names, calls: keys.append(key) or names[0])
    row = choose(FORWARD, SHAPE, replace(cuda_target(gpu), gpu=None))
    for shape in (SHAPE, replace(SHAPE, dh=2)):
        tune.fastest(gpu, FORWARD, shape, "float32", [row], row)
    assert keys[0] != keys[1]


def test_rows_for_bfloat16_are_timed_with_it(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    made, scratch = set(), tune.scratch
    monkeypatch.setattr(tune, "scratch", lambda on, shape, dtype: made.add(dtype.name) or scratch(on, shape, dtype))
    monkeypatch.setattr(tune, "best_of", lambda on, key, names, calls: calls(on) and names[0])
    row = choose(FORWARD, SHAPE, replace(cuda_target(gpu), gpu=None), "bf16")
    tune.fastest(gpu, FORWARD, SHAPE, "bf16", [row], row)
    assert made == {"bfloat16"}


def test_a_product_is_timed_against_cuda_matmul(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    p = Product(1, 64, 64, 64, False, True)
    if cuda_target(gpu).compute_capability < (8, 0):
        pytest.skip("a GPU without tensor cores")
    A, B = (np.random.default_rng(0).standard_normal((1, 64, 64), np.float32) for _ in range(2))
    for fastest in ("conv_v2_sm80_tf32x3_64x64", "matmul"):
        forget()
        for path in tune.folder().glob("*"):
            path.unlink()
        measuring(monkeypatch, {fastest: 1.0})
        row = matmul_cuda.choose_configuration(p, gpu, "float32")
        assert (row.name if row else "matmul") == fastest
        Y = matmul_cuda.multiply(p, gpu.upload(A), gpu.upload(B), "float32")
        np.testing.assert_allclose(gpu.download(Y)[0], A[0] @ B[0].T, atol=1e-4)
    calls = matmul_cuda._calls(p, choose(*as_convolution(p), cuda_target(gpu)), gpu)  # type: ignore[misc]
    values = [gpu.download(call()) for call in calls.values()]
    np.testing.assert_allclose(*values, atol=1e-4)


@pytest.mark.parametrize("pays", [True, False])
def test_what_the_table_would_take_is_the_default_of_a_product(
    gpu: Device, monkeypatch: pytest.MonkeyPatch, pays: bool
) -> None:
    if cuda_target(gpu).compute_capability < (8, 0):
        pytest.skip("a GPU without tensor cores")
    asked: list[tuple[str, ...]] = []
    forget()
    monkeypatch.setattr(matmul_cuda, "faster_than_ffma", lambda *_: pays)

    def best_of(device: Device, key: str, names: tuple[str, ...], calls: object) -> str:
        asked.append(names)
        return names[0]

    monkeypatch.setattr(tune, "best_of", best_of)
    row = matmul_cuda.choose_configuration(Product(1, 64, 64, 64, False, True), gpu, "float32")
    assert (row is not None) == pays
    assert asked[-1].index("matmul") == (1 if pays else 0)


# -- compiling --------------------------------------------------------------------------------------------------


def launched_by_all(gpu: Device, operator: str = FORWARD) -> dict[str, list[Launch]]:
    """Launches of each candidate for SHAPE."""
    on = DryDevice.double(gpu.properties)  # type: ignore[attr-defined]
    launches = {}
    for row in applicable(operator, SHAPE, cuda_target(gpu)):
        with on.driver.noting() as launches[row.name]:
            compute(row, *(on.empty(shape, np.float32) for shape in (SHAPE.X, SHAPE.W)), SHAPE)
    return launches


def test_all_candidates_are_compiled_at_once(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The candidates are compiled before the first of them runs."""
    done: list[object] = []
    monkeypatch.setattr(tune, "compile_units", lambda driver, units: done.append((driver, set(units))))
    monkeypatch.setattr(tune, "measure", lambda device, calls: done.append("measured") or dict.fromkeys(calls, 1.0))
    name()
    units = {launch.unit for launches in launched_by_all(gpu).values() for launch in launches}
    assert len(units) > 1
    assert done == [(gpu.driver, units), "measured"]  # type: ignore[attr-defined]


def test_a_choice_that_reads_a_copy_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies are there in a network alone, so without them another configuration would win."""
    monkeypatch.setenv("ALPHA_TUNE", "1")
    monkeypatch.setattr(choose_module, "_fastest", lambda *_: pytest.fail("it is measured"))
    s = conv_shape("test", (512, 16, 16, 64), (64, 3, 3, 64), (1, 1), (1, 1))
    target = replace(cuda_target(DryDevice.of("sm_90a")), gpu=DryDevice.of("sm_90a"))
    assert choose(FORWARD, s, target, "tf32", (Given.HALF, Given.NOTHING)).reads_half


def test_the_models_choice_is_compared_with_the_fastest() -> None:
    text = tune.compared({"a": 0.5, "b": 0.4, "c": 0.9}, {"a": 0.3, "b": 0.6, "c": 0.7})
    assert text == "the model would take a (0.5000 ms, 0.3000 ms predicted), 25% slower than the fastest"
    assert tune.compared({"a": 0.5}, {}) == "the model knows none of the candidates"


def test_a_tuned_choice_is_followed_by_the_models(
    gpu: Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ALPHA_DEBUG", "1")
    measuring(monkeypatch, {"implicit_gemm_ffma": 1.0})
    assert name() == "implicit_gemm_ffma"
    assert "the model would take " in capsys.readouterr().err


def test_a_dry_run_measures_nothing(gpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run takes the table's row and lists the kernels of all candidates, or takes what a run has measured."""
    asked = measuring(monkeypatch, {"implicit_gemm_ffma": 1.0})
    x, w = (alpha.tensor(np.zeros(shape, np.float32), device=gpu) for shape in (SHAPE.X, SHAPE.W))
    launches = launched_by_all(gpu)
    conv = functools.partial(F.conv2d, padding=1)
    monkeypatch.delenv("ALPHA_TUNE")
    default = name()
    monkeypatch.setenv("ALPHA_TUNE", "1")
    run = alpha.dry_run(conv, x, w, gpu=gpu)
    assert [step.launch for step in run.launches] == launches[default]
    assert set(run.units) == {launch.unit for found in launches.values() for launch in found}
    assert not asked
    assert not list((tmp_path / "tuned").glob("*"))
    forget()
    assert name() == "implicit_gemm_ffma"
    again = alpha.dry_run(conv, x, w, gpu=gpu)
    assert [step.launch for step in again.launches] == launches["implicit_gemm_ffma"]
    assert set(again.units) == {launch.unit for launch in launches["implicit_gemm_ffma"]}


def test_the_files_that_make_a_measurement_old() -> None:
    """The files are those that choose and launch convolutions and matrix products, and their kernels."""
    found = {"/".join(path.parts[-2:]) for path in tune._sources()}
    assert {"select/choose.py", "conv2d/conv_v2.py", "gemm/tiles.py", "matmul/cuda.py"} <= found
    assert {"common/fp16_terms.cuh", "matmul/sm80.cu"} <= found
