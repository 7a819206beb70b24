"""Answers about tensors, shapes and dtypes; copies; sliding windows."""

from __future__ import annotations

import numpy as np
import pytest

import alpha
from alpha import ShapeError

DTYPES = ("float32", "float64", "bfloat16", "int32", "int64", "uint8", "bool")


def test_facts_of_tensors(device: str) -> None:
    x = alpha.tensor(np.arange(6, dtype=np.float32).reshape(2, 3), device=device)
    assert [alpha.is_nonzero(v) for v in (x[0, :1], x[1, 1], alpha.tensor(True, device=device))] == [False, True, True]
    assert x[1, 2].is_nonzero()
    assert alpha.is_same_size(x, x + 1)
    assert not x.is_same_size(x[0])
    assert not alpha.is_complex(x)
    assert not x.is_complex()
    assert x.isreal().tolist() == alpha.isreal(x).tolist() == [[True] * 3] * 2
    assert x.get_device() == (0 if device == "cuda" else -1)
    assert x.allclose(x * (1 + 1e-6))
    assert not x.allclose(x + 1e-3, rtol=0.0, atol=1e-4)
    assert x.stride() == (3, 1)
    assert alpha.zeros(2, 3, 4, device=device).stride() == (12, 4, 1)
    assert alpha.zeros(2, 3, 4, device=device).stride(-2) == 4
    assert x.sum().stride() == ()
    assert x.byte().dtype.name == "uint8"
    for dtype in DTYPES:
        assert alpha.is_signed(x.astype(dtype)) is x.astype(dtype).is_signed() is (dtype not in ("uint8", "bool"))


def test_copies_as_functions(device: str) -> None:
    x = alpha.ones(2, 3, device=device, requires_grad=True)
    y = alpha.clone(x)
    assert y.requires_grad
    assert not alpha.detach(x).requires_grad
    assert alpha.ravel(x).shape == (6,)
    assert alpha.asarray(x) is not x
    assert not alpha.asarray(x).requires_grad
    shared = alpha.asarray(x.detach())
    shared.zero_()
    assert x.numpy().sum() == 0
    apart = alpha.asarray(shared, copy=True, requires_grad=True)
    assert apart.requires_grad
    assert apart.is_leaf
    apart.detach().fill_(1)
    assert x.numpy().sum() == 0
    assert alpha.asarray([1, 2], dtype="float32", device=device).tolist() == [1, 2]
    with pytest.raises(ValueError, match="asarray: copy=False, but only a Tensor of that dtype"):
        alpha.asarray([1, 2], copy=False)
    assert alpha.asarray(shared, copy=False) is shared
    one = alpha.scalar_tensor(2, device=device)
    assert (one.shape, one.dtype.name, one.item()) == ((), "float32", 2)
    assert alpha.scalar_tensor(2, dtype="int64").dtype.name == "int64"


def test_sums_to_a_shape(device: str) -> None:
    x = alpha.tensor(np.arange(24, dtype=np.float32).reshape(2, 3, 4), device=device, requires_grad=True)
    for size in ((3, 4), (1, 4), (2, 1, 4), (), (2, 3, 4), (1, 1, 1)):
        found, lead = x.sum_to_size(size), 3 - len(size)
        axes = tuple(i for i in range(3) if i < lead or size[i - lead] == 1)
        np.testing.assert_array_equal(found.numpy(), x.numpy().sum(axes).reshape(size))
    x.sum_to_size(3, 1).sum().backward()
    assert x.grad is not None
    with pytest.raises(ShapeError, match=r"sum_to_size: \(2, 4\) does not broadcast to the shape \(2, 3, 4\) of x"):
        x.sum_to_size(2, 4)


def test_sliding_windows(device: str) -> None:
    x = alpha.tensor(np.arange(14, dtype=np.float32).reshape(7, 2), device=device, requires_grad=True)
    for axis, size, step in ((0, 3, 1), (0, 2, 3), (1, 2, 1), (-2, 7, 1)):
        expected = np.lib.stride_tricks.sliding_window_view(x.numpy(), size, axis)
        every = [slice(None)] * 2
        every[axis] = slice(None, None, step)
        np.testing.assert_array_equal(x.unfold(axis, size, step).numpy(), expected[tuple(every)])
    x.unfold(0, 3, 2).sum().backward()
    assert x.grad is not None
    assert x.grad.numpy()[:, 0].tolist() == [1, 1, 2, 1, 2, 1, 1]
    with pytest.raises(ShapeError, match=r"unfold: size=8 is more than axis 0 of shape \(7, 2\) has"):
        x.unfold(0, 8, 1)
    with pytest.raises(ValueError, match="unfold: step=0 must be at least 1"):
        x.unfold(0, 2, 0)


def test_shapes_and_dtypes() -> None:
    assert alpha.broadcast_shapes((2, 1), (3,), 1) == (2, 3)
    assert alpha.broadcast_shapes() == ()
    with pytest.raises(ShapeError, match=r"broadcast_shapes: \(2,\), \(3,\) do not broadcast to one shape"):
        alpha.broadcast_shapes((2,), 3)
    x = alpha.zeros(2)
    assert alpha.result_type(x, 1) == alpha.float32
    assert alpha.result_type(x.long(), 1.0) == alpha.float32
    assert alpha.result_type(x.bfloat16(), x) == alpha.float32
    assert alpha.result_type(x.bfloat16(), alpha.tensor(1.0)) == alpha.bfloat16
    assert alpha.result_type(alpha.tensor(1.0, dtype="float64"), x) == alpha.float32
    assert alpha.promote_types("uint8", "int32") == alpha.int32
    assert alpha.promote_types("float32", "float64") == alpha.float64
    with pytest.raises(TypeError, match="result_type: tensor2 is a str; a Tensor or a number is needed"):
        alpha.result_type(x, "1")


@pytest.mark.torch
def test_casts_and_dtypes_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    for a in DTYPES:
        for b in DTYPES:
            one, two = getattr(torch, a), getattr(torch, b)
            assert alpha.can_cast(a, b) is torch.can_cast(one, two)
            floats = {a, b} & {"float32", "float64", "bfloat16"}
            if len(floats) < 2:  # others are Alpha's rule
                assert f"torch.{alpha.promote_types(a, b).name}" == str(torch.promote_types(one, two))


def test_unravelled_indices(device: str) -> None:
    places = alpha.tensor([[0, 5], [23, 12]], device=device)
    found = alpha.unravel_index(places, (2, 3, 4))
    for a, b in zip(found, np.unravel_index(places.numpy(), (2, 3, 4)), strict=True):
        np.testing.assert_array_equal(a.numpy(), b)
    assert alpha.unravel_index(places, 30)[0].tolist() == places.tolist()
    with pytest.raises(TypeError, match="unravel_index: indices has dtype float32"):
        alpha.unravel_index(places.float(), 30)
    with pytest.raises(ShapeError, match="is_nonzero: the tensor has 4 elements, one is needed"):
        alpha.is_nonzero(places)
    with pytest.raises(TypeError, match="clone: x is a ndarray, a Tensor is needed"):
        alpha.clone(np.ones(2))  # type: ignore[arg-type]
