"""Recurrent layers against PyTorch's, with its weights, on both devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import ShapeError, nn

_rng = np.random.default_rng(0)
X = _rng.standard_normal((5, 3, 4))
LAYERS: dict[str, tuple[str, dict[str, Any], bool]] = {  # class, arguments, whether the first states are given
    "RNN": ("RNN", {"num_layers": 2, "nonlinearity": "relu", "bidirectional": True}, True),
    "GRU": ("GRU", {"num_layers": 2, "bidirectional": True, "batch_first": True}, True),
    "GRU, plain": ("GRU", {"bias": False}, False),
    "LSTM": ("LSTM", {"num_layers": 2, "bidirectional": True}, True),
    "LSTM, projected": ("LSTM", {"num_layers": 2, "proj_size": 2, "batch_first": True}, False),
}


def flat(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in flat(part)] if isinstance(value, tuple) else [value]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:LSTM with projections")  # which oneDNN does not have
@pytest.mark.parametrize("name", LAYERS)
def test_results_and_gradients_are_pytorchs(device: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    kind, arguments, with_states = LAYERS[name]
    dtype, near = ("float64", 1e-9) if device == "cpu" else ("float32", 2e-4)
    twin = getattr(torch.nn, kind)(4, 3, **arguments).to(getattr(torch, dtype))
    layer = getattr(nn, kind)(4, 3, **arguments).astype(dtype).to(device)
    layer.load_state_dict({name: value.detach().numpy() for name, value in twin.state_dict().items()})
    N = X.shape[0 if arguments.get("batch_first") else 1]
    directions = 2 if arguments.get("bidirectional") else 1
    shapes = [(arguments["num_layers"] * directions, N, 3)] * (1 + (kind == "LSTM")) if with_states else []
    values = [X, *(_rng.standard_normal(shape) for shape in shapes)]
    ours = [alpha.tensor(v.astype(dtype), device=device, requires_grad=True) for v in values]
    theirs = [torch.tensor(v.astype(dtype), requires_grad=True) for v in values]

    def called(module: Any, x: Any, *states: Any) -> list[Any]:
        return flat(module(x, *([tuple(states)] if len(states) > 1 else states)))

    results, expected = called(layer, *ours), called(twin, *theirs)
    weights = [_rng.standard_normal(y.shape).astype(dtype) for y in results]
    for y, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(y.numpy(), wanted.detach().numpy(), rtol=near, atol=near)
    sum((y * alpha.tensor(w, device=device)).sum() for y, w in zip(results, weights, strict=True)).backward()
    sum((y * torch.tensor(w)).sum() for y, w in zip(expected, weights, strict=True)).backward()
    pairs = [*zip(ours, theirs, strict=True)]
    pairs += [(dict(layer.named_parameters())[name], value) for name, value in twin.named_parameters()]
    for mine, other in pairs:
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=near, atol=near)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", LAYERS)
def test_all_weights_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    kind, arguments, _ = LAYERS[name]
    layer, twin = (getattr(n, kind)(4, 3, **arguments) for n in (nn, torch.nn))
    layer.load_state_dict({key: value.detach().numpy() for key, value in twin.state_dict().items()})
    assert [len(weights) for weights in layer.all_weights] == [len(weights) for weights in twin.all_weights]
    parameters = {id(p) for p in layer.parameters()}
    for ours, theirs in zip(layer.all_weights, twin.all_weights, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert id(a) in parameters
            np.testing.assert_array_equal(a.numpy(), b.detach().numpy())


@pytest.mark.parametrize("name", LAYERS)
def test_a_batch_of_nothing_is_taken(device: str, name: str) -> None:
    kind, arguments, _ = LAYERS[name]
    layer, cell = getattr(nn, kind)(4, 3, **arguments).to(device), getattr(nn, f"{kind}Cell")(4, 3).to(device)
    first = arguments.get("batch_first", False)
    x = alpha.zeros((0, 5, 4) if first else (5, 0, 4), device=device, requires_grad=True)
    y, *states = flat(layer(x))
    width = arguments.get("proj_size", 3) * (2 if arguments.get("bidirectional") else 1)
    assert y.shape == ((0, 5, width) if first else (5, 0, width))
    assert all(state.shape[1] == 0 for state in states)
    found = flat(cell(alpha.zeros(0, 4, device=device)))
    assert [value.shape for value in found] == [(0, 3)] * len(found)
    (y.sum() + found[0].sum()).backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape
    for parameter in (*layer.parameters(), *cell.parameters()):
        assert parameter.grad is not None
        assert not parameter.grad.numpy().any()


@pytest.mark.parametrize(("kind", "states"), [("RNN", 1), ("GRU", 1), ("LSTM", 2)])
def test_a_cell_is_a_step_of_its_layer(kind: str, states: int) -> None:
    layer, cell = getattr(nn, kind)(4, 3), getattr(nn, f"{kind}Cell")(4, 3)
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.state_dict().numpy().items()})
    x, state = alpha.tensor(X.astype(np.float32)), None
    for step in x.unbind(0):
        state = cell(step, state)
    for mine, other in zip(flat(state), flat(layer(x)[1]), strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy()[0], rtol=1e-5, atol=1e-6)
    assert len(flat(state)) == states
    assert [s.shape for s in flat(cell(x[0, 0]))] == [(3,)] * states


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: nn.LSTM(4, 3, proj_size=3), "LSTM: proj_size=3 must be less than hidden_size=3"),
        (lambda x: nn.RNN(4, 3, nonlinearity="gelu"), "RNN: nonlinearity='gelu' is neither 'tanh' nor 'relu'"),
        (lambda x: nn.GRU(5, 3)(x), r"GRU: x \(T, N, 5\) or \(T, 5\) is needed  \(x \(5, 3, 4\)\)"),
        (lambda x: nn.GRU(4, 3)(x, x), r"GRU: the state has shape \(5, 3, 4\); \(1, 3, 3\) is needed"),
        (lambda x: nn.LSTM(4, 3)(x, x[0]), "LSTM: 2 tensors of state are needed, not 1"),
        (lambda x: nn.GRU(4, 3)(x[:0]), "GRU: x has no step"),
        (lambda x: nn.GRUCell(4, 3)(x[0], x[0]), r"GRUCell: a state \(3, 3\) is needed"),
    ],
)
def test_what_is_refused(call: Any, message: str) -> None:
    with pytest.raises((ShapeError, ValueError), match=message):
        call(alpha.tensor(X.astype(np.float32)))
