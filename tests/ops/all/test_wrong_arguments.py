"""Wrong arguments of every function: the error names a function that the user knows, and no other word.

The calls are those of the rows in tests/rows/, with one argument that is another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from rows.every import FUNCTIONS
from rows.kinds import FunctionRow, each

import alpha
import alpha.nn.functional as F
from alpha import AlphaError

pytestmark = pytest.mark.filterwarnings("ignore")
OTHERS = ("a text", 17, -17, 0.5, [17, 17])
# names of operators that several functions have in common
COMMON = {"conv", "convtranspose", "convtranspose2d", "comparison", "index", "sloped"}


def wrong(row: FunctionRow, argument: str) -> Iterator[Any]:
    """Values that most functions refuse as this argument: of another kind, or tensors of other shapes and dtypes."""
    usual = row.usual.get(argument, row.arguments[argument].value)
    if not isinstance(usual, np.ndarray):
        yield from OTHERS
        return
    yield from map(alpha.tensor, (usual[..., None], usual.reshape(-1), np.zeros((2, 3, 1, 5, 1, 2), usual.dtype)))
    yield from (alpha.tensor(usual.astype(dtype)) for dtype in ("bool", "int64", "float64"))


@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda row: row.name)
def test_an_error_begins_with_the_name_of_a_function(row: FunctionRow) -> None:
    for argument, other in row.arguments.items():
        given = {**row.usual, **other.given, **other.together}
        for value in wrong(row, argument):
            arguments = {name: each(alpha.tensor, array) for name, array in given.items()}
            try:
                row.function(**{**arguments, argument: value})
            except (AlphaError, TypeError, ValueError, IndexError, AttributeError) as error:
                found = re.match(r"(\w+): ", str(error))
                assert found is None or found[1] in {*F.__all__, *COMMON}, f"{argument}={value!r}: {error}"  # noqa: PT017
