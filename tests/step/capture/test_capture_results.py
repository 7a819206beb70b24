"""Results of a captured step are those that the step itself hands out, also while they are held and written."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from captured_programs import Program, Wrap, same

import alpha
from alpha.errors import CaptureError, CaptureWarning
from alpha.step.capturing.replay import Handing

pytestmark = pytest.mark.usefixtures("cuda")
CALLS = 8


class Pair(NamedTuple):
    first: Any
    second: Any


class Held:
    """Tensors that the steps below reach."""

    def __init__(self) -> None:
        self.w = alpha.tensor(np.arange(4, dtype=np.float32), device="cuda", requires_grad=True)
        self.table = [self.w]


RESULTS: dict[str, Callable[[Held, alpha.Tensor, alpha.Tensor], Any]] = {
    "a new one": lambda h, a, b: a * 2.0,
    "the first argument": lambda h, a, b: (a, a + b),
    "the second argument": lambda h, a, b: (a + b, b),
    "both arguments, exchanged": lambda h, a, b: (b, a),
    "a view of an argument": lambda h, a, b: (b[1:3], a.reshape(2, 2), a + b),
    "an argument and a view of it": lambda h, a, b: (b, b[1:3], a + b),
    "the same one twice": lambda h, a, b: twice(a + b),
    "one and a view of it": lambda h, a, b: with_view(a + b),
    "the same argument twice": lambda h, a, b: (a, a, a + b),
    "a tensor of the program": lambda h, a, b: (h.w, a + b),
    "a view of that": lambda h, a, b: (h.w.detach()[1:3], h.w.detach(), a + b),
    "its gradient": lambda h, a, b: with_gradient(h, a),
    "nested": lambda h, a, b: {"x": [a + b, (a * b, None)], "y": Pair(a - b, 3.0), 7: {"z": b}},
    "numbers": lambda h, a, b: (1.5, "text", a + b, np.float32(2), (), [], {}),
    "nothing": lambda h, a, b: writes(h),
    "a tensor on cpu": lambda h, a, b: (a + b, alpha.tensor([1.0, 2.0])),
    "an object of the program": lambda h, a, b: (h, a + b),
    "a list index": lambda h, a, b: (a[[0, 2, 1]], b[(3, -1),], a[np.array([1, 1])], a[range(2)]),
}


def twice(x: alpha.Tensor) -> Any:
    return x, x


def with_view(x: alpha.Tensor) -> Any:
    return x, x[1:3], x.reshape(2, 2)


def with_gradient(h: Held, a: alpha.Tensor) -> Any:
    h.w.grad = None
    (h.w * a).sum().backward()
    return h.w.grad


def writes(h: Held) -> None:
    h.w.detach().add_(1.0)


def tensors(value: Any) -> list[alpha.Tensor]:
    if isinstance(value, alpha.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in tensors(item)] if isinstance(value, (tuple, list)) else []


def form(value: Any) -> Any:
    """A result without its tensors."""
    if isinstance(value, alpha.Tensor):
        return value.shape
    if isinstance(value, dict):
        return {key: form(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value), [form(item) for item in value]
    return type(value) if isinstance(value, Held) else value


def run(name: str, wrap: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    """Values of the results, which are all held, compared with each other, written, and read at the end."""
    held, seen, results = Held(), [], []
    step = wrap(lambda a, b: RESULTS[name](held, a, b))
    other = wrap(lambda x: x * 3.0 + 1.0)
    arguments = []
    for turn in range(CALLS):
        a, b = (alpha.tensor(np.arange(4, dtype=np.float32) * k + turn, device="cuda") for k in (1.0, 2.0))
        arguments += [a, b]
        result = step(a, b)
        found = tensors(result)
        everything = [a, b, held.w, *found]
        seen.append(form(result))
        seen.append([[x is y for y in everything] for x in everything])
        seen.append([x.requires_grad for x in found if x is not held.w])
        seen.append([x.numpy() for x in everything])
        if found and turn % 3 == 1:  # a write is seen wherever the memory is shared
            with alpha.no_grad():
                found[-1].add_(0.5)
            seen.append([x.numpy() for x in everything])
        if turn % 3 == 2:
            b.mul_(2.0)
        seen.append(other(a).numpy())
        if turn == 5:
            alpha.empty_cache("cuda")
        results.append(found)
    seen.append([x.numpy() for found in results for x in found])
    seen.append([x.numpy() for x in (*arguments, held.w)])
    return seen, step


@pytest.mark.parametrize("name", RESULTS)
def test_what_is_handed_out_is_what_the_step_itself_hands_out(name: str) -> None:
    expected, _ = run(name, lambda step: step)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CaptureWarning)
        found, step = run(name, alpha.capture)
    assert not hasattr(step, "graphs") or step.graphs or name in ("both arguments, exchanged",)
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_equal(a, b, err_msg=f"number {number}")


def test_what_no_replay_could_make_anew_is_named() -> None:
    held = Held()
    makes: list[tuple[Callable[[alpha.Tensor], Any], str]] = [
        (lambda x: types.SimpleNamespace(loss=x * 2.0), "an object of the type SimpleNamespace"),
        (lambda x: {"a": [(x * 2.0, {1, 2})]}, "an object of the type set"),
        (lambda x: (x * 2.0, np.ones(2)), "an object of the type ndarray"),
        (lambda x: (x * 2.0, held.table)[1], "a list of the program"),
    ]
    x = alpha.ones(2, device="cuda")
    for make, text in makes:
        step, strict = alpha.capture(make), alpha.capture(strict=True)(make)
        with pytest.warns(CaptureWarning, match=f"it returns {text}"):
            [step(x) for _ in range(4)]

        def calls(strict: Any = strict) -> None:
            for _ in range(4):
                strict(x)

        with pytest.raises(CaptureError, match=f"it returns {text}"):
            calls()


def test_a_result_that_is_no_argument_any_more_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handing, "_other", lambda self, tensor: tensor.detach())
    for name in ("the second argument", "a view of an argument", "a tensor on cpu"):
        with pytest.raises(AssertionError):
            test_what_is_handed_out_is_what_the_step_itself_hands_out(name)


def test_results_and_gradients_that_are_held_stay() -> None:
    def program(wrap: Wrap) -> Program:
        p = Program(wrap)
        for _ in range(7):
            p.run(1)
            assert p.net.fc.weight.grad is not None
            p.losses.append(p.net.fc.weight.grad)
        return p

    same(program)


def test_the_result_of_one_is_the_argument_of_another() -> None:
    first, second = alpha.capture(lambda x: x * 2.0), alpha.capture(lambda y: y + 1.0)
    for turn in range(8):
        x = alpha.tensor(np.full(4, float(turn), np.float32), device="cuda")
        y = first(x)
        np.testing.assert_array_equal(second(y).numpy(), np.full(4, 2.0 * turn + 1))
        np.testing.assert_array_equal(y.numpy(), np.full(4, 2.0 * turn))
    assert len(first.graphs) == len(second.graphs) == 1


def test_an_argument_that_is_returned_is_that_of_the_call() -> None:
    step = alpha.capture(lambda x: (x, x + 1.0))
    kept = [step(alpha.tensor([float(turn)], device="cuda"))[0] for turn in range(6)]
    assert [tensor.item() for tensor in kept] == [0, 1, 2, 3, 4, 5]
