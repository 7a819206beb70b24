"""`alpha.grad`: the gradients of some tensors with respect to others, which no `.grad` takes part in."""

from __future__ import annotations

from collections.abc import Sequence

from alpha.autograd import check_history
from alpha.backward import Targets, backward, checked_tensor
from alpha.errors import GradientError, type_name
from alpha.grad_mode import no_grad
from alpha.primitive import Array
from alpha.runtime.recording import phase
from alpha.tensor import Tensor, full

__all__ = ["grad"]

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
    """
    if create_graph:
        raise ValueError(
            "grad: create_graph=True is not offered, for Alpha has first derivatives only; "
            "write the derivative as a function of tensors, and take the gradient of that"
        )
    if materialize_grads and allow_unused is False:
        raise ValueError("grad: materialize_grads=True allows unused inputs; allow_unused=False contradicts it")
    ends, starts = _tensors("outputs", outputs), _tensors("inputs", inputs)
    given = _given(grad_outputs, len(ends))
    with no_grad(), phase("backward"):
        roots = [(end, _seed(end, seed, index)) for index, (end, seed) in enumerate(zip(ends, given, strict=True))]
        targets = Targets(ends, starts)
        backward(roots, bool(retain_graph), targets)
        found = [targets.found[start._node or start] for start in starts]
        unused = [index for index, array in enumerate(found) if array is None]
        if unused and not (allow_unused or materialize_grads):
            raise GradientError(
                f"grad: no output depends on input {unused[0]} (shape {starts[unused[0]].shape}); "
                "leave it out, or pass allow_unused=True for None"
            )
        return tuple(_result(start, array, materialize_grads) for start, array in zip(starts, found, strict=True))


def _tensors(name: str, given: Tensors) -> tuple[Tensor, ...]:
    """The tensors of an argument, each of which must require a gradient."""
    tensors = (given,) if isinstance(given, Tensor) else tuple(given)
    if not tensors:
        raise ValueError(f"grad: {name} is empty")
    for index, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"grad: {name}[{index}] is a {type_name(tensor)}, a Tensor is needed")
        if not tensor._requires_grad:
            raise GradientError(f"grad: {name}[{index}] (shape {tensor.shape}) does not require a gradient")
        check_history("grad", tensor)
    return tensors


def _given(grad_outputs: Gradients | None, count: int) -> tuple[Tensor | None, ...]:
    if grad_outputs is None:
        return (None,) * count
    given = (grad_outputs,) if isinstance(grad_outputs, Tensor) else tuple(grad_outputs)
    if len(given) != count:
        raise ValueError(f"grad: {len(given)} grad_outputs for {count} outputs")
    return given


def _seed(output: Tensor, given: Tensor | None, index: int) -> Array:
    if given is not None:
        return checked_tensor(given, output, f"grad: grad_outputs[{index}]").array
    if output.size != 1:
        raise GradientError(
            f"grad: grad_outputs[{index}] is needed for an output of {output.size} elements (shape {output.shape})"
        )
    return full(output.shape, 1, output.dtype, output.device).array


def _result(start: Tensor, array: Array | None, zeros: bool) -> Tensor | None:
    if array is not None:
        return Tensor(array)
    return full(start.shape, 0, start.dtype, start.device) if zeros else None
