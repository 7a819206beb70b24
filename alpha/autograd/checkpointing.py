"""Activation checkpointing: less memory for more time, as `torch.utils.checkpoint`. Weights in files are elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from alpha.autograd.grad_mode import enable_grad, is_grad_enabled
from alpha.autograd.memory_mode import get_memory_mode, memory_mode
from alpha.autograd.recompute import FirstRun, state
from alpha.core.nested import tensors_in
from alpha.core.numerics import get_precision, precision
from alpha.errors import GradientError

__all__ = ["checkpoint", "checkpoint_sequential"]


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool = False,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, of which nothing is kept but the arguments; the backward pass runs it again.

    The gradients are those without checkpoint, with the same bits unless something is fused, or kept in another form,
    across the border of the checkpoint: a rectifier's gradient within the convolution behind it on a Hopper GPU, or an
    output by the memory modes "balanced" and "least". Then they are those up to rounding. The second run has the random
    numbers and the precision of the first, so that dropout masks are the same, and batch normalisation updates its
    running statistics in the first run only. Other things that the function changes, as a counter or a list, are
    changed twice. A checkpoint within the function is effective in the second run.

    Args:
        function: takes and returns anything; it must do the same operators in both runs.
        args, kwargs: of the function. Tensors may be nested in lists, tuples and dicts.
        use_reentrant: for PyTorch's programs. Both values do the same, which is what PyTorch does for False.
        preserve_rng_state: only True is offered.

    Raises:
        GradientError: the function writes an argument in place; or, in the backward pass, an argument was written
            since, or the second run differs from the first.
        ValueError: preserve_rng_state is not True.

    Examples:
        >>> import alpha
        >>> x = alpha.ones(2, requires_grad=True)
        >>> y = alpha.checkpoint(lambda x: (x * 3).relu() * 2, x)
        >>> y.sum().backward()
        >>> x.grad.tolist()
        [6.0, 6.0]
    """
    if preserve_rng_state is not True:
        raise ValueError(f"checkpoint: preserve_rng_state={preserve_rng_state} is not offered; only True")
    if state.off or not is_grad_enabled() or isinstance(state.run, FirstRun):
        return function(*args, **kwargs)
    asked, mode, kept = get_precision(), get_memory_mode(), _copied((args, kwargs))
    versions = [(tensor._version, tensor._version.value) for tensor in tensors_in((args, kwargs))]

    def check_versions(when: str, remedy: str) -> None:
        for index, (version, value) in enumerate(versions):
            if version.value != value:
                raise GradientError(
                    f"checkpoint: {version.writer} wrote tensor {index} of the arguments in place {when}, so the "
                    f"function cannot run again; {remedy}"
                )

    def again() -> None:
        check_versions("before the backward pass", "write a copy")
        with enable_grad(), precision(asked), memory_mode(mode):
            function(*kept[0], **kept[1])

    run = FirstRun(again)
    with run.entered():
        result = function(*args, **kwargs)
    check_versions("within the function", "use the operator without the trailing underscore, or inplace=False")
    return result


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, *, use_reentrant: bool = False, preserve_rng_state: bool = True
) -> Any:
    """Call functions one after the other, in `segments` parts, each but the last under `checkpoint`.

    Args:
        functions: an `nn.Sequential`, or a list of functions of one argument.
        segments: how many parts, from 1 to the number of functions.
        input: the argument of the first function.

    Raises:
        ValueError: there are fewer functions than segments.
    """
    if not 1 <= segments <= len(functions):
        raise ValueError(f"checkpoint_sequential: segments={segments} is not in [1, {len(functions)}]")
    size = len(functions) // segments
    for start in range(0, size * (segments - 1), size):
        part = _chain(functions[start : start + size])
        input = checkpoint(part, input, use_reentrant=use_reentrant, preserve_rng_state=preserve_rng_state)
    return _chain(functions[size * (segments - 1) :])(input)


def _chain(functions: Callable[[Any], Any] | Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """One function; a part of a Sequential is one already."""
    if callable(functions):
        return functions

    def call(x: Any) -> Any:
        for function in functions:
            x = function(x)
        return x

    return call


def _copied(value: Any) -> Any:
    """The same tensors in lists, tuples and dicts that nobody else changes."""
    if type(value) in (list, tuple):
        return type(value)([_copied(item) for item in value])
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    return value
