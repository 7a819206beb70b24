"""Ctrl-C at random moments of eager and captured training steps: what is left is right, and no memory is lost.

    python tests/runtime/interrupts.py --count 1000 --seed 0 [--processes 2]

Each interrupt is a real one: a timer's signal, SIGINT from another thread, or `_thread.interrupt_main`. After each the
program goes on. A captured step must have been done as a whole or not at all; after an eager one the program goes back
to the state before the step. The weights must then be, bit for bit, those of a run without interrupts, the memory must
be consistent, and at the end as much of it must be in use as after a run without interrupts.

On the emulated device, or on a GPU with ALPHA_CUDA_DRIVER=pycuda.
"""

from __future__ import annotations

import _thread
import argparse
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

import alpha
from alpha import nn
from alpha.nn import functional as F
from alpha.ops.kernel.tables import chunk_tables
from alpha.runtime.arena.arena import Arena
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver

STEPS = 12  # of a run; then another one begins
WAYS = "timer", "signal", "call"


class Interrupter:
    """Interrupts the main thread once, some time after `arm`."""

    def __init__(self) -> None:
        self._wanted = threading.Event()
        self._delay, self._way = 0.0, ""
        # a shell starts background programs with SIGINT ignored
        for number in (signal.SIGALRM, signal.SIGINT):
            signal.signal(number, signal.default_int_handler)
        threading.Thread(target=self._loop, daemon=True).start()

    def arm(self, delay: float, way: str) -> None:
        if way == "timer":
            signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-6))
            return
        self._delay, self._way = delay, way
        self._wanted.set()

    def _loop(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            time.sleep(self._delay)
            if self._way == "signal":
                os.kill(os.getpid(), signal.SIGINT)
            else:
                _thread.interrupt_main()


class Training:
    """A tiny network, its optimizer, and a step on one of three batches."""

    def __init__(self, captured: bool) -> None:
        alpha.manual_seed(7)
        self.net = nn.Sequential(
            *(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 3))
        ).to("cuda")
        self.optimizer = alpha.optim.Adam(self.net.parameters(), lr=1e-2)
        draw = np.random.default_rng(1)
        self.batches = [
            (
                alpha.tensor(draw.standard_normal((4, 6, 6, 3)).astype(np.float32), device="cuda"),
                alpha.tensor(draw.integers(0, 3, 4).astype(np.int32), device="cuda"),
            )
            for _ in range(3)
        ]
        self.step: Any = alpha.capture(self._step) if captured else self._step
        self.captured = captured

    def _step(self, x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        loss = F.cross_entropy(self.net(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self, number: int) -> alpha.Tensor:
        """Do the step of that number."""
        loss: alpha.Tensor = self.step(*self.batches[number % 3])
        return loss

    @property
    def count(self) -> int:
        """Number of steps that the optimizer has counted."""
        return max((slots["step"] for slots in self.optimizer.state.values()), default=0)

    @property
    def is_whole(self) -> bool:
        """True if a step that is cut off now is done as a whole or not at all."""
        return self.captured and bool(self.step.graphs)

    def state(self) -> list[bytes]:
        return [np.asarray(value).tobytes() for value in self.net.state_dict().values()]

    def save(self) -> Callable[[], None]:
        """Note the state; what goes back to it."""
        net = {name: value.clone() for name, value in self.net.state_dict().items()}
        optimizer, drawn = self.optimizer.state_dict(), alpha.get_rng_state()

        def restore() -> None:
            self.net.load_state_dict(net, layout="NHWC")
            self.optimizer.load_state_dict(optimizer)
            self.optimizer.zero_grad()
            alpha.set_rng_state(drawn)

        return restore


def check(memory: Arena, place: str) -> None:
    """Blocks that are live lie in segments, and do not overlap."""
    live = memory.stats().live
    places = sorted((address, size) for address, size, _ in memory._live.values())
    assert live == sum(size for _, size in places), place
    assert all(start + size <= following for (start, size), (following, _) in pairwise(places)), place
    extents = memory.segments.extents()
    for address, size in places:
        assert any(start <= address and address + size <= end for start, end in extents), place


def meters(device: Any) -> tuple[int, int, int]:
    """Bytes in use, bytes held, bytes of the device in use, without the tables of steps that are no more.

    Other processes use a GPU, too, so its bytes count for the emulated device alone.
    """
    chunk_tables.CONSTANTS.clear()
    gc.collect()
    device.trim()
    stats, (free, total) = device.memory_stats(), device.driver.memory_info()
    return stats.live, stats.reserved, total - free if isinstance(device.driver, EmulatedDriver) else 0


def reference(captured: bool, steps: int = STEPS) -> tuple[list[list[bytes]], float]:
    """The states after each step of a run without interrupts, and three times the usual time of a step in seconds."""
    training, states, seconds = Training(captured), [], []
    for number in range(steps):
        states.append(training.state())
        before = time.perf_counter()
        training.run(number)
        seconds.append(time.perf_counter() - before)
    return [*states, training.state()], 3 * sorted(seconds)[steps // 2]


def interrupted(count: int, captured: bool, draw: random.Random, interrupter: Interrupter, found: Counter[str]) -> None:
    """Runs with `count` interrupts in all."""
    device: Any = alpha.get_device("cuda")
    reference(captured)  # compiles all kernels
    states, long = reference(captured)
    before = meters(device)
    kind = "captured" if captured else "eager"
    left = count
    while left > 0:
        training, number, losses = Training(captured), 0, []
        while captured and draw.random() < 0.9 and not training.is_whole:  # most interrupts are to meet a replay
            training.run(training.count)
            number = training.count
        while number < STEPS:
            way, delay = draw.choice(WAYS), draw.uniform(0, long if draw.random() < 0.5 else 0.3 * long)
            restore, whole, done = training.save(), training.is_whole, False
            place = f"{kind} step {number}, {way} after {1e3 * delay:.2f} ms, {left} to come"
            left -= 1
            try:
                interrupter.arm(delay, way)
                losses.append(training.run(number))
                done = True
                time.sleep(10)
                found["lost"] += 1
            except KeyboardInterrupt:
                found[f"{kind}, after the step" if done else f"{kind}, within the step"] += 1
            check(device.arena, place)
            check(device.scratch, place)
            if not done and not whole:
                restore()
            number = training.count
            assert training.state() == states[number], f"{place}: the state is not that after {number} steps"
            if left <= 0:
                break
        for index in range(number, STEPS):
            training.run(index)
            assert training.state() == states[index + 1], f"{kind}: step {index} after the last interrupt"
        assert all(np.isfinite(loss.item()) for loss in losses)
        del training, losses, restore
        after = meters(device)
        assert after <= before, f"{kind}: memory {after}, {before} before (in use, held, of the device)"
        found["runs"] += 1


def main() -> None:
    """Interrupt, and print what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="interrupts of each process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--processes", type=int, default=1, help="how many, one after the other, each with its own seed"
    )
    options = parser.parse_args()
    if options.processes > 1:
        for index in range(options.processes):
            own = ["--count", str(options.count), "--seed", str(options.seed + index)]
            subprocess.run([sys.executable, __file__, *own], check=True)
        return
    draw, interrupter, found = random.Random(options.seed), Interrupter(), Counter[str]()
    unraisable: list[str] = []
    sys.unraisablehook = lambda args: unraisable.append(f"{args.exc_type.__name__} in {args.object!r}")
    begun = time.perf_counter()
    for captured in (False, True):
        interrupted(options.count // 2, captured, draw, interrupter, found)
    print(f"{options.count} interrupts in {time.perf_counter() - begun:.0f} s, seed {options.seed}: all values right,")
    print(f"memory as before; {dict(sorted(found.items()))}")
    print(f"exceptions in finalizers: {len(unraisable)} {Counter(unraisable).most_common(5)}")
    if found["lost"]:
        sys.exit(f"{found['lost']} interrupts were lost")


if __name__ == "__main__":
    main()
