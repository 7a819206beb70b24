"""Memory modes: what a forward pass keeps, and that gradients are those of the mode "fast"."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import nodes_of

import alpha
from alpha import nn
from alpha.autograd.memory_mode import BALANCED, FAST, LEAST, MODES, SMALLEST_WEIGHT
from alpha.nn import functional as F
from alpha.ops.normalization.batch_norm import BatchNorm


class Joined(nn.Module):
    """Two blocks with a shortcut, the second one through a convolution with a batch normalisation."""

    def __init__(self, activation: Callable[[], nn.Module]) -> None:
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), activation())
        self.conv1, self.bn1 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv3, self.bn3 = nn.Conv2d(8, 12, 3, 2, 1, bias=False), nn.BatchNorm2d(12)
        self.short = nn.Sequential(nn.Conv2d(8, 12, 1, 2, bias=False), nn.BatchNorm2d(12))
        self.act = activation()
        self.last = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5))

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        y = nn.conv_batch_norm(self.conv1, self.bn1, x, self.act)
        x = nn.conv_batch_norm(self.conv2, self.bn2, y, self.act, x)
        x = nn.conv_batch_norm(self.conv3, self.bn3, x, self.act, self.short(x))
        return self.last(x)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "leaky": nn.LeakyReLU,
    "steep": lambda: nn.LeakyReLU(0.3),
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "gelu": nn.GELU,
    "flat": lambda: nn.LeakyReLU(1e-6),
    "inplace": lambda: nn.LeakyReLU(inplace=True),
}


@pytest.fixture
def cuda() -> str:
    try:
        return alpha.get_device("cuda").name
    except alpha.AlphaError as error:
        pytest.skip(str(error))


def model_of(activation: str, device: str, dtype: str = "float32") -> Joined:
    alpha.manual_seed(3)
    model = Joined(ACTIVATIONS[activation])
    for name, parameter in model.named_parameters():
        if ".bn" in f".{name}" or "first.1" in name or "short.1" in name:
            values = np.random.default_rng(len(name)).normal(1 if name.endswith("weight") else 0, 0.4, parameter.shape)
            parameter.data = alpha.tensor(values, dtype=np.float32)
    return model.to(device).to(getattr(alpha, dtype))


def step(model: nn.Module, mode: str, dtype: str = "float32") -> tuple[Any, dict[str, Any]]:
    """Output and gradients, that of x among them, in a mode."""
    device = next(model.parameters()).device
    x = alpha.tensor(np.random.default_rng(1).normal(size=(4, 6, 6, 3)), dtype=dtype, device=device)
    x.requires_grad = True
    model.zero_grad()
    with alpha.memory_mode(mode):
        y = model(x)
    y.backward(alpha.tensor(np.random.default_rng(2).normal(size=y.shape), dtype=y.dtype, device=device))
    return y.numpy(), {"x": x.grad.numpy(), **{name: p.grad.numpy() for name, p in model.named_parameters()}}


def close(got: dict[str, Any], wanted: dict[str, Any], tolerance: float) -> None:
    for name, value in wanted.items():
        scale = max(float(np.abs(value).max()), 0.02)  # a bias before a batch normalisation has the gradient 0
        assert float(np.abs(got[name] - value).max()) <= tolerance * scale, name


@pytest.mark.parametrize("mode", [BALANCED, LEAST])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_in_float64(activation: str, mode: str) -> None:
    model = model_of(activation, "cpu", "float64")
    (y, wanted), (got_y, got) = step(model, FAST, "float64"), step(model, mode, "float64")
    assert np.array_equal(y, got_y)
    close(got, wanted, 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [BALANCED, LEAST])
@pytest.mark.parametrize("activation", ["leaky", "relu"])
def test_gradients_on_each_device(device: str, activation: str, mode: str) -> None:
    model = model_of(activation, device)
    (y, wanted), (got_y, got) = step(model, FAST), step(model, mode)
    assert np.array_equal(y, got_y)
    close(got, wanted, 2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("activation", "mode"), [("relu", BALANCED), ("relu", LEAST), ("leaky", LEAST)])
def test_bfloat16_is_what_it_was_bit_for_bit(cuda: str, activation: str, mode: str) -> None:
    model = model_of(activation, "cuda")
    with alpha.precision("bf16"):
        (y, wanted), (got_y, got) = step(model, FAST), step(model, mode)
    assert np.array_equal(y, got_y)
    for name, value in wanted.items():
        assert np.array_equal(got[name], value), name


def test_bfloat16_is_undone_in_balanced_without_a_residual(cuda: str) -> None:
    """The gradients are off by much less than products in bfloat16 are."""
    exact = step(model_of("leaky", "cpu", "float64"), FAST, "float64")[1]
    model = model_of("leaky", "cuda")
    with alpha.precision("bf16"):
        (y, wanted), (got_y, got) = step(model, FAST), step(model, BALANCED)
        with alpha.memory_mode(BALANCED):
            y_again = model(alpha.rand(4, 6, 6, 3, device="cuda"))
    norms = [node for node in nodes_of(y_again) if isinstance(node, BatchNorm)]
    assert [node.keeps_output for node in norms] == [
        not node.has_residual and node.rectifier is not None for node in norms
    ]
    assert any(node.keeps_output for node in norms)
    assert any(node.has_residual for node in norms)
    assert np.array_equal(y, got_y)
    for name, value in wanted.items():
        size = max(float(np.linalg.norm(exact[name])), 0.02)
        assert np.linalg.norm(got[name] - value) < 0.5 * np.linalg.norm(value - exact[name]) + 2e-3 * size, name


@pytest.mark.parametrize("device", ["cpu", "cuda"], indirect=True)
def test_small_weights_beside_biases_in_bfloat16(device: str) -> None:
    """Rounding does not become large by the division by a small weight."""

    def run(mode: str, dtype: str, on: str) -> list[np.ndarray]:
        alpha.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.LeakyReLU(0.1), nn.Conv2d(8, 8, 1))
        net[1].weight.data[:4] = alpha.tensor([1e-5, -1e-4, 1e-3, 1e-2])
        net[1].bias.data[:] = 1.003
        net = (net.double() if dtype == "float64" else net).to(on)
        x = alpha.tensor(np.random.default_rng(0).normal(size=(4, 9, 9, 3)), dtype=dtype, device=on)
        with alpha.memory_mode(mode):
            y = nn.batch_norm_activation(net[1], net[0](x), net[2])
            (net[3](y) + 1).astype(dtype if dtype != "bfloat16" else "float32").square().mean().backward()
        return [parameter.grad.numpy().astype("float64") for parameter in net.parameters() if parameter.ndim != 1]

    exact = run(FAST, "float64", "cpu")
    errors = [
        [
            np.linalg.norm(found - value) / np.linalg.norm(value)
            for found, value in zip(run(mode, "bfloat16", device), exact, strict=True)
        ]
        for mode in (FAST, BALANCED)
    ]
    assert np.all(np.array(errors[1]) < 1.5 * np.array(errors[0]) + 2e-2), errors


@pytest.mark.parametrize("device", ["cpu", "cuda"], indirect=True)
def test_weights_of_0_behind_a_residual_in_bfloat16(device: str) -> None:
    """The last normalisation of a block, as it begins in many networks: its gradients are those of "fast"."""
    alpha.manual_seed(0)
    norm = nn.BatchNorm2d(8).to(device)
    norm.weight.data = alpha.zeros(8, device=device)
    x, r, w = (alpha.randn(4, 5, 5, 8, device=device).astype("bfloat16") for _ in range(3))
    found = []
    for mode in (FAST, BALANCED, LEAST):
        norm.zero_grad()
        with alpha.memory_mode(mode):
            y = nn.batch_norm_activation(norm, x, nn.LeakyReLU(0.3), residual=r)
            (y * w).astype("float32").sum().backward()
        found.append(norm.weight.grad.numpy())
    assert np.abs(found[0]).max() > 1
    for gradient in found[1:]:
        assert np.array_equal(gradient, found[0])


def test_what_keeps_its_output() -> None:
    """All of the network's batch normalisations: that of a shortcut keeps what the join keeps in any case."""
    x = alpha.rand(4, 6, 6, 3)
    for activation, mode, wanted in [
        ("leaky", FAST, 0),
        ("leaky", BALANCED, 5),
        ("leaky", LEAST, 5),
        ("gelu", BALANCED, 5),  # GELU keeps its input
        ("relu", BALANCED, 0),
        ("flat", BALANCED, 0),
    ]:
        with alpha.memory_mode(mode):
            norms = [node for node in nodes_of(model_of(activation, "cpu")(x)) if isinstance(node, BatchNorm)]
        assert sum(node.keeps_output for node in norms) == wanted, (activation, mode)


@pytest.mark.parametrize("mode", [BALANCED, LEAST])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("activation", ["leaky", "relu"])
def test_an_input_that_stays_is_not_found_again(device: str, activation: str, residual: bool, mode: str) -> None:
    """A convolution keeps its output for the sign of its rectifier, so the gradients are the same bit for bit."""
    alpha.manual_seed(3)
    conv, norm = nn.Conv2d(3, 8, 3, padding=1).to(device), nn.BatchNorm2d(8).to(device)
    last, act = nn.Conv2d(8, 4, 3, padding=1).to(device), ACTIVATIONS[activation]()
    norm.weight.data = alpha.tensor(np.append(0.0, np.full(7, -0.5)), dtype="float32", device=device)

    class Behind(nn.Module):
        def __init__(self) -> None:
            self.conv, self.norm, self.last = conv, norm, last

        def forward(self, x: Any) -> Any:
            y = nn.Sequential(conv, act)(x)
            return last(norm(y) if not residual else nn.batch_norm_activation(norm, y, act, y))

    model = Behind()
    (y, wanted), (got_y, got) = step(model, FAST), step(model, mode)
    with alpha.memory_mode(mode):
        norms = [node for node in nodes_of(model(alpha.rand(4, 6, 6, 3, device=device)))]
    assert not any(node.keeps_output for node in norms if isinstance(node, BatchNorm))
    assert np.array_equal(y, got_y)
    for name, value in wanted.items():
        assert np.array_equal(got[name], value), name


def maps(mode: str, activation: str) -> float:
    """Activations that a forward pass keeps, in maps of (4, 6, 6, 8)."""
    model = model_of(activation, "cpu")
    own = {id(tensor.array) for _, tensor in model.named_tensors()}
    with alpha.memory_mode(mode):
        y = model(alpha.rand(4, 6, 6, 3))
    saved = {id(array): array.nbytes for node in nodes_of(y) for array in node._saved or () if array is not None}
    return sum(nbytes for key, nbytes in saved.items() if key not in own) / (4 * 6 * 6 * 8 * 4)


def test_memory_of_each_mode() -> None:
    """A quarter of the pixels with 12 channels, behind the stride, is 3 / 8 of a map."""
    x, rest = 3 / 8, 0.05  # and what is kept behind the average, at most
    fast = x + 6 + 3 * 3 / 8  # two for each of five, but for the output of the shortcut
    for activation, mode, wanted in [
        ("leaky", FAST, fast),
        ("leaky", BALANCED, x + 3 + 2 * 3 / 8),
        ("leaky", LEAST, x + 3 + 2 * 3 / 8),
        ("relu", FAST, fast),
        ("relu", BALANCED, fast),
        ("relu", LEAST, fast - 2),  # those of two without a residual
    ]:
        assert wanted <= maps(mode, activation) <= wanted + rest, (activation, mode, maps(mode, activation))


@pytest.mark.slow
@pytest.mark.parametrize("weight", [0.0, -0.0, 1e-7, -1e-6, 2e-5])
def test_weights_near_0(device: str, weight: float) -> None:
    """The gradient of a weight of 0, with which residual branches begin, is right, and the output changes by 1e-5."""
    found = []
    for mode in (FAST, BALANCED):
        model = model_of("leaky", device)
        with alpha.no_grad():
            for norm in (model.bn1, model.bn2):
                norm.weight.fill_(weight)
        found.append(step(model, mode))
    (y, wanted), (got_y, got) = found
    assert float(np.abs(got_y - y).max()) < 30 * SMALLEST_WEIGHT
    for name in ("bn1.weight", "bn2.weight", "conv3.weight", "first.0.weight"):
        scale = float(np.abs(wanted[name]).max())
        assert float(np.abs(got[name] - wanted[name]).max()) <= 0.01 * scale, name


def test_a_write_in_place_is_no_silent_fault() -> None:
    """Values written before another layer keeps them are not taken for the output; written later, they are an error."""
    norm = nn.BatchNorm2d(4)
    x = alpha.rand(2, 3, 3, 4, requires_grad=True)
    grads = []
    for mode in (FAST, BALANCED):
        x.grad = None
        with alpha.memory_mode(mode):
            y = norm(x)
            with alpha.no_grad():
                y += 1
            F.conv2d(y, alpha.ones(2, 1, 1, 4, requires_grad=True)).square().sum().backward()
        grads.append(x.grad.numpy())
    assert np.array_equal(*grads)
    with alpha.memory_mode(BALANCED):
        y = norm(x)
        z = F.conv2d(y, alpha.ones(2, 1, 1, 4, requires_grad=True))
        with alpha.no_grad():
            y += 1
        with pytest.raises(alpha.GradientError, match="written in place by"):
            z.sum().backward()


def test_the_input_may_be_written_once_the_output_is_kept() -> None:
    norm, w = nn.BatchNorm2d(4), alpha.ones(2, 1, 1, 4, requires_grad=True)
    grads = []
    for write in (False, True):
        x = alpha.tensor(np.random.default_rng(5).normal(size=(2, 3, 3, 4)), dtype=np.float32)
        norm.zero_grad()
        with alpha.memory_mode(BALANCED):
            z = F.conv2d(norm(x), w).square().sum()
        if write:
            x.fill_(7)
        z.backward()
        grads.append(norm.weight.grad.numpy())
    assert np.array_equal(*grads)


@pytest.mark.parametrize("mode", MODES)
def test_twice_through_a_graph_and_checkpoints(mode: str) -> None:
    for activation in ("leaky", "relu"):
        model = model_of(activation, "cpu", "float64")
        x = alpha.rand(4, 6, 6, 3, dtype=alpha.float64)
        found = []
        for checkpointed in (False, True):
            model.zero_grad()
            with alpha.memory_mode(mode):
                y = alpha.checkpoint(model, x) if checkpointed else model(x)
            y.square().sum().backward(retain_graph=not checkpointed)
            if not checkpointed:
                model.zero_grad()
                y.square().sum().backward()
            found.append({name: p.grad.numpy() for name, p in model.named_parameters()})
        close(found[1], found[0], 1e-12)


@pytest.mark.slow
def test_captured_equals_eager_bit_for_bit(cuda: str) -> None:
    """A graph belongs to one mode: a change of the mode is another capture."""
    x, y = alpha.rand(4, 6, 6, 3).to("cuda"), alpha.tensor(np.arange(4) % 5).to("cuda")
    weights = []
    for captured in (False, True):
        model = model_of("leaky", "cuda")
        optimizer = alpha.optim.SGD(model.parameters(), lr=0.01)

        def run(model: Any = model, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

        function = alpha.capture(run) if captured else run
        for mode in (FAST, BALANCED, LEAST):
            with alpha.memory_mode(mode):
                for _ in range(4):
                    function()
        weights.append([parameter.numpy() for parameter in model.parameters()])
    for eager, replayed in zip(*weights, strict=True):
        assert np.array_equal(eager, replayed)


def test_a_dry_run_leaves_the_mode_as_it_was() -> None:
    def step(x: Any) -> Any:
        alpha.set_memory_mode(LEAST)
        return x * 2

    alpha.dry_run(step, alpha.ones(2), gpu="sm_90a")
    assert alpha.get_memory_mode() == FAST


def test_the_setting() -> None:
    assert alpha.get_memory_mode() == FAST
    with alpha.memory_mode(BALANCED):
        alpha.set_memory_mode(LEAST)
        seen: list[str] = []
        thread = threading.Thread(target=lambda: seen.append(alpha.get_memory_mode()))
        thread.start()
        thread.join()
        assert (alpha.get_memory_mode(), seen) == (LEAST, [FAST])
    assert alpha.get_memory_mode() == FAST
    for call in (alpha.set_memory_mode, alpha.memory_mode):
        with pytest.raises(ValueError, match="memory mode 'small' is not one of fast, balanced, least"):
            call("small")
        for name in ("", None, 0, ["fast"], np.array(["fast"])):
            with pytest.raises(ValueError, match=r"memory mode .* is not one of fast, balanced, least"):
                call(name)  # type: ignore[arg-type]
