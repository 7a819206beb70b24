"""custom_model.py and compare_pytorch.py as their users run them, in short."""

from __future__ import annotations

import csv
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import child
import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return child.run([sys.executable, *arguments], cwd=ROOT / "examples", env=child.environment(".", **environment))


@pytest.mark.slow
def test_custom_model_learns() -> None:
    result = run("custom_model.py", "--device", "cpu", "--epochs", "2", "--steps", "20")
    assert result.returncode == 0, result.stderr
    losses = [float(loss) for loss in re.findall(r"epoch \d  loss (\d\.\d+)", result.stdout)]
    assert len(losses) == 2
    assert losses[1] < losses[0] < 2.4
    assert "GatedNet on (50, 32, 32, 3)" in result.stdout


CHECK = """
import sys
import numpy as np
import alpha
from custom_model import GatedNet, swish

x = np.linspace(-100, 100, 401).astype(sys.argv[2])
s = 0.5 + 0.5 * np.tanh(0.5 * x.astype(float))
t = alpha.tensor(x, requires_grad=True, device=sys.argv[1])
y = swish(t)
y.sum().backward()
np.testing.assert_allclose(y.numpy(), x * s, rtol=1e-5, atol=1e-6)
np.testing.assert_allclose(t.grad.numpy(), s * (1 + x * (1 - s)), rtol=1e-5, atol=1e-6)
"""


@pytest.mark.slow
def test_the_activation_of_custom_model(device: str) -> None:
    result = run("-W", "error", "-c", CHECK, device, "float32")
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_custom_model_answers_mistakes_in_one_line() -> None:
    for arguments in (["--epochs", "0"], ["--device", "tpu"]):
        result = run("custom_model.py", *arguments)
        assert result.returncode == 2
        assert len(result.stderr.splitlines()) == 1
    result = run("custom_model.py", "--device", "cuda", ALPHA_CUDA_DRIVER="nothing")
    assert result.returncode == 2
    assert result.stderr.startswith("custom_model: ALPHA_CUDA_DRIVER='nothing' is unknown")


SHORT = ("--device", "cpu", "--data", "sample", "--batch-size", "4", "--steps", "1")


@pytest.mark.slow
def test_compare_pytorch(tmp_path: Path) -> None:
    result = run("compare_pytorch.py", *SHORT, "--epochs", "2", "--output", str(tmp_path / "out"))
    assert result.returncode == 0, result.stderr
    if importlib.util.find_spec("torch") is None:
        assert result.stdout == ("compare_pytorch: skipped, PyTorch is not installed (pip install torch)\n")
        pytest.skip("needs PyTorch")
    with (tmp_path / "out" / "table.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["side"] for row in table] == ["Alpha", "PyTorch"]
    assert table[0]["network"] == "resnet18"
    busy = "THE MACHINE WAS BUSY" in (tmp_path / "out" / "table.md").read_text()
    assert re.fullmatch("" if busy else r"\d+\.\d\dx", table[1]["acceleration"])
    assert table[0]["s/epoch"].endswith(" (busy)") == busy
    assert table[0]["weights MB"] == table[1]["weights MB"] != ""
    assert float(table[0]["live MB"]) > 0
    for name in ("resnet18-float32.png", "table.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")
    assert "sample at 32x32" in (tmp_path / "out" / "table.md").read_text()
    assert result.stdout.count(" s per epoch") == 2


def needs_mpi() -> None:
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("no MPI: pip install mpi4py mpich")


@pytest.mark.slow
@pytest.mark.torch
def test_compare_pytorch_trains_a_network_in_two_processes(tmp_path: Path) -> None:
    needs_mpi()
    result = run("compare_pytorch.py", *SHORT, "--ranks", "2", "--epochs", "1", "--output", str(tmp_path / "out"))
    assert result.returncode == 0, result.stderr
    with (tmp_path / "out" / "table.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [(row["side"], row["processes"]) for row in table] == [("Alpha", "2"), ("PyTorch", "2")]
    assert all(0 < float(row["loss"]) < 4 for row in table)
    text = (tmp_path / "out" / "table.md").read_text()
    assert "batch 4 in each of 2 processes, " in text
    assert "2 processes train each network together" in text
    assert (tmp_path / "out" / "table.png").read_bytes().startswith(b"\x89PNG")
    assert result.stdout.count(" s per epoch") == 2  # of rank 0 alone


@pytest.mark.slow
@pytest.mark.torch
def test_losses_of_two_processes_agree_in_compare_pytorch() -> None:
    """The second loss depends on the mean of the gradients of both ranks."""
    needs_mpi()
    result = run("compare_pytorch.py", *SHORT, "--steps", "2", "--ranks", "2", "--losses")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("batch 4 in each of 2 processes, on cpu\nresnet18\nstep ")
    far = re.findall(r"Alpha float64: at most (\S+) from PyTorch float64", result.stdout)
    assert len(far) == 1
    assert float(far[0]) < 1e-9


CHECK_RANKS = """
from compare.ranks import of_all_ranks
from compare.report import save_tables
from compare.spec import Outcome
from pathlib import Path
import compare_pytorch, sys

def gather(values):  # of three ranks, whose numbers are these, twice these and three times these
    return [[rank * value for value in values] for rank in (1, 2, 3)]

own = Outcome([1.0, 4.0], [2.0, 1.0], 0.5, 0.4, 10, 20, 30, 4, 5, gpu="GPU", batch_size=8, ranks=3)
found = of_all_ranks(own, gather)
assert (found.losses, found.seconds) == ([4.0, 2.0], [3.0, 12.0]), found
assert (found.live, found.reserved, found.process, found.train_accuracy) == (30, 60, 90, 0.5), found
runs = {("vgg16", "tf32"): {"Alpha": [found]}}
title = compare_pytorch.title(runs, 32)
assert "batch 8 on each of 3 GPUs, 3 x GPU" in title, title
save_tables(Path(sys.argv[1]), runs, title)
compare_pytorch.number_of_gpus, compare_pytorch.device_of = lambda variables: 2, lambda args: "cuda"
sys.exit(compare_pytorch.main(["--ranks", "3", "--output", sys.argv[1]]))
"""


@pytest.mark.slow
@pytest.mark.torch
def test_numbers_of_several_ranks_in_compare_pytorch(tmp_path: Path) -> None:
    result = run("-c", CHECK_RANKS, str(tmp_path), PYTHONPATH=f"{ROOT}:.")
    assert (result.returncode, result.stderr) == (
        2,
        "compare_pytorch: --ranks 3: each rank needs a GPU of its own, and 2 can be used\n",
    )
    with (tmp_path / "table.csv").open() as file:
        assert next(csv.DictReader(file))["GPUs"] == "3"
    assert "\n3 GPUs train each network together" in (tmp_path / "table.md").read_text()
    both = run("compare_pytorch.py", "--ranks", "2", "--gpus", "2")
    assert both.returncode == 2
    assert both.stderr.startswith("compare_pytorch: --ranks trains one network at a time")


@pytest.mark.torch
@pytest.mark.gate
@pytest.mark.parametrize("models", ["resnet18,vgg16", "googlenet,mobilenet_v2", "convnext_tiny,vit_tiny"])
def test_both_sides_of_compare_pytorch_begin_alike(models: str) -> None:
    """Losses of each family agree on the same batches but for rounding."""
    result = run("compare_pytorch.py", *SHORT, "--models", models, "--losses")
    assert result.returncode == 0, result.stderr
    far = re.findall(r"Alpha float64: at most (\S+) from PyTorch float64", result.stdout)
    assert len(far) == len(models.split(","))
    assert all(float(distance) < 1e-9 for distance in far), far


@pytest.mark.slow
def test_bench_photos(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.fromarray(rng.integers(0, 256, (20, 20, 3), np.uint8)).save(tmp_path / "images" / name / "x.png")
    options = ("--batch-size", "2", "--epochs", "1", "--device", "cpu")
    result = run("bench_photos.py", str(tmp_path / "images"), *options, ALPHA_DATA_DIR=str(tmp_path))
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "2 images, batch 2, float32, cpu"
    assert [line[17:41].strip() for line in lines[1:]] == [
        *("centre crop", "random crop, mirrored", "resized crop, mirrored")
    ]
    missing = run("bench_photos.py", str(tmp_path / "nothing"), "--device", "cpu")
    assert (missing.returncode, missing.stdout) == (2, "")


@pytest.mark.slow
@pytest.mark.torch
def test_tables_and_pictures_of_compare_pytorch_show_means_over_seeds(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    check = """
import sys
from pathlib import Path
from compare.report import rows, save_pictures
from compare.spec import Outcome, Spec
def outcome(seconds, train, live):
    return Outcome([9.0, seconds, seconds], [2.0, 1.0], train, train / 2, live, 2 * live, 3 * live, 10**6, 100)
runs = {("vgg16", "tf32"): {"Alpha": [outcome(1.0, 0.8, 10**6), outcome(3.0, 0.6, 10**7)],
                            "PyTorch best": [outcome(4.0, 0.9, 10**8)]}}
alpha, best = rows(runs)
assert (alpha["s/epoch"], alpha["train"], alpha["test"], alpha["live MB"]) == ("2", "70.00%", "35.00%", "10"), alpha
assert (alpha["images/s"], alpha["acceleration"], alpha["reserved MB"]) == ("50", "", "20"), alpha
assert (best["acceleration"], best["process MB"], best["weights MB"]) == ("2.00x", "300", "1.0"), best
example = Spec("Alpha", "vgg16", "random", 32, "cpu", "tf32", 1, 8, 0)
assert save_pictures(Path(sys.argv[1]), runs, "random images", example) == ["table.png", "speed.png"]
alone = {key: {"Alpha": of["Alpha"]} for key, of in runs.items()}
assert save_pictures(Path(sys.argv[1]), alone, "random images", example) == ["table.png"]
"""
    result = run("-c", check, str(tmp_path), PYTHONPATH=f"{ROOT}:.")
    assert result.returncode == 0, result.stderr
    assert all((tmp_path / name).stat().st_size > 5000 for name in ("table.png", "speed.png"))


@pytest.mark.slow
@pytest.mark.torch
def test_what_compare_pytorch_has_measured_stays_if_a_later_side_fails(tmp_path: Path) -> None:
    check = """
import sys
import compare_pytorch
from alpha.errors import TrainingError
from compare.spec import Outcome
def run(spec, gpu):
    if spec.side == "Alpha":
        raise TrainingError("no memory")
    return Outcome([2.0], [1.0], 0.5, 0.5, 1, 2, 3, 4, 5)
compare_pytorch.run = run
sys.exit(compare_pytorch.main(["--device", "cpu", "--sides", "PyTorch,Alpha", "--output", sys.argv[1]]))
"""
    result = run("-c", check, str(tmp_path), PYTHONPATH=f"{ROOT}:.")
    assert (result.returncode, result.stderr) == (2, "compare_pytorch: no memory\n")
    with (tmp_path / "table.csv").open() as file:
        assert [(row["side"], row["s/epoch"], row["acceleration"]) for row in csv.DictReader(file)] == [
            ("PyTorch", "2", "")
        ]
    nothing = run("compare_pytorch.py", "--device", "cpu", "--sides", "PyTorch best")
    assert nothing.returncode == 2
    assert "needs a GPU" in nothing.stderr


@pytest.mark.slow
@pytest.mark.torch
def test_compare_pytorch_trains_networks_side_by_side_each_on_a_gpu_of_its_own(tmp_path: Path) -> None:
    check = """
import sys, threading
import compare_pytorch
from alpha.errors import TrainingError
from compare.spec import Outcome
used, both = {}, threading.Barrier(2, timeout=900)
def run(spec, gpu):
    used[spec.model] = gpu
    if spec.model != "vgg19":
        both.wait()  # the first two networks run at the same time
    if spec.model == "resnet18":
        raise TrainingError("no memory")
    return Outcome([2.0], [1.0], 0.5, 0.5, 1, 2, 3, 4, 5)
compare_pytorch.run, compare_pytorch.device_of = run, lambda args: "cuda"
command = ["--models", "resnet18,vgg16,vgg19", "--sides", "Alpha", "--data", "random", "--output", sys.argv[1]]
status = compare_pytorch.main([*command, "--gpus", "2"])
assert {used["resnet18"], used["vgg16"]} == {"3", "5"} and used["vgg19"] in ("3", "5"), used
assert compare_pytorch.main([*command, "--gpus", "3"]) == 2
sys.exit(status)
"""
    result = run("-c", check, str(tmp_path), CUDA_VISIBLE_DEVICES="3,5")
    assert (result.returncode, result.stderr) == (
        2,
        "compare_pytorch: no memory\ncompare_pytorch: --gpus 3: CUDA_VISIBLE_DEVICES is 3,5, so 2 can be used\n",
    ), result.stderr
    with (tmp_path / "table.csv").open() as file:
        assert [row["network"] for row in csv.DictReader(file)] == ["vgg16", "vgg19"]


@pytest.mark.torch
@pytest.mark.gate
def test_compare_pytorch_on_folders_of_images_and_mistakes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(20):
            pixels = rng.integers(0, 256, (40, 50 + number, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{number}.png")
    options = ("--device", "cpu", "--batch-size", "8", "--epochs", "1", "--output", str(tmp_path / "out"))
    result = run("compare_pytorch.py", *options, "--data", str(tmp_path / "images"), "--steps", "2")
    assert result.returncode == 0, result.stderr
    bad = run("compare_pytorch.py", "--precision", "fp8")
    assert bad.returncode == 2
    assert bad.stderr.startswith("compare_pytorch: argument --precision: invalid choice: 'fp8'")
    missing = run("compare_pytorch.py", *options, "--data", str(tmp_path / "nothing"))
    assert missing.returncode == 2
    assert "nothing: no such folder" in missing.stderr
