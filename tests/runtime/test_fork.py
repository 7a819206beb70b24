"""A forked child: the cpu device works in it, the cuda device is refused. Each test is a program with a time limit."""

from __future__ import annotations

import os
import sys
import textwrap

import child
import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

LARGE = """
    import multiprocessing, os, sys, threading, time
    import numpy as np
    import alpha
    from alpha.nn import functional as F

    def compute(seed):
        rng = np.random.default_rng(seed)
        x = alpha.tensor(rng.standard_normal((32, 16, 16, 32), np.float32), requires_grad=True)
        w = alpha.tensor(rng.standard_normal((32, 3, 3, 32), np.float32), requires_grad=True)
        y = F.relu(F.conv2d(x, w, padding=1))
        (y * y).mean().backward()
        z = x.reshape(256, 1024) @ x.reshape(1024, 256)
        return y.numpy().sum(), w.grad.numpy().sum(), z.numpy().sum()
"""


def run(program: str, **environment: str) -> str:
    """Output of a program, which fails rather than hangs."""
    code = textwrap.dedent(LARGE) + textwrap.dedent(program)
    result = child.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code],
        env=child.environment(**{"ALPHA_CPU_THREADS": "3"} | environment),
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_a_pool_of_forked_processes_computes() -> None:
    """The parent's workers have run before; the same numbers come out."""
    printed = run("""
        expected = [compute(seed) for seed in range(4)]
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map_async(compute, range(4)).get(40) == expected
        assert [compute(seed) for seed in range(4)] == expected  # the parent's workers still run
        print("done")
    """)
    assert printed == "done\n"


@pytest.mark.slow
def test_a_child_has_memory_of_its_own() -> None:
    """Results of the child go into copies of the parent's arrays and blocks."""
    printed = run("""
        x = alpha.tensor(np.ones(1 << 20, np.float32))
        child = os.fork()
        if child == 0:
            x.mul_(0.0)
            compute(0)
            os._exit(int(x.numpy().sum()))
        assert os.waitpid(child, 0)[1] == 0
        assert x.numpy().sum() == 1 << 20
        print("done")
    """)
    assert printed == "done\n"


@pytest.mark.slow
def test_a_fork_while_other_threads_compute() -> None:
    """The threads hold the arena, the random stream, the limit of BLAS and the workers again and again."""
    printed = run("""
        from alpha.runtime import blas
        blas_threads = [library.get() for library in blas._loaded()]
        expected, done = compute(0), threading.Event()

        def busy():
            while not done.is_set():
                compute(1)

        def draw():
            while not done.is_set():
                alpha.core.rng.default.next_stream()

        threads = [threading.Thread(target=f, daemon=True) for f in (busy, busy, draw)]
        for thread in threads:
            thread.start()
        for _ in range(8):
            time.sleep(0.02)
            child = os.fork()
            if child == 0:
                assert [library.get() for library in blas._loaded()] == blas_threads
                alpha.core.rng.uniform((3,))
                os._exit(0 if compute(0) == expected else 1)
            assert os.waitpid(child, 0)[1] == 0
        done.set()
        for thread in threads:
            thread.join()
        print("done")
    """)
    assert printed == "done\n"


@pytest.mark.slow
def test_a_child_that_ends_as_a_program_does() -> None:
    """The exit hooks of the child neither wait for the parent's threads nor free the parent's arrays."""
    printed = run("""
        compute(0)
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            compute(0)
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        print("done")
    """)
    assert printed == "done\n"


CUDA = """
    a = alpha.tensor(np.ones((4, 4), np.float32), device="cuda")
    calls = {
        "launch": lambda: a + a,
        "download": lambda: a.numpy(),
        "upload": lambda: alpha.tensor(np.ones(3, np.float32), device="cuda"),
        "copy": lambda: alpha.get_device("cuda").copy(a.array),
        "memory_stats": lambda: alpha.get_device("cuda").memory_stats(),
        "synchronize": lambda: alpha.get_device("cuda").synchronize(),
    }
    (a + a).numpy()  # compiles
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        for name, call in calls.items():
            try:
                call()
            except alpha.errors.DeviceError as error:
                assert "the cuda device was made before a fork, and CUDA does not survive one" in str(error), error
                assert "start processes by 'spawn'" in str(error)
            else:
                raise AssertionError(f"{name} was not refused")
        compute(0)  # the cpu works
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert (a + a).numpy().sum() == 32  # the parent's device is as it was
    print("done")
"""


@pytest.mark.slow
def test_the_emulated_device_is_refused_in_a_child() -> None:
    assert run(CUDA, ALPHA_CUDA_DRIVER="emulated") == "done\n"


@pytest.mark.cuda
def test_the_gpu_is_refused_in_a_child() -> None:
    assert run(CUDA, ALPHA_CUDA_DRIVER="pycuda") == "done\n"
