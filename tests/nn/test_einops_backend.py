"""einops takes tensors of Alpha, and gives what it gives for numpy's arrays."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.nn.einops.einops_backend import AlphaBackend

einops: Any = pytest.importorskip("einops")
X = np.random.default_rng(0).random((2, 4, 6, 3)).astype(np.float32)
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "patches": lambda x: einops.rearrange(x, "b (h p) (w q) c -> b (h w) (p q c)", p=2, q=3),
    "axes": lambda x: einops.rearrange(x, "b h w c -> c b 1 w h"),
    "stacked": lambda x: einops.rearrange([x[0], x[1]], "b h w c -> h b w c"),
    "repeat": lambda x: einops.repeat(x, "b h w c -> b (h 2) w c r", r=3),
    "einsum": lambda x: einops.einsum(x, x, "b h w c, b h w d -> b c d"),
    "pack": lambda x: einops.pack([x, x[..., 0]], "b h *")[0],
    "any": lambda x: einops.reduce(x > 0.9, "b h w c -> b c", "any"),
    "all": lambda x: einops.reduce(x > 0.1, "b h w c -> h c", "all"),
    **{
        f"{name} of {axes}": lambda x, name=name, axes=axes: einops.reduce(x, f"b h w c -> {axes}", name)  # type: ignore[misc]
        for name in ("mean", "sum", "min", "max", "prod")
        for axes in ("b c", "w")
    },
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_programs(program: Callable[[Any], Any], device: str) -> None:
    result = program(alpha.tensor(X, device=device))
    assert isinstance(result, alpha.Tensor)
    np.testing.assert_allclose(result.numpy(), program(X), rtol=1e-5)


def test_gradients_flow_back(device: str) -> None:
    x = alpha.tensor(X, device=device, requires_grad=True)
    (einops.reduce(x, "b (h 2) w c -> b h c", "mean") * 2).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), np.full(X.shape, 1 / 6, np.float32), rtol=1e-6)


def test_values_for_numpy() -> None:
    np.testing.assert_array_equal(einops.asnumpy(alpha.tensor(X)), X)


def test_places_along_an_axis() -> None:
    found = AlphaBackend().arange(2, 5)
    assert (found.tolist(), found.dtype.name) == ([2, 3, 4], "int64")


LAYERS: dict[str, Callable[[Any], Any]] = {
    "patches": lambda m: m.Rearrange("b (h p) (w q) c -> b (h w) (p q c)", p=2, q=3),
    "mean": lambda m: m.Reduce("b h w c -> b c", "mean"),
    "largest of 2 by 2": lambda m: m.Reduce("b (h 2) (w 2) c -> b h w c", "max"),
    "EinMix": lambda m: m.EinMix("b h w c -> b k w c", weight_shape="h k", bias_shape="k c", h=4, k=5, c=3),
    "EinMix of heads": lambda m: m.EinMix("b h w (n c) -> b (h w) (n d)", weight_shape="n c d", n=3, c=1, d=2),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_those_of_einops(name: str, device: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = LAYERS[name](importlib.import_module("einops.layers.torch"))
    ours = nn.Sequential(LAYERS[name](nn.einops)).to(device)
    ours[0].load_state_dict(theirs.state_dict(), layout="NCHW")
    ours = copy.deepcopy(ours)
    assert name.startswith("EinMix") or repr(ours[0]) == repr(theirs)
    x, y = torch.tensor(X, requires_grad=True), alpha.tensor(X, device=device, requires_grad=True)
    expected, result = theirs(x), ours(y)
    expected.square().sum().backward()
    result.square().sum().backward()
    np.testing.assert_allclose(result.numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(y.grad.numpy(), x.grad.numpy(), rtol=1e-4, atol=1e-6)  # type: ignore[union-attr]
    bounds = zip(ours.parameters(), theirs.parameters(), strict=True)
    assert all(np.abs(p.numpy() - q.detach().numpy()).max() == 0 for p, q in bounds)


def test_layers_refuse_what_does_not_fit() -> None:
    with pytest.raises(einops.EinopsError, match="b q"):
        nn.einops.Rearrange("b h -> b q")
    with pytest.raises(einops.EinopsError, match="divide axis of length 3"):
        nn.einops.Reduce("b (h 2) w c -> b h w c", "sum")(alpha.ones(1, 3, 2, 2))
