"""Weights by name: the dict that `Module.state_dict` returns, and how `Module.load_state_dict` reads any other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from alpha.errors import CheckpointError
from alpha.numerics import is_floating
from alpha.tensor import Tensor

__all__ = ["StateDict"]

Values = npt.NDArray[Any]

LAYOUTS = ("NHWC", "NCHW")  # Alpha's and PyTorch's


class StateDict(dict[str, Values]):
    """Arrays by dotted name, and the layout of those that have four axes.

    Attributes:
        layout: "NHWC" (filters (OC, FH, FW, IC), as Alpha has them), "NCHW" (filters (OC, IC, FH, FW), as PyTorch has
            them), or None if it is not known.
    """

    def __init__(
        self, values: Mapping[str, Values] | Iterable[tuple[str, Values]] = (), layout: str | None = None
    ) -> None:
        super().__init__(values)
        self.layout = layout

    def copy(self) -> StateDict:
        return StateDict(self, self.layout)


def read_state(
    own: Mapping[str, Tensor], state: Mapping[str, Any], layout: str | None, strict: bool
) -> tuple[dict[str, Values], list[str]]:
    """(values that a module's tensors take, in the module's layout, by name; what does not fit, a line each)."""
    if layout is not None and layout not in LAYOUTS:
        raise ValueError(f"load_state_dict: layout={layout!r} is not one of 'NHWC', 'NCHW'")
    known = state.layout if isinstance(state, StateDict) else None
    if None not in (layout, known) and layout != known:
        raise CheckpointError(
            f"load_state_dict: layout={layout!r} was given, but the weights have the layout {known!r}"
        )
    given = {name: _on_host(state[name]) for name in own if name in state}
    problems = _shape_problems(own, given, layout or known)
    if layout is None:
        problems += _unclear(
            name
            for name, value in given.items()
            if own[name].ndim == value.ndim == 4
            and (_is_torch(state[name]) or (known is None and _fits_both(value.shape, own[name].shape)))
        )
    if strict:
        problems += [f"missing     {n} {t.shape}" for n, t in own.items() if n not in state]
        problems += [f"unexpected  {n}" for n in state if n not in own and not _is_counter(n, own)]
    moved = (layout or known) == "NCHW"
    return {n: _channels_last(v) if moved and v.ndim == 4 else v for n, v in given.items()}, problems


def _shape_problems(own: Mapping[str, Tensor], given: Mapping[str, Values], layout: str | None) -> list[str]:
    """Values that are not numbers, or that have another shape than the module's."""
    problems = []
    for name, value in given.items():
        target = own[name].shape
        in_nchw = _channels_last(value).shape if value.ndim == 4 else value.shape
        shape, other, advice = (in_nchw, value.shape, "NHWC") if layout == "NCHW" else (value.shape, in_nchw, "NCHW")
        if value.dtype.kind not in "iub" and not is_floating(value.dtype):
            problems.append(f"dtype       {name}: {value.dtype} is not a number")
        elif shape != target:
            hint = f"; they fit with layout={advice!r}" if other == target else ""
            problems.append(f"shape       {name}: the weights have {value.shape}, the model {target}{hint}")
    return problems


def _unclear(names: Iterable[str]) -> list[str]:
    """One line about the weights whose layout cannot be told."""
    found = list(names)
    if not found:
        return []
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return [
        f"layout      {found[0]}{more}: NHWC or NCHW cannot be told from the shape; "
        "pass layout='NCHW' for PyTorch's weights, layout='NHWC' for Alpha's"
    ]


def _on_host(value: Any) -> Values:
    if _is_torch(value):
        value = value.detach().cpu()
        if value.dtype.itemsize == 2 and value.is_floating_point():  # numpy has no bfloat16
            value = value.float()
    return np.asarray(value)


def _is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch"


def _fits_both(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether the shape is the target's with channels last and with channels second, which are not the same."""
    return shape == target and 1 < shape[1] == shape[2] == shape[3]


def _channels_last(value: Values) -> Values:
    """(OC, IC, FH, FW) -> (OC, FH, FW, IC), a view"""
    return value.transpose(0, 2, 3, 1)


def _is_counter(name: str, own: Mapping[str, Tensor]) -> bool:
    """Whether it is PyTorch's count of a batch norm's batches, which Alpha's does not need."""
    prefix, _, last = name.rpartition("num_batches_tracked")
    return not last and f"{prefix}running_mean" in own
