"""The tests themselves: their processes import the same Alpha, and none fails because a machine is busy."""

from __future__ import annotations

import ast
import functools
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import child
import pytest

import alpha

TESTS = Path(__file__).parents[1]
PATHS = sorted(TESTS.glob("**/*.py"))
STARTS = re.compile(
    r"\b(subprocess\.(run|Popen|call|check_call|check_output|getoutput)|os\.(system|popen|spawn\w+|exec\w+))$"
)
CLOCKS = re.compile(r"\btime\.(time|time_ns|monotonic|monotonic_ns|perf_counter|perf_counter_ns)$")
IMPORTS_TESTS = re.compile(r"^\s*(?:from|import)\b.*\btest_", re.MULTILINE)
OWN_PROCESSES = {"support/child.py"}  # and tools, which are no tests: they keep PYTHONPATH, or set it
OWN_CLOCKS = {  # which print times
    *("step/test_eager_step.py", "mutate/mutate.py"),
    *("io/fuzz_readers.py", "runtime/heap.py", "runtime/interrupts.py"),
    "step/sources/test_sources_undecided.py",  # a step that reads the clock
}


@functools.cache
def calls(path: Path) -> list[tuple[ast.Call, str]]:
    nodes = ast.walk(ast.parse(path.read_bytes()))
    return [(node, dotted(node.func)) for node in nodes if isinstance(node, ast.Call)]


def dotted(node: ast.expr) -> str:
    """The name "a.b.c" of a function; parts that are no names are left out."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def limits(node: ast.Call, name: str) -> Iterator[float]:
    """The seconds that a call waits at most, if they are written there."""
    waits = name.rpartition(".")[2] in ("wait", "join", "result", "acquire")
    given = [keyword.value for keyword in node.keywords if keyword.arg == "timeout"] + (node.args if waits else [])
    for value in given:
        if isinstance(value, ast.Constant) and type(value.value) in (int, float):
            yield value.value


def test_processes_are_started_by_one_helper() -> None:
    """The helper keeps PYTHONPATH, so that a checkout that is not installed is tested, and not another one."""
    wrong = []
    for path in PATHS:
        name = str(path.relative_to(TESTS))
        for node, function in calls(path):
            if not STARTS.search(function) or name in OWN_PROCESSES:
                continue
            env = [keyword for keyword in node.keywords if keyword.arg == "env"]
            if path.name.startswith("test_") or (env and "PYTHONPATH" not in path.read_text()):
                wrong.append(f"{name}:{node.lineno} {function}")
    assert not wrong, f"use child.run or child.start: {wrong}"


def test_no_test_depends_on_the_time_that_it_takes() -> None:
    """A wait ends after HANG_S; what is quick is shown by counts, as of Python's calls."""
    wrong = []
    for path in PATHS:
        name = str(path.relative_to(TESTS))
        for node, function in calls(path):
            if CLOCKS.search(function) and name not in OWN_CLOCKS:
                wrong.append(f"{name}:{node.lineno} {function}")
            if any(limit >= 1 for limit in limits(node, function)) and path.name.startswith("test_"):
                wrong.append(f"{name}:{node.lineno} {function} waits for a number of seconds; use child.HANG_S")
    assert not wrong, wrong


def test_a_child_has_the_folders_of_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TESTS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["rows", "", "/nowhere"]))
    code = "import alpha, sys, os; print(alpha.__file__, *sys.path, os.environ['MORE'], sep='\\n')"
    run = child.run([sys.executable, "-c", code], cwd=tmp_path, env=child.environment(tmp_path / "first", MORE="x"))
    file, _, *path, more = run.stdout.splitlines()
    assert (file, more) == (alpha.__file__, "x"), run.stderr
    expected = [tmp_path / "first", Path(alpha.__file__).parents[1], TESTS / "rows", "/nowhere"]
    assert path[:4] == list(map(str, expected))


def test_a_file_of_tests_is_imported_by_its_neighbours_alone() -> None:
    """A file of another folder is found only if pytest has collected that folder before."""
    wrong = []
    for path in PATHS:
        text = path.read_text()
        if "sys.path" in text or not IMPORTS_TESTS.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                if (name or "").startswith("test_") and not (path.parent / f"{name}.py").is_file():
                    wrong.append(f"{path.relative_to(TESTS)}:{node.lineno} {name}")
    assert not wrong, f"move what they share to a file that is no test, in a folder that both see: {wrong}"
