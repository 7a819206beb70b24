"""Sequences of several lengths side by side, and weights of recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import ShapeError, nn
from alpha.nn import utils


@pytest.mark.torch
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("shape", [(), (2,)])
def test_sequences_side_by_side(device: str, batch_first: bool, side: str, shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(0)
    values = [draw.standard_normal((length, *shape)).astype(np.float32) for length in (3, 1, 5, 0)]
    ours = [alpha.tensor(value, device=device, requires_grad=True) for value in values]
    theirs = [torch.tensor(value, requires_grad=True) for value in values]
    options: dict[str, Any] = {"batch_first": batch_first, "padding_value": -2.0, "padding_side": side}
    y = utils.rnn.pad_sequence(ours, **options)
    wanted = torch.nn.utils.rnn.pad_sequence(theirs, **options)
    np.testing.assert_array_equal(y.numpy(), wanted.detach().numpy())
    (y * y).sum().backward()
    (wanted * wanted).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        if a.size:
            assert a.grad is not None
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-6)
    if side == "right":
        for lengths in ([3, 1, 5, 0], alpha.tensor([3, 1, 5, 0], device=device)):
            for a, value in zip(utils.rnn.unpad_sequence(y, lengths, batch_first), values, strict=True):
                np.testing.assert_array_equal(a.numpy(), value)


def test_sequences_of_other_kinds(device: str) -> None:
    given = [alpha.tensor([1, 2], device=device), alpha.tensor([3], device=device)]
    assert utils.rnn.pad_sequence(given, True).tolist() == [[1, 2], [3, 0]]
    assert utils.rnn.pad_sequence(alpha.tensor([[1, 2], [3, 4]], device=device), True).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match="pad_sequence: padding_side='top' is neither"):
        utils.rnn.pad_sequence(given, padding_side="top")
    with pytest.raises(TypeError, match="pad_sequence: sequences is no list of tensors"):
        utils.rnn.pad_sequence([])
    with pytest.raises(ShapeError, match="pad_sequence: only the first axis may differ in length"):
        utils.rnn.pad_sequence([alpha.ones(2, 3), alpha.ones(2, 2)])
    with pytest.raises(ShapeError, match="unpad_sequence: 1 lengths for 2 sequences"):
        utils.rnn.unpad_sequence(alpha.ones(3, 2), [1])


def test_parameters_of_recurrent_layers_need_no_flattening(device: str) -> None:
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        layer = kind(2, 3).to(device)
        before = layer.state_dict().numpy()
        layer.flatten_parameters()
        assert all((value == before[name]).all() for name, value in layer.state_dict().numpy().items())
