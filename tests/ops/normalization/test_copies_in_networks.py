"""Networks in "tf32" whose convolutions read the fp16 copies that batch normalisation has written."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers import choosing
from launch_log import observed_launches
from reading_copies import alone, copies, gpu_that_reads_copies

import alpha
import alpha.nn.functional as F
from alpha import Tensor, nn
from alpha.ops import conv2d
from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from alpha.ops.normalization import batch_norm
from alpha.runtime.cuda.cuda_device import CudaDevice

SIZE = (4, 6, 5, 16)  # of images


@pytest.fixture
def cuda() -> Iterator[CudaDevice]:
    with gpu_that_reads_copies() as device:
        yield device


class Chain(nn.Module):
    """Batch normalisations between convolutions, one with a residual. Rounding flips no sign of an activation."""

    def __init__(self, taps: int = 3) -> None:
        def conv() -> nn.Conv2d:
            return nn.Conv2d(16, 16, taps, padding=taps // 2, bias=False)

        self.convs = nn.ModuleList([conv() for _ in range(4)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(16) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        first = nn.conv_batch_norm(self.convs[0], self.norms[0], x)
        second = self.norms[1](self.convs[1](first))
        third = nn.conv_batch_norm(self.convs[2], self.norms[2], second, residual=first)
        return self.convs[3](third)  # type: ignore[no-any-return]


def made(taps: int = 3, device: Any = "cuda", dtype: str = "float32") -> tuple[Chain, Tensor, Tensor]:
    """A network, its input and weights of a loss."""
    alpha.manual_seed(0)
    model = Chain(taps).to(device)
    rng = np.random.default_rng(1)
    x, w = (alpha.tensor(rng.standard_normal(SIZE).astype(dtype), device=device) for _ in range(2))
    return model.double() if dtype == "float64" else model, x, w


def gradients(model: Chain, x: Tensor, w: Tensor) -> list[np.ndarray]:
    (model(x) * w).sum().backward()
    found = [parameter.grad for parameter in model.parameters()]
    return [grad.numpy() for grad in found if grad is not None]


def test_convolutions_multiply_copies(cuda: CudaDevice) -> None:
    """The gradients are as near to float64 as one fp16 term is, and nothing is converted but filters and the image."""
    expected = gradients(*made(device="cpu", dtype="float64"))
    with alpha.precision("tf32"), observed_launches(cuda) as log:
        found = gradients(*made())
    assert len(found) == len(expected) == 10
    for grad, exact in zip(found, expected, strict=True):
        assert np.linalg.norm(grad - exact) < 3e-3 * np.linalg.norm(exact)
    assert copies(log) == 6  # of three results and three gradients
    assert alone(log) == 3
    products = [x.entry for x in log if x.defines.get("PREPARED", 0)]
    assert products.count("conv_v2_sm90") == 3  # not of the image
    assert sum("ks_deconv" in entry for entry in products) == 2  # the last gradient has no copy, the image none
    assert products.count("sk_dilated_sm90") == 3
    # of the image, whose filter's gradient reads the copy of dY
    assert [x.entry for x in log].count("activation_terms") == 1


@pytest.mark.parametrize("taken", [True, False])
def test_backward_has_the_precision_of_forward(cuda: CudaDevice, taken: bool) -> None:
    """Gradients are the same if the program has left the precision before it goes backward, as after autocast."""
    with alpha.precision("tf32"):
        inside = gradients(*made())
        model, x, w = made()
        loss = (model(x) * w).sum()
        if taken:
            loss.backward()
    if not taken:
        with observed_launches(cuda) as log:
            loss.backward()
        assert copies(log) == 3
    for parameter, expected in zip(model.parameters(), inside, strict=True):
        assert parameter.grad is not None
        np.testing.assert_array_equal(parameter.grad.numpy(), expected)


def test_captured_steps_have_the_bits_of_eager_ones(cuda: CudaDevice) -> None:
    def train(capture: Callable[..., Any]) -> list[np.ndarray]:
        model, x, w = made()
        optimizer = alpha.optim.SGD(model.parameters(), lr=1e-3)

        def step() -> Tensor:
            loss = (model(x) * w).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = capture(step)
        with alpha.precision("tf32"):
            losses = [run().numpy() for _ in range(4)]
        return [*losses, *(parameter.numpy() for parameter in model.parameters())]

    for eager, captured in zip(train(lambda step: step), train(alpha.capture), strict=True):
        np.testing.assert_array_equal(eager, captured)


def test_a_second_backward_pass(cuda: CudaDevice) -> None:
    with alpha.precision("tf32"):
        expected = gradients(*made())
        model, x, w = made()
        loss = (model(x) * w).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    for parameter, once in zip(model.parameters(), expected, strict=True):
        assert parameter.grad is not None
        np.testing.assert_array_equal(parameter.grad.numpy(), 2 * once)


def test_a_gradient_that_a_hook_changes_is_read_anew(cuda: CudaDevice) -> None:
    """The copy is that of the gradient before the hook."""

    def run(factor: float) -> np.ndarray:
        model, x, w = made()
        z = model.convs[0](x)
        z.register_hook(lambda grad: grad * factor)
        y = model.norms[0](z)
        (model.convs[1](y) * w).sum().backward()
        grad = model.convs[0].weight.grad
        assert grad is not None
        return grad.numpy()

    with alpha.precision("tf32"):
        np.testing.assert_array_equal(run(4.0), 4 * run(1.0))


def test_an_output_that_is_written_is_read_anew(cuda: CudaDevice) -> None:
    model, x, _ = made()
    with alpha.precision("tf32"):
        y = nn.conv_batch_norm(model.convs[0], model.norms[0], x)
    with alpha.precision("tf32"), alpha.no_grad():
        assert y.array.magnitude.half is not None
        before = model.convs[1](y).numpy()
        y.mul_(4.0)
        after = model.convs[1](y).numpy() / 4
    assert np.linalg.norm(after - before) < 2e-3 * np.linalg.norm(before)


@pytest.mark.parametrize(
    ("precision", "mode", "taps", "written"),
    [
        ("tf32", "fast", 3, 6),
        ("tf32", "balanced", 3, 6),
        ("tf32", "least", 3, 5),
        ("tf32", "fast", 1, 3),  # those of results: so few gradients gain nothing by it
        ("float32", "fast", 3, 0),
        ("bf16", "fast", 3, 0),
    ],
)
def test_when_copies_are_written(cuda: CudaDevice, precision: str, mode: str, taps: int, written: int) -> None:
    with alpha.precision(precision), alpha.memory_mode(mode), observed_launches(cuda) as log:
        gradients(*made(taps))
    assert copies(log) == written


@pytest.mark.parametrize(("layer", "written"), [(nn.LeakyReLU(0.25), 3), (nn.ReLU(), 0)], ids=str)
def test_results_that_least_copies(cuda: CudaDevice, layer: nn.Module, written: int) -> None:
    """Copies that take the place of an input, which that of a ReLU cannot."""
    with alpha.precision("tf32"), alpha.memory_mode("least"), observed_launches(cuda) as log:
        model, x, _ = of_blocks(layer)
        model(x)
    assert copies(log) == written


@pytest.mark.parametrize(
    ("mode", "layer"),
    [("fast", nn.LeakyReLU(0.25)), ("fast", nn.ReLU()), ("balanced", nn.LeakyReLU(0.25)), ("balanced", nn.ReLU())],
    ids=str,
)
def test_what_stays_for_the_backward_pass(cuda: CudaDevice, mode: str, layer: nn.Module) -> None:
    with alpha.precision("tf32"), alpha.memory_mode(mode):
        model, x, w = made()
        y = nn.conv_batch_norm(model.convs[0], model.norms[0], x, layer)
        floats, copy = weakref.ref(y.array.block), weakref.ref(y.array.magnitude.half)
        z = nn.conv_batch_norm(model.convs[1], model.norms[1], y)
        assert y.array.magnitude.limit
        del y
        assert floats() is None
        assert copy() is not None
        (z * w).sum().backward()
        assert copy() is None


class Blocks(nn.Module):
    """A stem and two residual blocks."""

    def __init__(self, layer: nn.Module | None) -> None:
        self.convs = nn.ModuleList([nn.Conv2d(16, 16, 3, padding=1, bias=False) for _ in range(6)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(16) for _ in range(5)])
        self.layer = layer
        self.made: list[Tensor] = []

    def norm(self, number: int, x: Tensor, residual: Tensor | None = None) -> Tensor:
        y = nn.conv_batch_norm(self.convs[number], self.norms[number], x, self.layer, residual)
        self.made.append(y)
        return y

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(0, x)
        for number in (1, 3):
            x = self.norm(number + 1, self.norm(number, x), x)
        return self.convs[5](x)  # type: ignore[no-any-return]


def of_blocks(layer: nn.Module | None) -> tuple[Any, Tensor, Tensor]:
    _, x, w = made()
    alpha.manual_seed(0)
    model = Blocks(layer).to("cuda")
    rng = np.random.default_rng(2)
    for norm in model.norms:  # weights of both signs
        norm.weight.data = alpha.tensor(
            rng.choice((-1, 1), 16) * rng.uniform(0.5, 2, 16), dtype="float32", device="cuda"
        )
        norm.bias.data = alpha.tensor(rng.standard_normal(16), dtype="float32", device="cuda")
    return model, x, w


@pytest.mark.parametrize(
    ("mode", "layer", "in_place_of_x", "for_the_sign"),
    [
        ("fast", nn.LeakyReLU(0.25), 0, 2),
        ("fast", nn.ReLU(), 0, 2),
        ("fast", nn.ReLU6(), 0, 0),  # what is rounded up to 6 would lose its gradient
        ("balanced", nn.LeakyReLU(0.25), 3, 2),
        ("balanced", None, 2, 0),
        ("balanced", nn.ReLU(), 0, 2),  # which cannot be undone
        ("least", nn.LeakyReLU(0.25), 2, 0),
        ("least", nn.ReLU(), 0, 0),
    ],
    ids=str,
)
def test_copies_that_batch_normalisation_keeps(
    cuda: CudaDevice,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    layer: nn.Module | None,
    in_place_of_x: int,
    for_the_sign: int,
) -> None:
    """The sign of a copy is that of the floats, and what is found again from copies has the error of one fp16 term."""
    with alpha.precision("tf32"), alpha.memory_mode(mode):
        model, x, w = of_blocks(layer)
        with observed_launches(cuda) as log:
            found = gradients(model, x, w)
        model, x, w = of_blocks(layer)
        loss = (model(x) * w).sum()
        nodes = [y._node for y in model.made]
        assert [node.half is not None for node in nodes].count(True) == in_place_of_x + for_the_sign
        assert [node._saved[0] is None for node in nodes].count(True) == in_place_of_x
        loss.backward()
        assert not any(node.half for node in nodes)
        monkeypatch.setattr(batch_norm, "half_alone", lambda array: None)
        with observed_launches(cuda) as floats:
            expected = gradients(*of_blocks(layer))
    reading, none = ([x.entry for x in log if x.defines.get("Y_HALF", 0)] for log in (log, floats))
    assert not none
    assert bool(reading) == bool(in_place_of_x + for_the_sign)
    for grad, exact in zip(found, expected, strict=True):
        assert np.linalg.norm(grad - exact) <= (2e-3 if in_place_of_x else 0) * np.linalg.norm(exact)
    assert not in_place_of_x or any((grad != exact).any() for grad, exact in zip(found, expected, strict=True))


@pytest.mark.parametrize("scale", [1e-3, 1e-5])
def test_weights_near_0_behind_a_residual(cuda: CudaDevice, monkeypatch: pytest.MonkeyPatch, scale: float) -> None:
    """Y is large beside what these weights add to it, as in blocks whose last weights begin with 0."""

    def run() -> list[np.ndarray]:
        model, x, w = of_blocks(nn.LeakyReLU(0.25))
        for number in (2, 4):
            model.norms[number].weight.data = model.norms[number].weight.data * scale
        return gradients(model, x, w)

    with alpha.precision("tf32"), alpha.memory_mode("balanced"):
        found = run()
        monkeypatch.setattr(batch_norm, "half_alone", lambda array: None)
        for grad, exact in zip(found, run(), strict=True):
            assert np.linalg.norm(grad - exact) <= 1e-2 * np.linalg.norm(exact)


def test_training_without_a_gradient_is_the_same_captured(cuda: CudaDevice) -> None:
    """Nobody knows then what the next convolution reads, so no copies are written."""
    model, x, _ = made()
    with alpha.precision("tf32"), alpha.no_grad():
        with observed_launches(cuda) as log:
            eager = model(x).numpy()
        step = alpha.capture(model.forward)
        for _ in range(4):
            np.testing.assert_array_equal(step(x).numpy(), eager)
    assert copies(log) == 0


def test_the_floats_are_kept_if_another_layer_keeps_them(cuda: CudaDevice) -> None:
    """A copy beside them would take more than X does."""
    with alpha.precision("tf32"), alpha.memory_mode("balanced"):
        model, x, w = of_blocks(nn.LeakyReLU(0.25))
        y = model.norm(0, x)
        copy = weakref.ref(y.array.magnitude.half)
        other = F.silu(y)
        assert not y._node.half
        assert y._node._saved[0] is y.array
        y.array.magnitude.half = None
        assert copy() is None
        (other * w).sum().backward()


def test_the_copy_of_a_residual_is_dropped(cuda: CudaDevice) -> None:
    """Nobody would drop it if no convolution reads it."""
    with alpha.precision("tf32"), alpha.memory_mode("balanced"):
        model, x, _ = made()
        shortcut = nn.conv_batch_norm(model.convs[0], model.norms[0], x)
        assert shortcut.array.magnitude.half is not None
        nn.conv_batch_norm(model.convs[1], model.norms[1], x, residual=shortcut)
        assert shortcut.array.magnitude.half is None
        assert shortcut.array.magnitude.limit


def test_gradients_without_the_floats_are_those_with_them(cuda: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    with alpha.precision("tf32"):
        alone = gradients(*made())
        monkeypatch.setattr(conv2d, "needs_half_alone", lambda *_: False)
        both = gradients(*made())
    for found, expected in zip(alone, both, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mode", ["fast", "balanced", "least"])
def test_a_copy_in_place_of_a_gradient_changes_no_bit(
    cuda: CudaDevice, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    def run() -> tuple[list[np.ndarray], int]:
        with alpha.precision("tf32"), alpha.memory_mode(mode), observed_launches(cuda) as log:
            return gradients(*made()), alone(log)

    found, number = run()
    monkeypatch.setattr(conv2d, "needs_half_of_gradient", lambda *_: False)
    expected, none = run()
    assert number > none == 0
    for grad, beside in zip(found, expected, strict=True):
        np.testing.assert_array_equal(grad, beside)


@pytest.mark.parametrize("mode", ["fast", "balanced", "least"])
def test_gradients_of_one_tap_that_are_copies_alone(
    cuda: CudaDevice, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The kernels are right where the model of time chooses a copy, which it does not for so few numbers."""
    expected = gradients(*made(1, device="cpu", dtype="float64"))
    monkeypatch.setattr(conv2d, "needs_half_of_gradient", lambda *_: True)
    with alpha.precision("tf32"), alpha.memory_mode(mode), observed_launches(cuda) as log:
        found = gradients(*made(1))
    assert alone(log) == 3
    for grad, exact in zip(found, expected, strict=True):
        # with one tap the batch normalisation behind takes a bias away again, so that its gradient is 0
        assert np.linalg.norm(grad - exact) < 3e-3 * max(np.linalg.norm(exact), 5)


@pytest.mark.parametrize("frozen", [True, False])
def test_who_needs_the_floats_of_a_gradient(cuda: CudaDevice, frozen: bool) -> None:
    """The gradient of a bias adds them up, unless the bias is frozen."""
    alpha.manual_seed(0)
    conv, norm = nn.Conv2d(16, 16, 3, padding=1).to("cuda"), nn.BatchNorm2d(16).to("cuda")
    assert conv.bias is not None
    conv.bias.requires_grad = not frozen
    _, x, w = made()
    with alpha.precision("tf32"), observed_launches(cuda) as log:
        (nn.conv_batch_norm(conv, norm, x) * w).sum().backward()
    assert (copies(log), alone(log)) == (2, int(frozen))
    assert conv.weight.grad is not None


def test_a_gradient_without_a_copy_beside_a_copy_alone(cuda: CudaDevice) -> None:
    """A hook leaves the gradient that the convolution expects to come with a copy without one."""

    def gradient(factor: float) -> np.ndarray:
        model, x, w = made()
        conv = model.convs[1]
        y = nn.conv_batch_norm(model.convs[0], model.norms[0], x)
        z = conv(y, ChannelStatistics())
        if factor:
            z.register_hook(lambda grad: grad * factor)
        (model.norms[1](z) * w).sum().backward()
        assert conv.weight.grad is not None
        return conv.weight.grad.numpy()

    with alpha.precision("tf32"):
        expected = gradient(0)
        with observed_launches(cuda) as log:
            found = gradient(4) / 4
    assert np.linalg.norm(found - expected) < 2e-3 * np.linalg.norm(expected)
    prepared = [x.defines["PREPARED"] for x in log if x.entry == "sk_dilated_sm90"]
    assert prepared[0] == 1  # the first one in the backward pass


def test_an_output_may_be_written_where_its_copy_is_kept(cuda: CudaDevice) -> None:
    """The gradient is that of the values that were multiplied."""

    def gradient(change: bool) -> np.ndarray:
        model, x, w = made()
        y = nn.conv_batch_norm(model.convs[0], model.norms[0], x)
        z = nn.conv_batch_norm(model.convs[1], model.norms[1], y)
        if change:
            with alpha.no_grad():
                y.mul_(4.0)
        (z * w).sum().backward()
        assert model.convs[1].weight.grad is not None
        return model.convs[1].weight.grad.numpy()

    with alpha.precision("tf32"):
        np.testing.assert_array_equal(gradient(True), gradient(False))


def test_a_limit_without_a_copy_is_no_magnitude(cuda: CudaDevice) -> None:
    """A convolution in tf32 has dropped the copy; one in float32 finds the magnitude itself."""
    model, x, _ = made()
    with alpha.memory_mode("balanced"):
        with alpha.precision("tf32"):
            y = nn.conv_batch_norm(model.convs[0], model.norms[0], x)
            model.convs[1](y)
        assert y.array.magnitude.half is None
        with choosing(lambda v: "sm90_fp16x3" in v.name), observed_launches(cuda) as log:
            F.conv2d(y, model.convs[1].weight, None, 1, 1)
    assert "absmax" in [launched.entry for launched in log]


def test_nothing_is_kept_behind_the_backward_pass(cuda: CudaDevice) -> None:
    """The loss, which lives on, holds no copies."""
    with alpha.precision("tf32"):
        model, x, w = made()
        gradients(model, x, w)
        model.zero_grad()
        before = cuda.memory_stats().live
        loss = (model(x) * w).sum()
        loss.backward()
        model.zero_grad()
        assert cuda.memory_stats().live - before < 4 * x.array.nbytes // 2
        del loss


@pytest.mark.parametrize(
    ("layer", "written"), [(nn.SiLU(), 1), (nn.ReLU(), 2), (nn.LeakyReLU(0.1), 2)], ids=["SiLU", "ReLU", "LeakyReLU"]
)
def test_what_another_operator_reads_has_no_copy(cuda: CudaDevice, layer: nn.Module, written: int) -> None:
    """The activation in the kernel leaves the copy to the convolution; another one reads the floats."""
    model, x, w = made()
    with alpha.precision("tf32"), observed_launches(cuda) as log:
        y = nn.batch_norm_activation(model.norms[0], model.convs[0](x), layer)
        (model.convs[1](y) * w).sum().backward()
    assert copies(log) == written


@pytest.mark.parametrize("mode", ["fast", "balanced", "least"])
@pytest.mark.parametrize("groups", [4, 16])
def test_copies_behind_groups_are_read_by_the_dense_convolution_behind_them(
    cuda: CudaDevice, mode: str, groups: int
) -> None:
    def run(device: Any, dtype: str) -> list[np.ndarray]:
        model, x, w = made(device=device, dtype=dtype)
        alpha.manual_seed(2)
        grouped = nn.Conv2d(16, 16, 3, padding=1, groups=groups, bias=False, dtype=dtype, device=device)
        y = nn.conv_batch_norm(grouped, model.norms[0], x, nn.LeakyReLU(0.25))
        (model.convs[1](y) * w).sum().backward()
        return [p.grad.numpy() for p in (grouped.weight, *model.norms[0].parameters(), model.convs[1].weight)]

    expected = run("cpu", "float64")
    with alpha.precision("tf32"), alpha.memory_mode(mode), observed_launches(cuda) as log:
        found = run("cuda", "float32")
    assert copies(log) == 1
    assert next(x.entry for x in log if x.defines.get("PREPARED", 0)) == "conv_v2_sm90"
    for grad, exact in zip(found, expected, strict=True):
        assert np.linalg.norm(grad - exact) < 3e-3 * np.linalg.norm(exact)


@pytest.mark.parametrize("mode", ["balanced", "least"])
def test_a_reader_of_floats_drops_the_copy(cuda: CudaDevice, mode: str) -> None:
    """A convolution with groups keeps the floats of its input, and reads no copy."""
    model, x, _ = made()
    with alpha.precision("tf32"), alpha.memory_mode(mode):
        y = nn.conv_batch_norm(model.convs[0], model.norms[0], x, nn.LeakyReLU(0.25))
        copy = weakref.ref(y.array.magnitude.half)
        assert copy() is not None
        z = nn.Conv2d(16, 16, 3, padding=1, groups=16, device="cuda")(y)
    assert copy() is None
    z.sum().backward()


def test_an_image_has_no_copy_of_its_gradient(cuda: CudaDevice) -> None:
    """Nobody reads it: the channels are no packs, and no gradient of the image is asked for."""
    conv, norm = nn.Conv2d(3, 16, 3, padding=1, bias=False).to("cuda"), nn.BatchNorm2d(16).to("cuda")
    x = alpha.randn(2, 6, 5, 3, device="cuda")
    with alpha.precision("tf32"), observed_launches(cuda) as log:
        nn.conv_batch_norm(conv, norm, x).sum().backward()
    assert copies(log) == 1  # of the result, which the next convolution may read


def test_a_checkpoint_has_the_gradients_of_its_module(cuda: CudaDevice) -> None:
    with alpha.precision("tf32"):
        expected = gradients(*made())
        model, x, w = made()
        (alpha.checkpoint(model, x) * w).sum().backward()
    for parameter, exact in zip(model.parameters(), expected, strict=True):
        assert parameter.grad is not None
        np.testing.assert_array_equal(parameter.grad.numpy(), exact)


def test_evaluation_writes_no_copies(cuda: CudaDevice) -> None:
    model, x, _ = made()
    model.eval()
    with alpha.precision("tf32"), alpha.no_grad(), observed_launches(cuda) as log:
        model(x)
    assert copies(log) == 0


def test_a_convolution_in_float32_finds_the_magnitude_itself(cuda: CudaDevice) -> None:
    """A limit is too large for the scale of two terms: small numbers would lose bits."""
    model, x, w = made()
    with alpha.precision("tf32"):
        y = nn.conv_batch_norm(model.convs[0], model.norms[0], x)
    assert y.array.magnitude.half is not None
    rows = choosing(lambda v: "sm90_fp16x3" in v.name)
    with rows, observed_launches(cuda) as log:
        (F.conv2d(y, model.convs[1].weight, None, 1, 1) * w).sum().backward()
    assert "absmax" in [launched.entry for launched in log]
