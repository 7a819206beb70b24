"""The methods of Tensor that are operators of structure, products, indices and random choices.

`alpha/core/tensor_structure.py` declares their types, and `methods.py` installs them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alpha.ops.api import other_names
from alpha.ops.array import diagonals, facts, shapes
from alpha.ops.indexing import index_functions
from alpha.ops.kernel.arguments import unchecked, with_other_names
from alpha.ops.matmul import products
from alpha.ops.noise import random
from alpha.ops.reduction import compaction, scan, scatter_reduce, sort

STRUCTURE: dict[str, Callable[..., Any]] = {
    # of one tensor: without a check that it is one
    **{name: with_other_names(unchecked(getattr(diagonals, name))) for name in diagonals.__all__},
    **{name: with_other_names(unchecked(getattr(index_functions, name))) for name in ("narrow", "select", "argwhere")},
    **{
        name: with_other_names(unchecked(getattr(shapes, name)))
        for name in ("fliplr", "flipud", "moveaxis", "swapdims")
    },
    **{name: with_other_names(unchecked(getattr(shapes, name))) for name in ("tensor_split",)},
    "repeat_interleave": with_other_names(unchecked(compaction.repeat_interleave)),
    **{name: with_other_names(unchecked(getattr(sort, name))) for name in ("unique", "unique_consecutive")},
    **{
        name: with_other_names(unchecked(getattr(other_names, name)))
        for name in other_names.__all__
        if name not in ("arctan2", "ger", "row_stack", "vdot")
    },
    **{
        name: with_other_names(unchecked(getattr(index_functions, name)))
        for name in ("diagflat", "dsplit", "hsplit", "narrow_copy", "vsplit")
    },
    **{name: unchecked(getattr(products, name)) for name in ("corrcoef", "matrix_power")},
    # floating numbers, or several tensors
    **{name: getattr(other_names, name) for name in ("arctan2", "ger", "vdot")},
    **{name: getattr(index_functions, name) for name in ("diagonal_scatter", "select_scatter", "slice_scatter")},
    **{name: getattr(scan, name) for name in ("dist", "renorm")},
    "cov": products.cov,
    "unfold": index_functions.sliding,
    # what is asked of a tensor
    **{name: unchecked(getattr(facts, name)) for name in ("is_complex", "is_nonzero", "is_signed", "isreal")},
    **{name: getattr(facts, name) for name in ("get_device", "is_same_size", "stride", "sum_to_size")},
    **{name: getattr(random, name) for name in ("cauchy_", "exponential_", "geometric_", "log_normal_")},
    **{name: getattr(products, name) for name in products.__all__ if name not in ("tensordot", "vander")},
    **{name: getattr(index_functions, name) for name in ("index_copy", "index_fill", "index_put")},
    **{name: getattr(index_functions, name) for name in ("masked_select", "take")},
    **{name: getattr(shapes, name) for name in ("expand_as", "reshape_as")},
    "masked_scatter": compaction.masked_scatter,
    **{name: getattr(sort, name) for name in ("bincount", "histc")},
    **{name: getattr(random, name) for name in ("bernoulli", "multinomial")},
    "scatter_reduce": scatter_reduce.scatter_reduce,
}
SEVERAL_NUMBERS: dict[str, Callable[..., Any]] = {"broadcast_to": unchecked(shapes.broadcast_to)}
