"""The precision switch, and what counts as a floating dtype."""

from __future__ import annotations

import threading
from typing import Any

import child
import numpy as np
import pytest

import alpha
from alpha.core.numerics import BFLOAT16, is_floating


@pytest.fixture(autouse=True)
def restored() -> object:
    yield
    alpha.set_precision("float32")


@pytest.mark.parametrize("name", ["float32", "tf32", "bf16"])
def test_precision_is_set_and_restored(name: str) -> None:
    with alpha.precision(name):
        assert alpha.get_precision() == name
        with alpha.precision("float32"):
            assert alpha.get_precision() == "float32"
        assert alpha.get_precision() == name
    assert alpha.get_precision() == "float32"
    alpha.set_precision(name)
    assert alpha.get_precision() == name


def test_precision_is_the_thread_s_own() -> None:
    found = []
    with alpha.precision("bf16"):
        thread = threading.Thread(target=lambda: found.append(alpha.get_precision()))
        thread.start()
        thread.join()
    assert found == ["float32"]


def test_threads_that_share_one_context_get_their_own_precision_back() -> None:
    shared, found = alpha.precision("tf32"), []
    entered, left = threading.Event(), threading.Event()

    def other() -> None:
        alpha.set_precision("bf16")
        with shared:
            entered.set()
            left.wait(child.HANG_S)
        found.append(alpha.get_precision())

    thread = threading.Thread(target=other)
    with shared:
        thread.start()
        assert entered.wait(child.HANG_S)
    found.append(alpha.get_precision())
    left.set()
    thread.join()
    assert found == ["float32", "bf16"]


def test_unknown_precision_is_named() -> None:
    for make in (alpha.set_precision, alpha.precision):
        with pytest.raises(ValueError, match="'fp8' is not one of float32, tf32, bf16"):
            make("fp8")
        for name in ("", None, 0, ["tf32"], np.array(["tf32"])):
            with pytest.raises(ValueError, match=r"is not one of float32, tf32, bf16"):
                make(name)  # type: ignore[arg-type]


def test_floating_dtypes() -> None:
    assert np.dtype("bfloat16") == BFLOAT16
    assert BFLOAT16.itemsize == 2
    assert all(is_floating(np.dtype(name)) for name in ("float32", "float64", "bfloat16"))
    assert not any(is_floating(np.dtype(name)) for name in ("int32", "uint8", "bool", "V2"))


# -- autocast, PyTorch's name of it --------------------------------------------------------------------------------


def inside(outer: str, *arguments: Any, **options: Any) -> str:
    with alpha.precision(outer), alpha.autocast(*arguments, **options):
        return alpha.get_precision()


@pytest.mark.parametrize("outer", ["float32", "tf32", "bf16"])
def test_autocast_is_the_precision_of_its_dtype(outer: str) -> None:
    assert inside(outer, "cuda") == inside(outer, "cuda:0", alpha.bfloat16, cache_enabled=True) == "bf16"
    assert inside(outer, "cuda", alpha.float32) == inside(outer, "cpu", alpha.bfloat16) == outer
    assert inside(outer, "cpu", enabled=False) == outer
    assert inside(outer, "cuda", enabled=False) == ("float32" if outer == "bf16" else outer)
    assert alpha.get_precision() == "float32"


def test_autocast_decorates() -> None:
    @alpha.amp.autocast("cuda", dtype=alpha.bfloat16)
    def found() -> str:
        return alpha.get_precision()

    assert [found(), alpha.get_precision(), found()] == ["bf16", "float32", "bf16"]


def test_autocast_refuses_what_alpha_does_not_compute_in() -> None:
    with pytest.raises(ValueError, match="dtype float16 is not one of bfloat16, float32"):
        alpha.autocast("cuda", np.float16)
    with pytest.raises(ValueError, match="device_type 'mps' is not one of cpu, cuda"):
        alpha.autocast("mps")


def test_autocast_reaches_a_layer(device: str) -> None:
    layer = alpha.nn.Linear(3, 4, device=device)
    with alpha.autocast("cuda", dtype=alpha.bfloat16):
        y = layer(alpha.ones(2, 3, device=device))
    assert y.dtype == (BFLOAT16 if device == "cuda" else np.float32)
    y.float().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == np.float32
