"""Processes that a test starts: they import the Alpha that the test imports, and time alone fails none of them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HANG_S = 900.0  # every wait of a test ends, but no machine is so busy that a test which works comes to this


def environment(*paths: str | Path, **variables: str) -> dict[str, str]:
    """The variables of this process, with `variables`; its PYTHONPATH has `paths`, Alpha's folder, and what it has."""
    alpha = importlib.util.find_spec("alpha")
    assert alpha is not None
    assert alpha.origin is not None
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    folders = [*map(str, paths), str(Path(alpha.origin).parents[1]), *map(os.path.abspath, given)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(folders)), **variables}


def run(
    command: Sequence[str | Path], *, check: bool = False, env: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Results of a command, and what it prints; its environment is `environment()` unless `env` is another one."""
    env = environment() if env is None else env
    return subprocess.run(command, check=check, env=env, capture_output=True, text=True, timeout=HANG_S, **options)


def start(command: Sequence[str | Path], *, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
    """A command that runs beside the test."""
    return subprocess.Popen(command, env=environment() if env is None else env, text=True, **options)


def finish(process: subprocess.Popen[str], text: str | None = None) -> tuple[str, str]:
    """Text that a process has printed when it ends, after it was given a text."""
    return process.communicate(text, timeout=HANG_S)
