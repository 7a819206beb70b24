"""Rules of the arguments of every function of alpha.nn.functional: what is no tensor, or not where the others are.

The calls are those of the rows in tests/rows/.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from rows.calls import CALLS, IMAGE, MATRIX, TENSOR_ARGUMENTS, array, call, given, put
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha import AlphaError, DeviceError, Tensor

SEVERAL_TENSORS = [name for name in TENSOR_ARGUMENTS if len(CALLS[name][0]) > 1]


@pytest.mark.slow
def test_every_function_has_a_call(device: str) -> None:
    assert set(CALLS) == set(F.__all__)
    for name in CALLS:
        assert isinstance(call(name, put(given(name), device)), Tensor), name


@pytest.mark.parametrize("name", TENSOR_ARGUMENTS)
def test_an_array_given_as_a_tensor_is_named(device: str, name: str) -> None:
    arrays = given(name)
    with trials() as trial:
        for argument in TENSOR_ARGUMENTS[name]:
            for wrong, kind in ((arrays[argument], "ndarray"), ([1.0, 2.0], "list"), ("x", "str"), (2.0, "float")):
                message = rf"^{name}: \w+ is a {kind}, a Tensor is needed; use alpha\.tensor"
                with trial(argument, kind), pytest.raises(TypeError, match=message):
                    call(name, {**put(arrays, device), argument: wrong})


@pytest.mark.parametrize("name", SEVERAL_TENSORS)
def test_an_argument_on_another_device_is_named(name: str) -> None:
    message = rf"^{name}: \w+ is on \w+ and \w+ on \w+; .*\.to\(device\)"
    with trials() as trial:
        for argument, (device, other) in product(TENSOR_ARGUMENTS[name], (("cpu", "cuda"), ("cuda", "cpu"))):
            with trial(argument, other), pytest.raises(DeviceError, match=message):
                call(name, {**put(given(name), device), argument: put(given(name), other)[argument]})


@pytest.mark.filterwarnings("ignore:.*rarely meant")
@pytest.mark.parametrize("name", SEVERAL_TENSORS)
def test_a_number_on_the_cpu_is_as_one_on_cuda(name: str) -> None:
    """A tensor without axes beside others on cuda; but not as what is written."""

    def result(argument: str, device: str) -> Any:
        number = alpha.tensor(1, dtype=given(name)[argument].dtype, device=device)
        try:
            found = call(name, {**put(given(name), "cuda"), argument: number})
        except (AlphaError, TypeError, ValueError, IndexError) as error:
            return type(error), str(error)
        return found.numpy().tobytes(), found.device.name

    with trials() as trial:
        for argument in TENSOR_ARGUMENTS[name]:
            if isinstance(given(name)[argument], np.ndarray):
                with trial(argument):
                    here = result(argument, "cpu")
                    written = name.endswith("_") and argument == "x"
                    assert here[0] is DeviceError if written else here == result(argument, "cuda")


@pytest.mark.parametrize("name", SEVERAL_TENSORS)
def test_an_argument_of_another_dtype_is_refused_or_right(device: str, name: str) -> None:
    """float64, numpy's default, among float32: a clear error, or the same numbers on both devices."""
    expected = call(name, put(given(name), "cpu")).numpy()
    with trials() as trial:
        for argument in TENSOR_ARGUMENTS[name]:
            if given(name)[argument].dtype != np.float32:
                continue  # labels
            with trial(argument):
                arrays = {**given(name), argument: given(name)[argument].astype(np.float64)}
                try:
                    found = call(name, put(arrays, device)).numpy()
                except TypeError as error:
                    assert "float64" in str(error)  # noqa: PT017
                else:
                    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-12)


def test_layers_name_their_argument(device: str) -> None:
    model = alpha.nn.Sequential(alpha.nn.Conv2d(2, 2, 3), alpha.nn.ReLU()).to(device)
    with pytest.raises(TypeError, match="conv2d: x is a ndarray, a Tensor is needed"):
        model(IMAGE)
    with pytest.raises(TypeError, match="linear: x is a ndarray, a Tensor is needed"):
        alpha.nn.Linear(2, 2)(array(2, 2))
    with pytest.raises(TypeError, match="cross_entropy: target is a ndarray, a Tensor is needed"):
        alpha.nn.CrossEntropyLoss()(alpha.tensor(MATRIX), np.zeros(4, np.int64))
