"""Elements and rows that an index tensor names: gather, scatter, scatter_add, index_select, index_add, nonzero.

An index is a tensor of int64 or int32, and a negative one counts from the end. One that is out of range is an error on
cpu. On cuda nothing waits for the device: such an element is NaN, or 0 of integers, and nothing is written there.
Sums have the order of the index, so that two runs agree bit for bit.

Some of them write x: scatter_, scatter_add_ and index_add_.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.autograd.tracing import traced_whole
from alpha.autograd.versions import array_of
from alpha.core.primitive import Array, device_of, shares_memory
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import axis_of, expand
from alpha.ops.array.layout import view as reshaped
from alpha.ops.array.parts.boxes import block_or_copy
from alpha.ops.indexing.getitem_setitem import SetPlaces, Take
from alpha.ops.indexing.parse_index import Places
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.casts import as_dtype
from alpha.ops.kernel.common_dtype import kind_of
from alpha.ops.kernel.in_place import in_place
from alpha.ops.kernel.operands import NUMBERS, like, operand_of
from alpha.ops.kernel.options import real
from alpha.ops.kernel.rows.reductions import around
from alpha.ops.kernel.rows.row_indices import INT64, NO_PLACE, add_rows, places, take_rows
from alpha.ops.kernel.views import Shape, View, read_view, write_view
from alpha.runtime.recording import refuse

__all__ = ["gather", "index_add", "index_select", "nonzero", "scatter", "scatter_add", "take_along_dim"]


class Gather(Take):
    """Elements of the middle axis of a box of X, each as often as it is named   X (...) -> Y (...)"""


class Scatter(SetPlaces):
    """A copy of X in which elements that an index names become those of V   X (...), V (...) -> Y as X"""

    inplace = False

    def forward(self, X: Array, V: Array, *, at: Places) -> Array:
        return super().forward(device_of(X).copy(X), V, at=at)


class ScatterAdd(Function):
    """A copy of X, with V added to the elements that an index names   X (...), V (...) -> Y as X"""

    def forward(self, X: Array, V: Array, *, at: Places) -> Array:
        self.at, self.operand = at, operand_of(V)
        if self.inplace and shares_memory(X, (V,)):
            V = device_of(V).copy(V)
        Y = X if self.inplace else device_of(X).copy(X)
        box, sizes, F, _ = at
        values = V.reshape((sizes[0], F.size, sizes[2]))
        if box == View.whole(tuple(X.shape)):
            add_rows(Y.reshape(sizes), F, values)
            return Y
        window = read_view(Y, box)
        add_rows(window.reshape(sizes), F, values)
        write_view(Y, box, window, View.whole(box.shape))
        return Y

    def backward(self, dY: Array) -> Any:
        box, sizes, F, _ = self.at
        shape, dtype = self.operand
        window = dY if box == View.whole(tuple(dY.shape)) else read_view(dY, box)
        dV = as_dtype(take_rows(window.reshape(sizes), F).reshape(shape), dtype) if self.needs_input_grad[1] else None
        return dY, dV


def _index(operator: str, index: Tensor) -> Array:
    if index.dtype.kind != "i":
        raise TypeError(f"{operator}: index has dtype {index.dtype.name}; int64 or int32 is needed")
    return as_dtype(array_of(index), INT64)


def _first(shape: Shape, counts: Shape) -> View:
    """The box of so many first elements along each axis."""
    return View(counts, View.whole(shape).strides)


def _elements(operator: str, x: Tensor, axis: int, index: Tensor) -> Places:
    """The elements x[i, index[i, j, k], k] for an axis in the middle, in the box of x that the index covers."""
    own, wanted = x.shape or (1,), index.shape or (1,)
    array = _index(operator, index)
    if len(own) != len(wanted):
        raise ShapeError(f"{operator}: x and index need as many axes  (x {x.shape}, index {index.shape})")
    R = own[axis]
    counts = (*wanted[:axis], R, *wanted[axis + 1 :])
    if any(count > length for count, length in zip(counts, own, strict=True)):
        raise ShapeError(
            f"{operator}: index is longer than x on another axis than {axis}  (x {x.shape}, index {index.shape})"
        )
    box = _first(own, counts)
    _, K, B = around(wanted, axis)
    F = places(array.reshape(array.size), R, B, None, (max(1, B), max(1, K * B), R * B))
    return Places(box, (1, box.size, 1), F, index.shape)


@check_arguments
@traced_whole
def gather(x: AnyTensor, dim: int, index: AnyTensor) -> Tensor:
    """The elements along an axis that an index names: y[i, j, k] = x[i, index[i, j, k], k] for dim=1

    x (..), index (..) of as many axes, of any length on axis `dim` and at most that of x on the others -> as index.
    The gradients of an element that is named several times are added in the order of the index.
    """
    axis = axis_of("gather", x, dim)
    if not index.size:
        _index("gather", index)
        return block_or_copy(reshaped(x, (x.size,)), View((0,), (1,))).reshape(*index.shape)
    at = _elements("gather", x, axis, index)
    return Gather.apply(block_or_copy(x if x.ndim else reshaped(x, (1,)), at.box), at=at)


@check_arguments
def take_along_dim(x: AnyTensor, indices: AnyTensor, dim: int | None = None) -> Tensor:
    """`gather` with broadcasting of the other axes; without `dim` of x as one axis, and of indices as one

    x (..), indices (..) of as many axes -> as indices, broadcast with x
    """
    _index("take_along_dim", indices)
    if dim is None:
        return gather(reshaped(x, (x.size,)), 0, reshaped(indices, (indices.size,)))
    axis = axis_of("take_along_dim", x, dim)
    if x.ndim != indices.ndim:
        raise ShapeError(f"take_along_dim: as many axes are needed  (x {x.shape}, indices {indices.shape})")
    own, wanted = list(x.shape), list(indices.shape)
    if own:
        own[axis] = wanted[axis] = 1
    try:
        common = list(np.broadcast_shapes(own, wanted))
    except ValueError:
        raise ShapeError(f"take_along_dim: the axes do not broadcast  (x {x.shape}, indices {indices.shape})") from None

    def repeated(t: Tensor) -> Tensor:
        shape = (*common[:axis], t.shape[axis], *common[axis + 1 :]) if common else ()
        return t if t.shape == shape else expand(t, shape)

    return gather(repeated(x), dim, repeated(indices))


@check_arguments
@traced_whole
def index_select(x: AnyTensor, dim: int, index: AnyTensor) -> Tensor:
    """Rows of an axis, in the order of an index   x (.., R, ..), index (I,) or () -> (.., I, ..)"""
    axis = axis_of("index_select", x, dim)
    array = _index("index_select", index)
    if index.ndim > 1:
        raise ShapeError(f"index_select: index (I,) or () is needed  (index {index.shape})")
    own = x.shape or (1,)
    if not x.ndim and index.size != 1:
        raise ShapeError(f"index_select: x is a number, so index has one element  (index {index.shape})")
    sizes = around(own, axis)
    F = places(array.reshape(array.size), sizes[1], 1, None, NO_PLACE)
    shape = (*own[:axis], F.size, *own[axis + 1 :]) if x.ndim else ()
    return Take.apply(x, at=Places(View.whole(own), sizes, F, shape))


@check_arguments
def index_add(x: AnyTensor, dim: int, index: AnyTensor, source: AnyTensor, *, alpha: float = 1) -> Tensor:
    """A copy of x, to which rows are added where an index says: y[index[i]] += alpha source[i] for dim=0

    x (.., R, ..), index (I,) or (), source (.., I, ..) -> as x. source is cast to the dtype of x. The rows of one place
    are added in the order of the index.
    """
    return added("index_add", ScatterAdd, x, dim, index, source, alpha)


def added(
    operator: str, kind: type[Function], x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: float
) -> Tensor:
    axis = axis_of(operator, x, dim)
    array = _index(operator, index)
    own = x.shape or (1,)
    if index.ndim > 1 or (source.shape or (1,)) != (*own[:axis], index.size, *own[axis + 1 :]):
        raise ShapeError(
            f"{operator}: index (I,) and source as x, but I long on axis {axis}, are needed  "
            f"(x {x.shape}, index {index.shape}, source {source.shape})"
        )
    factor = real(operator, "alpha", alpha)
    source = _cast(operator, x, source if factor == 1 else source * alpha, "source")
    sizes = around(own, axis)
    F = places(array.reshape(array.size), sizes[1], 1, None, NO_PLACE)
    return kind.apply(x, source, at=Places(View.whole(x.shape), sizes, F, source.shape))


@check_arguments
def scatter(x: AnyTensor, dim: int, index: AnyTensor, src: Any, *, reduce: str | None = None) -> Tensor:
    """A copy of x with other elements where an index says: y[i, index[i, j, k], k] = src[i, j, k] for dim=1

    x (..), index (..) of as many axes, src (..) at least as long on each axis, or a number -> as x.
    src is cast to the dtype of x. Of several elements at one place the last one stays.

    Args:
        reduce: "add" adds to x, as `scatter_add`. None replaces; nothing else is offered.
    """
    check_reduce("scatter", reduce)
    src = source_of("scatter", x, index, src)
    return scattered("scatter", ScatterAdd if reduce else Scatter, x, dim, index, src)


def check_reduce(operator: str, reduce: str | None) -> None:
    if reduce not in (None, "add"):
        raise ValueError(f"{operator}: reduce={reduce!r} is not offered; only None and 'add'")


def source_of(operator: str, x: Tensor, index: Tensor, src: Any) -> Tensor:
    """src as a tensor; a number repeats as often as the index names a place."""
    if not isinstance(src, (Tensor, *NUMBERS)):
        raise TypeError(f"{operator}: src is a {type(src).__name__}, a Tensor or a number is needed")
    if isinstance(src, Tensor):
        return src
    _index(operator, index)
    return expand(reshaped(like(x, src), (1,) * index.ndim), index.shape)


@check_arguments
def scatter_add(x: AnyTensor, dim: int, index: AnyTensor, src: AnyTensor) -> Tensor:
    """A copy of x, to which elements are added where an index says: y[i, index[i, j, k], k] += src[i, j, k] for dim=1

    x (..), index (..) of as many axes, src (..) at least as long on each axis -> as x.
    src is cast to the dtype of x. The elements of one place are added in the order of the index.
    """
    return scattered("scatter_add", ScatterAdd, x, dim, index, src)


def _cast(operator: str, x: Tensor, src: Tensor, name: str, adds: bool = True) -> Tensor:
    """src in the dtype of x; `TypeError` if that cannot hold it, or has no sum."""
    if adds and x.dtype == np.bool_:
        raise TypeError(f"{operator}: x has dtype bool, which has no sum; use .astype('int32')")
    if kind_of(src.dtype) > kind_of(x.dtype):
        raise TypeError(
            f"{operator}: x of dtype {x.dtype.name} cannot hold {name} of dtype {src.dtype.name}; use .astype"
        )
    return src.astype(x.dtype)


def scattered(
    operator: str, kind: type[Function], x: Tensor, dim: int, index: Tensor, src: Tensor, **options: Any
) -> Tensor:
    """Result of `kind`, with its options, for x, the elements that an index names, and src; x itself if it writes x."""
    src = _cast(operator, x, src, "src", adds=not issubclass(kind, SetPlaces))
    axis = axis_of(operator, x, dim)
    if not index.size:
        _index(operator, index)
        return x if kind.inplace else x.clone()
    at = _elements(operator, x, axis, index)
    own, wanted = src.shape or (1,), index.shape or (1,)
    if len(own) != len(wanted) or any(count > length for count, length in zip(wanted, own, strict=True)):
        raise ShapeError(f"{operator}: src is shorter than index  (index {index.shape}, src {src.shape})")
    part = src if own == wanted else block_or_copy(src, _first(own, wanted))
    part = reshaped(part, index.shape)
    if kind.inplace:
        return kind.apply(x, part, at=at, **options)
    return reshaped(kind.apply(x if x.ndim else reshaped(x, (1,)), part, at=at, **options), x.shape)


@check_arguments
def nonzero(x: AnyTensor, *, as_tuple: bool = False) -> Any:
    """The places of the elements that are not 0, in the order of memory   x of k axes -> (count, k) of int64

    It waits for the device, because only the host can count them; so it is refused in a captured step.

    Args:
        as_tuple: a tensor (count,) for each axis instead, with which x can be indexed.
    """
    refuse("nonzero has a number of elements that only the host can count: use where or masked_fill")
    values = x.numpy()
    found = np.argwhere(np.atleast_1d(values) if as_tuple else values)

    def uploaded(places: Any) -> Tensor:
        return Tensor(x.device.upload(np.ascontiguousarray(places)))

    return tuple(map(uploaded, found.T)) if as_tuple else uploaded(found)


class ScatterInPlace(SetPlaces):
    written_as = "scatter_"


ScatterAddInPlace = in_place(ScatterAdd, "scatter_add_")


IndexAddInPlace = in_place(ScatterAdd, "index_add_")


@check_arguments
def scatter_(x: AnyTensor, dim: int, index: AnyTensor, src: Any, *, reduce: str | None = None) -> Tensor:
    """`scatter` written into x."""
    check_reduce("scatter_", reduce)
    src = source_of("scatter_", x, index, src)
    return scattered("scatter_", ScatterAddInPlace if reduce else ScatterInPlace, x, dim, index, src)


@check_arguments
def scatter_add_(x: AnyTensor, dim: int, index: AnyTensor, src: AnyTensor) -> Tensor:
    """`scatter_add` written into x."""
    return scattered("scatter_add_", ScatterAddInPlace, x, dim, index, src)


@check_arguments
def index_add_(x: AnyTensor, dim: int, index: AnyTensor, source: AnyTensor, *, alpha: float = 1) -> Tensor:
    """`index_add` written into x."""
    return added("index_add_", IndexAddInPlace, x, dim, index, source, alpha)
