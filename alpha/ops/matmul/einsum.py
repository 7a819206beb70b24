"""Sums of products by Einstein's notation: products of matrices, one pair of tensors after the other."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError, type_name
from alpha.ops.array.axes import permute
from alpha.ops.array.layout import view as reshaped
from alpha.ops.array.parts.assemble import Assemble, read
from alpha.ops.kernel.casts import require_floating
from alpha.ops.kernel.views import View
from alpha.ops.matmul.matmul import matmul

Labels = str  # a letter per axis


class Diagonal(Assemble):
    """Elements whose indices of some axes are equal   X (...) -> Y (...)"""


def einsum(equation: str, *operands: Tensor | Sequence[Tensor]) -> Tensor:
    """The sum of products that the equation names, as "bij,bjk->bik" names a batch of matrix products.

    Args:
        equation: a letter for each axis of each operand; letters that are not in the result are summed over. `...`
            stands for any leading axes. Without "->" the result has the letters that come once, in alphabetical order.
        operands: one for each part of the equation, one after the other or as one list.

    Raises:
        ValueError: the equation is not one, or does not fit the operands.
        ShapeError: two axes of one letter have other lengths.

    Examples:
        >>> import alpha
        >>> alpha.einsum("bij,bjk->bik", alpha.ones(5, 2, 3), alpha.ones(5, 3, 4)).shape
        (5, 2, 4)
    """
    given: tuple[object, ...] = operands
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        given = tuple(operands[0])
    tensors: list[Tensor] = []
    for i, x in enumerate(given):
        if not isinstance(x, Tensor):
            raise TypeError(
                f"einsum: operands[{i}] is a {type_name(x)}, a Tensor is needed; use alpha.tensor(.., device=..)"
            )
        require_floating("einsum", x.dtype)
        tensors.append(x)
    inputs, result = _labels(equation, tensors)
    lengths: dict[str, int] = {}
    for labels, x in zip(inputs, tensors, strict=True):
        for label, length in zip(labels, x.shape, strict=True):
            if lengths.get(label, 1) == 1:
                lengths[label] = length
            elif length not in (1, lengths[label]):
                raise ShapeError(f"einsum: axes {label!r} of {equation!r} have lengths {lengths[label]} and {length}")
    parts = [_diagonal(labels, x) for labels, x in zip(inputs, tensors, strict=True)]
    labels, x = parts[0]
    for i, (others, y) in enumerate(parts[1:], 1):
        later = set(result).union(*(names for names, _ in parts[i + 1 :]))
        labels, x = _product(_summed(labels, x, later | set(others)), _summed(others, y, later | set(labels)), later)
    labels, x = _summed(labels, x, set(result))
    return permute(x, [labels.index(label) for label in result])


def _labels(equation: str, operands: Sequence[Tensor]) -> tuple[list[Labels], Labels]:
    """The letters of each operand and those of the result, with letters of their own for `...`."""
    written, arrow, result = equation.replace(" ", "").partition("->")
    inputs = written.split(",")
    if len(inputs) != len(operands) or not operands:
        raise ValueError(f"einsum: {equation!r} has {len(inputs)} operands, {len(operands)} are given")
    letters = set(equation) & set(string.ascii_letters)
    spare = [letter for letter in string.ascii_letters if letter not in letters]
    most = 0
    for i, (names, x) in enumerate(zip(inputs, operands, strict=True)):
        head, dots, tail = names.partition("...")
        more = x.ndim - len(head + tail)
        if not set(head + tail) <= letters or more < 0 or (more and not dots):
            raise ValueError(
                f"einsum: operand {i}, {names!r} of {equation!r}, does not name the axes of shape {x.shape}"
            )
        if more > len(spare):
            raise ValueError(f"einsum: {equation!r} has more axes than there are letters")
        most = max(most, more)
        inputs[i] = head + "".join(reversed(spare[:more])) + tail
    leading = "".join(reversed(spare[:most]))
    if not arrow:
        once = sorted(letter for letter in letters if sum(names.count(letter) for names in inputs) == 1)
        return inputs, leading + "".join(once)
    result = result.replace("...", leading)
    if len(set(result)) != len(result) or not set(result) <= set("".join(inputs)):
        raise ValueError(f"einsum: the result of {equation!r} names a letter twice, or one that no operand has")
    return inputs, result


def _diagonal(labels: Labels, x: Tensor) -> tuple[Labels, Tensor]:
    """Axes of one letter as one axis."""
    names = "".join(dict.fromkeys(labels))
    if names == labels:
        return labels, x
    whole = View.whole(x.shape)
    places = [[i for i, label in enumerate(labels) if label == name] for name in names]
    if any(len({x.shape[i] for i in axes}) > 1 for axes in places):
        raise ShapeError(f"einsum: axes of one letter of {labels!r} differ in shape {x.shape}")
    shape = tuple([x.shape[axes[0]] for axes in places])
    strides = tuple([sum(whole.strides[i] for i in axes) for axes in places])
    return names, read(Diagonal, x, View(shape, strides))


def _summed(labels: Labels, x: Tensor, kept: set[str]) -> tuple[Labels, Tensor]:
    """The sum over the axes that nothing needs any more."""
    dropped = [i for i, label in enumerate(labels) if label not in kept]
    return "".join(label for label in labels if label in kept), (x.sum(dropped) if dropped else x)


def _product(a: tuple[Labels, Tensor], b: tuple[Labels, Tensor], later: set[str]) -> tuple[Labels, Tensor]:
    """The product of two operands, summed over the letters that both have and nothing needs later."""
    (left, x), (right, y) = a, b
    # an axis of length 1 that meets a longer one is no axis of the product
    left, x = _without_ones(left, x, right, y)
    right, y = _without_ones(right, y, left, x)
    batch = [label for label in left if label in right and label in later]
    inner = [label for label in left if label in right and label not in later]
    rows = [label for label in left if label not in right]
    columns = [label for label in right if label not in left]
    sizes = dict(zip(left + right, x.shape + y.shape, strict=True))

    def matrix(labels: Labels, tensor: Tensor, *groups: list[str]) -> Tensor:
        order = [labels.index(label) for group in groups for label in group]
        return reshaped(permute(tensor, order), tuple([math.prod(sizes[n] for n in group) for group in groups]))

    z = matmul(matrix(left, x, batch, rows, inner), matrix(right, y, batch, inner, columns))
    names = [*batch, *rows, *columns]
    return "".join(names), reshaped(z, tuple([sizes[label] for label in names]))


def _without_ones(labels: Labels, x: Tensor, others: Labels, y: Tensor) -> tuple[Labels, Tensor]:
    longer = {label for label, n in zip(others, y.shape, strict=True) if n != 1}
    ones = [i for i, n in enumerate(x.shape) if n == 1 and labels[i] in longer]
    kept = [i for i in range(x.ndim) if i not in ones]
    return "".join(labels[i] for i in kept), (reshaped(x, tuple([x.shape[i] for i in kept])) if ones else x)
