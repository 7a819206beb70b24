"""Hooks of modules before and after the forward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import Tensor, nn


def test_forward_hooks() -> None:
    layer = nn.Linear(2, 2)
    x = alpha.tensor(np.ones((1, 2), np.float32))
    calls: list[str] = []

    def note(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        assert module is layer
        assert args[0] is x
        calls.append("note")

    first = layer.register_forward_hook(note)
    second = layer.register_forward_hook(note)
    third = layer.register_forward_hook(lambda module, args, output: output * 0.0)
    assert layer(x).numpy().any() == np.False_
    assert calls == ["note", "note"]
    first.remove()
    third.remove()
    assert layer(x).numpy().all()
    assert calls == ["note"] * 3
    second.remove()
    layer(x)
    assert calls == ["note"] * 3


def test_a_module_is_hooked_unless_all_of_its_hooks_only_watch() -> None:
    def watch(*_: Any) -> None: ...

    watch.only_watches = True  # type: ignore[attr-defined]
    layer = nn.ReLU()
    layer._forward_hooks = (watch,)  # as a dry run does
    assert not layer.is_hooked
    layer.register_forward_hook(lambda *_: None)
    assert layer.is_hooked


def test_forward_pre_hooks() -> None:
    layer = nn.ReLU()
    x = alpha.tensor([-1.0, 1.0])
    seen: list[Tensor] = []
    note = layer.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    flip = layer.register_forward_pre_hook(lambda module, args: (-args[0],))
    np.testing.assert_array_equal(layer(x).numpy(), [1, 0])
    assert seen == [x]
    flip.remove()
    note.remove()
    np.testing.assert_array_equal(layer(x).numpy(), [0, 1])
    assert seen == [x]


def test_hooks_with_keyword_arguments() -> None:
    class Scale(nn.Module):
        def forward(self, x: Tensor, *, by: float) -> Tensor:
            return x * by

    layer, seen = Scale(), []
    x = alpha.tensor([1.0, 2.0])
    layer.register_forward_pre_hook(lambda module, args, kwargs: seen.append((args, kwargs)), with_kwargs=True)
    layer.register_forward_pre_hook(lambda module, args, kwargs: ((args[0] + 1.0,), {"by": 3.0}), with_kwargs=True)
    layer.register_forward_hook(lambda module, args, kwargs, y: y + kwargs["by"], with_kwargs=True)
    np.testing.assert_array_equal(layer(x, by=2.0).numpy(), [9, 12])
    assert [(args[0] is x, kwargs) for args, kwargs in seen] == [(True, {"by": 2.0})]
    layer.register_forward_pre_hook(lambda module, args, kwargs: args, with_kwargs=True)
    with pytest.raises(TypeError, match=r"Scale: a hook .*with_kwargs=True, returned a tuple; it returns None or"):
        layer(x, by=2.0)


def test_a_hook_before_the_others() -> None:
    layer, order = nn.ReLU(), []
    for where in (layer.register_forward_pre_hook, layer.register_forward_hook):
        where(lambda *_: order.append("first"))
        handle = where(lambda *_: order.append("prepended"), prepend=True)
        where(lambda *_: order.append("last"))
        layer(alpha.tensor([1.0]))
        handle.remove()
    assert order == ["prepended", "first", "last", "first", "last", "prepended", "first", "last"]


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x,)])
def test_a_pre_hook_may_return_the_only_argument(wrap) -> None:
    layer = nn.Flatten()
    layer.register_forward_pre_hook(lambda module, args: wrap(args[0] * 2.0))
    x = alpha.tensor(np.ones((1, 2, 3), np.float32))  # a batch of one, which is not a tuple of one
    np.testing.assert_array_equal(layer(x).numpy(), np.full((1, 6), 2))


def test_a_pre_hook_may_take_all_arguments_away() -> None:
    layer = nn.ReLU()
    layer.register_forward_pre_hook(lambda module, args: ())
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        layer(alpha.tensor([1.0]))
