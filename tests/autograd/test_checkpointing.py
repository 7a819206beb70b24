"""`alpha.checkpoint`: the bits of the function itself, with fewer bytes kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conv2d_cases import hopper
from helpers import choosing

import alpha
import alpha.nn.functional as F
from alpha import Function, GradientError, Tensor, nn
from alpha.ops.conv2d.problem import Configuration
from alpha.step.dry import in_place_of_the_gpu

Call = Callable[..., Any]


def plain(function: Call, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


class Net(nn.Module):
    """Two blocks of all that is special: a shortcut, operators in place, batch normalisation, dropout."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(4, 4, 3, padding=1, bias=False),
                nn.BatchNorm2d(4),
                nn.LeakyReLU(inplace=True),
                nn.Dropout(0.3),
            )
            for _ in range(2)
        )
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = self.call(lambda x, block=block: (block(x) + x).relu(), x)
        return self.fc(x.mean(dim=(1, 2)))  # type: ignore[no-any-return]


def train(call: Call, device: str, wrap: Call = lambda step: step, steps: int = 2) -> dict[str, Any]:
    """Losses and weights of a few steps of Net, and the state of the random numbers after them."""
    alpha.manual_seed(1)
    model = Net(call).to(device)
    optimizer = alpha.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = alpha.tensor(alpha.core.rng.normal((4, 6, 6, 3)), device=device)
    labels = alpha.tensor([0, 1, 2, 1], device=device)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    run = wrap(step)
    losses = [run(x).numpy() for _ in range(steps)]
    return {
        **model.state_dict().numpy(),
        "losses": np.array(losses),
        "random": np.array(list(alpha.get_rng_state().values())),
    }


def assert_same(first: dict[str, Any], second: dict[str, Any]) -> None:
    for name, value in first.items():
        np.testing.assert_array_equal(second[name], value, err_msg=name)


@pytest.mark.slow
def test_training_gives_the_same_bits(device: str) -> None:
    assert_same(train(plain, device), train(alpha.checkpoint, device))


@pytest.mark.slow
def test_in_another_precision() -> None:
    """The second run has the precision of the first, whatever holds in the backward pass."""
    try:
        alpha.get_device("cuda")
    except alpha.AlphaError as error:
        pytest.skip(str(error))

    def in_bf16(call: Call) -> Call:
        def run(function: Call, x: Tensor) -> Any:
            with alpha.precision("bf16"):
                return call(function, x)

        return run

    assert_same(train(in_bf16(plain), "cuda"), train(in_bf16(alpha.checkpoint), "cuda"))


@pytest.mark.slow
def test_inside_a_captured_step() -> None:
    try:
        alpha.get_device("cuda")
    except alpha.AlphaError as error:
        pytest.skip(str(error))

    def wrap(step: Call) -> Call:
        return alpha.capture(step, strict=True)

    assert_same(train(plain, "cuda", steps=6), train(alpha.checkpoint, "cuda", wrap, steps=6))


def kept(call: Call, device: str) -> int:
    """Bytes that live after the forward pass beside those of the input and of the result."""
    x = alpha.zeros(64, 64, device=device, requires_grad=True)
    before = alpha.memory_stats(device).live

    def function(x: Tensor) -> Tensor:
        for _ in range(8):
            x = (x * 2.0).tanh()
        return x

    y = call(function, x)
    live = alpha.memory_stats(device).live - before - y.array.nbytes
    y.sum().backward()
    assert x.grad is not None
    del y
    assert alpha.memory_stats(device).live - before == x.grad.array.nbytes
    return live


def test_nothing_is_kept() -> None:
    try:
        alpha.get_device("cuda")
    except alpha.AlphaError as error:
        pytest.skip(str(error))
    assert kept(plain, "cuda") >= 7 * 64 * 64 * 4
    assert kept(alpha.checkpoint, "cuda") == 0


def leaf(device: str, *values: float) -> Tensor:
    return alpha.tensor(list(values), requires_grad=True, device=device)


def grads(*tensors: Tensor) -> list[list[float]]:
    return [[] if t.grad is None else [float(value) for value in t.grad.numpy()] for t in tensors]


def test_the_function_runs_again_once(device: str) -> None:
    x, calls = leaf(device, 1.0, 2.0), []

    def function(x: Tensor) -> Tensor:
        calls.append(alpha.is_grad_enabled())
        return x * x

    y = alpha.checkpoint(function, x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert (grads(x), calls) == ([[4.0, 8.0]], [True, True])
    with pytest.raises(GradientError, match="the graph was freed"):
        y.sum().backward()
    with alpha.no_grad():
        alpha.checkpoint(function, x)
    assert calls == [True, True, False]


def test_any_arguments_and_results(device: str) -> None:
    x, w, v = leaf(device, 1.0, 2.0), leaf(device, 3.0, 4.0), leaf(device, 5.0, 6.0)

    def function(nested: dict[str, Any], power: int, *, scale: float) -> tuple[dict[str, Tensor], str]:
        x, (w, _) = nested["x"], nested["rest"]
        return {"y": x * w * scale, "z": (x * v) ** power}, "done"

    found, word = alpha.checkpoint(function, {"x": x, "rest": [w, None]}, 2, scale=10.0, use_reentrant=False)
    (found["y"].sum() + found["z"].sum()).backward()
    assert word == "done"
    assert grads(x, w, v) == [[80.0, 184.0], [10.0, 20.0], [10.0, 48.0]]


def test_a_list_that_changes_between_both_runs(device: str) -> None:
    """The list changes within the function and after it; tensors of a list are those of the call."""
    x = leaf(device, 1.0, 2.0)
    maps = [x, x * 2.0]

    def function(maps: list[Tensor], options: dict[str, list[float]]) -> Tensor:
        return maps.pop() * maps.pop() * options["scale"].pop()

    y = alpha.checkpoint(function, maps, {"scale": [3.0]})
    maps.append(y)
    y.sum().backward()
    assert grads(x) == [[12.0, 24.0]]


def test_one_result_of_several_is_used(device: str) -> None:
    x = leaf(device, 1.0, 2.0)
    y, _ = alpha.checkpoint(lambda x: (x * x, x * 3.0), x)
    (dx,) = alpha.grad(y.sum(), x)
    assert dx is not None
    assert dx.numpy().tolist() == [2.0, 4.0]


def test_a_checkpoint_within_another(device: str) -> None:
    """The inner function runs three times: in both runs of the outer one, and once more for its own."""
    alpha.manual_seed(3)
    x, calls = leaf(device, 1.0, 2.0, 3.0, 4.0), []

    def inner(x: Tensor) -> Tensor:
        calls.append("inner")
        return F.dropout(x * x, 0.5)

    def outer(x: Tensor, call: Call) -> Tensor:
        return F.dropout(call(inner, F.dropout(x, 0.5).tanh()).exp(), 0.5) * x

    state = alpha.get_rng_state()
    outer(x, plain).sum().backward()
    expected, after = grads(x), alpha.get_rng_state()
    x.zero_grad()
    calls.clear()
    alpha.set_rng_state(state)
    alpha.checkpoint(outer, x, alpha.checkpoint).sum().backward()
    assert grads(x) == expected
    assert alpha.get_rng_state() == after
    assert calls == ["inner"] * 3


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_a_checkpoint_of_nothing_but_another(device: str, depth: int) -> None:
    """The last operator of one function is that of the function within it, too."""
    x = leaf(device, 1.0, 2.0)

    def nested(x: Tensor, left: int = depth) -> Tensor:
        return alpha.checkpoint(nested, x, left - 1) if left else x * x.tanh()  # type: ignore[no-any-return]

    nested(x, 0).sum().backward()
    expected = grads(x)
    x.zero_grad()
    nested(x).sum().backward()
    assert grads(x) == expected


def test_a_part_of_a_tensor_that_is_used_elsewhere_too(device: str) -> None:
    """The gradient of the part is added to that of the whole, which needs the function to run again before."""
    x = leaf(device, 1.0, 2.0, 3.0)
    whole = x * 2.0
    part = alpha.checkpoint(lambda y: y[1:], whole)
    ((whole * whole).sum() + part.sum()).backward()
    assert grads(x) == [[8.0, 18.0, 26.0]]


@pytest.mark.slow
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    "layer", [nn.BatchNorm2d, lambda C: nn.BatchNorm2d(C, momentum=None), nn.SqBatchNorm], ids=["mean", "counted", "sq"]
)
def test_running_statistics_are_updated_once(device: str, layer: Call, nested: bool) -> None:
    norm = layer(2).to(device)
    x = alpha.tensor(np.arange(16, dtype=np.float32).reshape(2, 2, 2, 2), device=device, requires_grad=True)
    y = alpha.checkpoint(lambda x: alpha.checkpoint(norm, x) * 1.0 if nested else norm(x), x)
    moved = norm.state_dict().numpy()
    assert moved["running_mean"][0] != 0
    (y * y).sum().backward()
    assert_same(norm.state_dict().numpy(), moved)


def test_running_statistics_are_read_in_both_runs(device: str) -> None:
    norm, x = nn.BatchNorm1d(2).to(device).eval(), leaf(device, 1.0, 2.0)
    alpha.checkpoint(norm, x.reshape(1, 2)).sum().backward()
    np.testing.assert_allclose(grads(x), [[1.0, 1.0]], rtol=1e-5)


@pytest.mark.parametrize("seed", [alpha.manual_seed, lambda _: alpha.set_rng_state({"seed": 5, "stream": 7})])
def test_seeding_within_the_function_happens_once(device: str, seed: Call) -> None:
    x = leaf(device, *[1.0] * 64)

    def function(x: Tensor) -> Tensor:
        seed(5)
        return F.dropout(x, 0.5)

    y = alpha.checkpoint(function, x)
    alpha.core.rng.uniform((2,))
    before = alpha.get_rng_state()
    y.sum().backward()
    assert alpha.get_rng_state() == before
    assert grads(x) == [y.numpy().tolist()]


@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_sequential(device: str, segments: int) -> None:
    x, calls = leaf(device, 1.0, 2.0), []

    class Layer(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(self)
            return x * x

    layers = [Layer() for _ in range(5)]
    for functions in (nn.Sequential(*layers), layers):
        calls.clear()
        x.zero_grad()
        alpha.checkpoint_sequential(functions, segments, x, use_reentrant=False).sum().backward()
        assert grads(x) == [[32.0, 32.0 * 2.0**31]]
        assert len(calls) == 5 + (5 // segments) * (segments - 1)
    with pytest.raises(ValueError, match=r"segments=6 is not in \[1, 5\]"):
        alpha.checkpoint_sequential(layers, 6, x)


def test_the_arguments_are_not_written(device: str) -> None:
    x = leaf(device, 1.0, 2.0)
    y = x * 1.0
    with pytest.raises(GradientError, match=r"wrote tensor 0 of the arguments in place within the function"):
        alpha.checkpoint(lambda y: y.add_(1.0) * 2.0, y)
    y = x * 1.0
    z = alpha.checkpoint(lambda y: y * 2.0, y)
    y.add_(1.0)
    with pytest.raises(GradientError, match=r"wrote tensor 0 of the arguments in place before the backward pass"):
        z.sum().backward()
    y = alpha.tensor([1.0, 2.0], device=device)  # no gradient goes there, and no operator saves it
    z = alpha.checkpoint(lambda named: x + named["y"], {"y": y})
    y.add_(1.0)
    with pytest.raises(GradientError, match=r"wrote tensor 0 of the arguments in place before the backward pass"):
        (z * z).sum().backward()


class Same(Function):
    """Y = X, the same memory"""

    def forward(self, X: Any) -> Any:
        return X

    def backward(self, dY: Any) -> Any:
        return dY


def test_what_an_operator_saves_is_not_written(device: str) -> None:
    """Values that are saved may be of a tensor that is no argument, and of the result."""
    x, w = leaf(device, 1.0, 2.0), leaf(device, 3.0, 4.0)
    y = alpha.checkpoint(lambda x: x * w, x)
    with alpha.no_grad():
        w.add_(1.0)
    with pytest.raises(GradientError, match="a tensor saved for backward was written in place"):
        y.sum().backward()
    y = alpha.checkpoint(lambda x: (x * w).tanh(), x)
    y.add_(1.0)
    with pytest.raises(GradientError, match="a tensor saved for backward was written in place"):
        y.sum().backward()
    x.grad = None
    alpha.checkpoint(lambda x: (x * w).reshape(2, 1).mul_(2.0), x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * w.numpy())  # type: ignore[attr-defined]
    with pytest.raises(GradientError, match=r"a view .* cannot be written in place"):
        alpha.checkpoint(lambda x: Same.apply(x * w).add_(1.0), x)


def test_what_an_operator_of_the_second_run_saves_is_not_written(device: str) -> None:
    """A graph that is kept holds the arrays of the second run, which the function may have given away."""
    x, kept = leaf(device, 1.0, 2.0), []

    def function(x: Tensor) -> Tensor:
        kept.append(x.exp())
        return kept[-1] * kept[-1]

    y = alpha.checkpoint(function, x).sum()
    y.backward(retain_graph=True)
    first = x.grad.numpy()  # type: ignore[attr-defined]
    x.grad = None
    y.backward(retain_graph=True)
    np.testing.assert_array_equal(x.grad.numpy(), first)  # type: ignore[attr-defined]
    with alpha.no_grad():
        kept[1].add_(1.0)
    with pytest.raises(GradientError, match="a tensor saved for backward was written in place"):
        y.backward()


def test_a_second_run_that_differs(device: str) -> None:
    x = leaf(device, 1.0, 2.0)

    def backward_of(*functions: Call) -> None:
        left = iter(functions)
        alpha.checkpoint(lambda x: next(left)(x), x).sum().backward()

    with pytest.raises(GradientError, match=r"operator 0 .* was tanh \(2,\) float32 .* and is Exp"):
        backward_of(lambda x: x.tanh(), lambda x: x.exp())
    with pytest.raises(GradientError, match="recorded 1 operators in the forward pass and 2 in"):
        backward_of(lambda x: x.tanh(), lambda x: x.tanh().exp())
    with pytest.raises(GradientError, match="drew more random numbers"):
        backward_of(lambda x: x.tanh(), lambda x: F.dropout(x, 0.5))


def test_backward_within_the_function_is_refused(device: str) -> None:
    x = leaf(device, 1.0, 2.0)

    def function(x: Tensor) -> Tensor:
        y = x * x
        (dx,) = alpha.grad(y.sum(), x, retain_graph=True)
        assert dx is not None
        return y * dx

    with pytest.raises(GradientError, match="calls backward through its own operators"):
        alpha.checkpoint(function, x)
    alpha.checkpoint(lambda x: x * 2.0, x).sum().backward()  # and the next one works
    assert grads(x) == [[2.0, 2.0]]


def test_what_is_not_offered() -> None:
    with pytest.raises(ValueError, match="preserve_rng_state=False is not offered"):
        alpha.checkpoint(lambda x: x, leaf("cpu", 1.0), preserve_rng_state=False)


def test_a_summary_shows_what_is_done_without_checkpoints() -> None:
    assert Net(alpha.checkpoint).summary((1, 6, 6, 3)) == Net(plain).summary((1, 6, 6, 3))


@pytest.mark.parametrize("outside", [0, 1, 2])
@pytest.mark.parametrize("order", [("conv", "gate"), ("gate", "conv"), ("gate", "conv", "gate")], ids=" ".join)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_an_output_with_users_inside_and_outside(precision: str, order: tuple[str, ...], outside: int) -> None:
    """A rectifier gives its step to the last of all its users alone, wherever they are, and is applied once."""

    def takes_steps(v: Configuration) -> bool:
        return v.name in ("ks_deconv_sm90_fp16x3_128x64", "ks_deconv_sm90_bf16_128x64")

    def gradients(call: Call, on: Any) -> list[np.ndarray]:
        alpha.manual_seed(0)
        stem, gate, conv = nn.Conv2d(8, 32, 3, padding=1), nn.Conv2d(32, 32, 1), nn.Conv2d(32, 32, 3, padding=1)
        layers = nn.ModuleDict({"stem": stem, "gate": gate, "conv": conv}).to(on)

        def function(x: Tensor) -> Any:
            h = nn.conv_batch_norm(layers["stem"], norm, x, nn.LeakyReLU(0.2))
            return h, sum((layers[name](h) * (n + 1.0) for n, name in enumerate(order[1:])), layers[order[0]](h))

        norm = nn.BatchNorm2d(32).to(on)
        x = alpha.tensor(np.random.default_rng(1).standard_normal((9, 6, 7, 8)).astype(np.float32), device=on)
        h, y = call(function, x)
        loss = (y.astype("float32") * 0.01).sum()
        for n in range(outside):
            loss = loss + (h.astype("float32") * (n + 2.0)).square().mean()
        loss.backward()
        return [np.asarray(p.grad.numpy(), np.float32) for p in [*stem.parameters(), *norm.parameters()][2:]]

    device = hopper(4)
    with in_place_of_the_gpu(device), choosing(takes_steps), alpha.precision(precision):
        plainly, twice = gradients(plain, device), gradients(alpha.checkpoint, device)
    for wanted, found in zip(plainly, twice, strict=True):
        assert np.linalg.norm(found - wanted) <= 1e-4 * np.linalg.norm(wanted)
