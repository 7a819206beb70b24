"""Copies of the tree in which pytest runs, one process at a time in each."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
MEMORY = 24 << 20  # KiB of address space: less than what a mutant may ask for by mistake
# all cases of the tests, also those that `make test` leaves out: a sample would notice fewer mutants
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line", "-m", "not (gate or sanitize or parity)")


def tree() -> list[str]:
    """The files of the checkout that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(file for file in listed.splitlines() if (ROOT / file).is_file())


class Checkout:
    """A copy of the tree in `folder`."""

    def __init__(self, folder: Path, files: Iterable[str]) -> None:
        self.root = folder / "tree"
        self._temporary = folder / "tmp"
        self._process: subprocess.Popen[str] | None = None
        for file in files:
            target = self.root / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, target)

    def pytest(self, arguments: Iterable[str], timeout: float, cache: Path, **variables: str) -> tuple[int | None, str]:
        """Exit status and output; no status if the time was up."""
        shutil.rmtree(self._temporary, ignore_errors=True)
        self._temporary.mkdir()
        listed = self._temporary / "arguments"
        listed.write_text("\n".join(arguments))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ALPHA_")} | {
            "PYTHONPATH": os.pathsep.join((str(self.root), str(self.root / "tests" / "mutate"))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "ALPHA_CACHE_DIR": str(cache),
            "TMPDIR": str(self._temporary),
            "CI": "1",  # hypothesis draws the same examples in each run
            **variables,
        }
        command = ["sh", "-c", f'ulimit -v {MEMORY}; exec "$@"', "-", sys.executable, *PYTEST, f"@{listed}"]
        self._process = subprocess.Popen(
            command,
            cwd=self.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = self._process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            self.stop()
        return self._process.returncode, output

    def stop(self) -> None:
        """End what pytest has started too."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
