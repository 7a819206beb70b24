"""Captured steps of sequences of several lengths: each content of lengths has a graph of its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import nn
from alpha.errors import CaptureWarning
from alpha.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

pytestmark = pytest.mark.usefixtures("cuda")
LENGTHS = ([3, 1, 4], [2, 2, 4], [3, 1, 4], [3, 1, 4], [2, 2, 4], [2, 2, 4], [3, 1, 4])


class Net(nn.Module):
    def __init__(self) -> None:
        self.rnn = nn.LSTM(2, 3, bidirectional=True)
        self.fc = nn.Linear(6, 1)

    def forward(self, x: Any) -> alpha.Tensor:
        y, (h, c) = self.rnn(x)
        return pad_packed_sequence(y.with_data(self.fc(y.data)))[0].sum() + (h * c).sum()


def _losses(given: Callable[..., tuple[Any, ...]], packed: Callable[..., Any], wrap: Any = lambda f: f) -> Any:
    """The losses of steps on the arguments `given`, of which `packed` makes what the network takes, and the step."""
    alpha.manual_seed(0)
    net = Net().to("cuda")
    optimizer = alpha.optim.SGD(net.parameters(), lr=0.1)
    draw = np.random.default_rng(0)

    def step(*arguments: Any) -> alpha.Tensor:
        loss = net(packed(*arguments))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step, found = wrap(step), []
    for lengths in LENGTHS:
        x = alpha.tensor(draw.standard_normal((4, 3, 2)).astype(np.float32), device="cuda")
        found.append(step(*given(x, lengths)).item())
    return found, step


def _pack(x: alpha.Tensor, lengths: Any) -> Any:
    return pack_padded_sequence(x, lengths, enforce_sorted=False)


GIVEN: dict[str, tuple[Callable[..., tuple[Any, ...]], Callable[..., Any]]] = {
    "numbers": (lambda x, lengths: (x, lengths), _pack),
    "a tensor on cpu": (lambda x, lengths: (x, alpha.tensor(lengths)), _pack),
    "a packed sequence": (lambda x, lengths: (pack_padded_sequence(x, sorted(lengths)[::-1]),), lambda packed: packed),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GIVEN)
def test_lengths_on_the_host_have_a_graph_each(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", CaptureWarning)
        found, step = _losses(*GIVEN[name], wrap=alpha.capture)
    assert found == _losses(*GIVEN[name])[0]
    assert not step.why_not
    assert len(step.graphs) == 2, step.describe()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "packed"),
    [
        (lambda x, lengths: (x, alpha.tensor(lengths, device="cuda")), _pack),
        (lambda x, lengths: (_pack(x, lengths),), lambda packed: packed),
    ],
    ids=["a tensor on cuda", "an order on cuda"],
)
def test_lengths_on_the_device_are_read_so_the_step_runs_as_usual(given: Any, packed: Any) -> None:
    with pytest.warns(CaptureWarning, match=r"runs as usual: .* at .*test_capture_packed.py"):
        found, step = _losses(given, packed, alpha.capture)
    assert found == _losses(given, packed)[0]
    assert not step.graphs


def test_an_argument_on_the_cpu_that_is_written_is_captured_anew() -> None:
    step = alpha.capture(lambda x, n: x * n.numpy()[0].item())
    x, n = alpha.ones(3, device="cuda"), alpha.tensor([2])
    for i in range(8):
        if i == 4:
            n[0] = 5
        assert step(x, n).tolist() == [5.0 if i >= 4 else 2.0] * 3
        assert step(x, alpha.tensor([3])).tolist() == [3.0] * 3


# -- the lengths of ctc_loss ------------------------------------------------------------------------------

CTC_LENGTHS = (([6, 5], [3, 2]), ([6, 6], [1, 3]), ([6, 5], [3, 2]), ([6, 5], [3, 2]), ([6, 5], [3, 2]))
CTC_GIVEN: dict[str, Callable[[Any], Any]] = {
    "lists": list,
    "tuples": tuple,
    "tensors on cpu": alpha.tensor,
    "arrays of numpy": np.array,
}


def ctc_losses(make: Callable[[Any], Any], wrap: Any, flat: bool, lengths: Any = CTC_LENGTHS) -> tuple[list[Any], Any]:
    """Losses and gradients of steps, of labels in rows or one after the other, and the step."""
    draw, found = np.random.default_rng(0), []
    p = nn.Parameter(alpha.tensor(draw.standard_normal(5, dtype=np.float32), device="cuda"))

    def step(x: alpha.Tensor, targets: alpha.Tensor, times: Any, counts: Any) -> alpha.Tensor:
        loss = F.ctc_loss(F.log_softmax(x * p, dim=-1), targets, times, counts)
        p.grad = None
        loss.backward()
        return loss

    step = wrap(step)
    for times, counts in lengths:
        x = alpha.tensor(draw.standard_normal((6, 2, 5), dtype=np.float32), device="cuda")
        targets = alpha.tensor(draw.integers(1, 5, sum(counts) if flat else (2, 3)), device="cuda")
        loss = step(x, targets, make(times), make(counts))
        found.append((loss.item(), p.grad.numpy().tolist()))
    return found, step


@pytest.mark.slow
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("name", CTC_GIVEN)
def test_ctc_loss_with_lengths_on_the_host(name: str, flat: bool) -> None:
    make = CTC_GIVEN[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", CaptureWarning)
        found, step = ctc_losses(make, alpha.capture, flat, CTC_LENGTHS * 3)
    assert found == ctc_losses(make, lambda step: step, flat, CTC_LENGTHS * 3)[0]
    assert len(step.graphs) == 2, step.describe()


@pytest.mark.slow
def test_ctc_loss_with_lengths_on_cuda_says_what_to_give() -> None:
    def make(values: Any) -> alpha.Tensor:
        return alpha.tensor(values, device="cuda")

    with pytest.warns(CaptureWarning, match="ctc_loss: input_lengths on cuda are read on the host; give a list"):
        found, step = ctc_losses(make, alpha.capture, False)
    assert found == ctc_losses(make, lambda step: step, False)[0]
    assert not step.graphs
