"""Systems that are not this one: the cpu device there, and what an installed wheel has."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import child
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="it is Windows")
def test_the_cpu_device_on_windows(tmp_path: Path) -> None:
    """Train, save, go on, predict, without any name that Windows lacks; this system stands below Alpha."""
    program = Path(__file__).with_name("as_windows.py")
    done = child.run([sys.executable, program, tmp_path], env=child.environment(ALPHA_CPU_THREADS="1"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "works on the CPU" in done.stdout


def test_what_the_wheel_takes_along_exists() -> None:
    """The kernels and the sample of CIFAR-10, at the places where an installed Alpha looks for them."""
    text = (ROOT / "pyproject.toml").read_text().split("force-include]")[1].split("\n[")[0]
    taken = dict(re.findall(r'^"?([\w./-]+)"? = "([\w./-]+)"$', text, re.M))
    assert taken == {"cuda": "alpha/_cuda", "datasets/cifar10-sample.zip": "alpha/_datasets/cifar10-sample.zip"}
    assert all((ROOT / source).exists() for source in taken)
