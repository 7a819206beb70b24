"""`make mutate`: change alpha/ in one place at a time and see whether a test notices. About an hour on two cores.

    make mutate                                                       # a sample of 400 mutants
    make mutate ARGS="--count 40 --seed 1 --file alpha/optim/adam.py alpha/step"
    make mutate ARGS="--few"                                          # of what few tests would notice, see below

First each test file runs once under coverage, which tells which tests run which lines of alpha/ and how long they take.
Then each mutant, in a copy of the checkout, meets the tests that run its statement and tests near it, BUDGET seconds of
them at most. It is killed if one of them fails or does not end. A mutant that survives must stand in explained.py with
the reason, else the command fails. It also fails if less than AIM per cent of the unexplained mutants are killed.

`--few` takes only statements that at most one test runs, or none in the files that import the module: these are rules
with one caller, where a fault is most likely to pass.

Records and verdicts are kept in <ALPHA_CACHE_DIR>/mutate as long as the code and the tests that they depend on stay the
same, so an interrupted command continues when it is started again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from checkout import ROOT, Checkout, tree
from explained import EXPLAINED
from mutants import Mutant, mutants_of, sample

from alpha import config

CACHE = config.cache_dir().resolve() / "mutate"
NEED_A_GPU = ("driver_pycuda", "tensor_map")
LEFT_OUT = tuple(f"alpha/runtime/cuda/{name}.py" for name in NEED_A_GPU)
NOT_RUN = (  # slow, whole programs, or timing; the sanitizer needs more address space than a mutant is given
    *("tests/gate/", "tests/parity/", "tests/examples/", "tests/mutate/"),
    *("tests/emulation/test_emulation_speed.py", "tests/emulation/faults/test_emulation_sanitizer.py"),
)
# They build kernels. Tests of their mutants begin with an empty cache, else they would find what is built already.
BUILDERS = tuple(f"alpha/runtime/cuda/{name}.py" for name in ("cache", "compile", "emulated/emulated_compiler"))
BUDGET = 20.0  # seconds
AIM = 92
T = TypeVar("T")


@dataclass(frozen=True)
class Verdict:
    """`by`: the test that failed, or how else the mutant was noticed; empty if it survived."""

    by: str
    seconds: float
    tests: str  # hash of the tests that this depends on


class Workers:
    """Copies of the checkout, and a thread for each."""

    def __init__(self, folder: Path, count: int, files: list[str]) -> None:
        self._checkouts = [Checkout(folder / str(number), files) for number in range(count)]
        self._free: queue.SimpleQueue[Checkout] = queue.SimpleQueue()
        for checkout in self._checkouts:
            self._free.put(checkout)

    def map(self, function: Callable[[Checkout, T], Any], items: Iterable[T]) -> Iterator[tuple[T, Any]]:
        """(item, result) as they are done."""

        def run(item: T) -> Any:
            checkout = self._free.get()
            try:
                return function(checkout, item)
            finally:
                self._free.put(checkout)

        with ThreadPoolExecutor(len(self._checkouts)) as pool:
            futures = {pool.submit(run, item): item for item in items}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for checkout in self._checkouts:
                    checkout.stop()
                raise


class Tests:
    """Code of alpha/ that each test runs, and the time that it takes. Runs the tests whose record is missing."""

    def __init__(self, files: list[str], workers: Workers) -> None:
        tests = [f for f in files if f.startswith("tests/") and not f.startswith(NOT_RUN)]
        modules = [f for f in tests if Path(f).name.startswith("test_")]
        code = [f for f in files if f.startswith(("alpha/", "cuda/")) or (f in tests and f not in modules)]
        self.code = _digest(code)
        self.all = _digest([*code, *tests])
        self.module = {f: _digest([*code, f]) for f in modules}
        self._importers: dict[str, set[str]] = {}
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        missing = [f for f in modules if not self._path(f).is_file()]
        missing.sort(key=lambda f: -(ROOT / f).stat().st_size)  # the longest first
        failed = []
        for number, (file, (record, seconds)) in enumerate(workers.map(self._record, missing), 1):
            print(f"[{number}/{len(missing)}] {file} under coverage: {seconds:.0f} s", flush=True)
            failed += record["failed"]
            if not record["failed"]:
                self._path(file).write_text(json.dumps(record))
        if failed:
            sys.exit("make mutate: these tests fail without any mutation; repair them first:\n  " + "\n  ".join(failed))
        for file in modules:
            record = json.loads(self._path(file).read_text())
            self.seconds.update(record["seconds"])
            for source, lines in record["lines"].items():
                for line, names in lines.items():
                    self.lines[source][int(line)].update(names)

    def _path(self, file: str) -> Path:
        return CACHE / "records" / f"{self.module[file]}.json"

    def _record(self, checkout: Checkout, file: str) -> tuple[dict[str, Any], float]:
        begin = time.monotonic()
        output = checkout.root / "record.json"
        output.unlink(missing_ok=True)
        code, text = checkout.pytest([file], 1200, CACHE, PYTEST_PLUGINS="record", MUTATE_RECORD=str(output))
        if code not in (0, 1, 5) or not output.is_file():
            print(text)
            return {"failed": [f"{file} (exit status {code})"]}, time.monotonic() - begin
        return json.loads(output.read_text()), time.monotonic() - begin

    def few(self, mutant: Mutant) -> bool:
        """True if at most one test runs its statement, or none in the files that import its module."""
        running = self._running(mutant)
        if not running and mutant.first in self.lines[mutant.file]:
            return False  # it runs at import
        return len(running) < 2 or self._importing(mutant.file).isdisjoint(test.split("::")[0] for test in running)

    def _running(self, mutant: Mutant) -> set[str]:
        """The tests that run its statement."""
        lines = self.lines[mutant.file]
        return set().union(*(lines.get(n, ()) for n in range(mutant.first, mutant.last + 1)))

    def _importing(self, source: str) -> set[str]:
        """The files of tests that import a file of alpha/."""
        if source not in self._importers:
            parts = _parts(source)
            names = rf"from {'.'.join(parts)} import|from {'.'.join(parts[:-1])} import .*\b{parts[-1]}\b"
            self._importers[source] = {f for f in self.module if re.search(names, (ROOT / f).read_text())}
        return self._importers[source]

    def of(self, mutant: Mutant) -> list[str]:
        """Tests that run the mutant's statement and those of its part of Alpha, for BUDGET seconds.

        The quickest case of each test function comes first, then the next of each: so many functions are among them.
        """
        lines = self.lines[mutant.file]
        running = self._running(mutant)
        parts = _parts(mutant.file)
        importing = self._importing(mutant.file)
        if not running and mutant.first in lines:  # runs at import
            own = tuple((*importing, f"tests/{parts[1]}/"))
            running = {test for test in self.seconds if test.startswith(own)}.union(*lines.values())

        def near(test: str) -> tuple[bool, int]:
            file = test.split("::")[0]
            return test not in running, -sum(word in file for word in parts[1:]) - 3 * (file in importing)

        turns: dict[str, int] = {}
        cases: Counter[tuple[str, bool]] = Counter()
        for test in sorted(self.seconds, key=lambda test: self.seconds[test]):
            function = test.split("[")[0], test in running
            turns[test] = cases[function]
            cases[function] += 1
        chosen: list[str] = []
        spent = 0.0
        for test in sorted(self.seconds, key=lambda test: (*near(test), turns[test], self.seconds[test])):
            far = near(test) == (True, 0)
            if far or (chosen and spent + self.seconds[test] > BUDGET):
                break
            spent += self.seconds[test]
            chosen.append(test)
        return chosen


def judge(checkout: Checkout, mutant: Mutant, tests: Tests) -> Verdict:
    begin = time.monotonic()
    chosen = tests.of(mutant)
    path = checkout.root / mutant.file
    original = path.read_text()
    # kernels that a mutant builds are not for the next one
    kernels = Path(tempfile.mkdtemp(dir=checkout.root.parent))
    if mutant.file not in BUILDERS:
        shutil.copytree(CACHE / "kernels", kernels / "kernels", copy_function=os.link, dirs_exist_ok=True)
    timeout = 60 + 3 * sum(tests.seconds[t] for t in chosen)
    try:
        path.write_text(mutant.code())
        code, text = checkout.pytest(["-x", *chosen], timeout, kernels) if chosen else (0, "")
        if code == 4 and "not found: " in text:  # the names of tests come from what was changed
            files = dict.fromkeys(t.split("::")[0] for t in chosen)
            code, text = checkout.pytest(["-x", *files], timeout, kernels)
    finally:
        path.write_text(original)
        shutil.rmtree(kernels)
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)
    by = {0: "", 5: "", None: f"not done in {timeout:.0f} s"}.get(code, found[1] if found else f"exit status {code}")
    depends = tests.module.get(by.split("::")[0], tests.all)
    return Verdict(by, round(time.monotonic() - begin, 1), depends)


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the tests too
    files = tree()
    sources = [f for f in files if f.startswith(tuple(options.file))]
    everything = [mutants_of(ROOT, f) for f in sources if f.endswith(".py") and f not in LEFT_OUT]
    names = {mutant.name for mutants in everything for mutant in mutants}
    (CACHE / "records").mkdir(parents=True, exist_ok=True)
    (CACHE / "kernels").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="alpha-mutate-") as folder:
        workers = Workers(Path(folder), options.workers, files)
        tests = Tests(files, workers)
        if options.few:
            everything = [[mutant for mutant in mutants if tests.few(mutant)] for mutants in everything]
        drawn = sample(everything, options.count, options.seed)
        done = CACHE / f"verdicts-{tests.code}.jsonl"
        verdicts = _known(done, tests)
        rest = [m for m in drawn if m.name not in verdicts]
        print(f"{len(drawn)} mutants of {sum(map(len, everything))}; {len(drawn) - len(rest)} are judged already")
        with done.open("a") as log:
            judged = workers.map(lambda checkout, mutant: judge(checkout, mutant, tests), rest)
            for number, (mutant, verdict) in enumerate(judged, 1):
                verdicts[mutant.name] = verdict
                log.write(json.dumps({"name": mutant.name, **asdict(verdict)}) + "\n")
                log.flush()
                print(f"[{number}/{len(rest)}] {_line(mutant, verdict)}", flush=True)
    return report(drawn, verdicts, names)


def report(drawn: list[Mutant], verdicts: dict[str, Verdict], names: set[str]) -> int:
    """Print the score; the exit status."""
    killed = {m.name for m in drawn if verdicts[m.name].by}
    explained = {m.name for m in drawn if m.name in EXPLAINED}
    survivors = [m for m in drawn if m.name not in killed | explained]
    counted = [m for m in drawn if m.name not in explained]
    for label, group in (("explained", explained - killed), ("survivors", {m.name for m in survivors})):
        print(f"\n{label}: {len(group)}")
        for mutant in drawn:
            if mutant.name in group:
                print(f"  {_line(mutant, verdicts[mutant.name])}\n    {mutant.name!r}")
    print("\npackage      killed  of  (without what is explained)")
    total, alive = (Counter(m.file.split("/")[1] for m in group) for group in (counted, survivors))
    for package in sorted(total):
        print(f"{package:12} {total[package] - alive[package]:6} {total[package]:3}")
    score = 100 * (len(counted) - len(survivors)) / max(1, len(counted))
    late = sum(verdicts[m.name].by.startswith("not done") for m in counted)
    print(f"score: {score:.1f} %, aim: {AIM} %; {late} of the killed did not end in time")
    files = {m.file for m in drawn}
    wrong = [f"explained, but killed: {name!r}" for name in explained & killed]
    wrong += [f"explained, but no mutant: {n!r}" for n in EXPLAINED if n.split(":")[0] in files and n not in names]
    print("\n".join(wrong))
    return int(bool(survivors or wrong) or score < AIM)


def _line(mutant: Mutant, verdict: Verdict) -> str:
    before, after = (text if len(text) < 110 else text[:107] + "..." for text in mutant.texts)
    head = f"{'killed' if verdict.by else 'SURVIVED'} {mutant.file}:{mutant.line} {mutant.operator} {verdict.seconds} s"
    return f"{head} {verdict.by}\n    - {before}\n    + {after}"


def _known(path: Path, tests: Tests) -> dict[str, Verdict]:
    known = {}
    for line in path.read_text().splitlines() if path.is_file() else ():
        entry = json.loads(line)
        name = entry.pop("name")
        known[name] = Verdict(**entry)
    return {name: v for name, v in known.items() if v.tests in (tests.all, tests.module.get(v.by.split("::")[0]))}


def _parts(source: str) -> tuple[str, ...]:
    """The names of a module, as an import gives them."""
    return Path(source.removesuffix("/__init__.py")).with_suffix("").parts


def _digest(files: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        content = (ROOT / file).read_bytes()
        digest.update(f"{file}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=400, help="mutants (400)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (0)")
    parser.add_argument("--file", nargs="+", default=["alpha/"], help="files or folders of alpha/ (all)")
    parser.add_argument("--few", action="store_true", help="only statements that few tests run")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (one per core)")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("make mutate: stopped; the next run continues with the rest")
