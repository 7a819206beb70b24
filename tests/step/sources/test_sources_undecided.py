"""Values of which nobody can say whether they have changed, such as the time: a step that reads one is refused."""

from __future__ import annotations

import datetime
import gc
import io
import itertools
import os
import pathlib
import random
import sys
import threading
import time
import uuid

import numpy as np
import pytest
from host_sources import Read, Sources, Write, nothing

import alpha
from alpha import nn
from alpha.step.capturing import host_state
from alpha.step.sources import ran, visit

pytestmark = pytest.mark.usefixtures("cuda")
SOURCES = Sources(132)


@SOURCES.add(refused="hook")
def a_hook_that_comes_later() -> tuple[Read, Write]:
    class Net(nn.Module):
        def forward(self, x: alpha.Tensor) -> alpha.Tensor:
            return x * 1.0

    net = Net()
    write = lambda value: net.register_forward_hook(lambda module, args, out: out * value) and None  # noqa: E731
    return lambda: net(alpha.ones(1, device="cuda")), write


@SOURCES.add(refused="the seed|random numbers")
def the_seed_of_the_program() -> tuple[Read, Write]:
    return lambda: float(alpha.get_rng_state()["seed"] % 7), lambda value: alpha.manual_seed(int(value * 2)) and None


@SOURCES.add(refused="itertools.count")
def a_counter() -> tuple[Read, Write]:
    count = itertools.count(1)
    return lambda: float(next(count)), lambda value: None


@SOURCES.add(refused="generator")
def a_generator() -> tuple[Read, Write]:
    values = (float(value) for value in range(1000))
    return lambda: next(values), lambda value: None


@SOURCES.add(refused="StringIO")
def a_file() -> tuple[Read, Write]:
    file = io.StringIO("1\n" * 1000)
    return lambda: float(file.readline()), lambda value: None


@SOURCES.add(refused="time.perf_counter")
def the_time() -> tuple[Read, Write]:
    return lambda: float(time.perf_counter() > 0), lambda value: None


@SOURCES.add(refused="time.time")
def the_time_by_a_name() -> tuple[Read, Write]:
    now = time.time
    return lambda: float(now() > 0), lambda value: None


@SOURCES.add(refused="datetime.now|date.today")
def the_date() -> tuple[Read, Write]:
    return lambda: float(datetime.datetime.now().year > 0), lambda value: None


@SOURCES.add(refused="os.urandom|random")
def a_uuid() -> tuple[Read, Write]:
    return lambda: float(uuid.uuid4().int > 0), lambda value: None


@SOURCES.add(refused="Python's random|a generator on the host")
def a_random_number() -> tuple[Read, Write]:
    draws = random.Random(0)
    return lambda: draws.random(), lambda value: None


@SOURCES.add(refused="SystemRandom|os.urandom")
def a_random_number_of_the_system() -> tuple[Read, Write]:
    draws = random.SystemRandom()
    return lambda: float(draws.random() >= 0), lambda value: None


@SOURCES.add(refused="open")
def the_content_of_a_file() -> tuple[Read, Write]:
    def read() -> float:
        with pathlib.Path(__file__).open() as file:
            return float(len(file.readline()) > 0)

    return read, lambda value: None


@SOURCES.add(refused="os.stat|os.path|posix")
def whether_a_file_exists() -> tuple[Read, Write]:
    return lambda: float(pathlib.Path(__file__).exists()), lambda value: None


@SOURCES.add(refused="numpy array of")
def a_large_array() -> tuple[Read, Write]:
    values = np.ones(100_000)
    return lambda: float(values[70_000]), lambda value: values.__setitem__(70_000, value)


@SOURCES.add(refused="list of 200,000 elements")
def a_very_long_list() -> tuple[Read, Write]:
    values = [1.0] * 200_000
    return lambda: values[7], lambda value: values.__setitem__(7, value)


@SOURCES.add(refused="_thread|thread|_shutdown_locks")
def another_thread() -> tuple[Read, Write]:
    box = [1.0]

    def read() -> float:
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        return box[0]

    return read, lambda value: box.__setitem__(0, value)


@SOURCES.add(refused="sys._getframe")
def a_frame() -> tuple[Read, Write]:
    return lambda: float(sys._getframe().f_lineno > 0), lambda value: None


@pytest.mark.parametrize("name", SOURCES)
def test_a_value_that_cannot_be_decided_is_never_stale(name: str) -> None:
    SOURCES.check(name)


PLANTED = {  # what is forgotten, and a source that shows it
    "functions that ask the system": (ran, "asks", "the time"),
    "types in C": (visit, "hidden_base", "a counter"),
    "draws of random numbers": (host_state, "_state", "a random number"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_forgotten_of_such_values_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, function, row = PLANTED[name]
    monkeypatch.setattr(owner, function, nothing)
    SOURCES.check_noticed(row)


def test_what_the_garbage_collector_calls_is_no_part_of_a_step() -> None:
    """The collector runs at any moment, as a callback of a test tool that measures it, or as a finalizer."""
    told: list[bytes] = []

    class Dying:
        def __del__(self) -> None:
            told.append(os.urandom(1))

    def collected(phase: str, info: dict[str, int]) -> None:
        told.append(os.urandom(1))

    def step(x: alpha.Tensor) -> alpha.Tensor:
        for _ in range(100):
            circle = [Dying()]
            circle.append(circle)  # type: ignore[arg-type]
        return x * 2

    captured = alpha.capture(step, strict=True)
    x = alpha.ones(2, device="cuda")
    gc.callbacks.append(collected)
    before = gc.get_threshold()
    gc.set_threshold(10)
    try:
        results = [captured(x).tolist() for _ in range(5)]
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collected)
    assert told
    assert captured.graphs
    assert results == [[2, 2]] * 5
