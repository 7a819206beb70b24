"""Outputs of convolutions that read an image: in the memory mode "least" the backward pass makes them again."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import nodes_of

import alpha
from alpha import nn
from alpha.autograd.memory_mode import BALANCED, FAST, LEAST
from alpha.nn import functional as F
from alpha.ops.conv2d import Conv2d
from alpha.ops.conv2d.magnitudes import known_magnitudes, needs_magnitude

CHANNELS = 16


def first(**options: Any) -> nn.Conv2d:
    return nn.Conv2d(3, CHANNELS, 3, padding=1, **options)


def norm() -> nn.BatchNorm2d:
    return nn.BatchNorm2d(CHANNELS)


def second() -> nn.Conv2d:
    return nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)


class Joined(nn.Module):
    """Layers that read the first output twice, once as a residual."""

    def __init__(self, act: nn.Module) -> None:
        self.conv, self.norm, self.act = first(bias=False), norm(), act
        self.conv2, self.norm2 = second(), norm()

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        x = nn.conv_batch_norm(self.conv, self.norm, x, self.act)
        return nn.conv_batch_norm(self.conv2, self.norm2, x, self.act, x)


NETWORKS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "norm": lambda act: nn.Sequential(first(bias=False), norm(), act, second()),
    "norm, pool": lambda act: nn.Sequential(first(), norm(), act, nn.MaxPool2d(2), second()),
    "norm alone": lambda act: nn.Sequential(first(), norm(), second()),
    "rectifier, norm": lambda act: nn.Sequential(first(), act, norm(), second()),
    "rectifier": lambda act: nn.Sequential(first(bias=False), act, second()),
    "rectifier, pool": lambda act: nn.Sequential(first(), act, nn.MaxPool2d(2), second()),
    "convolution": lambda act: nn.Sequential(first(), second(), act),
    "gelu": lambda act: nn.Sequential(first(), nn.GELU(), second()),
    "join": Joined,
    "checkpoint": lambda act: nn.Sequential(Checkpointed(nn.Sequential(first(), norm(), act)), second()),
}
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"leaky": nn.LeakyReLU, "relu": nn.ReLU}


class Checkpointed(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        self.inner = inner

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        return alpha.checkpoint(self.inner, x)  # type: ignore[no-any-return]


def gradients(model: nn.Module, x: alpha.Tensor, mode: str) -> dict[str, Any]:
    model.zero_grad()
    with alpha.memory_mode(mode):
        y = model(x).square().mean()
    y.backward()
    return {"y": y.numpy(), **{name: parameter.grad.numpy() for name, parameter in model.named_parameters()}}


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("network", NETWORKS)
def test_gradients_are_those_of_the_mode_fast(network: str, activation: str, precision: str, device: str) -> None:
    """Bit for bit, unless a batch normalisation of the network is undone."""
    alpha.manual_seed(1)
    model = NETWORKS[network](ACTIVATIONS[activation]()).to(device)
    x = alpha.tensor(np.random.default_rng(0).normal(size=(4, 8, 8, 3)), dtype=np.float32, device=device)
    with alpha.precision(precision):
        wanted, got = gradients(model, x, FAST), gradients(model, x, LEAST)
    tolerance = 1e-2 if precision == "bf16" and device == "cuda" else 2e-5
    for name, value in wanted.items():
        undone = ("join", "norm", "checkpoint") if activation == "leaky" else ()
        if network in (*undone, "norm alone", "rectifier, norm"):
            assert np.abs(got[name] - value).max() <= tolerance * max(1e-2, np.abs(value).max()), name
        else:
            assert np.array_equal(got[name], value), name


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "1d": (lambda: nn.Conv1d(2, 24, 3, 2), (3, 40, 2)),
    "3d": (lambda: nn.Conv3d(1, 8, 3, padding=1), (2, 4, 5, 6, 1)),
    "groups": (lambda: nn.Conv2d(4, 16, 3, padding=1, groups=2), (2, 7, 7, 4)),
    "depthwise": (lambda: nn.Conv2d(3, 12, 3, padding=1, groups=3), (2, 7, 7, 3)),
    "dilated": (lambda: nn.Conv2d(3, 16, 3, dilation=2, padding=2), (2, 7, 7, 3)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 8, 4, 2, 1), (2, 5, 5, 4)),
    "transposed 1d": (lambda: nn.ConvTranspose1d(4, 8, 4, 2, 1), (2, 5, 4)),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_convolutions_of_each_kind(layer: str, device: str) -> None:
    make, shape = LAYERS[layer]
    alpha.manual_seed(2)
    model = nn.Sequential(make(), nn.GELU()).to(device)
    x = alpha.tensor(np.random.default_rng(0).normal(size=shape), dtype=np.float32, device=device)
    wanted, got = gradients(model, x, FAST), gradients(model, x, LEAST)
    for name, value in wanted.items():
        assert np.array_equal(got[name], value), name
    with alpha.memory_mode(LEAST):
        y = model(x)
    assert not any(array is not None and array.size == y.size for node in nodes_of(y) for array in node._saved or ())


def kept(model: nn.Module, x: alpha.Tensor, mode: str) -> int:
    """Bytes that the graph of a forward pass keeps of arrays as large as the first output."""
    with alpha.memory_mode(mode):
        y = model(x)
    arrays = {id(a): a for node in nodes_of(y) for a in node._saved or () if a is not None}
    large = 4 * x.size // x.shape[-1] * CHANNELS
    return sum(array.nbytes for array in arrays.values() if array.nbytes == large)


@pytest.mark.parametrize(
    ("network", "activation", "fast", "least"),
    [
        ("norm", "leaky", 2, 1),  # which is undone: its output stays
        ("norm", "relu", 2, 0),
        ("norm, pool", "leaky", 1, 0),
        ("norm alone", "relu", 2, 1),
        ("rectifier, norm", "relu", 2, 1),
        ("rectifier", "leaky", 1, 0),
        ("convolution", "leaky", 2, 1),  # that of the last activation
        ("join", "leaky", 4, 2),  # as in "balanced"
        ("join", "relu", 4, 2),
    ],
)
def test_what_is_kept_of_maps_as_large_as_the_first_output(
    network: str, activation: str, fast: int, least: int
) -> None:
    model, x = NETWORKS[network](ACTIVATIONS[activation]()), alpha.rand(2, 6, 6, 3)
    size = 4 * 2 * 6 * 6 * CHANNELS
    assert (kept(model, x, FAST), kept(model, x, LEAST)) == (fast * size, least * size)
    assert kept(model, x, LEAST) <= kept(model, x, BALANCED)
    model[0].requires_grad_(False) if isinstance(model, nn.Sequential) else model.conv.requires_grad_(False)
    assert kept(model, x, LEAST) <= kept(model, x, BALANCED)


def test_nothing_is_held_behind_the_backward_pass() -> None:
    model, held, losses = NETWORKS["rectifier"](nn.ReLU()), [], []
    for _ in range(3):
        x = alpha.rand(2, 6, 6, 3)
        held.append(weakref.ref(x.array))
        with alpha.memory_mode(LEAST):
            losses.append(model(x).square().mean())
        losses[-1].backward()
        del x
    assert [array() for array in held] == [None] * 3


SCALED: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: nn.Sequential(first(), norm(), nn.ReLU(), second()),
    "two convolutions": lambda: nn.Sequential(first(), second()),
    "rectified twice": lambda: nn.Sequential(first(), norm(), nn.ReLU(), second(), nn.ReLU(), second()),
}


@pytest.mark.parametrize("network", SCALED)
def test_the_scale_of_a_map_is_that_of_the_forward_pass(
    network: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The magnitude of an array decides on the kernel of a weight's gradient, and is that of the array made again."""
    model, x = SCALED[network]().to(device), alpha.rand(2, 6, 6, 3).to(device)
    if device == "cpu" or needs_magnitude(x.array):
        pytest.skip("magnitudes of the test's own, on a GPU that has none")
    known: dict[str, list[bool]] = {FAST: [], LEAST: []}
    stand_in = x.device.empty((1,), np.uint32)
    begin, gradient = Conv2d.begin, Conv2d.backward_weight

    def begun(self: Conv2d, X: Any, *rest: Any) -> Any:
        X, W = begin(self, X, *rest)
        self.magnitudes.note(X, stand_in)
        return X, W

    for mode, found in known.items():

        def seen(X: Any, dY: Any, *rest: Any, found: list[bool] = found, **options: Any) -> Any:
            found.append(known_magnitudes(X, dY)[0])
            return gradient(X, dY, *rest, **options)

        monkeypatch.setattr(Conv2d, "begin", begun)
        monkeypatch.setattr(Conv2d, "backward_weight", staticmethod(seen))
        with alpha.memory_mode(mode):
            y = model(x).square().mean()
        for again in (True, False):
            y.backward(retain_graph=again)
    assert known[LEAST] == known[FAST]
    assert all(known[LEAST])


@pytest.mark.parametrize("joined", [True, False])
def test_it_is_made_by_the_kernel_of_the_forward_pass(joined: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that adds up channel statistics may cut its tiles in another way, and so round in another way."""
    conv, batch_norm = first(), norm()
    given: list[bool] = []
    product = Conv2d.product

    def seen(*operands: Any, **options: Any) -> Any:
        given.append("statistics" in options)
        return product(*operands, **options)

    monkeypatch.setattr(Conv2d, "product", staticmethod(seen))
    x = alpha.rand(2, 6, 6, 3)
    with alpha.memory_mode(LEAST):
        y = nn.conv_batch_norm(conv, batch_norm, x, nn.ReLU()) if joined else F.relu(conv(x)).exp()
        z = F.conv2d(y, alpha.rand(2, 1, 1, CHANNELS, requires_grad=True))
        if not joined:
            z = F.conv2d(conv(x), alpha.rand(2, 1, 1, CHANNELS, requires_grad=True)) + z
    given.clear()
    z.sum().backward()
    assert given[:1] == [joined]


def test_the_rule_that_decides() -> None:
    """An output is kept if the input needs a gradient, or if it is less than four times as large as the input."""

    def is_kept(channels: int, needs_gradient: bool, mode: str = LEAST) -> bool:
        x = alpha.rand(2, 6, 6, 4, requires_grad=needs_gradient)
        w = alpha.rand(channels, 3, 3, 4, requires_grad=True)
        with alpha.memory_mode(mode):
            y = F.conv2d(x, w, padding=1)
            z = F.conv2d(y, alpha.rand(2, 1, 1, channels, requires_grad=True))
        assert z._node is not None
        return any(array is y.array for array in z._node._saved or ())

    assert not is_kept(16, False)
    assert is_kept(15, False)
    assert is_kept(16, True)
    assert is_kept(16, False, BALANCED)
    assert is_kept(16, False, FAST)


@pytest.mark.parametrize("which", ["x", "weight", "bias"])
def test_what_it_is_made_of_may_not_be_written(which: str) -> None:
    x = alpha.rand(2, 6, 6, 3)
    model = nn.Sequential(first(), norm(), nn.ReLU(), second())
    with alpha.memory_mode(LEAST):
        y = model(x).sum()
    with alpha.no_grad():
        {"x": x, "weight": model[0].weight, "bias": model[0].bias}[which].add_(1)
    with pytest.raises(alpha.GradientError, match="Conv2d: a tensor saved for backward was written in place by"):
        y.backward()


def test_the_output_may_be_written_where_others_make_it_again() -> None:
    model, grads = nn.Sequential(first(), norm()), []
    x = alpha.rand(2, 6, 6, 3)
    for write in (False, True):
        model.zero_grad()
        with alpha.memory_mode(LEAST):
            y = model[0](x)
            z = model[1](y).square().sum()
        if write:
            with alpha.no_grad():
                y.fill_(7)
        z.backward()
        grads.append(model[0].weight.grad.numpy())
    assert np.array_equal(*grads)


def test_a_written_output_is_kept_as_it_is() -> None:
    """The layer behind reads what was written, and so does its gradient."""
    conv, last = first(), second()
    x, grads = alpha.rand(2, 6, 6, 3), []
    for mode in (FAST, LEAST):
        last.zero_grad()
        with alpha.memory_mode(mode):
            y = conv(x)
            with alpha.no_grad():
                y.mul_(2)
            last(y).square().sum().backward()
        grads.append(last.weight.grad.numpy())
    assert np.array_equal(*grads)


def test_a_graph_that_is_dropped_holds_no_memory() -> None:
    """Nothing of it refers to itself, so that it needs no garbage collector."""
    model = nn.Sequential(first(), nn.LeakyReLU(), norm(), second())
    gc.collect()
    gc.disable()
    try:
        with alpha.memory_mode(LEAST):
            y = model(alpha.rand(2, 6, 6, 3))
        found = [weakref.ref(node) for node in nodes_of(y)]
        del y
        assert [node() for node in found] == [None] * len(found)
    finally:
        gc.enable()


def test_twice_through_a_graph() -> None:
    model, x, grads = NETWORKS["rectifier, norm"](nn.LeakyReLU()), alpha.rand(2, 6, 6, 3), []
    with alpha.memory_mode(LEAST):
        y = model(x).square().sum()
    for again in (True, False):
        model.zero_grad()
        y.backward(retain_graph=again)
        grads.append(model[0].weight.grad.numpy())
    assert np.array_equal(*grads)


def test_summary_says_what_is_made_again() -> None:
    model = nn.Sequential(first(), norm(), nn.ReLU(), second(), norm())
    with alpha.memory_mode(LEAST):
        text = str(model.summary((2, 6, 6, 3)))
    lines = {line.split()[0]: line for line in text.splitlines()}
    assert lines["1"].endswith("  again")
    assert lines["4"].endswith(" input")
    assert text.endswith("batch normalisations keep: again (1), input (1)")


def test_a_step_needs_less_memory() -> None:
    """The first two maps of VGG16 are not among what is kept, by the plan of a step on a GPU."""
    model = alpha.models.vgg16(10, 32)
    optimizer = alpha.optim.SGD(model.parameters(), lr=0.1)
    x, y = alpha.zeros(64, 32, 32, 3), alpha.tensor(np.zeros(64, np.int32))

    def step(x: alpha.Tensor, y: alpha.Tensor) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    live = []
    for mode in (BALANCED, LEAST):
        with alpha.memory_mode(mode):
            live.append(alpha.memory_plan(step, x, y, gpu="sm_90a", memory=80e9).live)
    assert live[0] - live[1] >= 0.9 * 64 * 32 * 32 * 64 * 4
