"""New tensors: of numbers, of what is given, of named lengths; and conversions."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import alpha


def test_new_tensors(device: str) -> None:
    for x, expected in (
        (alpha.zeros(2, 3, device=device), np.zeros((2, 3), np.float32)),
        (alpha.ones((2,), dtype="int32", device=device), np.ones(2, np.int32)),
        (alpha.full((2, 1), 7, device=device), np.full((2, 1), 7)),
        (alpha.arange(5, device=device), np.arange(5)),
        (alpha.arange(1, 2, 0.25, device=device), np.arange(1, 2, 0.25, dtype=np.float32)),
        (alpha.arange(7, 1, -2, device=device), np.arange(7, 1, -2)),
        (alpha.linspace(-1, 1, 9, device=device), np.linspace(-1, 1, 9, dtype=np.float32)),
        (alpha.eye(3, 2, device=device), np.eye(3, 2, dtype=np.float32)),
        (alpha.eye(2, 3, dtype="bool", device=device), np.eye(2, 3, dtype=bool)),
    ):
        assert x.device.name == device
        assert x.dtype == expected.dtype
        np.testing.assert_array_equal(x.numpy(), expected)
    assert alpha.empty(2, 3, device=device, requires_grad=True).requires_grad
    assert [alpha.scalar_tensor(n, device=device).dtype.name for n in (2, 2.5, True)] == ["float32"] * 3
    assert alpha.full_like(alpha.zeros(2, device=device), 3, dtype="int64").tolist() == [3, 3]


def test_conversions(device: str) -> None:
    x = alpha.tensor([1.5, 0.0], device=device, requires_grad=True)
    assert [x.to(kind).dtype.name for kind in ("float64", np.int32, "bool")] == ["float64", "int32", "bool"]
    assert x.to("cpu", "int64").device.name == x.cpu().device.name == "cpu"
    assert x.to(device) is x.to(dtype="float32") is x.float() is x
    assert (x.numel(), x.dim(), x.tolist(), x.bool().tolist()) == (2, 1, [1.5, 0.0], [True, False])
    y = x.clone()
    y[0] = 5.0
    assert x.tolist() == [1.5, 0.0]


def test_tensors_of_what_is_given(device: str) -> None:
    x = alpha.tensor([1.0, 2.0], device=device)
    assert alpha.as_tensor(x) is x
    assert alpha.as_tensor(x, dtype="float64", device="cpu").dtype == np.float64
    made = alpha.as_tensor([1, 2], "float32", device)
    assert (made.dtype.name, made.device.name) == ("float32", device)
    values = np.arange(3.0)
    made = alpha.from_numpy(values)
    values[:] = 0
    assert made.tolist() == [0, 1, 2]
    assert made.dtype == np.float64
    with pytest.raises(TypeError, match="from_numpy: a list is no numpy array"):
        alpha.from_numpy([1.0])


@pytest.mark.parametrize("make", [alpha.zeros, alpha.ones, alpha.empty, alpha.rand, alpha.randn])
def test_lengths_may_be_named(make: Any, device: str) -> None:
    assert make(size=(2, 3), device=device).shape == make(2, 3, device=device).shape == (2, 3)
    assert make(size=4).shape == (4,)
    assert make(size=()).shape == make(()).shape == ()
    with pytest.raises(TypeError, match=rf"{make.__name__}: the lengths are given twice, as \(2,\) and as size=3"):
        make(2, size=3)


X = alpha.tensor([1.0, 2.0])
# the arguments of each function that makes a tensor on a device, and what it says is wrong with others
MAKERS: dict[str, tuple[tuple[Any, ...], dict[tuple[Any, ...], str]]] = {
    **dict.fromkeys(("zeros", "ones", "empty", "rand", "randn"), ((2,), {("2",): "", (-1,): "", (2, 0.5): ""})),
    **dict.fromkeys(("zeros_like", "ones_like", "empty_like", "rand_like", "randn_like"), ((X,), {(2.0,): "x is a"})),
    "full": (((2,), 3), {("2", 3): ""}),
    "full_like": ((X, 3), {(2.0, 3): "x is a float"}),
    "new_zeros": ((X, 2), {(X, "2"): "", (X, -1): ""}),
    "new_ones": ((X, 2), {(X, "2"): "", (X, -1): ""}),
    "new_empty": ((X, 2), {(X, "2"): "", (X, -1): ""}),
    "new_full": ((X, (2,), 3), {(X, "2", 3): "", (X, -1, 3): ""}),
    "new_tensor": ((X, [1.0]), {}),
    "tensor": (([1.0],), {}),
    "as_tensor": (([1.0],), {}),
    "asarray": (([1.0],), {}),
    "scalar_tensor": ((2.0,), {}),
    "arange": ((3,), {("3",): "end='3'", ("1", 3): "start='1'", (1, 3, "2"): "step='2'", (1, 3, -1): "step=-1"}),
    "linspace": ((0, 1, 3), {("0", 1, 3): "start='0'", (0, "1", 3): "end='1'", (0, 1, -1): "steps=-1"}),
    "logspace": ((0, 1, 3), {("0", 1, 3): "start='0'", (0, "1", 3): "end='1'", (0, 1, -1): "steps=-1"}),
    "eye": ((2, 3), {(-1,): "n=-1", (2, 0.5): "m=0.5"}),
    "normal": ((0, 1, (2,)), {("0", 1, 2): "mean='0'", (0, "1", 2): "std='1'", (0, 1, "2"): "", (0, -1, 2): "std=-1"}),
    "randint": ((0, 5, (2,)), {("0", 5, 2): "low='0'", (0, "5", 2): "high='5'", (0, 5, "2"): "", (5, 0, 2): "-5 int"}),
    "randint_like": ((X, 0, 5), {(X, "0", 5): "low='0'", (X, 0, "5"): "high='5'", (X, 5, 0): "-5 int"}),
    "randperm": ((3,), {("3",): "n='3'", (-1,): "n=-1"}),
    **dict.fromkeys(
        ("bartlett_window", "blackman_window", "hamming_window", "hann_window"),
        ((3,), {("3",): "window_length='3'", (-1,): "window_length=-1"}),
    ),
    **dict.fromkeys(
        ("tril_indices", "triu_indices"),
        ((2, 3), {("2", 3): "row='2'", (2, "3"): "col='3'", (2, 3, "0"): "offset='0'", (-1, 3): "row=-1"}),
    ),
}


def maker(name: str) -> Any:
    return getattr(alpha.Tensor if name.startswith("new_") else alpha, name)


def test_every_function_that_makes_a_tensor_on_a_device_is_here() -> None:
    named = {name for name in dir(alpha) if inspect.isfunction(getattr(alpha, name))}
    named |= {name for name in dir(alpha.Tensor) if name.startswith("new_")}
    taken = {name: inspect.signature(maker(name)).parameters for name in named}
    assert {name for name, known in taken.items() if {"dtype", "device"} <= set(known)} == set(MAKERS)


@pytest.mark.parametrize("name", MAKERS)
def test_dtype_device_and_requires_grad_are_those_that_are_given(name: str) -> None:
    make, (given, _) = maker(name), MAKERS[name]
    known = inspect.signature(make).parameters
    for dtype in ("float32", "float64") if "requires_grad" in known or name == "as_tensor" else ("int32", "int64"):
        made = make(*given, dtype=dtype, device="cuda") if dtype != "float64" else make(*given, dtype=dtype)
        assert (made.dtype, made.device.name) == (dtype, "cpu" if dtype == "float64" else "cuda")
        assert not made.requires_grad
    if "requires_grad" in known:
        made = make(*given, requires_grad=True, dtype="float32")
        assert made.requires_grad
        assert made.is_leaf
        assert not make(*given, dtype="float32", requires_grad=False).requires_grad


@pytest.mark.parametrize("name", MAKERS)
def test_wrong_arguments_are_named(name: str) -> None:
    for wrong, message in MAKERS[name][1].items():
        with pytest.raises((TypeError, ValueError, alpha.ShapeError), match=rf"^{name}: {message}"):
            maker(name)(*wrong)
    if name in ("rand", "randn", "rand_like", "randn_like", "normal"):
        with pytest.raises(TypeError, match=rf"^{name}: dtype=int64 is not a floating one"):
            maker(name)(*MAKERS[name][0], dtype="int64")
    if "full" in name:
        with pytest.raises(ValueError, match=rf"^{name}: 300 does not fit uint8"):
            maker(name)(*MAKERS[name][0][:-1], 300, dtype="uint8")
