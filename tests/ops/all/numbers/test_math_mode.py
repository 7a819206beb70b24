"""Arithmetic that ran: the precision that was asked for is neither ignored nor left out of the backward pass.

An accuracy limit cannot show it, since float32 keeps every limit. So the macros of the launched kernels are read,
and numbers are multiplied that only float32, or only float32 and tf32, can hold.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import child
import numpy as np
import pytest
from helpers import choosing, first_of
from launch_log import modes, observed_launches

import alpha
from alpha import Tensor
from alpha.core.numerics import BFLOAT16, PRECISIONS
from alpha.errors import AlphaError
from alpha.nn import functional as F
from alpha.ops.matmul import cuda as matmul_cuda
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver
from alpha.runtime.cuda.planning.driver_dry import DryDevice

ARCHS = ("sm_75", "sm_80", "sm_90a")
WANTED = ("forward", "input", "weight")  # which product
Operator = Callable[[Tensor, Tensor], Tensor]
Between = Callable[[Callable[[], None]], None]
Shape = tuple[int, ...]

# operator -> function, shapes of input and weight: large enough for tensor cores
LARGE: dict[str, tuple[Operator, Shape, Shape]] = {
    "conv2d": (lambda x, w: F.conv2d(x, w, padding=1), (64, 8, 8, 64), (64, 3, 3, 64)),
    "conv2d, first layer": (lambda x, w: F.conv2d(x, w, padding=1), (512, 32, 32, 3), (64, 3, 3, 3)),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w, None, 2, 1), (64, 6, 6, 64), (64, 4, 4, 64)),
    "linear": (F.linear, (2048, 2048), (2048, 2048)),
    "matmul": (lambda x, w: x @ w, (2048, 2048), (2048, 2048)),
}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    alpha.set_precision("float32")


def expected(arch: str, precision: str) -> str:
    """The mode that was asked for, or the documented fallback: float32 if the GPU has no tensor cores for it."""
    return "float32" if arch == "sm_75" else precision


# -- the macros of what is launched -------------------------------------------------------------------


@functools.cache
def recording(arch: str) -> DryDevice:
    """A GPU without memory, on which a launch does nothing."""
    return DryDevice.of(arch)


def leaves(on: Any, name: str, wanted: str) -> tuple[Tensor, Tensor]:
    _, *shapes = LARGE[name]
    x, w = (alpha.tensor(np.zeros(shape, np.float32), device=on) for shape in shapes)
    x.requires_grad, w.requires_grad = wanted != "weight", wanted != "input"
    return x, w


def gradient_like(y: Tensor) -> Tensor:
    return alpha.tensor(np.ones(y.shape, y.dtype), device=y.device)


def launched(
    arch: str, name: str, wanted: str, precision: str, between: Callable[[Callable[[], None]], None]
) -> set[str]:
    """The modes of the product `wanted`; `between(backward)` runs the backward pass, after the `with` block."""
    on = recording(arch)
    function = LARGE[name][0]
    x, w = leaves(on, name, wanted)
    with observed_launches(on) as log:
        with alpha.precision(precision):
            y = function(x, w)
        if wanted != "forward":
            log.clear()
            between(lambda: y.backward(gradient_like(y)))
    found = modes(log)
    assert found, "no product was launched"
    return found


def at_once(backward: Callable[[], None]) -> None:
    backward()


def in_a_thread(backward: Callable[[], None]) -> None:
    """Run a backward pass in a thread whose own precision is another."""
    errors: list[Exception] = []

    def work() -> None:
        try:
            backward()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(child.HANG_S)
    assert not errors


def after(precision: str) -> Between:
    def between(backward: Callable[[], None]) -> None:
        alpha.set_precision(precision)
        backward()

    return between


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("arch", ARCHS)
def test_the_kernels_of_a_precision_are_launched(arch: str, name: str, wanted: str, precision: str) -> None:
    assert launched(arch, name, wanted, precision, at_once) == {expected(arch, precision)}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("wanted", ["input", "weight"])
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_backward_pass_has_the_precision_of_its_forward_pass(
    arch: str, name: str, wanted: str, precision: str
) -> None:
    """The precision is the same in whatever thread, and whatever has been set since."""
    for between in (in_a_thread, *map(after, PRECISIONS)):
        assert launched(arch, name, wanted, precision, between) == {expected(arch, precision)}
        alpha.set_precision("float32")


def test_set_precision_is_the_same_switch() -> None:
    on = recording("sm_90a")
    for precision in PRECISIONS:
        alpha.set_precision(precision)
        with observed_launches(on) as log:
            LARGE["conv2d"][0](*leaves(on, "conv2d", "forward"))
        assert modes(log) == {precision}


def test_the_log_tells_modes_apart() -> None:
    """One kernel serves all modes on Hopper."""
    on, seen = recording("sm_90a"), {}
    for precision in PRECISIONS:
        with choosing(lambda v: "sm90" in v.name), observed_launches(on) as log, alpha.precision(precision):
            LARGE["conv2d"][0](*leaves(on, "conv2d", "forward"))
        seen[precision] = [launch for launch in log if launch.mode is not None]
    assert {launch.entry for log in seen.values() for launch in log} == {"conv_v2_sm90"}
    with observed_launches(on) as log:
        pass
    on.zeros((3,), np.float32)
    assert log == []


# -- the numbers that come out ------------------------------------------------------------------------

FINE, COARSE = 1 + 2.0**-13, 1 + 2.0**-9  # float32 holds both, tf32 (10 bits behind the point) one, bfloat16 (7) none
KEPT = {"float32": {FINE, COARSE}, "tf32": {COARSE}, "bf16": set()}

SMALL: dict[str, tuple[Operator, Shape, Shape]] = {
    "conv2d": (lambda x, w: F.conv2d(x, w), (64, 2, 2, 32), (32, 1, 1, 32)),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w), (64, 2, 2, 32), (32, 1, 1, 32)),
    "linear": (F.linear, (128, 64), (64, 64)),
    "matmul": (lambda x, w: x @ w, (128, 64), (64, 64)),
}


@functools.cache
def gpu(arch: str) -> Any:
    """The GPU if it is of that architecture, else the emulated driver as one."""
    if arch == "cpu":
        return alpha.get_device("cpu")
    device: Any = alpha.get_device("cuda")
    if device.properties.arch.removesuffix("a") == arch.removesuffix("a"):
        return device
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALPHA_ARCH", arch)
        return CudaDevice(EmulatedDriver())


def product(on: Any, name: str, wanted: str, precision: str, value: float) -> np.ndarray:
    """Sums of `value` times one, of a power of two of them, divided by their number: `value`, if it was kept.

    The value is in the input or, for the gradient of the input, in the weight.
    """
    function, *shapes = SMALL[name]
    numbers = (1.0, value) if wanted == "input" else (value, 1.0)
    x, w = (
        alpha.tensor(np.full(shape, number, np.float32), requires_grad=True, device=on)
        for shape, number in zip(shapes, numbers, strict=True)
    )
    with choosing(lambda v: v.precision == precision):  # though they are that small
        with alpha.precision(precision):
            y = function(x, w)
        if wanted != "forward":
            y.backward(gradient_like(y))
    if wanted == "forward":
        found, length = y, shapes[0][-1]
    else:
        leaf = x if wanted == "input" else w
        assert leaf.grad is not None
        found = leaf.grad
        length = {"input": y.shape[-1], "weight": y.size // y.shape[-1]}[wanted]
    assert found.dtype == (
        BFLOAT16 if wanted == "forward" and precision == "bf16" and on.name == "cuda" else np.float32
    )
    values = np.unique(found.numpy().astype(np.float64)) / length
    assert np.all(np.abs(values - value) <= 2.0**-8)
    return values


def kept(on: Any, name: str, wanted: str, precision: str) -> set[float]:
    return {value for value in (FINE, COARSE) if np.array_equal(product(on, name, wanted, precision, value), [value])}


@pytest.mark.slow
@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("arch", ["cpu", *first_of("sm_80", *(arch for arch in ARCHS if arch != "sm_80"))])
def test_what_a_precision_cannot_hold_is_lost(
    arch: str, name: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers that a precision can hold are exact.

    The cpu computes in float32 always, sm_75 on operands of the precision.
    """
    monkeypatch.setattr(matmul_cuda, "faster_than_ffma", lambda p, v, target: not v.is_ffma)  # at these sizes too
    matmul_cuda._choose_configuration.cache_clear()
    try:
        on = gpu(arch)
    except AlphaError as error:
        pytest.skip(str(error))
    expected = dict(KEPT)
    if arch in ("cpu", "sm_75"):
        expected["tf32"] = KEPT["float32"]
    if arch == "cpu":
        expected["bf16"] = KEPT["float32"]
    assert {precision: kept(on, name, wanted, precision) for precision in PRECISIONS} == expected
    matmul_cuda._choose_configuration.cache_clear()
