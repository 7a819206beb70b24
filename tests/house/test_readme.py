"""Documents and the comments of kernels: the README's example runs as printed, links and paths lead somewhere."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import child
import pytest

ROOT = Path(__file__).parents[2]
KERNELS = sorted(path for path in ROOT.glob("cuda/**/*.*") if path.suffix in (".cu", ".cuh", ".h", ".cpp"))
COLUMNS = 120  # of a comment, as of code
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]


@pytest.mark.slow
def test_the_readmes_example_runs_as_printed(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code.count("\n") <= 24
    script = tmp_path / "example.py"
    # the CPU: a test must not depend on what else the machine has
    script.write_text(code.replace('get_device("auto")', 'get_device("cpu")'))
    run = child.run([sys.executable, "-W", "error", str(script)], cwd=ROOT)
    assert run.returncode == 0, run.stderr
    loss = re.match(r"loss (\d\.\d\d)\n", run.stdout)
    assert loss is not None, run.stdout
    assert float(loss[1]) < 2.3
    assert "Sequential on (64, 32, 32, 3): " in run.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
    for path in re.findall(r"\b(?:examples|alpha|tests|docs|cuda)/[\w/]+\.\w+", text):
        assert (ROOT / path).exists(), f"{page.name} names {path}"


def test_comments_of_kernels_name_files_that_exist() -> None:
    """A file of the checkout, or one below cuda/."""
    assert KERNELS
    for kernel in KERNELS:
        for comment in re.findall(r"//(.*)", kernel.read_text()):
            for path in re.findall(r"(?<![\w<.])(?:\w+/)+\w+\.(?:cuh?|h|cpp|py|md)\b", comment):
                roots = (ROOT, ROOT / "cuda", kernel.parent, kernel.parents[1])
                assert any((root / path).exists() for root in roots), f"{kernel.relative_to(ROOT)} names {path}"


def test_comments_of_kernels_keep_to_their_columns() -> None:
    long = [
        f"{kernel.relative_to(ROOT)}:{number}"
        for kernel in KERNELS
        for number, line in enumerate(kernel.read_text().splitlines(), 1)
        if len(line) > COLUMNS and "//" in line
    ]
    assert not long, f"wider than {COLUMNS} columns: {', '.join(long)}"


def test_make_lists_its_targets() -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    run = child.run(["make", "-s"], cwd=ROOT, check=True)
    targets = ["train", "test", "docs", "gate", "sanitize", "parity", "mutate", "format", "clean", "help"]
    assert [line.split()[1] for line in run.stdout.splitlines()] == targets
