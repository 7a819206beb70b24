"""reset_parameters: a layer as it was made, with the numbers that are drawn then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows.every import LAYERS

import alpha
from alpha import nn

ROWS = {row.name: row for row in LAYERS if hasattr(row.layer, "reset_parameters")}


@pytest.mark.torch
def test_layers_have_it_where_pytorchs_have() -> None:
    torch = pytest.importorskip("torch")
    kinds = [(row.name, getattr(torch.nn, row.name, None)) for row in LAYERS]
    assert set(ROWS) == {name for name, kind in kinds if hasattr(kind, "reset_parameters")}
    statistics = {name for name, kind in kinds if hasattr(kind, "reset_running_stats")}
    assert {row.name for row in LAYERS if hasattr(row.layer, "reset_running_stats")} >= statistics


@pytest.mark.parametrize("name", [name for name in ROWS if not name.startswith("Lazy")])
def test_parameters_are_drawn_as_when_the_layer_was_made(device: str, name: str) -> None:
    options: dict[str, Any] = {"track_running_stats": True, "affine": True, "padding_idx": 1, "momentum": 0.3}
    row = ROWS[name]
    arguments = {**row.usual, **{key: value for key, value in options.items() if key in row.arguments}}
    alpha.manual_seed(5)
    layer: Any = row.layer(**arguments).to(device)
    made, tensors = layer.state_dict().numpy(), dict(layer.named_tensors())
    for value in tensors.values():
        with alpha.no_grad():
            value.copy_(value + 1)
    assert all((layer.state_dict().numpy()[key] != value).any() for key, value in made.items())
    alpha.manual_seed(5)
    assert layer.reset_parameters() is None
    assert all(tensors[key] is value for key, value in layer.named_tensors())
    for key, value in layer.state_dict().numpy().items():
        np.testing.assert_allclose(value, made[key], rtol=1e-6, atol=0, err_msg=key)
    layer.reset_parameters()
    drawn = [key for key, value in made.items() if value.std() > 0 and not key.startswith("running")]
    assert all((layer.state_dict().numpy()[key] != made[key]).any() for key in drawn)


@pytest.mark.torch
@pytest.mark.parametrize("name", [name for name in ROWS if not name.startswith("Lazy")])
def test_the_constructor_calls_that_of_a_subclass_where_pytorchs_does(name: str) -> None:
    torch = pytest.importorskip("torch")

    def made(kind: Any) -> Any:
        class Own(kind):  # type: ignore[misc]
            calls = 0

            def reset_parameters(self) -> None:
                self.calls += 1
                super().reset_parameters()
                with torch.no_grad(), alpha.no_grad():
                    for parameter in self.parameters():
                        parameter.fill_(0.5)

        class Below(Own):
            pass

        return Below(**ROWS[name].usual)

    ours, theirs = made(ROWS[name].layer), made(getattr(torch.nn, name))
    assert ours.calls == min(theirs.calls, 1)
    if ours.calls:
        assert all((parameter.numpy() == 0.5).all() for parameter in ours.parameters())


@pytest.mark.parametrize("name", [name for name in ROWS if name.startswith("Lazy")])
def test_a_lazy_layer_has_nothing_to_draw_before_its_first_forward(name: str) -> None:
    row = ROWS[name]
    layer: Any = row.layer(**row.usual)
    before = alpha.get_rng_state()
    assert layer.reset_parameters() is None
    assert layer.has_uninitialized_params()
    np.testing.assert_array_equal(alpha.get_rng_state(), before)
    loaded: Any = row.layer(**row.usual)
    x = alpha.randn(*{1: (2, 9, 4), 2: (2, 9, 9, 4), 3: (2, 5, 5, 5, 4)}[int(name[-2]) if name[-1] == "d" else 1])
    layer(x)
    loaded.load_state_dict(layer.state_dict())
    drawn = loaded.state_dict().numpy()
    with alpha.no_grad():
        for _, value in loaded.named_tensors():
            value.copy_(value + 1)
    loaded.reset_parameters()
    assert all((loaded.state_dict().numpy()[key] != value + 1).any() for key, value in drawn.items())


def test_statistics_are_forgotten_alone() -> None:
    layer = nn.BatchNorm1d(3, momentum=None)
    layer(alpha.randn(4, 3) + 5)
    layer.weight.data.fill_(2)  # type: ignore[union-attr]
    layer.reset_running_stats()
    state = layer.state_dict().numpy()
    assert [state[f"running_{name}"].tolist() for name in ("mean", "var")] == [[0.0] * 3, [1.0] * 3]
    assert state["num_batches_tracked"] == 0
    assert state["weight"].tolist() == [2.0] * 3
    nn.BatchNorm1d(3, track_running_stats=False).reset_running_stats()
