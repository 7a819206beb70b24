"""Actions of a step in its first calls alone, which do not stop its capture, and at each call, which are named."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.errors import CaptureError, CaptureWarning
from alpha.step.capturing.attempt import FIRST_REST, GROWTH, MOST_DOUBTS

pytestmark = pytest.mark.usefixtures("cuda")
Step = Callable[[alpha.Tensor], alpha.Tensor]


class Net(nn.Module):
    """A layer, whose result is multiplied with a mask that is made once."""

    def __init__(self) -> None:
        self.fc, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.mask: alpha.Tensor | None = None
        self.calls = 0
        self.seen: list[int] = []

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        if self.mask is None:
            self.mask = alpha.tensor(np.tri(4, 3, dtype=np.float32), device=x.device)
        return self.norm(self.fc(x)) * self.mask


def with_mask(net: Net) -> Step:
    return lambda x: net(x).sum()


def with_train(net: Net) -> Step:
    net.eval()

    def step(x: alpha.Tensor) -> alpha.Tensor:
        net.train()
        return net(x).sum()

    return step


def with_means(net: Net) -> Step:
    means: dict[str, alpha.Tensor] = {}

    def step(x: alpha.Tensor) -> alpha.Tensor:
        y = net(x).sum()
        for name, p in net.named_parameters():
            if name in means:
                means[name].mul_(0.9).add_(p.detach(), alpha=0.1)
            else:
                means[name] = p.detach().clone()
        return y + sum(mean.sum() for mean in means.values())

    return step


def with_flag(net: Net) -> Step:
    inner = nn.Sequential(net)

    def step(x: alpha.Tensor) -> alpha.Tensor:
        inner.flag = True
        return inner(x).sum()

    return step


def with_count_to(limit: int) -> Callable[[Net], Step]:
    def make(net: Net) -> Step:
        def step(x: alpha.Tensor) -> alpha.Tensor:
            if net.calls < limit:
                net.calls += 1
            return net(x).sum() * net.calls

        return step

    return make


ONCE = {
    "a mask": with_mask,
    "train()": with_train,
    "means": with_means,
    "a flag": with_flag,
    "a count of two": with_count_to(2),
}


def results(make: Callable[[Net], Step], wrap: Callable[[Step], Any], calls: int) -> tuple[list[float], Any, Net]:
    alpha.manual_seed(0)
    draw = np.random.default_rng(0)
    net = Net().to("cuda")
    step = wrap(make(net))
    inputs = [alpha.tensor(draw.standard_normal((4, 3), dtype=np.float32), device="cuda") for _ in range(calls)]
    return [step(x).item() for x in inputs], step, net


@pytest.mark.parametrize("name", ONCE)
def test_what_is_done_in_the_first_calls_alone_stops_no_capture(name: str) -> None:
    expected, *_ = results(ONCE[name], lambda step: step, 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CaptureWarning)
        found, step, _ = results(ONCE[name], alpha.capture, 10)
    assert found == expected
    assert len(step.graphs) == 1
    assert step.why_not == ""


def test_what_a_kind_of_call_does_at_first_stops_no_capture_of_it() -> None:
    """Another shape needs another mask when the step is captured already."""
    masks: dict[int, alpha.Tensor] = {}

    def step(x: alpha.Tensor) -> alpha.Tensor:
        if len(x) not in masks:
            masks[len(x)] = alpha.tensor(np.arange(len(x), dtype=np.float32), device="cuda")
        return (x * masks[len(x)]).sum()

    captured = alpha.capture(step)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CaptureWarning)
        for count in (2, 5):
            x = alpha.tensor(np.ones(count, np.float32), device="cuda")
            assert [captured(x).item() for _ in range(6)] == [count * (count - 1) / 2] * 6
    assert len(captured.graphs) == 2


def test_train_at_the_first_step_of_each_epoch() -> None:
    """The step changes the mode once per epoch, and the other steps are replays."""

    def epochs(wrap: Callable[[Step], Any]) -> tuple[list[float], Any]:
        alpha.manual_seed(0)
        net = Net().to("cuda")
        step, found = wrap(with_train(net)), []
        for _ in range(8):
            net.eval()
            found += [step(alpha.tensor(np.eye(4, 3, dtype=np.float32), device="cuda")).item() for _ in range(6)]
        return found, step

    expected, _ = epochs(lambda step: step)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CaptureWarning)
        found, step = epochs(alpha.capture)
    assert found == expected
    assert step.graphs


def test_what_delays_a_capture_is_named() -> None:
    _, step, _ = results(with_count_to(2), alpha.capture, 2)
    assert step.describe() == "nothing is captured yet; what has delayed it: it changes net.calls: 1 became 2"
    _, step, _ = results(lambda net: lambda x: x.sum(), alpha.capture, 1)
    assert step.describe() == "nothing is captured yet"


def test_a_step_that_is_refused_is_tried_again_later() -> None:
    """The step is tried after FIRST_REST calls, and then after GROWTH times as many."""
    calls = MOST_DOUBTS + FIRST_REST + 12
    expected, *_ = results(with_count_to(20), lambda step: step, calls)
    with pytest.warns(CaptureWarning, match=r"it changes net\.calls: 2 became 3"):
        found, step, _ = results(with_count_to(20), alpha.capture, calls)
    assert found == expected
    assert len(step.graphs) == 1
    assert step.why_not == ""
    assert "runs as usual" not in step.describe()


@pytest.mark.slow
def test_a_step_that_can_never_be_captured_is_seldom_tried_again() -> None:
    calls = 2 * MOST_DOUBTS + FIRST_REST * (1 + GROWTH)
    with pytest.warns(CaptureWarning) as warned:
        _, step, net = results(with_count_to(10**6), alpha.capture, calls)
    assert len(warned) == 1
    assert net.calls == calls
    (kind,) = step._kinds.values()
    assert kind.next_rest == FIRST_REST * GROWTH**3
    assert step.graphs == []


def counts(net: Net, means: dict[str, Any], x: alpha.Tensor) -> None:
    net.calls += 1


def appends(net: Net, means: dict[str, Any], x: alpha.Tensor) -> None:
    net.seen.append(1)


def replaces(net: Net, means: dict[str, Any], x: alpha.Tensor) -> None:
    means["x"] = x * 2.0


def adds(net: Net, means: dict[str, Any], x: alpha.Tensor) -> None:
    means[f"x{len(means)}"] = 1.0


def assigns_data(net: Net, means: dict[str, Any], x: alpha.Tensor) -> None:
    net.fc.bias.data, net.norm.bias.data = net.norm.bias.data, net.fc.bias.data


def swaps(net: Net, means: dict[str, Any], x: alpha.Tensor) -> None:
    net.norm = nn.BatchNorm1d(3).to("cuda")


NAMES: dict[str, tuple[Any, str]] = {
    "a number": (counts, r"it changes net\.calls: 2 became 3"),
    "a list": (appends, r"it changes net\.seen, which has 3 elements in place of 2"),
    "an item of a dict": (replaces, r"it changes means\['x'\], which is another Tensor"),
    "another item of a dict": (adds, r"it changes means\['x2'\], which is new"),
    "data": (assigns_data, r"fc\.bias\.data, .* `net\.fc\.bias\.data\.mul_\(m\)\.add_\(x, alpha=1 - m\)`"),
    "a part": (swaps, r"it changes net\.norm, which is another BatchNorm1d|host values"),
}


@pytest.mark.parametrize("name", NAMES)
def test_what_changes_at_each_call_is_named(name: str) -> None:
    act, message = NAMES[name]

    def make(net: Net) -> Step:
        means: dict[str, Any] = {}

        def step(x: alpha.Tensor) -> alpha.Tensor:
            act(net, means, x)
            return net(x).sum()

        return step

    with pytest.warns(CaptureWarning, match=message):
        _, step, _ = results(make, alpha.capture, MOST_DOUBTS + 1)
    assert step.why_not in step.describe()
    with pytest.raises(CaptureError):
        results(make, alpha.capture(strict=True), MOST_DOUBTS + 1)


def test_what_the_message_about_data_says_is_captured() -> None:
    net, mean = Net().to("cuda"), Net().to("cuda")
    net(alpha.tensor(np.ones((4, 3), np.float32), device="cuda"))  # which makes the mask

    def step(x: alpha.Tensor) -> alpha.Tensor:
        y = net(x).sum()
        for p, held in zip(net.parameters(), mean.parameters(), strict=True):
            held.data.mul_(0.5).add_(p.data, alpha=0.5)
        return y

    captured = alpha.capture(strict=True)(step)
    before, after = mean.fc.weight.numpy(), net.fc.weight.numpy()
    for _ in range(6):
        captured(alpha.tensor(np.ones((4, 3), np.float32), device="cuda"))
        before = before * np.float32(0.5) + after * np.float32(0.5)
    assert captured.graphs
    np.testing.assert_allclose(mean.fc.weight.numpy(), before, rtol=1e-6)
