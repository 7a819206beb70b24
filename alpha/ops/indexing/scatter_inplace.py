"""The operators of gathering.py that write x: scatter_, scatter_add_ and index_add_."""

from __future__ import annotations

from typing import Any

from alpha.core.tensor import Tensor
from alpha.ops.indexing.gather_scatter import ScatterAdd, added, check_reduce, scattered, source_of
from alpha.ops.indexing.getitem_setitem import SetPlaces
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.elementwise import in_place


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
