"""Functions in PyTorch's form: static `forward(ctx, ..)` and `backward(ctx, ..)` that compute with tensors.

A call is one node of the graph. `forward` runs outside of the graph, and `backward` of the class is its gradient rule.
If `forward` returns several floating tensors, the node makes one flat array of them, and each output is a part of it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from alpha.autograd.function import Function
from alpha.autograd.grad_mode import no_grad
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array
from alpha.core.tensor import Shape, Tensor
from alpha.errors import GradientError, type_name


class FunctionCtx:
    """Values that `forward` keeps for `backward`: tensors of `save_for_backward`, and attributes under any other name.

    Attributes:
        needs_input_grad: whether each argument of `apply` wants a gradient.
        saved_tensors: in `backward`, what `save_for_backward` was given.
    """

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self._saved: tuple[Tensor | None, ...] = ()
        self._constant: tuple[Tensor, ...] = ()
        self._materialize = True
        self._reached: set[int] = set()  # which outputs a backward pass has a gradient of, without `_materialize`

    def __setattr__(self, name: str, value: Any) -> None:
        if name in METHODS:
            raise AttributeError(f"ctx.{name} cannot be written; call ctx.{METHODS[name]}(..)")
        object.__setattr__(self, name, value)

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        return self._saved

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for `backward`, which refuses inputs and outputs that were written in place since."""
        _check_tensors("save_for_backward", [tensor for tensor in tensors if tensor is not None])
        self._saved = tensors

    def mark_non_differentiable(self, *outputs: Tensor) -> None:
        """Outputs that require no gradient; integers and bools never do."""
        _check_tensors("mark_non_differentiable", outputs)
        self._constant = outputs

    def set_materialize_grads(self, value: bool) -> None:
        """False: `backward` gets None, not zeros, for an output that has no gradient, because nobody has used it."""
        self._materialize = value

    def mark_dirty(self, *inputs: Tensor) -> None:
        raise GradientError("mark_dirty is not offered: write forward so that it returns a new tensor")

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Does nothing: what it keeps is read by `jvp`, and there are no derivatives in forward mode."""


# attributes that PyTorch's ctx has for what these methods are given
METHODS = {
    "saved_tensors": "save_for_backward",
    "to_save": "save_for_backward",
    "non_differentiable": "mark_non_differentiable",
    "materialize_grads": "set_materialize_grads",
    "dirty_tensors": "mark_dirty",
    "saved_for_forward": "save_for_forward",
}


def _check_tensors(method: str, tensors: Sequence[Any]) -> None:
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{method}: a {type_name(tensor)} is no Tensor; keep it as an attribute, ctx.name = value")


class Call(Function):
    """The node of one call; each class in PyTorch's form has a subclass of it.

    Attributes:
        rule: the class in PyTorch's form.
        taken: which arguments of `apply` are tensors.
        results: of each result of forward, its shape, its dtype, and whether it wants a gradient; None for no tensor.
        gaps: which of the saved tensors are None.
    """

    rule: type[Function]
    lends = True
    ctx: FunctionCtx
    taken: tuple[bool, ...]
    results: tuple[tuple[Shape, Any, bool] | None, ...]
    gaps: tuple[bool, ...]

    def backward(self, dY: Array) -> Any:
        rule, ctx, given = self.rule, self.ctx, Tensor(dY)
        if not isinstance(inspect.getattr_static(rule, "backward"), staticmethod):
            raise GradientError(f"{self.name} has no backward")
        saved = iter(self.saved if self.gaps else ())
        ctx._saved = tuple([None if gap else Tensor(next(saved)) for gap in self.gaps])
        try:
            with no_grad():
                found = rule.backward(ctx, *self._parts(given))  # type: ignore[arg-type]
        finally:
            ctx._saved = ()
            ctx._reached.clear()
        if given._version.value:
            raise GradientError(f"{self.name}: backward wrote to its gradient in place; write to a .clone() of it")
        return self._checked(found if isinstance(found, (tuple, list)) else (found,))

    def _parts(self, given: Tensor) -> list[Tensor | None]:
        """The gradient of each result of forward."""
        parts: list[Tensor | None] = []
        start, alone = 0, sum(found is not None and found[2] for found in self.results) == 1
        materialize, reached = self.ctx._materialize, self.ctx._reached
        for place, found in enumerate(self.results):
            if found is None:
                parts.append(None)
                continue
            shape, dtype, wanted = found
            if not wanted:
                parts.append(given.new_zeros(shape, dtype=dtype) if materialize else None)
            elif alone:
                parts.append(given)
            else:
                end = start + math.prod(shape)
                parts.append(given[start:end].reshape(shape) if materialize or place in reached else None)
                start = end
        return parts

    def _checked(self, found: Sequence[Any]) -> tuple[Array | None, ...]:
        """The gradients of the inputs that are tensors, of what backward returned for all arguments."""
        more = found[len(self.taken) :]
        if len(found) < len(self.taken) or any(gradient is not None for gradient in more):
            raise GradientError(
                f"{self.name}: backward returned {len(found)} gradients for the {len(self.taken)} arguments of "
                "forward behind ctx; it returns one for each, None for what has no gradient"
            )
        for place, (gradient, taken) in enumerate(zip(found, self.taken, strict=False)):
            if gradient is not None and not (taken and isinstance(gradient, Tensor)):
                what = "a Tensor or None is needed" if taken else "the argument is no Tensor, so None is needed"
                raise GradientError(f"{self.name}: gradient {place} is a {type_name(gradient)}; {what}")
        pairs = zip(found, self.taken, strict=False)
        return tuple([gradient if gradient is None else gradient.array for gradient, taken in pairs if taken])


def apply(cls: Any, *args: Any) -> Any:
    """Run the static forward of a class on `args`, and record the call if one of the tensors wants a gradient."""
    node: Call = cls._call()
    inputs = [arg for arg in args if isinstance(arg, Tensor)]
    _, tensors = node.take(inputs)
    needs = iter(node.needs_input_grad)
    node.taken = tuple([isinstance(arg, Tensor) for arg in args])
    ctx = node.ctx = FunctionCtx(tuple([taken and next(needs) for taken in node.taken]))
    with no_grad():
        if hasattr(cls, "setup_context"):
            made = cls.forward(*args)
            cls.setup_context(ctx, args, made)
        else:
            made = cls.forward(ctx, *args)
    saved, ctx._saved = ctx._saved, ()
    node.gaps = tuple([tensor is None for tensor in saved])
    if saved:
        node.save(*[tensor.array for tensor in saved if tensor is not None])
    outputs = list(made) if isinstance(made, (tuple, list)) else [made]
    wanted = [output for output in outputs if _wants_gradient(output, ctx)]
    ctx._constant = ()
    node.results = tuple(
        [
            (output.shape, output.dtype, _is_among(output, wanted)) if isinstance(output, Tensor) else None
            for output in outputs
        ]
    )
    parts = _recorded(node, wanted, inputs, tensors)
    watched = not ctx._materialize and len(parts) > 1
    for place, output in enumerate(outputs):
        if isinstance(output, Tensor):
            outputs[place] = part = parts.pop(0) if _is_among(output, wanted) else output.detach()
            if watched and part.requires_grad:
                part.register_hook(partial(_note, ctx._reached, place))
    return tuple(outputs) if isinstance(made, (tuple, list)) else outputs[0]


def _note(reached: set[int], place: int, gradient: Tensor) -> None:
    """The hook of an output: a backward pass has its gradient."""
    reached.add(place)


def _wants_gradient(output: Any, ctx: FunctionCtx) -> bool:
    return isinstance(output, Tensor) and is_floating(output.dtype) and not _is_among(output, ctx._constant)


def _is_among(tensor: Tensor, tensors: Sequence[Tensor]) -> bool:
    return any(tensor is other for other in tensors)


def _recorded(node: Call, wanted: list[Tensor], inputs: list[Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
    """The outputs that may require a gradient, with the node behind them."""
    if len(wanted) == 1:
        return [node.give(wanted[0].array, inputs, tensors)]
    if True not in node.needs_input_grad:
        return [output.detach() for output in wanted]
    kinds = {output.dtype.name for output in wanted}
    if len(kinds) > 1:
        raise TypeError(f"{node.name}: forward returned tensors of {' and '.join(sorted(kinds))}; one dtype is needed")
    sizes = [math.prod(output.shape) for output in wanted]
    with no_grad():
        flat = wanted[0].new_empty(sum(sizes))
        for end, (size, output) in zip(_ends(sizes), zip(sizes, wanted, strict=True), strict=True):
            flat[end - size : end] = output.reshape(size)
    whole = node.give(flat.array, inputs, tensors)
    pairs = zip(_ends(sizes), wanted, strict=True)
    return [whole[end - output.size : end].reshape(output.shape) for end, output in pairs]


def _ends(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[: place + 1]) for place in range(len(sizes))]


def complete(cls: Any) -> None:
    """Give a class with a static forward the node of its calls, and the `apply` that makes one.

    Raises:
        TypeError: one of forward and backward is static and the other is not.
    """
    static = [isinstance(inspect.getattr_static(cls, name), staticmethod) for name in ("forward", "backward")]
    has_rule = inspect.getattr_static(cls, "backward") is not inspect.getattr_static(Function, "backward")
    if static[0] != static[1] and (has_rule or static[1]):
        one, other = ("forward", "backward") if static[0] else ("backward", "forward")
        raise TypeError(
            f"{cls.__name__}: {one} is a staticmethod, {other} is not; both are static and take ctx and tensors, as "
            "in PyTorch, or both are methods that take arrays"
        )
    cls._call = type(cls.__name__, (Call,), {"rule": cls, "__doc__": f"A call of {cls.__name__}."})
    cls.apply = classmethod(apply)
