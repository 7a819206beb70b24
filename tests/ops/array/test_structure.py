"""Products, diagonals, stacks, grids, and parts that indices and masks name: PyTorch's values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import DeviceError, ShapeError

pytestmark = pytest.mark.filterwarnings("ignore")
_rng = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype(np.float32)


A, B, V, W = array(4, 5), array(5, 3), array(5), array(4)
INDEX, MASK = np.array([3, 0, 3, -4]), array(4, 5) > 0
# a function of the library and of tensors, and the arrays of these
CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "addmm": (lambda f, x, a, b: f.addmm(x, a, b, beta=0.5, alpha=2), (array(3), A, B)),
    "addmm without x": (lambda f, x, a, b: f.addmm(x, a, b, beta=0), (np.full((4, 3), np.nan, np.float32), A, B)),
    "baddbmm": (lambda f, x, a, b: f.baddbmm(x, a, b, alpha=-1), (array(2, 1, 3), array(2, 4, 5), array(2, 5, 3))),
    "inner of a number": (lambda f, x, y: f.inner(x, y), (array(), A)),
    "inner of matrices": (lambda f, x, y: f.inner(x, y), (array(2, 3, 5), A)),
    "tensordot": (lambda f, x, y: f.tensordot(x, y, ([0, 2], [1, 0])), (array(4, 2, 3), array(3, 4, 5))),
    "tensordot 0": (lambda f, x, y: f.tensordot(x, y, 0), (array(2), A)),
    "tensordot with a length of 1": (lambda f, x, y: f.tensordot(x, y, 1), (array(3, 1), A)),
    "no inner elements": (lambda f, x, y: f.mm(x, y), (array(2, 0), array(0, 3))),
    **{
        f"cdist {p} {mode}": (
            lambda f, x, y, p=p, mode=mode: f.cdist(x, y, p, f"{mode}use_mm_for_euclid_dist"),
            (np.concatenate([A, B.T]), A),  # some distances are 0
        )
        for p, mode in ((2.0, ""), (2.0, "donot_"), (1.0, ""), (0.5, ""), (3.0, ""), (np.inf, ""), (0.0, ""))
    },
    "cdist of batches": (lambda f, x, y: f.cdist(x, y), (array(2, 1, 4, 3), array(3, 30, 3))),
    "pdist": (lambda f, x: f.nn.functional.pdist(x), (np.concatenate([A, A[:1]]),)),
    "pdist of one": (lambda f, x: f.nn.functional.pdist(x), (A[:1],)),
    "diag of a vector": (lambda f, x: f.diag(x, -2), (V,)),
    "diagonal beyond": (lambda f, x: f.diagonal(x, 7), (A,)),
    "diagonal of a batch": (lambda f, x: f.diagonal(x, -1, 2, 0), (array(3, 2, 4),)),
    "diag_embed": (lambda f, x: f.diag_embed(x, 1, 0, 2), (A,)),
    "diag_embed of a batch": (lambda f, x: f.diag_embed(x, -1, 3, 1), (array(2, 3, 4),)),
    "cross": (lambda f, x, y: f.cross(x, y, 1), (array(1, 3), array(4, 3))),
    "kron": (lambda f, x, y: f.kron(x, y), (V, array(2, 3, 2))),
    "broadcast_tensors": (lambda f, *xs: f.cat(f.broadcast_tensors(*xs)), (V, array(4, 1))),
    **{f"meshgrid {i}": (lambda f, *xs, i=i: f.stack(f.meshgrid(*xs, indexing=i)), (V, W, A[0])) for i in ("ij", "xy")},
    "meshgrid of a list": (lambda f, *xs: f.meshgrid([*xs], indexing="xy")[1], (V, array())),
    "cartesian_prod": (lambda f, *xs: f.cartesian_prod(*xs), (V, W)),
    "cartesian_prod of one": (lambda f, *xs: f.cartesian_prod(*xs), (V,)),
    "combinations": (lambda f, x: f.combinations(x, 3), (V,)),
    "combinations again": (lambda f, x: f.combinations(x, 2, True), (V,)),
    "combinations of none": (lambda f, x: f.combinations(x, 6), (V,)),
    "block_diag": (lambda f, *xs: f.block_diag(*xs), (A, V, array(), array(0, 2))),
    **{
        f"atleast_{n}d": (
            lambda f, *xs, n=n: f.cat([x.ravel() + x.ndim for x in getattr(f, f"atleast_{n}d")(*xs)]),
            (array(), V, A),
        )
        for n in (1, 2, 3)
    },
    "hstack of vectors": (lambda f, *xs: f.hstack(xs), (V, W, array())),
    "vstack": (lambda f, *xs: f.vstack(xs), (V, A)),
    "dstack": (lambda f, *xs: f.dstack(xs), (V, array(5))),
    "column_stack": (lambda f, *xs: f.column_stack(xs), (W, A)),
    "tensor_split": (lambda f, x: f.cat([part + part.shape[1] for part in f.tensor_split(x, (3, 1, -1), 1)], 1), (A,)),
    "repeat_interleave": (lambda f, x: x.repeat_interleave(f.tensor([2, 0, 1, 3], device=x.device), 0), (A,)),
    "repeat_interleave of a number": (lambda f, x: x.repeat_interleave(3), (array(),)),
    "repeat_interleave each": (
        lambda f, x: x.repeat_interleave(f.tensor([2], device=x.device), 1, output_size=10),
        (A,),
    ),
    "index_fill": (lambda f, x, v: x.index_fill(0, f.tensor(INDEX[:3], device=x.device), v), (A, array())),
    "index_copy": (lambda f, x, v: x.index_copy(1, f.tensor(INDEX[1:3], device=x.device), v), (A, array(4, 2))),
    "index_put": (lambda f, x, v: x.index_put((f.tensor(INDEX[:2], device=x.device),), v), (A, array(5))),
    "index_put of sums": (
        lambda f, x, v: x.index_put((f.tensor(INDEX, device=x.device), f.tensor(INDEX, device=x.device)), v, True),
        (A, array(1)),
    ),
    "index_put by a mask": (lambda f, x, v: x.index_put((f.tensor(MASK, device=x.device),), v), (A, array())),
    "masked_select": (lambda f, x: x.masked_select(f.tensor(MASK[0], device=x.device)), (A,)),
    "masked_scatter": (lambda f, x, v: x.masked_scatter(f.tensor(MASK[:, :1], device=x.device), v), (A, array(6, 5))),
    "take": (lambda f, x: x.take(f.tensor([[0, -1], [19, 0]], device=x.device)), (A,)),
    "narrow": (lambda f, x: x.narrow(1, -3, 2), (A,)),
    "narrow to nothing": (lambda f, x: x.narrow(1, 5, 0), (A,)),
    "select": (lambda f, x: x.select(1, -2), (A,)),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(device: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    function, arrays = CASES[name]
    ours = [alpha.tensor(values, device=device, requires_grad=True) for values in arrays]
    theirs = [torch.tensor(values, requires_grad=True) for values in arrays]
    y, expected = function(alpha, *ours), function(torch, *theirs)
    assert y.shape == tuple(expected.shape)
    np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-5)
    g = np.asarray(_rng.standard_normal(y.shape), np.float32)
    y.backward(alpha.tensor(g, device=device))
    expected.backward(torch.tensor(g))
    for x, twin in zip(ours, theirs, strict=True):
        if twin.grad is None:  # nothing of it is in the result
            continue
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), twin.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_the_places_of_triangles(device: str) -> None:
    for name in ("tril_indices", "triu_indices"):
        find = getattr(np, name)
        for row, col, offset in ((3, 3, 0), (4, 2, -1), (2, 5, 3), (0, 3, 0), (2, 2, -9)):
            found = getattr(alpha, name)(row, col, offset, dtype="int32", device=device)
            assert (found.dtype, found.device.name) == (np.int32, device)
            np.testing.assert_array_equal(found.numpy(), np.stack(find(row, offset, col)))
    with pytest.raises(TypeError, match="tril_indices: dtype=float32 is not int64 or int32"):
        alpha.tril_indices(2, 2, dtype="float32")


def test_distances_of_bfloat16_are_rounded_once(device: str) -> None:
    x = alpha.tensor(np.linspace(100, 101, 90).reshape(30, 3), device=device).bfloat16()
    exact = np.sqrt(((x.numpy().astype(np.float64)[:, None] - x.numpy().astype(np.float64)[None]) ** 2).sum(-1))
    found = alpha.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found.numpy().astype(np.float64), exact, rtol=2**-8)
    np.testing.assert_allclose(alpha.pdist(x).numpy().astype(np.float64), exact[np.triu_indices(30, 1)], rtol=2**-8)


def test_one_tensor_or_several() -> None:
    x = alpha.tensor(A)
    assert alpha.atleast_3d(x).shape == (4, 5, 1)
    assert [y.shape for y in alpha.atleast_2d(x, alpha.tensor(V))] == [(4, 5), (1, 5)]
    assert [y.shape for y in alpha.atleast_1d([alpha.tensor(1.0)])] == [(1,)]
    assert np.shares_memory(alpha.atleast_3d(x).array, x.array)
    assert np.shares_memory(x.narrow(0, 1, 2).array, x.array)
    assert np.shares_memory(x.select(0, 1).array, x.array)


def test_integers_and_bools(device: str) -> None:
    x = alpha.tensor([[1, 2], [3, 200]], dtype="uint8", device=device)
    assert (x.trace().item(), x.trace().dtype.name) == (201, "int64")
    assert x.kron(x).numpy()[3, 3] == 200 * 200 % 256
    mask = alpha.tensor([[True, False]], device=device)
    assert x.masked_scatter(mask, x).tolist() == [[1, 2], [2, 200]]
    assert alpha.block_diag(mask, alpha.tensor([3], device=device)).tolist() == [[1, 0, 0], [0, 0, 3]]
    assert x.index_fill(0, alpha.tensor(1, device=device), 7).tolist() == [[1, 2], [7, 7]]


def test_a_whole_axis_before_an_index(device: str) -> None:
    x, v = alpha.tensor(A, device=device, requires_grad=True), alpha.tensor(array(4, 1), device=device)
    y = x.index_put((None, alpha.tensor([3, 0], device=device)), v)
    expected = A.copy()
    expected[:, [3, 0]] = v.numpy()
    np.testing.assert_array_equal(y.numpy(), expected)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.sum(0).tolist() == [0, 4, 4, 0, 4]


def test_an_index_out_of_range(device: str) -> None:
    x, far = alpha.tensor(A, device=device), alpha.tensor([9], device=device)
    calls: dict[str, Callable[[], alpha.Tensor]] = {
        "index_fill": lambda: x.index_fill(0, far, 1.0),
        "index_copy": lambda: x.index_copy(0, far, x[:1]),
        "index_put": lambda: x.index_put((far,), x[0]),
    }
    for name, call in calls.items():
        if device == "cpu":
            with pytest.raises(IndexError, match="index 9 is out of range for an axis of length 4"):
                call()
        else:
            np.testing.assert_array_equal(call().numpy(), A, err_msg=name)
    short = alpha.tensor(V[:1], device=device)
    if device == "cpu":
        with pytest.raises(ShapeError, match="masked_scatter: source has 1 elements for the 20 places of the mask"):
            x.masked_scatter(x == x, short)
    else:
        assert np.isnan(x.masked_scatter(x == x, short).numpy()).sum() == 19


def test_errors_name_what_is_wrong(device: str) -> None:
    x, v = alpha.tensor(A, device=device), alpha.tensor(V, device=device)
    i = alpha.tensor([0], device=device)
    wrong: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: x.mm(x), ShapeError, r"mm: x \(M, K\) and mat2 \(K, N\) are needed  \(x \(4, 5\), mat2 \(4, 5\)\)"),
        (lambda: x.mv(x), ShapeError, "mv: x"),
        (lambda: v.dot(x), ShapeError, "dot: x"),
        (lambda: x.outer(v), ShapeError, "outer: x"),
        (lambda: x.inner(x[0, :2]), ShapeError, "inner: the last axes"),
        (lambda: alpha.addmm(x, x, x.t()), ShapeError, r"addmm: x \(4, 5\) does not broadcast to the product \(4, 4\)"),
        (lambda: alpha.tensordot(x, x, 1), ShapeError, r"tensordot: the axes \(1,\) of a and \(0,\) of b differ"),
        (lambda: alpha.tensordot(x, x, 3), ShapeError, "tensordot: dims=3 axes"),
        (lambda: alpha.cdist(x, x[:, :2]), ShapeError, "cdist: x1"),
        (lambda: alpha.cdist(x, x, -1.0), ValueError, "cdist: p=-1.0 must be at least 0"),
        (lambda: alpha.cdist(x, x, compute_mode="mm"), ValueError, "cdist: compute_mode='mm' is not one of"),
        (lambda: alpha.pdist(v), ShapeError, "pdist: x"),
        (lambda: x.diagonal(0, 1, -1), ShapeError, "diagonal: dim1 and dim2 are both axis 1"),
        (lambda: v.trace(), ShapeError, "trace: a matrix"),
        (lambda: x.reshape(2, 2, 5).t(), ShapeError, "t: x has 3 axes"),
        (lambda: x.cross(x), ShapeError, "cross: an axis of length 3"),
        (lambda: x.broadcast_to(4, 6), ShapeError, r"broadcast_to: shape \(4, 5\) does not broadcast to \(4, 6\)"),
        (lambda: x.narrow(1, 4, 2), ShapeError, "narrow: start=4 and length=2 do not fit axis 1"),
        (lambda: x.select(0, 4), IndexError, "select: index=4 is out of range for axis 0"),
        (lambda: x.index_fill(0, i, v), TypeError, "index_fill: value is not a number or a 0-d Tensor"),
        (lambda: x.index_copy(0, i, v), ShapeError, r"index_copy: source must have the shape \(1, 5\)"),
        (lambda: x.index_copy(0, i, v.double()), TypeError, "index_copy: x has dtype float32 and source dtype float64"),
        (lambda: x.index_fill(0, v, 1.0), TypeError, "index_fill: index has dtype float32; int64 or int32 is needed"),
        (lambda: x.index_copy(0, i.reshape(1, 1), x), ShapeError, r"index_copy: index \(I,\) or \(\) is needed"),
        (lambda: x.index_put((), v), TypeError, "index_put: indices="),
        (lambda: x.index_put((None,), v), TypeError, "index_put: indices=.* has no index array"),
        (lambda: x.index_put((i,), v.double()), TypeError, "index_put: x has dtype float32 and values dtype float64"),
        (lambda: x.take(v), TypeError, "take: index has dtype float32; int64 or int32 is needed"),
        (lambda: (x > 0).index_put((i,), v > 0, True), TypeError, "index_put: x has dtype bool"),
        (lambda: x.masked_select(x), TypeError, "masked_select: the mask has dtype float32"),
        (lambda: x.masked_select(v[:3] > 0), ShapeError, r"masked_select: the shapes do not broadcast  \(x \(4, 5\)"),
        (lambda: x.masked_scatter(v[:3] > 0, v), ShapeError, r"masked_scatter: the shapes do not broadcast"),
        (lambda: x.masked_scatter(x > 0, v[:0]), ShapeError, "masked_scatter: source has no elements"),
        (lambda: v[:0].take(i), IndexError, "take: x has no elements"),
        (lambda: x.repeat_interleave(i.cpu(), 1), DeviceError, "repeat_interleave: x is on cuda and repeats on cpu")
        if device == "cuda"
        else (
            lambda: x.repeat_interleave(i + 1, 1, output_size=3),
            ShapeError,
            r"repeat_interleave: output_size=3 is not the sum of repeats \[1, 1, 1, 1, 1\]",
        ),
        (lambda: x.repeat_interleave(alpha.tensor([1, 2], device=device), 1), ShapeError, "repeat_interleave: repeats"),
        (lambda: x.repeat_interleave(2, 0, output_size=9), ShapeError, "repeat_interleave: output_size=9"),
        (lambda: x.repeat_interleave(-1), ValueError, "repeat_interleave: repeats=-1 must be at least 0"),
        (lambda: alpha.meshgrid(x), ShapeError, "meshgrid: vectors are needed"),
        (lambda: alpha.meshgrid(v, v.double()), TypeError, "meshgrid: dtypes float32, float64 differ"),
        (lambda: alpha.meshgrid(v, indexing="yx"), ValueError, "meshgrid: indexing='yx'"),
        (lambda: alpha.broadcast_tensors(x, x.t()), ShapeError, "broadcast_tensors: the shapes do not broadcast"),
        (lambda: alpha.broadcast_tensors(x, 1), TypeError, r"broadcast_tensors: tensors\[1\] is a int"),
        (lambda: alpha.vstack([x, v[:2]]), ShapeError, "vstack: lengths of other axes than 0 differ"),
        (lambda: alpha.block_diag(x.reshape(2, 2, 5)), ShapeError, "block_diag: tensors of at most two axes"),
        (lambda: alpha.combinations(x), ShapeError, "combinations: x"),
    ]
    for call, error, message in wrong:
        with pytest.raises(error, match=rf"^{message}"):
            call()


@pytest.mark.torch
@pytest.mark.parametrize("at", [[0], 0], ids=str)
def test_a_number_is_one_row_of_one_element(device: str, at: Any) -> None:
    """Functions of the rows of an axis take a tensor without axes, whose only axis has length 1."""
    torch = pytest.importorskip("torch")
    calls: dict[str, Callable[..., Any]] = {
        "index_fill": lambda f, x, i, v: f.index_fill(x, 0, i, 7.0),
        "index_copy": lambda f, x, i, v: f.index_copy(x, -1, i, v),
        "index_add": lambda f, x, i, v: f.index_add(x, 0, i, v.reshape(()), alpha=2),
        "index_select": lambda f, x, i, v: f.index_select(x, 0, i),
        "gather": lambda f, x, i, v: f.gather(x, 0, i),
        "scatter": lambda f, x, i, v: f.scatter(x, 0, i, v),
        "scatter_add": lambda f, x, i, v: f.scatter_add(x, 0, i, v),
        "take": lambda f, x, i, v: f.take(x, i),
        "take_along_dim": lambda f, x, i, v: f.take_along_dim(x, i),
    }
    for name, call in calls.items():
        given = np.float32(3), np.array(at), np.full(np.shape(at), 5, np.float32)
        found = call(alpha, *(alpha.tensor(value, device=device) for value in given))
        expected = call(torch, *(torch.tensor(value) for value in given))
        assert found.shape == tuple(expected.shape), name
        np.testing.assert_array_equal(found.numpy(), expected.numpy(), err_msg=name)
