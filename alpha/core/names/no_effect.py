"""Names of PyTorch that are taken and change nothing: Alpha does anyway what they ask for, or does not need it.

A setting that would change results is refused instead, and the error says how Alpha does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from alpha.core.tensor import Tensor
from alpha.errors import type_name

__all__ = [
    "MemoryFormat",
    "are_deterministic_algorithms_enabled",
    "channels_last",
    "channels_last_3d",
    "compile",
    "contiguous_format",
    "get_float32_matmul_precision",
    "preserve_format",
    "set_float32_matmul_precision",
    "use_deterministic_algorithms",
]

T = TypeVar("T")


class MemoryFormat:
    """One of PyTorch's orders of axes in memory. Every tensor of Alpha is contiguous, with channels last."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"alpha.{self._name}"

    def __reduce__(self) -> str:
        return self._name


channels_last = MemoryFormat("channels_last")
channels_last_3d = MemoryFormat("channels_last_3d")
contiguous_format = MemoryFormat("contiguous_format")
preserve_format = MemoryFormat("preserve_format")


@overload
def compile(model: Callable[..., Any], **options: Any) -> Any: ...
@overload
def compile(model: None = None, **options: Any) -> Callable[[T], T]: ...
def compile(model: Any = None, **options: Any) -> Any:
    """The model or function itself, or with options alone a decorator that returns what it is given.

    Kernels are compiled when they are first used, or all at once by `alpha.compile_kernels`; `alpha.capture` makes a
    step run without Python in between.

    Args:
        options: PyTorch's `fullgraph`, `dynamic`, `backend`, `mode`, `options` and `disable`.

    Raises:
        TypeError: the model cannot be called, or an option has another name.
    """
    unknown = sorted(options.keys() - {"fullgraph", "dynamic", "backend", "mode", "options", "disable"})
    if unknown:
        raise TypeError(f"compile: {unknown[0]!r} is no option of torch.compile")
    if model is not None and not callable(model):
        raise TypeError(f"compile: a {type_name(model)} cannot be called")
    return model if model is not None else lambda model: model


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Nothing is changed: sums have a fixed order, so the same program gives the same bits in either mode."""


def are_deterministic_algorithms_enabled() -> bool:
    """True."""
    return True


def set_float32_matmul_precision(precision: str) -> None:
    """Nothing is changed by "highest", which is how Alpha computes float32.

    Raises:
        ValueError: "high" and "medium", which would change results: `alpha.set_precision("tf32")` does so for matrix
            products and convolutions, `alpha.set_precision("bf16")` for activations, too.
    """
    if precision in ("high", "medium"):
        raise ValueError(
            f"set_float32_matmul_precision: {precision!r} would change results; use alpha.set_precision('tf32') for "
            "products and convolutions, or alpha.set_precision('bf16')"
        )
    if precision != "highest":
        raise ValueError(f"set_float32_matmul_precision: {precision!r} is not one of 'highest', 'high', 'medium'")


def get_float32_matmul_precision() -> str:
    """ "highest"."""
    return "highest"


def check_memory_format(operator: str, memory_format: Any) -> None:
    """`TypeError` if an argument is neither None nor one of PyTorch's orders of axes, which change nothing here."""
    if memory_format is not None and not isinstance(memory_format, MemoryFormat):
        raise TypeError(f"{operator}: memory_format={memory_format!r} is not one of alpha.channels_last and others")


def Variable(data: Tensor, requires_grad: bool = False) -> Tensor:
    """The tensor outside the graph, as PyTorch's programs of 2017 wrap it   (...) -> the same memory

    Raises:
        TypeError: `data` is no Tensor.
    """
    if not isinstance(data, Tensor):
        raise TypeError(f"Variable: a Tensor is needed, not a {type_name(data)}")
    wrapped = data.detach()
    wrapped.requires_grad = requires_grad
    return wrapped
