"""Functions that PyTorch has in `torch`, too, at the top of the package: their values, names and errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import Tensor
from alpha.ops.api import in_torch, inplace_functions


@pytest.mark.torch
def test_functions_of_alpha_are_pytorchs(device: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 3, 3)).astype(np.float32) + 0.5, rng.random((2, 3, 3)).astype(np.float32)
    pair = [alpha.tensor(v, device=device) for v in (x, y)], [torch.tensor(v) for v in (x, y)]
    for name in ("exp", "log", "sqrt", "sigmoid", "tanh", "relu", "isnan"):
        ours, theirs = (getattr(space, name)(given[0]) for space, given in zip((alpha, torch), pair, strict=True))
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)
    for name in ("add", "mul", "matmul", "bmm"):
        ours, theirs = (getattr(space, name)(*given) for space, given in zip((alpha, torch), pair, strict=True))
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)
    for name, rest in (("softmax", (1,)), ("log_softmax", (2,)), ("flatten", (1,)), ("reshape", ((3, 6),))):
        ours, theirs = (
            getattr(space, name)(given[0], *rest) for space, given in zip((alpha, torch), pair, strict=True)
        )
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)
    for space, given in zip((alpha, torch), pair, strict=True):
        np.testing.assert_allclose(space.add(*given, alpha=2).numpy(), x + 2 * y, rtol=1e-6)


def test_functions_of_alpha_name_what_is_no_tensor() -> None:
    for name in ("exp", "log", "sqrt", "isnan"):
        with pytest.raises(TypeError, match=rf"^{name}: x is a ndarray, a Tensor is needed"):
            getattr(alpha, name)(np.ones(2))


IN_PLACE = [*inplace_functions.__all__, "relu_"]
ARGUMENTS: dict[str, Callable[[Tensor], tuple[Any, ...]]] = {
    **dict.fromkeys(("clamp_max_", "clamp_min_", "fill_"), lambda x: (0.5,)),
    **dict.fromkeys(("clamp_", "clip_"), lambda x: (0.2, 0.6)),
    **dict.fromkeys(("ldexp_", "xlogy_"), lambda x: (x.clone(),)),
    **dict.fromkeys(("gcd_", "lcm_"), lambda x: (x.clone() + 1,)),
    "addmv_": lambda x: (alpha.ones(2, 3), alpha.ones(3)),
    "index_put_": lambda x: ((alpha.tensor([1]),), alpha.ones(1)),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_methods_in_place_as_functions(name: str) -> None:
    x = alpha.tensor([0.25, 0.75]) if name not in ("gcd_", "lcm_") else alpha.tensor([4, 6])
    x = x + 1 if "cosh" in name else x
    expected, given = x.clone(), ARGUMENTS.get(name, lambda x: ())(x)
    getattr(expected, name)(*given)
    function = getattr(alpha, name)
    assert function.__name__ == name
    assert function(x, *given) is x
    np.testing.assert_array_equal(x.numpy(), expected.numpy())
    with pytest.raises(TypeError, match=f"^{name}: x is a ndarray, a Tensor is needed"):
        function(np.ones(2))


def test_functions_of_both_rooms_are_one() -> None:
    both = set(in_torch.__all__) & set(F.__all__)
    assert {"conv2d", "max_pool2d", "layer_norm", "prelu"} <= both
    for name in both:
        assert getattr(alpha, name) is getattr(F, name)


@pytest.mark.torch
def test_names_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    offered = (*in_torch.__all__, *inplace_functions.__all__)
    assert not [name for name in offered if not hasattr(torch, name)]
    for name in ("asarray", "scalar_tensor", "can_cast", "promote_types", "result_type", "unravel_index"):
        assert inspect.signature(getattr(alpha, name)).parameters
