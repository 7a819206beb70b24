"""Forms of operators in place: they write what the operator gives, record its gradient, and guard what others saved."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from trials import trials

import alpha
from alpha import GradientError, ShapeError, Tensor
from alpha.ops.api import names
from alpha.ops.api.install import FUNCTIONS
from alpha.ops.math.unary import IN_PLACE

OTHER_NAMES = {  # clip_ is below, with its arguments
    f"{name}_": f"{own}_" for name, own in names.OTHER_NAMES.items() if f"{own}_" in FUNCTIONS and name != "clip"
}
OTHER_NAMES["true_divide_"] = "div_"
VALUES = np.array([[0.5, 0.25, 0.75], [0.125, 0.9, 0.3]], np.float32)
OTHER = np.array([[2.0, 0.5, 3.0], [1.5, 4.0, 0.25]], np.float32)
INDEX = np.array([[0, 1, 0], [1, 1, 0]])
HIGH = ("acosh",)  # functions of numbers above 1


def other(x: Tensor, requires_grad: bool = False) -> Tensor:
    return alpha.tensor(OTHER, device=x.device, dtype=x.dtype, requires_grad=requires_grad)


def index(x: Tensor) -> Tensor:
    return alpha.tensor(INDEX, device=x.device)


# what those of operators.py that take floating numbers are given beside x
ONE = ("logit", "nan_to_num", "sign", "sgn", "frac", "square", "sinc", "erfc", "deg2rad", "rad2deg")
TWO = ("fmod", "remainder", "floor_divide", "copysign", "hypot", "atan2", "ldexp", "xlogy")
TRUTH = ("heaviside", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor")
OF_INTEGERS = ("gcd", "lcm", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift")
FORMS_AND_ARGUMENTS: dict[str, Callable[[Tensor], tuple[Any, ...]]] = {
    **dict.fromkeys(ONE, lambda _: ()),
    **dict.fromkeys(TWO, lambda x: (other(x),)),
    **dict.fromkeys(("clamp", "clip"), lambda _: (0.2, 0.6)),
    **dict.fromkeys(("clamp_max", "clamp_min"), lambda _: (0.5,)),
    **dict.fromkeys(("cumsum", "cumprod"), lambda _: (1,)),
    "addmm": lambda x: (other(x)[:, :2], other(x)),
    "addr": lambda x: (other(x)[0, :2], other(x)[1]),
    "renorm": lambda x: (2, 0, 1.5),
    "scatter_reduce": lambda x: (1, index(x), other(x), "prod"),
    "masked_scatter": lambda x: (index(x) > 0, other(x)),
    "index_copy": lambda x: (1, index(x)[0, :2], other(x)[:, :2]),
    "index_fill": lambda x: (0, index(x)[1, 2:], 3.0),
    "index_put": lambda x: ((index(x)[0, :2], index(x)[0, 1:]), other(x)[0, :2]),
    "lerp": lambda x: (other(x), other(x)[0] / 4),
    "addcmul": lambda x: (other(x), other(x)[0]),
    "addcdiv": lambda x: (other(x), other(x)[0]),
}


def truth(x: Tensor, name: str) -> Tensor:
    """The numbers of an operator whose gradient is 0."""
    return getattr(x, name)(other(x)).astype(x.dtype) + x * 0.0


UNARY = ("sqrt", "abs", "neg", "exp", "log", "sigmoid", "tanh", "relu", "round", "floor", "ceil", "trunc", "reciprocal")
SAME: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {  # in place, and the operator
    **{
        name: (lambda x, n=name: getattr(x, f"{n}_")(), lambda x, n=name: getattr(x, n)())
        for name in (*UNARY, *(name.removesuffix("_") for name in IN_PLACE))
    },
    "round to decimals": (lambda x: x.round_(decimals=1), lambda x: x.round(decimals=1)),
    **{f"pow {e}": (lambda x, e=e: x.pow_(e), lambda x, e=e: x.pow(e)) for e in (2, 3, 0.5, -0.5, -1, -2, 1, 0, 1.7)},
    "pow tensor": (lambda x: x.pow_(other(x)), lambda x: x.pow(other(x))),
    "pow row": (lambda x: x.pow_(other(x)[0]), lambda x: x.pow(other(x)[0])),
    "mul": (lambda x: x.mul_(other(x)), lambda x: x.mul(other(x))),
    "div": (lambda x: x.div_(other(x)[1]), lambda x: x.div(other(x)[1])),
    "tril": (lambda x: x.tril_(), lambda x: x.tril()),
    "tril 1": (lambda x: x.tril_(1), lambda x: x.tril(1)),
    "triu": (lambda x: x.triu_(diagonal=1), lambda x: x.triu(1)),
    "scatter": (lambda x: x.scatter_(0, index(x), other(x)), lambda x: x.scatter(0, index(x), other(x))),
    "scatter number": (lambda x: x.scatter_(1, index(x)[:, :1], 7), lambda x: x.scatter(1, index(x)[:, :1], 7)),
    "scatter add": (
        lambda x: x.scatter_(1, index(x), other(x), reduce="add"),
        lambda x: x.scatter(1, index(x), other(x), reduce="add"),
    ),
    "scatter_add": (lambda x: x.scatter_add_(0, index(x), other(x)), lambda x: x.scatter_add(0, index(x), other(x))),
    "scatter_add part": (
        lambda x: x.scatter_add_(1, index(x)[:1, :2], other(x)),
        lambda x: x.scatter_add(1, index(x)[:1, :2], other(x)),
    ),
    **{
        name: (
            lambda x, n=name, f=arguments: getattr(x, f"{n}_")(*f(x)),
            lambda x, n=name, f=arguments: getattr(x, n)(*f(x)),
        )
        for name, arguments in FORMS_AND_ARGUMENTS.items()
    },
    **{name: (lambda x, n=name: getattr(x, f"{n}_")(other(x)), lambda x, n=name: truth(x, n)) for name in TRUTH},
    **{
        other_name: (lambda x, n=other_name: getattr(x, n)(other(x)), lambda x, n=own: getattr(x, n[:-1])(other(x)))
        for other_name, own in OTHER_NAMES.items()
        if own in ("div_", "mul_", "sub_", "atan2_")
    },
    **{
        name: (lambda x, n=name: getattr(x, n)(other(x)), lambda x, n=own: truth(x, n[:-1]))
        for name, own in OTHER_NAMES.items()
        if own[:-1] in TRUTH
    },
    **{
        other_name: (lambda x, n=other_name: getattr(x, n)(), lambda x, n=own: getattr(x, n[:-1])())
        for other_name, own in OTHER_NAMES.items()
        if own not in ("div_", "mul_", "sub_", "atan2_") and own[:-1] not in TRUTH
    },
    "clamp to row": (lambda x: x.clamp_(other(x)[0] / 4, max=0.6), lambda x: x.clamp(other(x)[0] / 4, max=0.6)),
    "lerp number": (lambda x: x.lerp_(other(x)[1], 0.3), lambda x: x.lerp(other(x)[1], 0.3)),
    "addcmul value": (
        lambda x: x.addcmul_(other(x), other(x)[:1], value=0.5),
        lambda x: x.addcmul(other(x), other(x)[:1], value=0.5),
    ),
    "addcdiv value": (
        lambda x: x.addcdiv_(other(x)[:, :1], other(x), value=-2),
        lambda x: x.addcdiv(other(x)[:, :1], other(x), value=-2),
    ),
    "index_add": (
        lambda x: x.index_add_(1, index(x)[0], other(x), alpha=2),
        lambda x: x.index_add(1, index(x)[0], other(x), alpha=2),
    ),
}


def number_of(values: np.ndarray, name: str) -> np.ndarray:
    return values + 1 if name in HIGH else values


@pytest.mark.parametrize("name", SAME)
def test_it_is_the_operator_written_into_the_tensor(device: str, name: str) -> None:
    write, operator = SAME[name]
    with trials() as trial:
        for dtype in ("float32", "float64") if device == "cpu" else ("float32",):
            with trial(dtype):
                given = number_of(VALUES, name).astype(dtype)
                x = alpha.tensor(given, device=device)
                wanted, memory = operator(x).numpy(), x.array
                assert write(x) is x
                assert x.array is memory
                np.testing.assert_array_equal(x.numpy(), wanted)
                assert x._version.value == 1
                ends = []
                for call in (operator, write):
                    leaf = alpha.tensor(given, device=device, requires_grad=True)
                    y = leaf * 2.0 - leaf  # so that y is not what is saved
                    z = call(y)
                    assert (z is y) == (call is write)
                    np.testing.assert_array_equal(z.numpy(), wanted)
                    (z * other(z)).sum().backward()
                    assert leaf.grad is not None
                    ends.append(leaf.grad.numpy())
                np.testing.assert_array_equal(ends[1], ends[0])


@pytest.mark.parametrize("name", SAME)
def test_guards_of_leaves_views_and_saved_arrays(device: str, name: str) -> None:
    write = SAME[name][0]
    given = number_of(VALUES, name)
    leaf = alpha.tensor(given, device=device, requires_grad=True)
    with pytest.raises(GradientError, match="a leaf tensor that requires a gradient cannot be written in place"):
        write(leaf)
    np.testing.assert_array_equal(leaf.numpy(), given)
    view = leaf.reshape(2, 3)
    with pytest.raises(GradientError, match=r"a view \(Reshape\) of a leaf tensor .* cannot be written in place"):
        write(view)
    base, other = leaf * 1.0, leaf * 1.0
    view = write(base.reshape(2, 3))
    np.testing.assert_array_equal(base.numpy(), write(other).numpy())
    view.sum().backward()
    first, leaf.grad = leaf.grad, None
    other.sum().backward()
    np.testing.assert_array_equal(first.numpy(), leaf.grad.numpy())  # type: ignore[union-attr]
    with alpha.no_grad():
        write(leaf)
    assert leaf.requires_grad
    y = alpha.tensor(given, device=device, requires_grad=True) * 1.0
    loss = (y * y).sum()
    write(y)
    with pytest.raises(GradientError, match=r"Multiply: a tensor saved for backward was written in place by"):
        loss.backward()


def test_what_an_operator_in_place_saved_is_guarded(device: str) -> None:
    """Operators that save their result see a later write; those that keep a copy do not mind."""
    x = alpha.tensor(VALUES, device=device, requires_grad=True)
    y = (x * 1.0).exp_()
    y.add_(1.0)
    with pytest.raises(GradientError, match=r"ExponentialInPlace: .* written in place by x \+= number"):
        y.sum().backward()
    z = (x * 1.0).log_()
    z.add_(1.0)
    z.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 1 / VALUES, rtol=1e-6)  # type: ignore[union-attr]


def test_nothing_is_kept_without_a_gradient(device: str) -> None:
    x = alpha.tensor(VALUES, device=device)
    with alpha.no_grad():
        before = alpha.memory_stats(device).live
        for name in ("sqrt", "abs", "neg", "exp", "log", "sigmoid", "tanh", "relu", "round", "reciprocal"):
            getattr(x, f"{name}_")()
        assert alpha.memory_stats(device).live == before


def test_products_of_two_recorded_tensors(device: str) -> None:
    ends = []
    for in_place in (False, True):
        x = alpha.tensor(VALUES, device=device, requires_grad=True)
        y = alpha.tensor(OTHER[0], device=device, requires_grad=True)
        q = x * 1.0
        if in_place:
            q *= y
            q /= y + 1.0
            q *= q
            q /= q[0]
            q **= y
        else:
            q = q * y
            q = q / (y + 1.0)
            q = q * q
            q = q / q[0]
            q = q**y
        (q * other(q)).sum().backward()
        ends.append([q.numpy(), x.grad.numpy(), y.grad.numpy()])  # type: ignore[union-attr]
    for one, two in zip(*ends, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_gradients_of_sources(device: str) -> None:
    """Sources that are scattered or added are recorded, also into a tensor that was in no graph."""
    for call, wanted in (
        (lambda x, v: x.scatter_(1, index(x), v), [[1, 1, 1], [1, 1, 1]]),  # as in PyTorch
        (lambda x, v: x.scatter_add_(1, index(x), v), [[1, 1, 1], [1, 1, 1]]),
        (lambda x, v: x.index_add_(0, index(x)[0, :2], v, alpha=3), [[3, 3, 3], [3, 3, 3]]),
        (lambda x, v: x.pow_(v), None),
        (lambda x, v: x.hypot_(v), OTHER / np.hypot(VALUES, OTHER)),
        (lambda x, v: x.xlogy_(v), VALUES / OTHER),
        (lambda x, v: x.clamp_(max=v), OTHER < VALUES),
        (lambda x, v: x.lerp_(v, 0.25), np.full((2, 3), 0.25)),
        (lambda x, v: x.lerp_(x + 1.0, v), np.ones((2, 3))),
        (lambda x, v: x.addcmul_(x, v), VALUES),
        (lambda x, v: x.addcdiv_(x, v), -VALUES / OTHER**2),
    ):
        v = alpha.tensor(OTHER, device=device, requires_grad=True)
        x = alpha.tensor(VALUES, device=device)
        call(x, v).sum().backward()
        assert v.grad is not None
        slope = np.power(VALUES, OTHER) * np.log(VALUES) if wanted is None else wanted
        np.testing.assert_allclose(v.grad.numpy(), slope, rtol=1e-5)


def test_the_gradient_of_what_a_sign_writes(device: str) -> None:
    """`x %= y`: y may require a gradient, which reads the old x."""
    y = alpha.tensor([2.0, 3.0], device=device, requires_grad=True)
    x = alpha.tensor([7.5, 4.0], device=device)
    x %= y
    x.sum().backward()
    assert (x.tolist(), y.grad.tolist()) == ([1.5, 1.0], [-3.0, -1.0])  # type: ignore[union-attr]


def test_a_source_that_is_a_part_of_the_tensor(device: str) -> None:
    x = alpha.tensor(np.arange(1.0, 5.0, dtype=np.float32), device=device)
    zero = alpha.tensor([1, 2], device=device)
    assert copy.deepcopy(x).index_add_(0, zero, x[:2]).tolist() == [1, 3, 5, 4]
    y = copy.deepcopy(x)
    assert y.index_add_(0, zero, y[:2]).tolist() == [1, 3, 5, 4]
    y = copy.deepcopy(x)
    assert y.pow_(y[1]).tolist() == [1, 4, 9, 16]
    y = alpha.tensor(2.0, device=device)
    assert y.scatter_(0, alpha.tensor(0, device=device), 7).item() == 7
    assert y.scatter_add_(0, alpha.tensor(0, device=device), alpha.tensor(1.0, device=device)).item() == 8
    assert y.index_add_(0, alpha.tensor(0, device=device), alpha.tensor(1.0, device=device)).item() == 9
    assert x.scatter_(0, alpha.zeros(0, dtype="int64", device=device), 7) is x


def test_integers(device: str) -> None:
    def whole(dtype: str = "int32") -> Tensor:
        return alpha.tensor([[3, -2], [0, 5]], dtype=dtype, device=device)

    assert whole().abs_().tolist() == [[3, 2], [0, 5]]
    assert whole().neg_().tolist() == [[-3, 2], [0, -5]]
    assert whole("int64").pow_(2).tolist() == [[9, 4], [0, 25]]
    x = whole()
    x **= 2
    assert (x.tolist(), x.dtype.name) == ([[9, 4], [0, 25]], "int32")
    for name in ("floor_", "ceil_", "trunc_", "round_"):
        assert getattr(whole(), name)().tolist() == whole().tolist()
    assert whole().tril_().tolist() == [[3, 0], [0, 5]]
    assert whole().triu_(1).tolist() == [[0, -2], [0, 0]]
    assert whole().fill_diagonal_(7).tolist() == [[7, -2], [0, 7]]
    with pytest.raises(TypeError, match="pow_: the result has dtype float32, which x of dtype int32 cannot hold"):
        whole().pow_(0.5)
    for name in ("sqrt", "exp", "log", "reciprocal", "sigmoid", "sin", "log2"):
        with pytest.raises(TypeError, match=rf"{name}.* dtype int32"):
            getattr(whole(), f"{name}_")()
    for name in ("abs_", "floor_", "round_"):
        with pytest.raises(TypeError, match=rf"{name}: x has dtype bool"):
            getattr(whole("bool"), name)()


def test_operators_of_integers(device: str) -> None:
    a, b = (alpha.tensor(values, dtype="int32", device=device) for values in ([12, 18, 7], [2, 3, 1]))
    for name in OF_INTEGERS:
        x = a.clone()
        memory = x.array
        assert getattr(x, f"{name}_")(b) is x
        assert x.array is memory
        assert x.tolist() == getattr(a, name)(b).tolist()
    assert a.clone().bitwise_not_().tolist() == [-13, -19, -8]
    assert a.clone().logical_not_().tolist() == [0, 0, 0]
    assert a.clone().addcmul_(b, b, value=2).tolist() == [20, 36, 9]
    x = a.clone()
    with pytest.raises(TypeError, match="clamp_: the result has dtype float32, which x of dtype int32 cannot hold"):
        x.clamp_(0.5)
    with pytest.raises(TypeError, match=r"addcdiv_.* dtype int32"):
        x.addcdiv_(b, b)
    assert x.tolist() == a.tolist()


def test_products_of_vectors_and_of_batches(device: str) -> None:
    x, y = (alpha.tensor(values, device=device) for values in (VALUES, OTHER))
    z = x[0].clone()
    np.testing.assert_allclose(
        z.addmv_(x.T, y[:, 0], beta=2).numpy(), 2 * VALUES[0] + VALUES.T @ OTHER[:, 0], rtol=1e-6
    )
    w = x.clone().reshape(1, 2, 3)
    w.baddbmm_(y.reshape(1, 2, 3)[:, :, :2], y.reshape(1, 2, 3), alpha=-1)
    np.testing.assert_allclose(w.numpy()[0], VALUES - OTHER[:, :2] @ OTHER, rtol=1e-5)


def test_sums_of_products_read_the_old_values_of_the_tensor(device: str) -> None:
    """The factors may be parts of x, or x itself; the gradients read the old values, too."""
    expected = VALUES + 2 * VALUES[0] * VALUES[1]
    x = alpha.tensor(VALUES, device=device)
    np.testing.assert_allclose(x.addcmul_(x[0], x[1], value=2).numpy(), expected, rtol=1e-6)
    x = alpha.tensor(VALUES, device=device)
    np.testing.assert_allclose(x.lerp_(x[1], 0.25).numpy(), VALUES + 0.25 * (VALUES[1] - VALUES), rtol=1e-6)
    ends = []
    for in_place in (False, True):
        leaf = alpha.tensor(VALUES, device=device, requires_grad=True)
        y = leaf * 1.0
        for form in ("addcmul", "addcdiv", "lerp"):
            for whole in (False, True):
                z = getattr(y, form + "_" * in_place)(y if whole else y[0], y)
                assert (z is y) == in_place
                y = z
        y.sum().backward()
        ends.append((y.numpy(), leaf.grad.numpy()))  # type: ignore[union-attr]
    np.testing.assert_allclose(ends[1][0], ends[0][0], rtol=1e-5)
    np.testing.assert_allclose(ends[1][1], ends[0][1], rtol=1e-5)
    leaf = alpha.tensor(VALUES, device=device, requires_grad=True)
    y = leaf * 1.0
    y.hypot_(y).hypot_(other=y)
    y.sum().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), np.full((2, 3), 2.0), rtol=1e-6)  # type: ignore[union-attr]
    for call in (lambda x: x[0].addcmul_(x, x), lambda x: x[0].lerp_(x, 0.5), lambda x: x[0].hypot_(x)):
        with pytest.raises(ShapeError, match=r"_: the result \(2, 3\) does not fit into \(3,\)"):
            call(alpha.tensor(VALUES, device=device))


def test_adam_as_one_writes_it(device: str) -> None:
    """The updates of a user's own optimizer are those of `alpha.optim.Adam`, and take no memory."""
    p, q = (alpha.tensor(VALUES, device=device, requires_grad=True) for _ in range(2))
    own = alpha.optim.Adam([q], lr=0.1)
    m, v = alpha.zeros(2, 3, device=device), alpha.zeros(2, 3, device=device)
    for step in range(1, 4):
        for x in (p, q):
            x.grad = None
            (x * x * other(x)).sum().backward()
        own.step()
        with alpha.no_grad():
            m.lerp_(p.grad, 0.1)
            v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
            p.addcdiv_(m, (v / (1 - 0.999**step)).sqrt_().add_(1e-8), value=-0.1 / (1 - 0.9**step))
    np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-5)


def test_special_numbers(device: str) -> None:
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -1.5, 2.5], np.float32)
    for name in UNARY:
        x = alpha.tensor(values, device=device)
        np.testing.assert_array_equal(getattr(copy.deepcopy(x), f"{name}_")().numpy(), getattr(x, name)().numpy(), name)
    for shape in ((), (0, 3)):
        x = alpha.ones(*shape, device=device)
        for name in UNARY:
            assert getattr(copy.deepcopy(x), f"{name}_")().shape == shape


DIAGONALS = (((3, 4), False), ((7, 3), False), ((7, 3), True), ((3, 7), True), ((2, 2, 2), False), ((0, 3), True))


@pytest.mark.parametrize(("shape", "wrap"), DIAGONALS)
def test_fill_diagonal(device: str, shape: tuple[int, ...], wrap: bool) -> None:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    x, wanted = alpha.tensor(values, device=device), values.copy()
    if values.size:
        np.fill_diagonal(wanted, -5.0, wrap=wrap)
    assert x.fill_diagonal_(-5, wrap) is x
    np.testing.assert_array_equal(x.numpy(), wanted)
    leaf = alpha.tensor(values, device=device, requires_grad=True)
    (leaf * 1.0).fill_diagonal_(-5.0, wrap=wrap).sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), (wanted != -5).astype(np.float32))  # type: ignore[union-attr]


def test_axes_of_length_one_in_place(device: str) -> None:
    x = alpha.tensor(VALUES, device=device)
    memory = x.detach()
    assert x.unsqueeze_(1) is x
    assert x.shape == (2, 1, 3)
    x.add_(1.0)
    np.testing.assert_array_equal(memory.numpy(), VALUES + 1)
    assert x.squeeze_().shape == (2, 3)
    assert x.unsqueeze_(-1).squeeze_(0).shape == (2, 3, 1)
    leaf = alpha.tensor(VALUES, device=device, requires_grad=True)
    y = leaf * 2.0
    y.retain_grad()
    y.unsqueeze_(0)
    y.mul_(3.0)
    (y * other(y)).sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), OTHER * 6)  # type: ignore[union-attr]
    assert y.grad is not None
    assert y.grad.shape == (1, 2, 3)
    with pytest.raises(GradientError, match="unsqueeze_: a leaf tensor that requires a gradient"):
        leaf.unsqueeze_(0)
    assert (leaf * 1.0).reshape(1, 6).squeeze_().shape == (6,)
    with pytest.raises(GradientError, match=r"squeeze_: a view \(Reshape\) of a leaf tensor"):
        leaf.reshape(1, 6).squeeze_()
    with alpha.no_grad():
        leaf.unsqueeze_(0)
        z = (leaf + 0.0).requires_grad_()
    assert leaf.grad is not None
    assert leaf.shape == leaf.grad.shape == (1, 2, 3)
    w = z * 1.0
    with alpha.no_grad():
        w.squeeze_(0)
    w.sum().backward()
    assert z.grad is not None
    assert z.grad.shape == (1, 2, 3)
    with pytest.raises(ShapeError, match="unsqueeze"):
        alpha.ones(2).unsqueeze_(5)


def test_random_integers(device: str) -> None:
    alpha.manual_seed(3)
    x = alpha.zeros(40, 50, device=device)
    drawn = x.random_(3, 7).numpy()
    assert set(drawn.ravel()) == {3, 4, 5, 6}
    alpha.manual_seed(3)
    np.testing.assert_array_equal(alpha.zeros(40, 50, device=device).random_(3, 7).numpy(), drawn)
    assert set(x.random_(4).numpy().ravel()) == {0, 1, 2, 3}
    assert set(x.random_(-2, 0).numpy().ravel()) == {-2, -1}
    for dtype, bound in (("float32", 2**24), ("bfloat16", 2**8), ("int32", 2**31), ("uint8", 2**8), ("bool", 2)):
        y = alpha.zeros(40, 50, device=device, dtype=dtype).random_().numpy().astype(np.float64)
        assert bound * 0.9 <= y.max() + 1 <= bound, dtype
        assert y.min() <= bound * 0.01
        assert (y == np.rint(y)).all()
    assert alpha.zeros(3, device=device, dtype="int64").random_(10**12, 10**12 + 1).tolist() == [10**12] * 3
    leaf = alpha.ones(2, device=device, requires_grad=True)
    (leaf * 1.0).random_(5).sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), [0, 0])  # type: ignore[union-attr]


def test_coins(device: str) -> None:
    alpha.manual_seed(3)
    x = alpha.zeros(80, 50, device=device)
    drawn = x.bernoulli_(0.25).numpy()
    assert set(drawn.ravel()) == {0, 1}
    np.testing.assert_allclose(drawn.mean(), 0.25, atol=0.03)
    alpha.manual_seed(3)
    np.testing.assert_array_equal(alpha.zeros(80, 50, device=device).bernoulli_(0.25).numpy(), drawn)
    np.testing.assert_allclose(x.bernoulli_().numpy().mean(), 0.5, atol=0.03)
    chances = alpha.tensor([0.0, 1.0], device=device)
    assert alpha.zeros(3, 2, device=device, dtype="int64").bernoulli_(chances).tolist() == [[0, 1]] * 3
    leaf = alpha.ones(2, device=device, requires_grad=True)
    (leaf * 1.0).bernoulli_(chances.requires_grad_()).sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), [0, 0])  # type: ignore[union-attr]
    assert chances.grad is None


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.pow_("2"), TypeError, "pow_: str is no exponent"),
        (lambda x: x[0].pow_(x), ShapeError, r"pow_: \(2, 3\) does not fit into \(3,\)"),
        (lambda x: x[0].mul_(x), ShapeError, r"mul_: \(2, 3\) does not fit into \(3,\)"),
        (lambda x: x[0].tril_(), ShapeError, r"tril_: a matrix \(..., M, N\) is needed"),
        (lambda x: x.triu_(0.5), TypeError, "triu_: diagonal=0.5 is not an integer"),
        (lambda x: x.round_(decimals=0.5), TypeError, "round_: decimals=0.5 is not an integer"),
        (lambda x: x.scatter_(0, x, 1), TypeError, "scatter_: index has dtype float32"),
        (lambda x: x.scatter_(0, index(x), "1"), TypeError, "scatter_: src is a str"),
        (lambda x: x.scatter_(0, index(x), x, reduce="multiply"), ValueError, "scatter_: reduce='multiply' is not off"),
        (lambda x: x.scatter_add_(2, index(x), x), ShapeError, "scatter_add_: 2 is not an axis"),
        (lambda x: x.scatter_add_(0, index(x), x.numpy()), TypeError, "scatter_add_: src is a ndarray, a Tensor is"),
        (lambda x: x.index_add_(0, index(x), x), ShapeError, r"index_add_: index \(I,\) and source as x"),
        (lambda x: x[0].fill_diagonal_(1), ShapeError, "fill_diagonal_: a matrix, or axes of one length, are needed"),
        (lambda x: x.reshape(1, 2, 3).fill_diagonal_(1), ShapeError, "fill_diagonal_: a matrix, or axes of one length"),
        (lambda x: x.fill_diagonal_("1"), TypeError, "fill_diagonal_: value is not a number"),
        (lambda x: x.random_(5, 5), ValueError, "random_: 0 integers from 5 to 5"),
        (lambda x: x.random_(0, 2**33), ValueError, "random_: 8589934592 integers"),
        (lambda x: x.long().random_(), ValueError, "random_: give the numbers from and to; dtype int64"),
        (lambda x: x.random_(0.5), TypeError, "random_: from_=0.5 is not an integer"),
        (lambda x: x.bernoulli_(1.5), ValueError, "bernoulli_: p=1.5 is not between 0 and 1"),
        (lambda x: x.lerp_(x, "1"), TypeError, "lerp_: weight='1' is not a number or a Tensor"),
        (lambda x: x.addcdiv_(x, 2), TypeError, "addcdiv_: a int is no operand; a Tensor is needed"),
        (lambda x: x.bernoulli_("1"), TypeError, "bernoulli_: p='1' is not a number"),
        (lambda x: x.bernoulli_(alpha.ones(4)), ShapeError, r"bernoulli_: p \(4,\) does not fit x \(2, 3\)"),
    ],
)
def test_what_is_refused(call: Callable[[Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(alpha.tensor(VALUES))


@pytest.mark.slow
def test_bfloat16(device: str) -> None:
    # each has a kernel of its own on cuda, which takes time to compile
    for name, (write, operator) in itertools.islice(SAME.items(), 0, None, 1 if device == "cpu" else 4):
        x = alpha.tensor(number_of(VALUES, name), dtype="bfloat16", device=device)
        wanted = operator(x)
        np.testing.assert_array_equal(write(x).numpy().astype(np.float32), wanted.numpy().astype(np.float32), name)
        assert x.dtype == alpha.bfloat16


def test_every_method_in_place_is_tested_here() -> None:
    elsewhere = {"add_", "sub_", "zero_", "fill_", "copy_", "masked_fill_", "normal_", "uniform_"}
    mine = {"fill_diagonal_", "random_", "bernoulli_", "squeeze_", "unsqueeze_"}
    mine |= {"addbmm_", "addmv_", "baddbmm_", "bitwise_not_", "logical_not_", *(f"{name}_" for name in OF_INTEGERS)}
    mine |= {"cauchy_", "exponential_", "geometric_", "log_normal_"}  # test_random_draws.py
    named = {name if name in OTHER_NAMES else f"{name.split()[0]}_" for name in SAME}
    assert {name for name in FUNCTIONS if name.endswith("_") and not name.startswith("_")} == named | mine | elsewhere
