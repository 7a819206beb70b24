"""Listeners: they are told of each leaf once, when its gradient is final, as early as that is known."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alpha
from alpha import Tensor
from alpha.autograd import Function, listeners
from alpha.autograd.listeners import listen, listener_of

Trace = list[tuple[str, Any]]


class Recorder:
    """A listener that notes what it is told, and the gradients as they are then."""

    def __init__(self, trace: Trace | None = None) -> None:
        self.trace: Trace = [] if trace is None else trace
        self.values: dict[int, Any] = {}
        self.told: list[str] = []  # this listener's own part of the trace
        self.in_pass = False

    def begin(self) -> None:
        assert not self.in_pass
        self.in_pass = True

    def ready(self, leaf: Tensor) -> None:
        assert self.in_pass
        assert leaf.grad is not None
        assert id(leaf) not in self.values, "a leaf was told twice"
        self.values[id(leaf)] = leaf.grad.numpy().copy()
        self._note("ready", leaf)

    def finish(self) -> None:
        self._note("finish", self)
        assert self.in_pass
        self.in_pass = False

    def abandon(self) -> None:
        self._note("abandon", self)
        self.in_pass = False

    def _note(self, what: str, of: object) -> None:
        self.told.append(what)
        self.trace.append((what, id(of)))

    def forget(self) -> None:
        self.values.clear()
        self.told.clear()


class Mix(Function):
    """Y = the sum of factor X over the inputs; an input without a factor gets no gradient, and a factor 1 shares dY."""

    def forward(self, *arrays: Any, number: int, factors: tuple[float | None, ...], run: Callable[[int], None]) -> Any:
        self.number, self.factors, self.run = number, factors, run
        return np.sum([array * (factor or 3.0) for array, factor in zip(arrays, factors, strict=True)], axis=0)

    def backward(self, dY: Any) -> Any:
        self.run(self.number)
        return tuple([None if f is None else dY if f == 1 else dY * f for f in self.factors])


@dataclass
class Graph:
    """A random graph over some leaves, which can be built and walked again and again.

    Attributes:
        inputs: by the number of a node the places of its inputs; leaves come before nodes.
        factors: of each node.
        together: nodes that run under `alpha.checkpoint`, each with the one behind it.
        meddling: nodes in whose backward a hook of a leaf comes or goes.
    """

    leaves: int
    hooked: set[int]
    inputs: list[list[int]] = field(default_factory=list)
    factors: list[tuple[float | None, ...]] = field(default_factory=list)
    together: set[int] = field(default_factory=set)
    meddling: dict[int, int] = field(default_factory=dict)
    outputs: list[int] = field(default_factory=list)
    fails_at: int = -1

    @classmethod
    def draw(cls, random: Random) -> Graph:
        leaves = random.randint(1, 5)
        graph = cls(leaves, {leaf for leaf in range(leaves) if random.random() < 0.2})
        for number in range(random.randint(0, 8)):
            known = leaves + number
            count = random.randint(1, 3)
            graph.inputs.append([random.choice([random.randrange(known), known - 1]) for _ in range(count)])
            graph.factors.append(tuple(random.choice([None, 1.0, 1.0, 0.5, -2.0]) for _ in range(count)))
            if random.random() < 0.2:
                graph.together.add(number)
            if random.random() < 0.1:
                graph.meddling[number] = random.randrange(leaves)
        whole = leaves + len(graph.inputs)
        graph.outputs = [whole - 1, *random.choices([whole - 1, *range(whole)], k=random.randint(0, 2))]
        random.shuffle(graph.outputs)
        return graph

    def reached(self) -> tuple[set[int], set[int]]:
        """Leaves, and numbers of nodes, that the outputs depend on."""
        found: set[int] = set()
        left = list(self.outputs)
        while left:
            place = left.pop()
            if place not in found:
                found.add(place)
                left += [] if place < self.leaves else self.inputs[place - self.leaves]
        return {p for p in found if p < self.leaves}, {p - self.leaves for p in found if p >= self.leaves}

    def walk(self, leaves: list[Tensor], trace: Trace, passes: int = 1) -> None:
        """Build the graph on these leaves, and walk backward through it."""
        handles = {leaf: leaves[leaf].register_hook(lambda g: g * 2.0) for leaf in self.hooked}

        def run(number: int) -> None:
            trace.append(("run", number))
            if number == self.fails_at:
                raise error_of(number)("the rule of a gradient")
            leaf = self.meddling.get(number)
            if leaf in handles:
                handles.pop(leaf).remove()
            elif leaf is not None:
                handles[leaf] = leaves[leaf].register_hook(lambda g: g * 2.0)

        def node(number: int, *tensors: Tensor) -> Tensor:
            return Mix.apply(*tensors, number=number, factors=self.factors[number], run=run)

        values = list(leaves)
        for number, places in enumerate(self.inputs):
            given = [values[place] for place in places]
            if number in self.together:
                values.append(alpha.checkpoint(lambda *x, number=number: node(number, *x) * 1.0, *given))
            else:
                values.append(node(number, *given))
        ends = [values[place] for place in self.outputs]
        seeds = [alpha.full_like(end, 1.0 + place) for place, end in enumerate(ends)]
        for left in reversed(range(passes)):
            alpha.autograd.backward(ends, seeds, retain_graph=left > 0)
        for handle in handles.values():
            handle.remove()


def error_of(number: int) -> type[BaseException]:
    return (ArithmeticError, KeyboardInterrupt)[number % 2]


def made(graph: Graph, begun: bool = False) -> list[Tensor]:
    """The leaves of a graph; `begun`: some have a gradient already."""
    leaves = [alpha.tensor([1.0, -2.0, leaf], requires_grad=True, dtype="float64") for leaf in range(graph.leaves)]
    for leaf in leaves[::2] if begun else []:
        leaf.grad = alpha.tensor([8.0, 8.0, 8.0], dtype="float64")
    return leaves


def gradients(leaves: list[Tensor]) -> list[list[float] | None]:
    return [None if leaf.grad is None else leaf.grad.numpy().tolist() for leaf in leaves]


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(
    st.randoms(use_true_random=False), st.lists(st.sampled_from([None, 0, 0, 1]), min_size=5, max_size=5), st.booleans()
)
def test_each_leaf_is_ready_once_with_its_final_gradient(random: Random, owners: list[int | None], begun: bool) -> None:
    graph = Graph.draw(random)
    plain, new = made(graph, begun), made(graph)
    with patch.dict(listeners._listeners, clear=True):  # those of other tests
        graph.walk(plain, [])
        graph.walk(new, [])
        leaves, trace = made(graph, begun), Trace()
        recorders = [Recorder(trace), Recorder(trace)]
        owned = {leaf: recorders[owner] for leaf, owner in enumerate(owners[: graph.leaves]) if owner is not None}
        for leaf, owner in owned.items():
            listen(leaves[leaf], owner)
        graph.walk(leaves, trace)
    assert gradients(leaves) == gradients(plain)
    got = [leaf for leaf in owned if new[leaf].grad is not None]
    reached, nodes = graph.reached()
    for leaf, owner in owned.items():
        assert (id(leaves[leaf]) in owner.values) == (leaf in got)
        if leaf in got:
            assert owner.values[id(leaves[leaf])].tolist() == gradients(leaves)[leaf], "more came behind `ready`"
    for recorder in recorders:
        listens = any(owned[leaf] is recorder for leaf in owned if leaf in reached)
        assert recorder.told[len(recorder.values) :] == ["finish"] * listens
        assert recorder.told[: len(recorder.values)] == ["ready"] * len(recorder.values)
    ends = [what == "finish" for what, _ in trace]
    assert ends == sorted(ends), "something came behind `finish`"
    ran = [number for what, number in trace if what == "run"]
    for leaf in got:  # as soon as the last node that uses the leaf has run, if all of them run
        uses = {number for number in nodes if leaf in graph.inputs[number]}
        if leaf in graph.hooked or leaf in graph.meddling.values() or not uses.issubset(ran):
            continue
        place = trace.index(("ready", id(leaves[leaf])))
        last = max((trace.index(("run", number)) for number in uses), default=-1)
        assert [what for what, _ in trace[last + 1 : place] if what == "run"] == []


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(2, 3))
def test_each_pass_through_a_graph_is_told_anew(random: Random, passes: int) -> None:
    graph = Graph.draw(random)
    graph.meddling.clear()
    graph.together.clear()

    class Counting(Recorder):
        def ready(self, leaf: Tensor) -> None:
            self.values.pop(id(leaf), None)
            super().ready(leaf)

    leaves, recorder = made(graph), Counting()
    for leaf in leaves:
        listen(leaf, recorder)
    graph.walk(leaves, [], passes)
    one = len(recorder.values)
    assert recorder.told == (["ready"] * one + ["finish"]) * passes
    for leaf in leaves:
        if leaf.grad is not None:
            assert recorder.values[id(leaf)].tolist() == leaf.grad.numpy().tolist()


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_pass_that_fails_is_abandoned(random: Random) -> None:
    graph = Graph.draw(random)
    leaves, trace = made(graph), Trace()
    recorders = [Recorder(trace) for _ in leaves]
    for leaf, recorder in zip(leaves, recorders, strict=True):
        listen(leaf, recorder)
    graph.walk(leaves, trace)
    ran = [number for what, number in trace if what == "run"]
    if not ran:
        return
    for recorder in recorders:
        recorder.forget()
    graph.fails_at = random.choice(ran)
    with pytest.raises((ArithmeticError, KeyboardInterrupt), match="the rule of a gradient"):
        graph.walk(leaves, trace)
    reached, _ = graph.reached()
    for leaf, recorder in enumerate(recorders):
        assert recorder.told == ["ready"] * len(recorder.values) + ["abandon"] * (leaf in reached)
    for leaf in leaves:
        for handle in list(leaf._hooks):
            handle.remove()
    graph.fails_at = -1
    for recorder in recorders:
        recorder.forget()
    graph.walk(leaves, trace)  # nothing is left of the pass that failed
    for leaf, recorder in enumerate(recorders):
        assert recorder.told == ["ready"] * len(recorder.values) + ["finish"] * (leaf in reached)


@pytest.mark.parametrize("where", ["hook of a leaf", "ready", "finish", "shape"])
def test_whatever_fails_the_pass_is_abandoned(where: str) -> None:
    class Failing(Recorder):
        def ready(self, leaf: Tensor) -> None:
            super().ready(leaf)
            assert where != "ready"

        def finish(self) -> None:
            super().finish()
            assert where != "finish"

    def refuse(gradient: Tensor) -> None:
        raise AssertionError

    x, w = (alpha.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    recorder = Failing()
    listen(x, recorder)
    if where == "hook of a leaf":
        w.register_hook(refuse)

    class Wrong(Function):
        def forward(self, X: Any) -> Any:
            return X.copy()

        def backward(self, dY: Any) -> Any:
            return dY[:1] if where == "shape" else dY

    with pytest.raises((AssertionError, alpha.ShapeError)):
        (Wrong.apply(x) * w).sum().backward()
    assert recorder.told[-1] == "abandon"
    assert ("finish" in recorder.told) == (where == "finish")


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 12), st.integers(1, 3), st.booleans(), st.integers(1, 2))
def test_leaves_near_the_output_are_ready_before_the_pass_reaches_the_first_layer(
    depth: int, weights: int, checkpointed: bool, outputs: int
) -> None:
    """Gradients can travel while the pass goes on."""
    trace = Trace()

    class Layer(Function):
        def forward(self, X: Any, *W: Any, number: int) -> Any:
            self.number, self.count = number, len(W)
            return X + sum(W)

        def backward(self, dY: Any) -> Any:
            trace.append(("run", self.number))
            return (dY, *[dY] * self.count)

    leaves = [[alpha.zeros(2, requires_grad=True) for _ in range(weights)] for _ in range(depth)]
    recorder = Recorder(trace)
    for leaf in chain.from_iterable(leaves):
        listen(leaf, recorder)
    x = alpha.zeros(2)
    for number, own in enumerate(leaves):
        if checkpointed:
            x = alpha.checkpoint(lambda x, own=own, number=number: Layer.apply(x, *own, number=number), x)
        else:
            x = Layer.apply(x, *own, number=number)
    alpha.autograd.backward([x] * outputs, [x] * outputs)
    expected = Trace()
    for number in reversed(range(depth)):
        expected += [("run", number), *(("ready", id(leaf)) for leaf in leaves[number])]
    assert trace == [*expected, ("finish", id(recorder))]


@pytest.mark.slow
def test_leaves_of_a_model_are_ready_in_the_order_of_its_layers(device: str) -> None:
    """Operators that add their gradient in place, give views, or have several results count as others do."""
    alpha.manual_seed(0)
    model = alpha.nn.Sequential(
        alpha.nn.Linear(4, 6), alpha.nn.LayerNorm(6), alpha.nn.ReLU(), alpha.nn.Linear(6, 4), alpha.nn.Linear(4, 3)
    ).to(device)
    recorder = Recorder()
    for parameter in model.parameters():
        listen(parameter, recorder)
    x = alpha.randn(5, 4, device=device)
    hidden = model[0](x)
    first, second = hidden[1:], hidden[:-1]  # each adds its part
    left, right = alpha.chunk(model[2](model[1](first + second + hidden[:4])), 2, 0)
    y = alpha.cat([right, left], 0)
    model[4](model[3](y).reshape(4, 4)).sum().backward()
    order = [what for what, _ in recorder.trace]
    assert order == ["ready"] * 8 + ["finish"]
    told = [number for number, _ in enumerate(model.parameters())]
    places = {id(parameter): number for number, parameter in enumerate(model.parameters())}
    assert [places[of] // 2 for what, of in recorder.trace if what == "ready"] == [3, 3, 2, 2, 1, 1, 0, 0]
    assert len(told) == 8
    for parameter in model.parameters():
        assert parameter.grad is not None
        np.testing.assert_array_equal(recorder.values[id(parameter)], parameter.grad.numpy())


def test_a_leaf_may_be_an_output() -> None:
    x, recorder = alpha.tensor([1.0], requires_grad=True), Recorder()
    listen(x, recorder)
    x.backward(alpha.tensor([3.0]))
    assert (recorder.told, recorder.values[id(x)].tolist()) == (["ready", "finish"], [3.0])
    recorder.forget()
    alpha.autograd.backward([x, x * 2.0, x], [alpha.tensor([1.0])] * 3)
    assert (recorder.told, recorder.values[id(x)].tolist()) == (["ready", "finish"], [7.0])


def test_gradients_that_are_only_asked_for_are_not_told() -> None:
    x, recorder = alpha.tensor([1.0], requires_grad=True), Recorder()
    listen(x, recorder)
    alpha.autograd.grad((x * 2.0).sum(), x)
    assert recorder.told == []


def test_a_new_listener_takes_the_place_of_the_one_before() -> None:
    x, first, second = alpha.tensor([1.0], requires_grad=True), Recorder(), Recorder()
    listen(x, first)
    listen(x, second)
    assert listener_of(x) is second
    (x * 2.0).sum().backward()
    assert (first.told, second.told) == ([], ["ready", "finish"])
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None
    assert listener_of(x) is second  # the end of the first one means nothing now


@pytest.mark.parametrize("walked", [False, True])
@pytest.mark.parametrize("circle", [False, True])
def test_the_dead_are_forgotten(walked: bool, circle: bool) -> None:
    """No leaf and no listener is kept alive, and nothing remains of them."""

    def pair() -> tuple[Tensor, Recorder]:
        leaf, recorder = alpha.tensor([1.0], requires_grad=True), Recorder()
        listen(leaf, recorder)
        if walked:
            (leaf * 2.0).sum().backward()
        if circle:
            recorder.own = recorder  # type: ignore[attr-defined]
        return leaf, recorder

    with patch.dict(listeners._listeners, clear=True):
        leaf, recorder = pair()
        gone = weakref.ref(leaf)
        del leaf
        gc.collect()
        assert gone() is None
        assert not listeners._listeners
        leaf, recorder = pair()
        lost = weakref.ref(recorder)
        del recorder
        gc.collect()
        assert lost() is None
        assert not listeners._listeners
        assert listener_of(leaf) is None
        (leaf * 2.0).sum().backward()
        for _ in range(100):  # an id comes again
            leaf, recorder = pair()
            assert listener_of(leaf) is recorder
        del leaf, recorder
        gc.collect()
        assert not listeners._listeners


def test_a_listener_may_die_during_a_pass() -> None:
    x, w = (alpha.tensor([1.0], requires_grad=True) for _ in range(2))
    others = [Recorder()]

    class Last(Recorder):
        def ready(self, leaf: Tensor) -> None:
            others.clear()
            super().ready(leaf)

    last = Last()
    listen(w, last)
    listen(x, others[0])
    ((x * 2.0) * w).sum().backward()
    assert last.told == ["ready", "finish"]
    assert listener_of(x) is None


def test_without_listeners_nothing_is_counted() -> None:
    x = alpha.tensor([1.0], requires_grad=True)
    with patch.dict(listeners._listeners, clear=True), patch.object(listeners, "Uses", side_effect=AssertionError):
        recorder = Recorder()
        listen(x, recorder)
        with pytest.raises(AssertionError):
            x.sum().backward()
        del recorder
        gc.collect()
        (x * 2.0).sum().backward()
        assert x.grad is not None
