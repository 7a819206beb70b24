"""Launchers of the small kernels in kernels/ on the emulated driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kernel_emulator import Emulator


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    launcher = Emulator()
    yield launcher
    launcher.driver.close()


@pytest.fixture
def emulator_for(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Emulator]]:
    """`emulator_for(ALPHA_EMULATED_SEED=3)`: a launcher under these environment variables."""
    launchers: list[Emulator] = []

    def make(**variables: str | int) -> Emulator:
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        launchers.append(Emulator())
        return launchers[-1]

    yield make
    for launcher in launchers:
        launcher.driver.close()
