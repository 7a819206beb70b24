"""Products of vectors, of batches that broadcast, and by Einstein's notation: PyTorch's values and gradients."""

from __future__ import annotations

import string

import numpy as np
import pytest
from helpers import check_torch

import alpha
from alpha import ShapeError

SHAPES = [
    *(((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (4,)), ((4,), (2, 4, 5)), ((2, 3, 4), (2, 4, 5))),
    *(((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 6)), ((2, 3, 4), (1, 4, 5)), ((1, 3, 4), (2, 4, 5))),
]
EQUATIONS = [
    *(("ij,jk->ik", (3, 4), (4, 5)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), ("ij->ji", (3, 4)), ("ii->i", (4, 4))),
    *(("ii", (4, 4)), ("ij->", (3, 4)), ("i,j->ij", (3,), (4,)), ("ijk,ijk->i", (2, 3, 4), (2, 3, 4))),
    *(("...ij,...jk->...ik", (2, 3, 4), (4, 5)), ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5))),
    *(("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)), ("ij,jk", (3, 4), (4, 5)), ("...i->...", (2, 3))),
    *(("ij,ij->ij", (1, 4), (3, 4)), ("ijk,j->ik", (2, 3, 4), (3,))),
]


@pytest.mark.torch
@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_matmul(device: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    check_torch(lambda x, y: x @ y, lambda x, y: x @ y, a, b, device=device)


@pytest.mark.torch
@pytest.mark.parametrize("case", EQUATIONS, ids=lambda case: case[0])
def test_einsum(device: str, case: tuple[str, ...]) -> None:
    torch = pytest.importorskip("torch")
    equation, *shapes = case
    check_torch(
        lambda *xs: alpha.einsum(equation, *xs), lambda *xs: torch.einsum(equation, *xs), *shapes, device=device
    )


def test_operands_in_a_list() -> None:
    x, y = alpha.tensor(np.arange(6.0).reshape(2, 3)), alpha.tensor(np.arange(12.0).reshape(3, 4))
    np.testing.assert_array_equal(alpha.einsum("ij,jk->ik", [x, y]).numpy(), (x @ y).numpy())
    with pytest.raises(TypeError, match=r"einsum: operands\[1\] is a ndarray, a Tensor is needed"):
        alpha.einsum("ij,jk->ik", [x, y.numpy()])


def test_errors() -> None:
    x = alpha.tensor(np.zeros((2, 3), np.float32))
    for equation, operands, message in (
        ("ij,jk", (x,), "has 2 operands, 1 are given"),
        ("ijk", (x,), "does not name the axes"),
        ("ij->ii", (x,), "names a letter twice"),
        ("ij->k", (x,), "one that no operand has"),
    ):
        with pytest.raises(ValueError, match=message):
            alpha.einsum(equation, *operands)
    with pytest.raises(ShapeError, match="axes 'j' of 'ij,ji' have lengths 3 and 2"):
        alpha.einsum("ij,ji", x, x)
    with pytest.raises(ShapeError, match=r"axes of one letter of 'ii' differ in shape \(1, 3\)"):
        alpha.einsum("ii", x[:1])
    with pytest.raises(TypeError, match="einsum: the tensor has dtype int64"):
        alpha.einsum("ij", x.long())
    with pytest.raises(ShapeError, match="matmul: the batch axes do not broadcast"):
        alpha.tensor(np.zeros((2, 2, 3), np.float32)) @ alpha.tensor(np.zeros((3, 3, 4), np.float32))


def test_dots_may_stand_for_as_many_axes_as_there_are_letters_left() -> None:
    letters = string.ascii_letters
    x, y, z = (alpha.ones(*(1,) * axes) for axes in (26, 25, 1))
    if int(np.__version__.partition(".")[0]) >= 2:  # before it an array has 32 axes at most
        assert alpha.einsum(f"{letters[:26]},{letters[26:51]},...", x, y, z).shape == (1,) * 52
    with pytest.raises(ValueError, match="has more axes than there are letters"):
        alpha.einsum(f"{letters[:26]},{letters[26:51]},...", x, y, z.reshape(1, 1))


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*torch.cross without specifying the dim:UserWarning")
@pytest.mark.parametrize("shapes", [((2, 3), (2, 3)), ((1, 3), (3, 3)), ((3, 1), (3, 4)), ((4, 3, 1), (1, 3, 3))])
def test_a_cross_product_is_along_the_first_axis_of_length_3_of_the_first_tensor(
    device: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    torch = pytest.importorskip("torch")
    check_torch(alpha.cross, torch.cross, *shapes, device=device)


def test_a_cross_product_is_refused_with_its_shapes() -> None:
    for x, other, dim, message in (
        ((2, 3), (3,), None, "as many axes are needed"),
        ((2, 3), (4, 3), None, "the shapes do not broadcast"),
        ((3, 3), (1, 3), None, "an axis of length 3 is needed"),
        ((2, 4), (2, 4), None, "an axis of length 3 is needed"),
        ((2, 3), (2, 3), 0, "an axis of length 3 is needed"),
        ((2, 3), (2, 3), 2, "2 is not an axis"),
        ((), (), None, "-1 is not an axis"),
    ):
        with pytest.raises(ShapeError, match=f"^cross: {message}"):
            alpha.cross(alpha.ones(*x), alpha.ones(*other), dim)


def test_products_of_batches_are_refused_with_their_shapes(device: str) -> None:
    x = alpha.ones(2, 3, 4, device=device)
    with pytest.raises(
        alpha.ShapeError, match=r"bmm: x \(D, M, K\) and mat2 \(D, K, N\) are needed  \(x \(2, 3, 4\), mat2"
    ):
        alpha.bmm(x, x)
    with pytest.raises(alpha.ShapeError, match=r"index_add: index \(I,\) and source as x, but I long on axis 1"):
        x.index_add(1, alpha.tensor([0, 1], device=device), x)
    with pytest.raises(TypeError, match="index_add: x of dtype int64 cannot hold source of dtype float32"):
        x.long().index_add(0, alpha.tensor([0, 1], device=device), x)
