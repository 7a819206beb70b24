"""`alpha.grad`, in which no `.grad` takes part, and `alpha.autograd.backward`: the gradients of several tensors."""

from __future__ import annotations

from collections.abc import Sequence

from alpha.autograd.engine import Targets, checked_tensor
from alpha.autograd.engine import backward as walk
from alpha.autograd.grad_mode import without_grad
from alpha.autograd.versions import check_history
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor, full
from alpha.errors import GradientError, type_name
from alpha.runtime.recording import phase

__all__ = ["backward", "grad"]

Tensors = Tensor | Sequence[Tensor]
Gradients = Tensor | Sequence[Tensor | None]


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Gradients | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    *,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The sum of d(output . grad_output)/d(input) over all outputs, for each input, as `torch.autograd.grad`.

    No `.grad` changes, and only operators between the outputs and the inputs run backward. An input may be a leaf or a
    result of operators. Hooks of an input run; hooks of other leaves do not.

    Args:
        outputs, inputs: a tensor or several.
        grad_outputs: one of the shape, dtype and device of each output; None is 1, for an output of one element.
        retain_graph: keep what the graph saved, for another walk through it.
        create_graph: only False is offered: a gradient has no graph, so there are no second derivatives.
        allow_unused: give None for an input that no output depends on, instead of an error.
        materialize_grads: give zeros for such an input.

    Raises:
        GradientError: an output or an input requires no gradient, an input is unused, a gradient is missing or of
            another dtype or device, or the graph was freed.
        ShapeError: a gradient has another shape than its output.
        TypeError: something is no Tensor.
        ValueError: create_graph is True, the numbers of outputs and of their gradients differ, or allow_unused and
            materialize_grads contradict each other.

    Examples:
        >>> import alpha
        >>> x = alpha.tensor([1.0, 2.0], requires_grad=True)
        >>> alpha.grad((x**3).sum(), [x])[0].tolist()
        [3.0, 12.0]
    """
    if create_graph:
        raise ValueError(
            "grad: create_graph=True is not offered, for Alpha has first derivatives only; "
            "write the derivative as a function of tensors, and take the gradient of that"
        )
    if materialize_grads and allow_unused is False:
        raise ValueError("grad: materialize_grads=True allows unused inputs; allow_unused=False contradicts it")
    ends, starts = _tensors("grad", "outputs", outputs), _tensors("grad", "inputs", inputs)
    given = _given("grad", grad_outputs, len(ends))

    def run() -> tuple[Tensor | None, ...]:
        with phase("backward"):
            roots = _roots("grad", ends, given)
            targets = Targets(ends, starts)
            walk(roots, bool(retain_graph), targets)
        found = [targets.found[start._node or start] for start in starts]
        unused = [index for index, array in enumerate(found) if array is None]
        if unused and not (allow_unused or materialize_grads):
            raise GradientError(
                f"grad: no output depends on input {unused[0]} (shape {starts[unused[0]].shape}); "
                "leave it out, or pass allow_unused=True for None"
            )
        return tuple(_result(start, array, materialize_grads) for start, array in zip(starts, found, strict=True))

    return without_grad(run)


def backward(
    tensors: Tensors,
    grad_tensors: Gradients | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: None = None,
) -> None:
    """Add the sum of d(tensor . grad_tensor)/d(leaf) over all tensors to `.grad` of each leaf, in one walk.

    Args:
        tensors: a tensor or several.
        grad_tensors: one of the shape, dtype and device of each tensor; None is 1, for a tensor of one element.
        retain_graph: keep what the graph saved, for another walk through it.
        create_graph, inputs: not offered; only False and None.

    Raises:
        GradientError, ShapeError, TypeError, ValueError: as `alpha.grad` says.
    """
    if create_graph or inputs is not None:
        raise ValueError("backward: create_graph and inputs are not offered; only False and None")
    ends = _tensors("backward", "tensors", tensors)
    given = _given("backward", grad_tensors, len(ends))

    def run() -> None:
        with phase("backward"):
            walk(_roots("backward", ends, given), bool(retain_graph))

    without_grad(run)


def _tensors(operator: str, name: str, given: Tensors) -> tuple[Tensor, ...]:
    """The tensors of an argument, each of which must require a gradient."""
    tensors = (given,) if isinstance(given, Tensor) else tuple(given)
    if not tensors:
        raise ValueError(f"{operator}: {name} is empty")
    for index, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{operator}: {name}[{index}] is a {type_name(tensor)}, a Tensor is needed")
        if not tensor._requires_grad:
            raise GradientError(f"{operator}: {name}[{index}] (shape {tensor.shape}) does not require a gradient")
        check_history(operator, tensor)
    return tensors


def _given(operator: str, gradients: Gradients | None, count: int) -> tuple[Tensor | None, ...]:
    if gradients is None:
        return (None,) * count
    given = (gradients,) if isinstance(gradients, Tensor) else tuple(gradients)
    if len(given) != count:
        ends, seeds = _WORDS[operator]
        raise ValueError(f"{operator}: {len(given)} {seeds} for {count} {ends}")
    return given


_WORDS = {"grad": ("outputs", "grad_outputs"), "backward": ("tensors", "grad_tensors")}


def _roots(operator: str, ends: Sequence[Tensor], given: Sequence[Tensor | None]) -> list[tuple[Tensor, Array]]:
    """Each output with the gradient that it begins with."""
    roots = []
    for index, (end, seed) in enumerate(zip(ends, given, strict=True)):
        where = f"{operator}: {_WORDS[operator][1]}[{index}]"
        if seed is not None:
            roots.append((end, checked_tensor(seed, end, where).array))
        elif end.array.size != 1:
            raise GradientError(f"{where} is needed for an output of {end.array.size} elements (shape {end.shape})")
        else:
            roots.append((end, full(end.shape, 1, end.dtype, end.device).array))
    return roots


def _result(start: Tensor, array: Array | None, zeros: bool) -> Tensor | None:
    if array is not None:
        return Tensor(array)
    return full(start.shape, 0, start.dtype, start.device) if zeros else None
