"""Axes of more than 2^31 elements: a plan, or a refusal that says the number and what to do; and long row numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha.errors import AlphaError
from alpha.ops.kernel.rows import reductions

LONG = 2**31 + 8
REDUCTIONS = (
    *("max", "min", "any", "all", "argmax", "argmin", "amax", "amin", "sum", "mean", "var", "std", "norm", "prod"),
    *("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "logsumexp", "sort", "argsort", "median", "nansum"),
    *("softmax", "log_softmax", "flip", "count_nonzero"),
)
OTHERS: dict[str, Callable[[alpha.Tensor], Any]] = {
    "topk": lambda x: x.topk(3),
    "kthvalue": lambda x: x.kthvalue(5),
    "gather": lambda x: x.gather(0, alpha.zeros(5, dtype="int64", device="cuda")),
    "index": lambda x: x[alpha.zeros(5, dtype="int64", device="cuda")],
    "relu": F.relu,
    "where": lambda x: alpha.where(x == 0, x, x),
    "matmul": lambda x: x.reshape(1, -1) @ x.reshape(-1, 1),
    "layer_norm": lambda x: F.layer_norm(x.reshape(1, -1), (LONG,)),
    "batch_norm": lambda x: F.batch_norm(x.reshape(-1, 1), None, None, training=True),
    "max_pool1d": lambda x: F.max_pool1d(x.reshape(1, -1, 1), 2),
    "interpolate": lambda x: F.interpolate(x.reshape(1, -1, 1), scale_factor=2, mode="linear"),
    "conv1d": lambda x: F.conv1d(x.reshape(1, -1, 1), alpha.zeros(1, 3, 1, device="cuda")),
    "cross_entropy": lambda x: F.cross_entropy(x.reshape(1, -1), alpha.zeros(1, dtype="int64", device="cuda")),
}
REFUSED = {"matmul", "layer_norm", "batch_norm", "max_pool1d", "interpolate", "conv1d", "cross_entropy"}


def refusal(function: Callable[[alpha.Tensor], Any]) -> str | None:
    """Reason why a function refuses a long axis in a dry run, in which no array has memory; None: it has a plan."""
    try:
        alpha.dry_run(lambda: function(alpha.zeros(LONG, device="cuda")), gpu="sm_90a")
    except AlphaError as error:
        return str(error)
    return None


def test_one_axis() -> None:
    functions = {name: (lambda x, name=name: getattr(alpha, name)(x, 0)) for name in REDUCTIONS} | OTHERS
    with trials() as trial:
        for name, function in functions.items():
            with trial(name):
                why = refusal(function)
                assert (why is not None) == (name in REFUSED), why
                assert why is None or re.search(r"2,147,\d{3},\d{3}.* at most 2,147,", why, re.DOTALL), why


def test_a_refusal_says_the_number_and_what_to_do() -> None:
    with pytest.raises(
        AlphaError, match=r"normalize: a size of 2,147,483,656, at most 2,147,479,552 are offered by .*cut"
    ):
        alpha.dry_run(
            lambda: alpha.nn.functional.layer_norm(alpha.zeros(1, LONG, device="cuda"), (LONG,)), gpu="sm_90a"
        )


@pytest.mark.parametrize("shape", [(1, 70_000, 1), (1, 5000, 12), (3, 40, 5)], ids=str)
def test_row_numbers_of_64_bits(shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel for long axes gives what the usual one gives."""
    device = alpha.get_device("cuda")
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x[:, shape[1] // 2 :] = np.round(x[:, shape[1] // 2 :])  # ties, and zeros
    X = device.upload(x)

    def found() -> list[np.ndarray]:
        reductions._plan.cache_clear()
        results = [*reductions._reduce(X, "Extreme", X.dtype, 1), *reductions._reduce(X, "Extreme", X.dtype, 0)]
        results += [reductions.truth_axis1(X, True), reductions.truth_axis1(X, False), reductions.product_axis1(X)]
        return [device.download(result) for result in results]

    usual = found()
    monkeypatch.setattr(reductions, "LONG_ROWS", 1)
    for mine, other in zip(found(), usual, strict=True):
        np.testing.assert_array_equal(mine, other)
    np.testing.assert_array_equal(usual[0], x.max(1))
    np.testing.assert_array_equal(usual[1], x.argmax(1))
    reductions._plan.cache_clear()
