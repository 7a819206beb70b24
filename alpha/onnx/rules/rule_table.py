"""Table of the rules: how each operator is written as nodes of ONNX. An operator without a rule is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alpha.autograd.function import Function
from alpha.core.primitive import Primitive
from alpha.onnx.graph import Graph, Node
from alpha.onnx.recorder import Step

Rule = Callable[[Graph, Step], None]

RULES: dict[Any, Rule] = {}  # by the class of an operator, or by a function that is traced whole
OF_ONE: dict[str, Callable[[float, float], tuple[Node, ...] | None]] = {}  # by the primitive of an elementwise operator


def rule(*kinds: Any) -> Callable[[Rule], Rule]:
    """Declare the rule of operators: their classes, or functions declared by `traced_whole`.

    A rule writes nodes and binds the outputs of the step. It holds for subclasses, too, so for forms in place.
    """

    def declare(function: Rule) -> Rule:
        for kind in kinds:
            RULES[vars(kind).get("traced", kind)] = function
        return function

    return declare


def rule_of(step: Step) -> Rule | None:
    """The rule of an operator; None if there is none."""
    kinds = step.kind.__mro__ if isinstance(step.kind, type) else (step.kind,)
    found = next((RULES[kind] for kind in kinds if kind in RULES), None)
    if found is None and _primitive(step) in OF_ONE:
        return _of_one
    return found


def _primitive(step: Step) -> str:
    """The primitive that an elementwise operator of one tensor consists of; names of primitives are unique."""
    run = getattr(step.kind, "run", None)
    is_one = isinstance(step.kind, type) and issubclass(step.kind, Function) and len(step.inputs) == 1
    return run.name if is_one and isinstance(run, Primitive) else ""


def _of_one(g: Graph, step: Step) -> None:
    numbers = [float(step.fixed(name)) if name in step.options else 0.0 for name in ("p", "q")]
    if set(step.options) - {"p", "q"}:
        raise step.refused(f"with {', '.join(step.options)} cannot be exported")
    chain = OF_ONE[_primitive(step)](*numbers)
    if chain is None:
        raise step.refused(f"with the numbers {', '.join(f'{n:.6g}' for n in numbers)} cannot be exported")
    g.of_one(step, *chain)
