"""Facts of a tensor under PyTorch's names, dtypes as objects, and tensors made like another one."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

import alpha
from alpha import GradientError, ShapeError

NAMES = ("float32", "float64", "bfloat16", "int32", "int64", "uint8", "bool")


def test_size_is_a_number_and_a_method(device: str) -> None:
    x = alpha.ones(2, 3, 4, device=device)
    assert x.size == 24
    assert isinstance(x.size, int)
    assert x.size() == (2, 3, 4)
    assert type(x.size()) is tuple
    assert (x.size(0), x.size(1), x.size(-1), x.size(dim=-2)) == (2, 3, 4, 3)
    assert type(x.size(0)) is int
    n, length = x.size()[:2]
    assert x.view(x.size(0), -1).shape == (n, length * 4)
    assert json.dumps(x.size) == f"{x.size}" == repr(x.size) == "24"
    assert pickle.loads(pickle.dumps(x.size))(1) == copy.deepcopy(x.size)(1) == 3
    assert alpha.ones((), device=device).size() == ()
    assert alpha.ones(0, 3, device=device).size == 0
    for wrong in (3, -4):
        with pytest.raises(ShapeError, match=rf"size: {wrong} is not an axis of shape \(2, 3, 4\)"):
            x.size(wrong)
    with pytest.raises(ShapeError, match=r"size: 0 is not an axis of shape \(\)"):
        alpha.ones((), device=device).size(0)
    with pytest.raises(TypeError, match="integer"):
        x.size(1.0)  # type: ignore[call-overload]


def test_lengths_made_of_a_size_are_plain_integers(device: str) -> None:
    x = alpha.ones(2, 3, device=device)
    for y in (x.ravel(), x.reshape(x.size), alpha.zeros(x.size, device=device), x.roll(1).ravel()):
        assert [*map(type, y.shape)] == [int]


@pytest.mark.parametrize("dtype", NAMES)
def test_sizes_in_bytes_and_kinds(device: str, dtype: str) -> None:
    x = alpha.zeros(2, 3, dtype=dtype, device=device)
    assert (x.numel(), x.nelement(), alpha.numel(x), x.dim(), x.ndimension()) == (6, 6, 6, 2, 2)
    assert type(x.numel()) is int
    assert x.itemsize == x.element_size() == np.dtype(dtype).itemsize
    assert x.nbytes == 6 * x.itemsize
    assert x.is_floating_point() is alpha.is_floating_point(x) is (dtype in ("float32", "float64", "bfloat16"))
    assert x.is_contiguous()
    assert (x.is_cuda, x.is_cpu) == (device == "cuda", device == "cpu")
    assert not any((x.is_xpu, x.is_mps, x.is_meta, x.is_mkldnn, x.is_sparse, x.is_quantized, x.is_nested))
    assert alpha.is_tensor(x)
    assert not alpha.is_tensor(x.numpy())
    with pytest.raises(TypeError, match="is_floating_point: x is a ndarray, a Tensor is needed"):
        alpha.is_floating_point(x.numpy())  # type: ignore[arg-type]


def test_the_name_of_a_device(device: str) -> None:
    x = alpha.ones(1, device=device)
    assert str(x.device) == f"{x.device}" == x.device.type == x.device.name == device
    assert alpha.ones(1, device=str(x.device)).device is x.device
    assert alpha.cuda.is_available() is (alpha.get_device("auto").name == "cuda")
    assert alpha.cuda.device_count() == int(alpha.cuda.is_available())
    alpha.cuda.synchronize()


@pytest.mark.parametrize("dtype", NAMES)
def test_dtypes_are_objects(device: str, dtype: str) -> None:
    named = getattr(alpha, dtype)
    x = alpha.tensor([0, 1, 2], dtype=named, device=device)
    assert (x.dtype, x.dtype.name) == (named, dtype)
    assert alpha.zeros(2, dtype=named, device=device).dtype == named
    assert alpha.ones(2, device=device).to(named).dtype == alpha.ones(2).to(device, named).dtype == named
    assert alpha.ones(2, device=device).astype(named).dtype == named
    others = [getattr(alpha, name) for name in NAMES if name != dtype]
    assert named not in others


def test_pytorchs_other_names_of_dtypes() -> None:
    assert (alpha.float, alpha.double, alpha.int, alpha.long) == ("float32", "float64", "int32", "int64")
    assert not {"float", "int", "bool"} & set(alpha.__all__), "they would hide the builtins"


def test_tensors_made_like_another(device: str) -> None:
    x = alpha.ones(2, dtype="float64", device=device)
    made = {
        "zeros": (x.new_zeros(2, 3), [[0] * 3] * 2),
        "ones": (x.new_ones((2, 3)), [[1] * 3] * 2),
        "full": (x.new_full((2,), 2.5), [2.5, 2.5]),
        "tensor": (x.new_tensor([[1, 2]]), [[1, 2]]),
    }
    for name, (y, wanted) in made.items():
        assert (y.dtype.name, y.device.name, y.requires_grad) == ("float64", device, False), name
        assert y.tolist() == wanted, name
    assert x.new_empty(4, 0).shape == (4, 0)
    for make in (x.new_zeros, x.new_ones, x.new_empty):
        y = make(3, dtype="float32", device="cpu", requires_grad=True)
        assert (y.dtype.name, y.device.name, y.requires_grad, y.shape) == ("float32", "cpu", True, (3,))
    for y in (
        x.new_full((1,), 7, dtype=alpha.float32, device="cpu", requires_grad=True),
        x.new_tensor([7], dtype=alpha.float32, device="cpu", requires_grad=True),
    ):
        assert (y.dtype.name, y.device.name, y.requires_grad, y.item()) == ("float32", "cpu", True, 7)
    assert alpha.tensor([1], device=device).new_full((2,), 2.5).tolist() == [2, 2]
    with pytest.raises(TypeError, match=r"new_ones: size=2\.5 is not an integer"):
        x.new_ones(2.5)


def test_detach_in_place(device: str) -> None:
    x = alpha.tensor([1.0, 2.0], device=device, requires_grad=True)
    y = x * 2.0
    z = y * y
    assert y.detach_() is y
    assert y.is_leaf
    assert not y.requires_grad
    z.sum().backward()  # what was recorded before
    np.testing.assert_array_equal(x.grad.numpy(), [8, 16])  # type: ignore[union-attr]
    assert not (y * 2.0).requires_grad
    assert not x.detach_().requires_grad
    with pytest.raises(GradientError, match=r"detach_: a view \(Reshape\) cannot be detached in place"):
        (x.requires_grad_() * 2.0).reshape(2, 1).detach_()


def test_the_recorded_operator(device: str) -> None:
    x = alpha.tensor([1.0, 2.0], device=device, requires_grad=True)
    assert x.grad_fn is None
    assert isinstance((x @ x).grad_fn, alpha.Function)


def test_a_result_keeps_its_gradient(device: str) -> None:
    x = alpha.tensor([1.0, 2.0], device=device, requires_grad=True)
    x.retain_grad()  # a leaf has it anyway
    y = x * 2.0
    y.retain_grad()
    y.retain_grad()
    y.register_hook(lambda g: g * 10.0)  # what it leaves is kept
    y.mul_(3.0)  # y.grad is that of its last value
    loss = (y * y).sum()
    loss.backward(retain_graph=True)
    np.testing.assert_array_equal(y.grad.numpy(), [12, 24])  # type: ignore[union-attr]
    np.testing.assert_array_equal(x.grad.numpy(), [720, 1440])  # type: ignore[union-attr]
    loss.backward()
    np.testing.assert_array_equal(y.grad.numpy(), [24, 48])  # type: ignore[union-attr]
    w = x * 1.0
    w.retain_grad()
    w.register_hook(lambda g: g * 10.0)
    alpha.grad(w.sum(), x)
    np.testing.assert_array_equal(w.grad.numpy(), [10, 10])  # type: ignore[union-attr]
    with pytest.raises(GradientError, match="retain_grad: the tensor does not require a gradient"):
        x.detach().retain_grad()


def _hooked(y: alpha.Tensor) -> None:
    y.retain_grad()
    y.mul_(3.0)
    y.register_hook(lambda g: g * 10.0)  # what a later hook leaves is kept, too


def _twice(y: alpha.Tensor) -> None:
    y.retain_grad()
    y.add_(1.0)
    y.retain_grad()


WRITTEN = {  # what is done with y = 2 x; PyTorch's gradients of y and of x, for the sum of y * y
    "kept before": (lambda y: (y.retain_grad(), y.mul_(3.0)), [12, 24, 36], [72, 144, 216]),
    "kept after": (lambda y: (y.mul_(3.0), y.retain_grad()), [12, 24, 36], [72, 144, 216]),
    "kept before and after": (_twice, [6, 10, 14], [12, 20, 28]),
    "kept, with a hook after": (_hooked, [120, 240, 360], [720, 1440, 2160]),
    "kept, a part written": (lambda y: (y.retain_grad(), y[0:2].mul_(3.0)), [12, 24, 12], [72, 144, 24]),
    "kept, an element set": (lambda y: (y.retain_grad(), y.__setitem__(1, 7.0)), [4, 14, 12], [8, 0, 24]),
    "an element set, kept": (lambda y: (y.__setitem__(1, 7.0), y.retain_grad()), [4, 14, 12], [8, 0, 24]),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_kept_gradient_is_that_of_the_last_value(device: str, name: str) -> None:
    """The gradient may be kept before a write in place or after it."""
    change, of_y, of_x = WRITTEN[name]
    x = alpha.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    y = x * 2.0
    change(y)
    (y * y).sum().backward()
    assert y.grad is not None
    assert x.grad is not None
    assert y.grad.tolist() == of_y
    assert x.grad.tolist() == of_x


def test_a_kept_gradient_keeps_no_tensor() -> None:
    x = alpha.tensor([1.0], requires_grad=True)
    y = x * 2.0
    y.retain_grad()
    z = y * 3.0
    del y
    z.sum().backward()
    assert x.grad is not None
    assert x.grad.item() == 6
