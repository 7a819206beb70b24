"""Reading and writing parts of tensors by indices: PyTorch's values and gradients, dtypes, graphs, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import check_equal_torch, normal_numbers

import alpha
import alpha.nn.functional as F
from alpha import ShapeError, Tensor

MASK = np.random.default_rng(1).random((4, 5, 6)) > 0.5
ROW_MASK = np.array([True, False, True, True, False])
PLACES, MORE = np.array([[0, -1], [2, 2]]), np.array([3, 1])
INDICES: list[Any] = [
    *(1, -1, slice(1, 3), slice(0, 4, 2), slice(None), (1, 2), (slice(None), 2), (slice(None), slice(1, 3))),
    *((..., 0), (None, 1), (slice(None), None, slice(0, 5, 3)), (2, slice(1, 4)), (2, 3, slice(1, 4)), (1, 2, 3)),
    *((slice(3, 1),), (..., None), (), None, [0, 2], (slice(None), [0, 3]), ([0, 3], slice(None), [1, 2])),
    *(([0, 3], [1, 2]), (1, slice(None), [0, 0, 3]), (slice(0, 4, 2), [0, 1, 1], slice(1, 5, 2)), [], True, False),
    *(PLACES, (slice(None), PLACES), (PLACES, slice(None), MORE), (PLACES, MORE), MASK, (slice(None), ROW_MASK)),
    *((slice(1, None), ROW_MASK, 0), (slice(None), ROW_MASK, np.array([2]))),
]


def label(index: Any) -> str:
    return "x".join(map(str, index.shape)) if isinstance(index, np.ndarray) else str(index).replace(" ", "")


def both(index: Any, device: str) -> tuple[Any, Any]:
    """The index with Alpha's and with PyTorch's tensors."""
    torch = pytest.importorskip("torch")
    parts = index if isinstance(index, tuple) else (index,)
    ours = tuple(alpha.tensor(part, device=device) if isinstance(part, np.ndarray) else part for part in parts)
    theirs = tuple(torch.tensor(part) if isinstance(part, np.ndarray) else part for part in parts)
    return (ours, theirs) if isinstance(index, tuple) else (ours[0], theirs[0])


@pytest.mark.torch
@pytest.mark.parametrize("index", INDICES, ids=label)
def test_reading(device: str, index: Any) -> None:
    ours, theirs = both(index, device)
    check_equal_torch(lambda x: x[ours], lambda x: x[theirs], device, normal_numbers(4, 5, 6))


def written(index: Any) -> Callable[[Any, Any], Any]:
    def write(x: Any, value: Any) -> Any:
        y = x * 1
        y[index] = value
        return y

    return write


@pytest.mark.torch
@pytest.mark.parametrize("index", [index for index in INDICES if index is not False], ids=label)
def test_writing(device: str, index: Any) -> None:
    """A value of the shape of the part, one that repeats along it, and a single number. Places come once each."""
    x = normal_numbers(4, 5, 6)
    ours, theirs = both(index, device)
    repeated = any(mark in str(index) for mark in ("[0, 0", "1, 1]", "[2 2]", "2,  2]"))
    # of repeated places PyTorch does not say which value stays
    part = () if repeated else alpha.tensor(x)[both(index, "cpu")[0]].shape
    for shape in {part, part[-1:] if part and part[-1] == 6 else (), ()}:
        check_equal_torch(written(ours), written(theirs), device, x, normal_numbers(*shape))


def test_a_number_of_another_dtype_is_assigned(device: str) -> None:
    x = alpha.tensor(np.zeros((3, 4), np.int32), device=device)
    x[1, ::2] = 2.0
    x[[0, 2], 3] = np.array([5, 6])
    x[x == 0] = alpha.tensor([7.0], device=device)
    np.testing.assert_array_equal(x.numpy(), [[7, 7, 7, 5], [2, 7, 2, 7], [7, 7, 7, 6]])


def test_of_repeated_places_the_last_value_stays(device: str) -> None:
    at, values = np.random.default_rng(0).integers(0, 7, 400), np.arange(400, dtype=np.float32)
    x = alpha.tensor(np.full(9, -1, np.float32), device=device)
    x[alpha.tensor(at, device=device)] = alpha.tensor(values, device=device)
    expected = [max([-1.0, *values[at == place]]) for place in range(9)]
    np.testing.assert_array_equal(x.numpy(), expected)


def test_gradients_of_repeated_places_are_repeatable(device: str) -> None:
    """Added in the order of the indices: the same bits again, and with other work between."""
    at = alpha.tensor(np.random.default_rng(0).integers(-5, 5, (40, 11)), device=device)
    g = alpha.tensor(normal_numbers(40, 11, 8), device=device)
    found = []
    for _ in range(2):
        x = alpha.tensor(normal_numbers(5, 8), device=device, requires_grad=True)
        x[at].backward(g)
        assert x.grad is not None
        found.append(x.grad.numpy().tobytes())
    assert found[0] == found[1]


def test_writing_a_part_of_itself(device: str) -> None:
    x = alpha.tensor(np.arange(5.0, dtype=np.float32), device=device)
    x[1:] = x[:-1]
    np.testing.assert_array_equal(x.numpy(), [0, 0, 1, 2, 3])


def test_parts_are_written_through_and_rows_by_number_are_a_copy(device: str) -> None:
    x = alpha.tensor(np.zeros((4, 3, 2), np.float32), device=device)
    for view in (x[1], x[2, 1:], x[3, 2, 1], x[1:3], x[None, 0]):
        view.add_(1.0)
    np.testing.assert_array_equal(x.numpy().sum(axis=(1, 2)), [6, 12, 10, 1])
    column = x[:, 1]
    column.add_(5.0)
    x[[1, 2]].add_(5.0)
    assert x.numpy().sum() == 69
    y = x[1]
    y[0, 1] = 7.0
    assert x[1, 0, 1].item() == 7.0


def test_writes_are_seen_by_the_graph(device: str) -> None:
    x = alpha.tensor(normal_numbers(3, 4), device=device, requires_grad=True)
    with pytest.raises(alpha.GradientError, match="a leaf tensor that requires a gradient cannot be written"):
        x[0] = 1.0
    y = x * 2.0
    z = y * y
    y[0] = 1.0
    with pytest.raises(alpha.GradientError, match=r"was written in place by x\[\.\.\] = value"):
        z.sum().backward()
    with alpha.no_grad():
        x[0] = 1.0
    np.testing.assert_array_equal(x.numpy()[0], np.ones(4))


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "int32", "int64", "uint8", "bool"])
def test_dtypes(device: str, dtype: str) -> None:
    values = (np.arange(60) % 7).reshape(3, 4, 5).astype(dtype)
    x = alpha.tensor(values, device=device)
    at = np.array([2, 0, 2])
    for found, expected in (
        (x[:, ::2], values[:, ::2]),
        (x[at], values[at]),
        (x[:, :, at], values[:, :, at]),
        (x.permute(2, 0, 1), values.transpose(2, 0, 1)),
        (F.cat([x, x], 1), np.concatenate([values, values], 1)),
        (F.pad(x, (1, 1), value=1), np.pad(values.astype(np.float32), ((0, 0), (0, 0), (1, 1)), constant_values=1)),
    ):
        assert found.dtype.name == dtype
        np.testing.assert_array_equal(found.numpy().astype(np.float32), expected.astype(np.float32))


def test_dtypes_of_a_join_are_pytorchs(device: str) -> None:
    def x(dtype: str) -> Tensor:
        return alpha.tensor(np.ones(2), dtype=dtype, device=device)

    for parts, expected in (
        (("uint8", "int32"), "int32"),
        (("bool", "uint8", "bool"), "uint8"),
        (("int64", "float32"), "float32"),
        (("float32", "bfloat16"), "float32"),
        (("float32", "float64"), "float64"),
    ):
        assert F.cat([x(dtype) for dtype in parts]).dtype.name == expected


def test_a_step_may_read_and_write_by_index_arrays(device: str) -> None:
    """Nothing of it waits for the host, and a replay reads the indices of its own step."""

    x = alpha.tensor(normal_numbers(4, 3), device=device, requires_grad=True)

    @alpha.capture
    def step(at: Tensor) -> Tensor:
        x.zero_grad()
        w = x * 1.0
        w[at, 1:] = F.cat([x[at, :1], x[at, :1]], 1)
        (w[:, at] * F.pad(w, (1, 1), "reflect")[:, at]).sum().backward()
        return w

    for seed in range(6):
        at = np.random.default_rng(seed).permutation(3)[:2]
        y = step(alpha.tensor(at, device=device)).numpy()
        expected = normal_numbers(4, 3)
        expected[at, 1:] = expected[at, :1]
        np.testing.assert_array_equal(y, expected)


def test_a_mask_in_a_captured_step_is_an_error() -> None:
    @alpha.capture(strict=True)
    def step(x: Tensor) -> Tensor:
        return x[x > 0]

    x = alpha.tensor(normal_numbers(4), device="cuda")
    with pytest.raises(alpha.CaptureError, match="a mask selects a number of elements that only the host can count"):
        step(x)


def test_an_index_array_that_is_out_of_range(device: str) -> None:
    x = alpha.tensor(normal_numbers(3, 2), device=device, requires_grad=True)
    with pytest.raises(IndexError, match="index 3 is out of range for an axis of length 3"):
        x[[0, 3]]
    at = alpha.tensor([0, 3, -4], device=device)
    if device == "cpu":
        with pytest.raises(IndexError, match="index 3 is out of range for an axis of length 3"):
            x[at]
        return
    y = x[at]
    np.testing.assert_array_equal(np.isnan(y.numpy()).all(axis=1), [False, True, True])
    y.backward(alpha.tensor(np.ones((3, 2), np.float32), device=device))
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [[1, 1], [0, 0], [0, 0]])
    z = x.detach() * 1.0
    z[at] = 5.0
    np.testing.assert_array_equal(z.numpy()[1:], x.numpy()[1:])


def test_errors(device: str) -> None:
    x = alpha.tensor(np.zeros((2, 3), np.float32), device=device)
    for index in ("1", 1.0, np.array([0.5]), alpha.tensor(np.array([1], np.uint8), device=device)):
        with pytest.raises(TypeError, match="is no index"):
            x[index]
    for index, message in (
        ((0, 0, 0), "3 indices for the 2 axes"),
        ((..., ...), "comes twice"),
        ((0, 3), "index 3 is out of range for an axis of length 3"),
        (np.array([True]), r"a mask of shape \(1,\) does not fit the axes \(2,\)"),
        (([0, 1], [0, 1, 2]), r"the shapes \(2,\), \(3,\) of index arrays do not broadcast"),
    ):
        with pytest.raises(IndexError, match=message):
            x[index]
    with pytest.raises(ValueError, match="the step -1, which must be at least 1; use flip"):
        x[::-1]
    with pytest.raises(ShapeError, match=r"a value of shape \(2,\) does not fit the part \(3,\)"):
        x[0] = alpha.tensor([1.0, 2.0], device=device)
    with pytest.raises(TypeError, match="a str cannot be assigned"):
        x[0] = "a"
    with pytest.raises(TypeError, match=r"cat: tensors\[1\] is a float, a Tensor is needed"):
        F.cat([x, 1.0])  # type: ignore[list-item]
    with pytest.raises(ShapeError, match="cat: lengths of other axes than 0 differ"):
        F.cat([x, x.transpose(0, 1)])
    with pytest.raises(ShapeError, match=r"permute: .* are not the axes"):
        x.permute(0)
    with pytest.raises(ShapeError, match=r"expand: shape \(2, 3\) does not expand to \(3, 3\)"):
        x.expand(3, 3)
    with pytest.raises(ShapeError, match=r"pad: 3 and 0 do not fit axis 1 .* at most 2"):
        F.pad(x, (3, 0), "reflect")


def test_parts_of_nothing_are_taken(device: str) -> None:
    x = alpha.zeros(0, 3, 4, device=device, requires_grad=True)
    assert x[:, 1:2].shape == (0, 1, 4)
    values, indices = x.max(1)
    assert values.shape == indices.shape == (0, 4)
    x[:, 2].sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape


# -- gradients of several parts ---------------------------------------------------------------------


def test_gradients_of_parts_are_added_into_one_array(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first part makes an array of zeros, the others add to it; equal or overlapping parts, too."""
    from alpha.ops.array.parts.boxes import Block

    made: list[str] = []
    for name in ("backward", "add_gradient"):
        method = getattr(Block, name)
        monkeypatch.setattr(
            Block, name, lambda *given, name=name, method=method: (made.append(name), method(*given))[1]
        )
    x = alpha.tensor(np.arange(12, dtype=np.float32).reshape(4, 3), device=device, requires_grad=True)
    y = x * 2
    a, b, c, d = y.unbind(0)
    (a * 3 + b * c + d + (y[1:3] * 5).sum()).sum().backward()
    assert x.grad is not None
    X = x.numpy() * 2
    expected = np.stack([np.full(3, 3.0), X[2] + 15, X[1] + 15, np.ones(3)]) * 2
    np.testing.assert_array_equal(x.grad.numpy(), expected)
    assert sorted(made) == ["add_gradient"] * 4 + ["backward"]


def test_a_gradient_that_others_hold_is_not_added_to(device: str) -> None:
    """The sum passes its own gradient on, which is also that of w."""
    x, w = (alpha.tensor(np.ones((2, 3), np.float32), device=device, requires_grad=True) for _ in range(2))
    y, v = x * 1, w * 1
    part = y[0]
    (y + v).sum().backward(retain_graph=True)
    x.zero_grad()
    w.zero_grad()
    ((y + v) * 2).sum().add(part.sum()).backward()
    assert x.grad is not None
    assert w.grad is not None
    np.testing.assert_array_equal(w.grad.numpy(), np.full((2, 3), 2))
    np.testing.assert_array_equal(x.grad.numpy(), [[3] * 3, [2] * 3])


def test_a_range_is_an_index_array(device: str) -> None:
    x = alpha.arange(12.0, device=device).reshape(3, 4)
    assert x[range(3), [0, 1, 3]].tolist() == [0, 5, 11]
    assert x[:, range(3, 0, -2)].tolist() == [[3, 1], [7, 5], [11, 9]]
    x[range(2), alpha.tensor([0, 1], device=device)] = -1
    assert x[:2, :2].tolist() == [[-1, 1], [4, -1]]
    assert x[range(0)].shape == (0, 4)
