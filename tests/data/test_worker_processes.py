"""Worker processes of a loader: the same batches as without them, their errors, and how they end."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import child
import numpy as np
import pytest

import alpha
from alpha.data import ArrayDataset, ConcatDataset, DataLoader, Dataset, Subset, get_worker_info
from alpha.data.processes import pool
from alpha.errors import DataError, DeviceError

COUNT = 22
SPAWN: dict[str, Any] = {"multiprocessing_context": "spawn", "num_workers": 1}


class Probe(Dataset[Any]):
    """Items of every kind of value, with random numbers, and facts of the process that makes them."""

    in_threads = False  # of a process the main thread makes them

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        first = alpha.rand(2)
        if index == 3:
            alpha.manual_seed(5)
        values = {"text": f"item {index}", "array": np.full((index % 2 + 1, 3), index, np.int16).sum(0)}
        values |= {"tensor": alpha.rand(2).to(alpha.bfloat16), "number": float(index)}
        return first, values

    def batch(self, indices: Any) -> Any:
        return self.facts(), [self[int(index)] for index in indices]

    whole_batches = False

    def facts(self) -> dict[str, Any]:
        import threading

        import threadpoolctl

        blas = {library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"}
        return {
            "pid": os.getpid(),
            "info": get_worker_info()[:2],
            "began": os.environ.get("BEGAN"),
            "blas": blas,
            "gpu": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "interrupt": signal.getsignal(signal.SIGINT),
            "main thread": threading.current_thread() is threading.main_thread(),
        }


class Facts(Probe):
    whole_batches = True


def begin(number: int) -> None:
    os.environ["BEGAN"] = str(number)


def flat(batch: Any) -> list[Any]:
    """The parts of a batch, as types, dtypes and values."""
    if isinstance(batch, (tuple, list)):
        return [type(batch), *[part for value in batch for part in flat(value)]]
    if isinstance(batch, dict):
        return [*batch, *flat(list(batch.values()))]
    if hasattr(batch, "numpy"):
        return [type(batch), *flat(batch.numpy())]
    return [type(batch), batch.dtype, batch.shape, batch.tobytes()] if isinstance(batch, np.ndarray) else [batch]


def epochs(**options: Any) -> list[Any]:
    """The batches of some epochs of one loader, of which one goes on within, one has single items and one draws."""
    alpha.manual_seed(3)
    loader = DataLoader(Probe(), 4, shuffle=True, seed=7, **options)
    found = [list(map(flat, loader))]
    loader.set_epoch(0, 3)
    found.append(list(map(flat, loader)))
    loader.batch_size = None
    found.append(list(map(flat, loader)))
    loader.batch_size, loader.sampler, loader.shuffle = 5, range(9, -1, -1), False
    found.append(list(map(flat, loader)))
    return found


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test leaves a process or shared memory behind."""
    names, make = [], pool._shared

    def noted(size: int) -> Any:
        memory = make(size)
        names.append(memory.name)
        return memory

    monkeypatch.setattr(pool, "_shared", noted)
    yield
    gc.collect()
    assert not multiprocessing.active_children()
    assert not [name for name in names if Path("/dev/shm", name).exists()]


@pytest.mark.slow
def test_batches_are_the_same_with_any_workers() -> None:
    expected = epochs(prefetch=0)
    assert expected[1] == expected[0][3:]
    assert len({str(batch) for epoch in (expected[0], *expected[2:]) for batch in epoch}) == 6 + COUNT + 2
    assert epochs(num_workers=3) == expected
    assert epochs(**{**SPAWN, "num_workers": 2}, persistent_workers=True) == expected


@pytest.mark.slow
def test_of_what_a_worker_is_and_that_it_may_be_kept() -> None:
    loader = DataLoader(Facts(), 4, **{**SPAWN, "num_workers": 2}, persistent_workers=True, worker_init_fn=begin)
    batches = list(loader)
    batches += list(loader)
    expected = [[value for item in batch for value in flat(item)] for _, batch in batches[:6]]
    assert len({str(batch) for batch in expected}) == 6
    facts = [fact for fact, _ in batches]
    assert len({fact["pid"] for fact in facts}) == 2  # of both epochs
    assert os.getpid() not in {fact["pid"] for fact in facts}
    for fact in facts:
        assert fact["info"][1] == 2
        assert fact["began"] == str(fact["info"][0])
        assert fact["blas"] <= {1}
        assert fact["gpu"] == ""
        assert fact["interrupt"] == signal.SIG_IGN
        assert fact["main thread"]
    assert get_worker_info() is None
    assert all(not gone(fact["pid"]) for fact in facts)
    loader.num_workers = 1
    assert next(iter(loader))[0]["pid"] not in {fact["pid"] for fact in facts}
    assert all(gone(fact["pid"]) for fact in facts)


class Unpicklable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Faulty(Dataset[Any]):
    """Items some of which fail, each in its own way."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        if index == 9:
            raise KeyError("no nine")
        if index == 10:
            raise Unpicklable(1, 2)
        if index == 11:
            raise DeviceError("there is none")
        if index == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        if index == 21:
            os._exit(3)
        if index == 30:
            time.sleep(child.HANG_S)
        return np.zeros(50_000)


@pytest.mark.slow
def test_exceptions_are_raised_with_the_index_and_the_traceback() -> None:
    seen = 0
    with pytest.raises(KeyError, match="no nine") as error:  # noqa: PT012
        for batch in DataLoader(Faulty(), 4, **SPAWN):
            assert batch.shape == (4, 50_000)
            seen += 1
    assert seen == 2  # all batches before it
    assert isinstance(error.value.__cause__, pool.WorkerTraceback)
    text = str(error.value.__cause__)
    assert 'raise KeyError("no nine")' in text
    assert "DataLoader: item 9 was asked for" in "".join([*getattr(error.value, "__notes__", []), text])
    with pytest.raises(DataError, match=r"DataLoader: worker process 0 .*: Unpicklable: 1 and 2") as error:
        list(DataLoader(Subset(Faulty(), [10]), **SPAWN))
    assert "raise Unpicklable(1, 2)" in str(error.value.__cause__)
    with pytest.raises(DeviceError, match="there is none") as error:
        list(DataLoader(Subset(Faulty(), [11]), **SPAWN))
    assert "a worker process of a DataLoader has no GPU" in str(error.value.__cause__)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("index", "how"),
    [
        (20, r"was ended by signal 9 \(SIGKILL\); perhaps the system ran out of memory, while it made the batch of"),
        (21, "ended with exit code 3, while it made the batch of items 21"),
    ],
)
def test_a_worker_that_dies_is_an_error_at_once(index: int, how: str) -> None:
    """The other worker, which would be busy for long, is ended, too."""
    loader = DataLoader(Faulty(), sampler=[30, index], timeout=child.HANG_S, **{**SPAWN, "num_workers": 2})
    with pytest.raises(DataError, match=rf"DataLoader: worker process 1 \(pid \d+\) {how}"):
        list(loader)


@pytest.mark.slow
def test_a_loop_that_is_left_and_a_batch_that_takes_too_long() -> None:
    loader = DataLoader(Faulty(), sampler=[1, 30, 2, 3], prefetch_factor=1, **{**SPAWN, "num_workers": 2})
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        for _ in loader:
            assert len(multiprocessing.active_children()) == 2
            raise ZeroDivisionError
    assert not multiprocessing.active_children()
    loader.num_workers = 1
    batches = iter(loader)
    next(batches)
    loader.timeout = 0.01
    with pytest.raises(DataError, match=r"no batch in 0\.01 seconds; worker process 0 \(pid \d+\) makes the batch of"):
        next(batches)
    assert not multiprocessing.active_children()


def test_what_cannot_be_sent_is_named() -> None:
    data = ArrayDataset(np.arange(4), np.arange(4))
    data.transform = lambda x: x  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=r"the dataset \(ArrayDataset\) cannot be sent to worker processes: .*<lambda>"):
        next(iter(DataLoader(data, **SPAWN)))
    with pytest.raises(
        DataError, match=r"collate_fn \(function\) cannot be sent .* in a module, not as a lambda or with"
    ):
        next(iter(DataLoader(range(4), collate_fn=lambda items: items, **SPAWN)))
    with pytest.raises(DataError, match=r"worker_init_fn \(function\) cannot be sent .*, or use threads: leave multi"):
        next(iter(DataLoader(range(4), worker_init_fn=lambda number: None, **SPAWN)))


def test_where_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("alpha.data.dataset.worker_info", (0, 1))
        with pytest.raises(DataError, match="a worker process cannot start worker processes; use threads there"):
            next(iter(DataLoader(range(4), **SPAWN)))
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(DataError, match=r'while a spawned process begins; .* below `if __name__ == "__main__":`'):
        next(iter(DataLoader(range(4), **SPAWN)))


@pytest.mark.skipif(not hasattr(os, "posix_fallocate") or not pool._MEMORY.exists(), reason="needs /dev/shm")
def test_shared_memory_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    before = pool.SharedMemory
    made: list[Any] = []
    monkeypatch.setattr(pool, "SharedMemory", lambda **options: made.append(before(**options)) or made[-1])
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(
        DataError, match=r"a batch needs 5,000 bytes of shared memory, and /dev/shm has [\d,]+ bytes free"
    ):
        pool._shared(5000)
    assert not Path("/dev/shm", made[0].name).exists()


SCRIPTS = {
    "no guard": """
        from alpha.data import DataLoader
        list(DataLoader(range(4), num_workers=1, multiprocessing_context="spawn"))
    """,
    "class of the guard": """
        from alpha.data import DataLoader, Dataset
        if __name__ == "__main__":
            class Waves(Dataset):
                def __len__(self): return 4
                def __getitem__(self, index): return index
            list(DataLoader(Waves(), num_workers=1, multiprocessing_context="spawn"))
    """,
}
ERRORS = {
    "no guard": "ended with exit code 1, before it had the dataset; what it printed is above; a spawned process "
    'imports the program, so what the program does must stand below `if __name__ == "__main__":`, and its classes',
    "class of the guard": "cannot unpack the dataset: AttributeError: Can't get attribute 'Waves' .*_main__.*; a "
    "spawned process imports the program, so what the program does must stand below .*, or use threads: leave multi",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCRIPTS)
def test_programs_that_a_spawned_process_cannot_import(tmp_path: Path, kind: str) -> None:
    (tmp_path / "program.py").write_text(re.sub("^ {8}", "", SCRIPTS[kind], flags=re.MULTILINE))
    run = child.run([sys.executable, tmp_path / "program.py"])
    assert run.returncode == 1
    assert re.search(rf"DataError: DataLoader: worker process 0 \(pid \d+\) {ERRORS[kind]}", run.stderr), run.stderr


PROGRAM = """
import sys, time
import numpy as np
from alpha.data import DataLoader, Dataset
from alpha.data.processes import pool

class Waiting(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        if index > 4:
            time.sleep(900)
        return np.zeros(9000)

if __name__ == "__main__":
    make = pool._shared
    def noted(size):
        memory = make(size)
        print(memory.name, flush=True)
        return memory
    pool._shared = noted
    loader = DataLoader(Waiting(), num_workers=2, prefetch_factor=1, multiprocessing_context="spawn")
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    print(*[worker.process.pid for worker in sorted(WORKERS(batches), key=lambda worker: worker.number)], flush=True)
    if sys.argv[1] == "interrupt":
        list(batches)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["interrupt", "end", "kill"])
def test_the_end_of_a_program_ends_its_workers(tmp_path: Path, how: str) -> None:
    workers = "(lambda batches: batches.gi_yieldfrom.gi_frame.f_locals['self']._workers)"
    (tmp_path / "program.py").write_text(PROGRAM.replace("WORKERS", workers))
    command = [sys.executable, tmp_path / "program.py", "interrupt" if how == "kill" else how]
    process = child.start(command, stdin=-1, stdout=-1, stderr=-1, start_new_session=True)
    assert process.stdout is not None
    names = []
    while (line := process.stdout.readline().split()) and not line[0].isdecimal():
        names += line
    pids = list(map(int, line))
    assert (len(names), len(pids)) == (2, 2)
    if how == "interrupt":
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
    elif how == "kill":
        process.kill()
    _, errors = child.finish(process)
    assert process.returncode == {"interrupt": -signal.SIGINT, "end": 0, "kill": -signal.SIGKILL}[how]
    assert errors.count("KeyboardInterrupt") == (how == "interrupt"), errors
    assert errors.count("Traceback") == (how == "interrupt"), errors
    assert not [name for name in names if Path("/dev/shm", name).exists()]
    assert how == "kill" or all(map(gone, pids))  # else they have closed their pipes, which `finish` waits for


@pytest.mark.slow
def test_datasets_made_of_others() -> None:
    data = ConcatDataset(
        [Subset(ArrayDataset(np.arange(9), np.arange(9)), range(3, 9)), ArrayDataset(np.arange(5), 1 - np.arange(5))]
    )
    expected = [flat(batch) for batch in DataLoader(data, 4, shuffle=True, seed=0, prefetch=0)]
    context = multiprocessing.get_context("spawn")
    found = [
        flat(batch)
        for batch in DataLoader(data, 4, shuffle=True, seed=0, num_workers=1, multiprocessing_context=context)
    ]
    assert found == expected
