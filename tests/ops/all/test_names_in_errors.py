"""The message of an error begins with the name of the function that was called, or of the one that it is made of.

The calls are those of the rows in tests/rows/, each with one wrong argument.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from rows.every import FUNCTIONS
from rows.kinds import FunctionRow, each
from trials import trials

import alpha

# a name in errors, and the functions in whose errors it stands because they call it, or share its check
ALSO: dict[str, str] = {
    "abs": "absolute",
    "add": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear "
    "multi_head_attention_forward scaled_dot_product_attention",
    "amin": "aminmax",
    "atan2": "arctan2",
    "cat": "concat concatenate diff",
    "channel_shuffle": "native_channel_shuffle",
    "comparison": "eq ge greater greater_equal gt le less less_equal lt ne not_equal",
    "conv": "conv1d conv3d",
    "convtranspose": "conv_transpose1d conv_transpose3d",
    "convtranspose2d": "conv_transpose2d",
    "div": "divide true_divide",
    "dot": "vdot",
    "embedding": "embedding_bag",
    "gather": "searchsorted",
    "hardtanh": "hardtanh_",
    "index": "index_put",
    "linear": "bilinear multi_head_attention_forward",
    "matmul": "addbmm addmm addmv baddbmm bmm dot inner mm mv scaled_dot_product_attention tensordot vdot",
    "movedim": "moveaxis",
    "mul": "ldexp multilabel_soft_margin_loss multiply",
    "narrow": "narrow_copy",
    "neg": "negative",
    "norm": "normalize",
    "outer": "ger",
    "pow": "float_power",
    "reshape": "corrcoef cov",
    "rrelu": "rrelu_",
    "sloped": "prelu",
    "split": "multi_head_attention_forward",
    "std": "std_mean",
    "sub": "cumulative_trapezoid dist rsub subtract trapezoid trapz",
    "sum": "count_nonzero nanmean nansum",
    "transpose": "swapdims",
    "trapezoid": "trapz",
    "trunc": "fix",
    "var": "var_mean",
    "where": "heaviside masked_fill",
}
# of the values of an index, of a dtype and of an activation, wherever they are given
WITHOUT_A_NAME = r"index -?\d+ is out of range|.+ is no dtype; use one of |activation=.+ is no layer and no function"


def numbers_of(row: FunctionRow) -> list[str]:
    """The arguments that are numbers or axes, and no tensors in this row."""
    annotations = {name: str(p.annotation) for name, p in inspect.signature(row.function).parameters.items()}
    numbers = [name for name, annotation in annotations.items() if re.match("int|float|Dims", annotation)]
    return [name for name in numbers if name not in row.tensors | row.lists]


def wrong_calls(row: FunctionRow) -> Iterator[tuple[str, Any]]:
    """An argument, and a value that may be wrong."""
    for name, values in row.tensors.items():
        for dtype in ("int32", "uint8", "bool", "float32", "float64"):
            yield name, alpha.tensor(values.astype(dtype))
        for shape in ((7,) * max(1, values.ndim), (3, 7, *values.shape), (values.size,), (0, *values.shape[1:])):
            yield name, alpha.tensor(np.resize(values, shape))
        yield name, alpha.tensor(values.reshape(values.size)[0])
    yield from itertools.product(numbers_of(row), (9, -9, 1.5))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda row: row.name)
def test_an_error_begins_with_the_name_of_the_function(row: FunctionRow) -> None:
    usual = {name: each(alpha.tensor, value) for name, value in row.usual.items()}
    names = "|".join((row.name, *(also for also, callers in ALSO.items() if row.name in callers.split())))
    with trials() as trial:
        for name, value in wrong_calls(row):
            with trial(name), np.errstate(all="ignore"):
                try:
                    row.function(**{**usual, name: value})
                except Exception as error:
                    assert re.match(rf"({names}): |{WITHOUT_A_NAME}", str(error)), error  # noqa: PT017


CHECKED = [row for row in FUNCTIONS if numbers_of(row)]


@pytest.mark.parametrize("row", CHECKED, ids=lambda row: row.name)
def test_a_text_in_place_of_a_number_is_refused_by_the_name_of_the_argument(row: FunctionRow) -> None:
    usual = {name: each(alpha.tensor, value) for name, value in row.usual.items()}
    unused = {"poisson_nll_loss": ("eps",)}.get(row.name, ())  # by the arguments of the row
    with trials() as trial:
        for name in numbers_of(row):
            if name not in unused:
                with trial(name), pytest.raises(TypeError, match=rf"^\w+: {name}\b"):
                    row.function(**{**usual, name: "x"})
