"""Resources that every test may use: the two devices, a seeded generator, and the markers `cuda` and `torch`.

"cuda" is the GPU where there is one, else the emulated driver; ALPHA_CUDA_DRIVER, if set, decides.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from beside.checks import right_values
from builds import Builds, counted_builds, fresh_device
from sampling import leave_out

from alpha.errors import AlphaError
from alpha.runtime import get_device
from alpha.runtime.cuda.cuda_device import CudaDevice

GATE = Path(__file__).parent / "gate"  # tests of minutes, with which nobody should begin when the others are done


def pytest_configure() -> None:
    """Choose the driver before anything makes the device. Tests run a kernel a few times, so it is compiled quickly.

    Programs that tests stop by a signal obey it although pytest may ignore it, as a shell's background jobs ignore
    Ctrl-C and those of `nohup` ignore SIGHUP.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ.setdefault("ALPHA_EMULATED_OPTIMIZE", "1")
    if "ALPHA_CUDA_DRIVER" in os.environ:
        return
    try:
        get_device("cuda")
    except AlphaError:
        os.environ["ALPHA_CUDA_DRIVER"] = "emulated"


def has_gpu() -> bool:
    return os.environ.get("ALPHA_CUDA_DRIVER", "pycuda") != "emulated"


@pytest.hookimpl(tryfirst=True)  # before pytest looks at the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    leave_out(items)
    items.sort(key=lambda item: not item.path.is_relative_to(GATE))
    missing = {
        "cuda": None if has_gpu() else "needs a CUDA GPU and pycuda",
        "torch": None if importlib.util.find_spec("torch") else "needs PyTorch",
    }
    for item in items:
        for marker, reason in missing.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True, scope="module")
def garbage_of_earlier_modules() -> None:
    """Collect the garbage of earlier modules, once.

    What is still alive, thousands of tests among it, is not looked through again: the arena collects garbage whenever
    memory is short. So a cycle of references among it is never collected, if it becomes garbage later.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def garbage_of_earlier_tests(garbage_of_earlier_modules: None) -> None:
    """Collect the garbage of earlier tests: freed within a test, it would change what that test counts as live.

    What is still alive, such as the reports of all tests of a module, is not looked through again, as above.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def right_values_beside_weights() -> Iterator[None]:
    """A value beside a weight is right wherever it is read, whatever the test trains."""
    with right_values():
        yield


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    """The name of a device; "cuda" is skipped where it needs a compiler that is missing."""
    name: str = request.param
    try:
        get_device(name)
    except AlphaError as error:
        pytest.skip(str(error))
    return name


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers, the same in every run."""
    return np.random.default_rng(0)


@pytest.fixture
def builds() -> Iterator[Builds]:
    """The compilations of emulated kernels during a test."""
    with counted_builds() as found:
        yield found


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[CudaDevice]:
    """An emulated cuda device for which no kernel is compiled yet."""
    with ExitStack() as stack:
        try:
            device = stack.enter_context(fresh_device(tmp_path / "cache"))
        except AlphaError as error:
            pytest.skip(str(error))
        yield device
