"""Functions that run twice: `alpha.checkpoint` keeps nothing of the first run, so the backward pass needs a second.

In the first run each operator is recorded as usual, with its edges, and then loses all that it has kept. When the
backward pass meets one of these nodes, the function runs again with the same random numbers, and what the operators of
the second run keep is given to the nodes of the first. So the graph, and the order of all sums of gradients, are those
of a function without checkpoint.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from alpha.errors import GradientError

if TYPE_CHECKING:
    from alpha.autograd.function import Function
    from alpha.core.primitive import Form

T = TypeVar("T")

# What a node keeps after the first run; the others of its attributes come from the second.
_OF_THE_GRAPH = "id", "edges", "recorded_uses", "hooks", "needs_input_grad", "_guards"
_KEPT = frozenset({*_OF_THE_GRAPH, "form", "read_bytes", "is_view", "backward"})


class FirstRun:
    """The first run of a function, in which nothing is kept.

    Args:
        again: runs the function another time.

    Attributes:
        repeated: whether it lies within the second run of another function.
    """

    def __init__(self, again: Callable[[], object]) -> None:
        self._again: Callable[[], object] | None = again
        self._nodes: list[tuple[weakref.ref[Function], str, Form | None]] = []  # a node holds its run
        self._drawn: list[Any] = []
        self._outer = state.run
        self.repeated = repeating()
        self._complete = False

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Context in which this run is the current one."""
        state.run = self
        try:
            yield
        finally:
            state.run, self._outer = self._outer, None
        self._complete = True

    def record(self, node: Function) -> None:
        """Let an operator that was just recorded lose what it keeps."""
        for name in [name for name in vars(node) if name not in _KEPT]:
            delattr(node, name)
        node.free()
        node.first_run = self, len(self._nodes)
        self._nodes.append((weakref.ref(node), node.name, node.form))
        if self._outer is not None:
            self._outer.record(node)

    def draw(self, make: Callable[[], T]) -> T:
        """A random stream, which the second run gets, too."""
        value = make() if self._outer is None else self._outer.draw(make)
        self._drawn.append(value)
        return value

    def replace(self, place: int, node: Function) -> None:
        """Let `node` stand for the operator of that number."""
        self._nodes[place] = weakref.ref(node), *self._nodes[place][1:]

    def run_again(self) -> None:
        """Run the function again, and give its nodes what they need for the backward pass."""
        if not self._complete or self._again is None:
            raise GradientError(
                "checkpoint: the function calls backward through its own operators, which is not offered; "
                "call backward on its result"
            )
        second = SecondRun(self._drawn)
        with second.entered():
            self._again()
        second.check([(name, form) for _, name, form in self._nodes])
        for (first, _, _), node in zip(self._nodes, second.nodes, strict=True):
            if (kept := first()) is not None:
                _move(node, kept)
        self._again, self._drawn = None, []  # the arguments are needed no more


class SecondRun:
    """The second run of a function: it gets the random streams of the first, and its operators keep what they need."""

    repeated = True

    def __init__(self, drawn: list[Any]) -> None:
        self.nodes: list[Function] = []
        self._drawn = iter(drawn)

    @contextmanager
    def entered(self) -> Iterator[None]:
        outer, state.run = state.run, self
        try:
            yield
        finally:
            state.run = outer

    def record(self, node: Function) -> None:
        self.nodes.append(node)

    def draw(self, make: Callable[[], T]) -> T:
        try:
            value: T = next(self._drawn)
        except StopIteration:
            raise GradientError(
                "checkpoint: the function drew more random numbers in the backward pass than in the forward pass"
            ) from None
        return value

    def check(self, first: list[tuple[str, Form | None]]) -> None:
        """`GradientError` if the operators are others than those of the first run."""
        second = [(node.name, node.form) for node in self.nodes]
        for place, (before, now) in enumerate(zip(first, second, strict=False)):
            if before != now:
                raise GradientError(
                    f"checkpoint: operator {place} of the function was {_text(before)} in the forward pass and is "
                    f"{_text(now)} in the backward pass; it must do the same in both"
                )
        if len(first) != len(second):
            raise GradientError(
                f"checkpoint: the function recorded {len(first)} operators in the forward pass and {len(second)} in "
                "the backward pass; it must do the same in both"
            )


class _State(threading.local):
    run: FirstRun | SecondRun | None = None  # the innermost one
    off = False


state = _State()


@contextmanager
def no_checkpoints() -> Iterator[None]:
    """`alpha.checkpoint` does nothing inside, so that nodes can be looked at."""
    before, state.off = state.off, True
    try:
        yield
    finally:
        state.off = before


def repeating() -> bool:
    """True if operators run for the second time: what they count has been counted already."""
    return state.run is not None and state.run.repeated


def _move(source: Function, target: Function) -> None:
    """Give a node what the node of the same operator in the second run keeps."""
    target.first_run = None
    for name, value in vars(source).items():
        if name not in _KEPT:
            setattr(target, name, value)
    target._guards = [*target._guards, *source._guards]
    if source.first_run is not None:  # it lost that at once, in the first run of a function within this one
        run, place = source.first_run
        run.replace(place, target)


def _text(operator: tuple[str, Form | None]) -> str:
    name, form = operator
    return name if form is None else f"{name} {tuple(form[1])} {form[2].name}"
