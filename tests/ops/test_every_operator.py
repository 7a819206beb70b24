"""Rules that hold for every function of alpha.nn.functional and every method of Tensor, whoever wrote it.

The calls are those of the rows in tests/rows/.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows.every import FUNCTIONS

import alpha
import alpha.nn.functional as F
from alpha import AlphaError, DeviceError, Tensor

DTYPES = ("int32", "int64", "uint8", "bool")


def array(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape), dtype=np.int64) % 5).reshape(shape).astype(np.float32)


def small(values: np.ndarray) -> np.ndarray:
    """Small whole numbers of the same shape and dtype, so that integers mean the same; labels as they are."""
    return array(*values.shape) if values.dtype == np.float32 else values


IMAGE, MATRIX = array(1, 4, 4, 2), array(4, 4)
# arrays of the tensor arguments, by name, and the other arguments
CALLS: dict[str, tuple[dict[str, np.ndarray], dict[str, Any]]] = {
    row.name: (
        {name: small(values) for name, values in row.tensors.items()},
        {name: value for name, value in row.usual.items() if name not in row.tensors},
    )
    for row in FUNCTIONS
}
TENSOR_ARGUMENTS = [(name, argument) for name, (tensors, _) in CALLS.items() for argument in tensors]


def given(name: str) -> dict[str, np.ndarray]:
    """The arrays under the names that the function has for them: all its tensor arguments, in order."""
    return CALLS[name][0]


def call(name: str, tensors: dict[str, Any]) -> Any:
    return getattr(F, name)(**tensors, **CALLS[name][1])


def put(arrays: dict[str, np.ndarray], device: str) -> dict[str, Any]:
    return {name: alpha.tensor(values, device=device) for name, values in arrays.items()}


def test_every_function_has_a_call(device: str) -> None:
    assert set(CALLS) == set(F.__all__)
    for name in CALLS:
        assert isinstance(call(name, put(given(name), device)), Tensor), name


# -- what is no tensor, or not where the others are -----------------------------------------------------


@pytest.mark.parametrize(("name", "argument"), TENSOR_ARGUMENTS)
def test_an_array_given_as_a_tensor_is_named(device: str, name: str, argument: str) -> None:
    for wrong, kind in ((given(name)[argument], "ndarray"), ([1.0, 2.0], "list"), ("x", "str"), (2.0, "float")):
        tensors = {**put(given(name), device), argument: wrong}
        with pytest.raises(TypeError, match=rf"^{name}: \w+ is a {kind}, a Tensor is needed; use alpha\.tensor"):
            call(name, tensors)


@pytest.mark.parametrize(("name", "argument"), [pair for pair in TENSOR_ARGUMENTS if len(given(pair[0])) > 1])
def test_an_argument_on_another_device_is_named(name: str, argument: str) -> None:
    for device, other in (("cpu", "cuda"), ("cuda", "cpu")):
        tensors = {**put(given(name), device), argument: put(given(name), other)[argument]}
        with pytest.raises(DeviceError, match=rf"^{name}: \w+ is on \w+ and \w+ on \w+; .*\.to\(device\)"):
            call(name, tensors)


@pytest.mark.parametrize(("name", "argument"), [pair for pair in TENSOR_ARGUMENTS if len(given(pair[0])) > 1])
def test_an_argument_of_another_dtype_is_refused_or_right(device: str, name: str, argument: str) -> None:
    """float64, numpy's default, among float32: a clear error, or the same numbers on both devices."""
    if given(name)[argument].dtype != np.float32:
        pytest.skip("labels")
    expected = call(name, put(given(name), "cpu")).numpy()
    arrays = {**given(name), argument: given(name)[argument].astype(np.float64)}
    try:
        found = call(name, put(arrays, device)).numpy()
    except TypeError as error:
        assert "float64" in str(error)  # noqa: PT017
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_layers_name_their_argument(device: str) -> None:
    model = alpha.nn.Sequential(alpha.nn.Conv2d(2, 2, 3), alpha.nn.ReLU()).to(device)
    with pytest.raises(TypeError, match="conv2d: x is a ndarray, a Tensor is needed"):
        model(IMAGE)
    with pytest.raises(TypeError, match="linear: x is a ndarray, a Tensor is needed"):
        alpha.nn.Linear(2, 2)(array(2, 2))
    with pytest.raises(TypeError, match="cross_entropy: target is a ndarray, a Tensor is needed"):
        alpha.nn.CrossEntropyLoss()(alpha.tensor(MATRIX), np.zeros(4, np.int64))


# -- integers and bools -----------------------------------------------------------------------------


def right_or_refused(ours: Callable[..., Any], *values: np.ndarray, device: str, result: Any = None) -> None:
    """`TypeError`, or the numbers that float64 arrays give; never a truncated or wrapped result."""
    with np.errstate(all="ignore"):
        expected = (result or ours)(*(v.astype(np.float64) for v in values))
    try:
        found = ours(*(alpha.tensor(v, device=device) for v in values))
    except TypeError as error:
        assert "dtype" in str(error) or "float32" in str(error), error  # noqa: PT017
        return
    assert isinstance(found, Tensor)
    np.testing.assert_allclose(found.numpy().astype(np.float64), expected, rtol=1e-5, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("cross_entropy", "normalize_pixels")])
def test_integers_in_functions(device: str, name: str, dtype: str) -> None:
    arrays = {key: values.astype(dtype) for key, values in given(name).items()}
    floats = {key: values.astype(np.float32) for key, values in arrays.items()}
    alpha.manual_seed(0)
    expected = call(name, put(floats, "cpu")).numpy()
    alpha.manual_seed(0)
    try:
        found = call(name, put(arrays, device)).numpy()
    except TypeError as error:
        assert "dtype" in str(error) or "float32" in str(error), error  # noqa: PT017
    else:
        np.testing.assert_allclose(found.astype(np.float64), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_integer_logits_are_refused(device: str, dtype: str) -> None:
    with pytest.raises(TypeError, match=rf"cross_entropy: .*{dtype}"):
        call("cross_entropy", put({**given("cross_entropy"), "x": MATRIX.astype(dtype)}, device))


UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {  # on a tensor, and in numpy
    "-x": (lambda x: -x, lambda x: -x),
    "x + 1": (lambda x: x + 1, lambda x: x + 1),
    "1 - x": (lambda x: 1 - x, lambda x: 1 - x),
    "x * 0.5": (lambda x: x * 0.5, lambda x: x * 0.5),
    "x / 2": (lambda x: x / 2, lambda x: x / 2),
    "2 / x": (lambda x: 2 / x, lambda x: 2 / x),
    "x ** 2": (lambda x: x**2, lambda x: x**2),
    "x ** 0.5": (lambda x: x**0.5, lambda x: x**0.5),
    "2 ** x": (lambda x: 2**x, lambda x: 2.0**x),
    "exp": (lambda x: x.exp(), np.exp),
    "log": (lambda x: x.log(), np.log),
    "sqrt": (lambda x: x.sqrt(), np.sqrt),
    "sum": (lambda x: x.sum(), np.sum),
    "mean": (lambda x: x.mean(), np.mean),
    "sum 0": (lambda x: x.sum(0), lambda x: x.sum(0)),
    "mean 1": (lambda x: x.mean(1), lambda x: x.mean(1)),
    "transpose": (lambda x: x.transpose(1, 0), np.transpose),
    "flatten": (lambda x: x.flatten(), np.ravel),
    "reshape": (lambda x: x.reshape(8, 2), lambda x: x.reshape(8, 2)),
    "row": (lambda x: x[1], lambda x: x[1]),
    "rows": (lambda x: x[1:3], lambda x: x[1:3]),
    "astype": (lambda x: x.astype("float64"), lambda x: x),
    "detach": (lambda x: x.detach(), lambda x: x),
    "to": (lambda x: x.to("cpu"), lambda x: x),
    "x == 2": (lambda x: x == 2, lambda x: x == 2),
    "x < 1.5": (lambda x: x < 1.5, lambda x: x < 1.5),
    "add_": (lambda x: x.add_(1), lambda x: x + 1),
    "sub_": (lambda x: x.sub_(0.5), lambda x: x - 0.5),
    "mul_": (lambda x: x.mul_(0.5), lambda x: x * 0.5),
    "div_": (lambda x: x.div_(2), lambda x: x / 2),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "**": lambda a, b: a**b,
    "@": lambda a, b: a @ b,
    "==": lambda a, b: a == b,
    "<=": lambda a, b: a <= b,
}
OTHERS = {  # of Tensor: what they are is tested in tests/test_tensor.py and test_autograd.py
    *("array", "backward", "device", "dtype", "grad", "is_leaf", "item", "ndim", "numpy", "register_hook"),
    *("requires_grad", "shape", "size", "zero_grad"),
}


def test_every_method_is_here() -> None:
    tested = {name.rstrip("_") for name in (*UNARY, "add", "sub", "mul", "div", "pow", "matmul")}
    public = {name.rstrip("_") for name, _ in inspect.getmembers(Tensor) if not name.startswith("_")}
    assert public - tested - OTHERS == set()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_integers_in_methods(device: str, name: str, dtype: str) -> None:
    ours, theirs = UNARY[name]
    right_or_refused(ours, MATRIX.astype(dtype), device=device, result=theirs)


@pytest.mark.parametrize("second", [*DTYPES, "float32"])
@pytest.mark.parametrize("first", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_integers_in_operators(device: str, name: str, first: str, second: str) -> None:
    a, b = MATRIX.astype(first), array(4, 4).T.astype(second)
    right_or_refused(BINARY[name], a, np.ascontiguousarray(b), device=device)
    right_or_refused(BINARY[name], np.ascontiguousarray(b), a, device=device)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_devices_agree_about_integers(dtype: str) -> None:
    """What one device computes with integers the other computes, too."""
    calls = {name: ours for name, (ours, _) in UNARY.items()}
    calls |= {name: lambda x, f=f: f(x, x) for name, f in BINARY.items()}
    for name, function in calls.items():
        outcomes = []
        for device in ("cpu", "cuda"):
            try:
                outcomes.append(function(alpha.tensor(MATRIX.astype(dtype), device=device)).dtype.name)
            except (TypeError, AlphaError) as error:
                outcomes.append(type(error).__name__)
        assert outcomes[0] == outcomes[1], name


# -- byte order ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i4", ">i8"])
def test_arrays_of_another_byte_order(device: str, dtype: str) -> None:
    values = np.arange(6).reshape(2, 3).astype(dtype)
    for x in (
        alpha.tensor(values, device=device),
        alpha.tensor([[0, 1, 2], [3, 4, 5]], dtype=dtype, device=device),
        alpha.tensor(values[0, 0], device=device).reshape(1),
        alpha.nn.Parameter(values, requires_grad=False),
    ):
        assert x.dtype.isnative
        assert x.dtype == np.dtype(dtype).newbyteorder("=")
        np.testing.assert_array_equal(x.numpy(), values.reshape(-1)[: x.size].reshape(x.shape))
        assert (x == x.astype(dtype)).numpy().all()
    x = alpha.tensor(values.astype(">f4"), requires_grad=True, device=device)
    ((x + values) @ values.T.copy()).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.tile(values.sum(axis=0), (2, 1)))
    layer = alpha.nn.Linear(3, 2, bias=False).to(device)
    layer.load_state_dict({"weight": values.astype(">f4")})
    assert layer.weight.dtype.isnative
    np.testing.assert_array_equal(layer.weight.numpy(), values)
