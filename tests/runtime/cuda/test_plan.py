"""Plans of a step's memory: no two blocks that live at the same time overlap, and little is left between them."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from alpha.runtime.cuda.scratch import Life, MemoryPlan, Trace

LIVES = st.lists(
    st.builds(
        lambda nbytes, birth, length: Life(512 * nbytes, birth, birth + length),
        st.integers(1, 40),
        st.integers(0, 30),
        st.one_of(st.integers(1, 30), st.just(inf)),
    ),
    max_size=40,
)


def least(lives: list[Life]) -> int:
    """The most bytes that live at once."""
    return max((sum(x.nbytes for x in lives if x.birth <= at < x.death) for at in range(70)), default=0)


@given(LIVES)
def test_nothing_that_lives_at_the_same_time_overlaps(lives: list[Life]) -> None:
    plan = MemoryPlan(lives)
    placed = [(plan.offset(i, life.nbytes), life) for i, life in enumerate(lives)]
    for i, (offset, life) in enumerate(placed):
        assert offset is not None
        assert offset >= 0
        assert offset + life.nbytes <= plan.nbytes
        for other, second in placed[:i]:
            assert other is not None
            apart = offset + life.nbytes <= other or other + second.nbytes <= offset
            assert apart or life.birth >= second.death or second.birth >= life.death
    assert least(lives) <= plan.nbytes <= sum(life.nbytes for life in lives)


def test_a_layered_network_takes_no_more_than_what_lives_at_once() -> None:
    """Activations that grow in the forward pass and go in the backward pass, with a short-lived array at each layer."""
    sizes = [512 * n for n in (64, 64, 32, 32, 32, 16, 16, 8, 8, 4)]
    layers = len(sizes)
    lives = [Life(n, 2 * i, 4 * layers - 2 * i) for i, n in enumerate(sizes)]
    lives += [Life(n, 2 * i + 1, 2 * i + 2) for i, n in enumerate(sizes)]
    lives += [Life(n, 4 * layers - 2 * i - 1, 4 * layers - 2 * i + 1) for i, n in enumerate(sizes)]
    plan = MemoryPlan(sorted(lives, key=lambda life: life.birth))
    assert plan.nbytes <= 1.05 * least(lives)


def test_another_size_is_not_planned() -> None:
    plan = MemoryPlan([Life(512, 0, 1), Life(1024, 1)])
    assert plan.offset(0, 512) == 0
    assert plan.offset(1, 512) is None
    assert plan.offset(2, 512) is None


def test_a_trace_notes_what_is_made_and_dropped() -> None:
    trace = Trace()
    trace.born(4096, 512)
    trace.born(8192, 1024)
    trace.died(4096)
    trace.died(5120)  # from before
    trace.born(4096, 512)
    assert trace.lives == [Life(512, 0, 2), Life(1024, 1, inf), Life(512, 2, inf)]
    assert (trace.begin, trace.end, trace.count) == (4096, 9216, 3)
