"""First steps of the gradients of activations and batch normalisations, taken by the kernels of KS-deconv."""

from __future__ import annotations

from typing import Any

import conv2d_cases as cases
import conv2d_geometry
import conv2d_reference as reference
import numpy as np
import pytest
from conv2d_cases import arrays_of, hopper, make, operands, reordered
from helpers import sample_of

import alpha
import alpha.nn.functional as F
from alpha import Tensor, nn
from alpha.core.numerics import BFLOAT16
from alpha.ops.conv2d.problem import INPUT, Configuration
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.kernel.rectifier import FROM_OUTPUT, FROM_SUM, FROM_X, FROM_Y, RectifierStep

TAKERS = [v for v in CONFIGURATIONS if v.supports_step]
# 2-D maps of one residue and of four, with rows of pixels that no tile fills, and several tiles of channels
SHAPES = [make(40, (7, 5), (64, 64), (3, 3), p=(1, 1)), make(9, (9, 11), (72, 64), (3, 3), s=(2, 2), p=(1, 1))]
SLOPE = 0.25


def arrays_for(s: ConvShape, dtype: np.dtype[Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Arrays of a step, as in a batch normalisation of X: Y = rectifier(Z + residual)."""
    rng = np.random.default_rng(seed)
    X, residual, other = (rng.standard_normal(s.X).astype(dtype).astype("float64") for _ in range(3))
    mean, bias = rng.standard_normal((2, s.IC)).astype("float32")
    var, weight = rng.uniform(0.5, 2, (2, s.IC)).astype("float32")
    Z = (X - mean) / np.sqrt(var + cases.STEP_EPS) * weight + bias
    return {
        "X": X,
        "residual": residual,
        "other": other,
        "Z": Z,
        "mean": mean,
        "var": var,
        "weight": weight,
        "bias": bias,
    }


def expected(
    form: tuple[int, bool, bool], dX: np.ndarray, slope: float, a: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """DZ and the two sums of each channel, in float64."""
    sign, _, other = form
    Z = a["Z"] if sign in (FROM_X, FROM_OUTPUT) else a["Y"]
    g = dX + a["other"] if other else dX
    dZ = g * np.where(Z > 0, 1, slope)
    centred = a["X"] - a["mean"]
    if sign in (FROM_OUTPUT, FROM_SUM):
        centred = centred / np.sqrt(a["var"] + cases.STEP_EPS)
    return dZ, np.stack([dZ.sum(axis=(0, 1, 2)), (dZ * centred).sum(axis=(0, 1, 2))])


@pytest.mark.parametrize(
    "row",
    [
        *sample_of(v for v in TAKERS if v.precision != "tf32"),
        # sums of tf32 reach the same code as those of float32
        *(pytest.param(v, id=v.name, marks=pytest.mark.gate) for v in TAKERS if v.precision == "tf32"),
    ],
)
def test_a_step_is_what_it_says(row: Configuration) -> None:
    """Every form gives dZ, its sums and its magnitude; those of the batch's edge, of all residues, of split-K."""
    device, dtype = hopper(), arrays_of(row)
    narrow = dtype == BFLOAT16
    taken = 0
    for s in (*SHAPES, *conv2d_geometry.of(row)[:1]):
        dY, W = (a.astype(dtype) for a in operands(INPUT, s, "float32"))
        dX = reference.backward_input(dY.astype("float64"), W.astype("float64"), s)
        a = arrays_for(s, dtype)
        for form in cases.STEP_FORMS:
            sign = form[0]
            if narrow and sign in (FROM_OUTPUT, FROM_SUM):  # which is never asked for
                continue
            rectifier = cases.rectifier_of_step(sign, SLOPE)
            total = a["Z"] + a["residual"] if sign in (FROM_Y, FROM_SUM) else a["Z"]
            Y = np.where(total > 0, total, rectifier.slope * total).astype(dtype)
            host = {**a, "Y": Y.astype("float64")}
            given = {
                name: device.upload(host[name].astype(dtype if host[name].ndim > 1 else "float32"))
                for name in ("X", "Y", "residual", "other", "mean", "var", "weight", "bias")
            }
            step = cases.step_of(form, rectifier, given)
            found = cases.launch_step(row, (device.upload(dY), device.upload(W)), s, step, device)
            if found is None:
                continue
            taken += 1
            dZ, sums = expected(form, dX, rectifier.slope, host)
            got = device.download(found["dX"]).astype("float64")
            scale = np.abs(dZ).max()
            error = {"float32": 1e-5, "tf32": 4e-3, "bf16": 1.5e-2}[row.precision]
            np.testing.assert_allclose(got, dZ, atol=error * scale, err_msg=f"{s} {form}")
            if form[1]:
                part = device.download(found["part"]).astype("float64").sum(axis=1)
                atol = error * np.abs(sums).max() + error * scale * np.sqrt(dZ[..., 0].size)
                np.testing.assert_allclose(part, sums, atol=atol, err_msg=f"{s} {form}")
            if "magnitude" in found:
                largest = device.download(found["magnitude"]).view(np.float32)[0]
                assert largest == np.abs(device.download(found["dX"])).max()
    tile = output_tile(row)
    assert taken > 0 or tile > 128 * 128, f"{row.name} takes no step"


def output_tile(row: Configuration) -> int:
    """Sums of an output tile."""
    return int(row.tile["BM"]) * int(row.tile["BN"])


def test_the_order_of_blocks_changes_no_bit() -> None:
    row = next(v for v in TAKERS if v.name == "ks_deconv_sm90_fp16x3_128x64")
    s = SHAPES[1]
    arrays = {name: a.astype("float32") for name, a in arrays_for(s, np.dtype(np.float32)).items()}
    dY, W = operands(INPUT, s, "float32")
    results = []
    for device in (hopper(), reordered("sm_90a"), reordered("sm_90a", 2)):
        given = {name: device.upload(a) for name, a in arrays.items()}
        step = cases.step_of((FROM_X, True, True), cases.rectifier_of_step(FROM_X, SLOPE), {**given, "Y": given["X"]})
        found = cases.launch_step(row, (device.upload(dY), device.upload(W)), s, step, device)
        assert found is not None
        results.append([device.download(found[name]).tobytes() for name in ("dX", "part")])
    assert results[0] == results[1] == results[2]


# -- in networks --------------------------------------------------------------------------------------

KERNELS = {"float32": "fp16x3", "tf32": "tf32", "bf16": "bf16"}


class Block(nn.Module):
    """Convolution, batch normalisation, activation, twice, the second with the input added."""

    def __init__(self, activation: nn.Module) -> None:
        self.stem = nn.Conv2d(8, 32, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(32)
        self.conv1, self.conv2, self.conv3 = (nn.Conv2d(32, 32, 3, padding=1, bias=False) for _ in range(3))
        self.norm1, self.norm2 = nn.BatchNorm2d(32), nn.BatchNorm2d(32)
        self.act = activation

    def forward(self, x: Tensor) -> Tensor:
        x = nn.conv_batch_norm(self.stem, self.norm, x, self.act)
        y = nn.conv_batch_norm(self.conv1, self.norm1, x, self.act)
        y = nn.conv_batch_norm(self.conv2, self.norm2, y, self.act, x)
        return F.conv2d(self.conv3(y), self.conv3.weight, None, 1, 1, negative_slope=0.5)


class Taken:
    """The steps that were taken: where their sign was from, and whether another gradient was added."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.steps: list[tuple[int, bool]] = []
        note = RectifierStep.note_taken

        def noted(step: RectifierStep, part: Any) -> None:
            self.steps.append((step.sign, step.other is not None))
            note(step, part)

        patch.setattr(RectifierStep, "note_taken", noted)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    return Taken(monkeypatch)


def gradients(
    precision: str, activation: nn.Module, patch: pytest.MonkeyPatch, fused: bool = True
) -> dict[str, np.ndarray]:
    """The gradients of the parameters of a block, by the kernels of Hopper."""
    patch.setenv("ALPHA_CONV_KERNEL", f"ks_deconv_sm90_{KERNELS[precision]}_128x64")
    patch.setattr(alpha.ops.conv2d.Conv2d, "takes_first_steps", fused)
    alpha.manual_seed(3)
    model = Block(activation).to(hopper())
    rng = np.random.default_rng(1)
    with alpha.precision(precision):
        y = model(alpha.tensor(rng.standard_normal((9, 6, 7, 8)).astype("float32"), device=hopper()))
        y.backward(alpha.tensor(rng.standard_normal(y.shape).astype("float32"), device=hopper()).astype(y.dtype))
    return {name: p.grad.numpy().astype("float64") for name, p in model.named_parameters()}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("precision", "activation", "mode"),
    [
        ("float32", nn.LeakyReLU(0.2), "fast"),
        ("float32", nn.LeakyReLU(0.2), "balanced"),
        ("float32", nn.ReLU(), "least"),
        ("tf32", nn.ReLU(), "fast"),
        ("bf16", nn.LeakyReLU(0.2), "balanced"),
    ],
    ids=str,
)
def test_a_network_has_the_same_gradients(
    precision: str, activation: nn.Module, mode: str, monkeypatch: pytest.MonkeyPatch, taken: Taken
) -> None:
    with alpha.memory_mode(mode):
        found = gradients(precision, activation, monkeypatch)
        steps = taken.steps.copy()
        plain = gradients(precision, activation, monkeypatch, fused=False)
    kept = mode != "fast" and precision != "bf16" and isinstance(activation, nn.LeakyReLU)
    first, join = (FROM_OUTPUT, FROM_SUM) if kept else (FROM_X, FROM_Y)
    assert steps == [(join, False), (first, False), (first, True)]
    assert taken.steps == steps
    error = {"float32": 2e-6, "tf32": 2e-3, "bf16": 3e-2}[precision]
    for name, value in plain.items():
        difference = np.linalg.norm(found[name] - value) / np.linalg.norm(value)
        assert difference < error or np.linalg.norm(value) < 1e-3, (name, difference)


def chain(watch: Any = None, users: int = 1, leaf: bool = False) -> Tensor:
    """Loss of a convolution with an activation, of whose output a convolution is the last or the only user."""
    device = hopper()
    rng = np.random.default_rng(0)
    x, w, v = (
        alpha.tensor(rng.standard_normal(n).astype("float32"), device=device, requires_grad=True)
        for n in ((8, 5, 5, 32), (32, 3, 3, 32), (32, 3, 3, 32))
    )
    y = F.conv2d(x, w, None, 1, 1, negative_slope=0.5)
    if watch is not None:
        watch(y)
    z = F.conv2d(y, v, None, 1, 1)
    if users == 2:
        z = z + y * y
    return z.sum()


@pytest.fixture
def on_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_CONV_KERNEL", "ks_deconv_sm90_fp16x3_128x64")


@pytest.mark.usefixtures("on_hopper")
def test_whoever_asks_for_a_gradient_gets_it(taken: Taken) -> None:
    """A hook, `retain_grad` and `alpha.grad` ask for dY, which then must be made."""
    chain().backward()
    assert taken.steps == [(FROM_Y, False)]
    chain(users=2).backward()  # the sign and another gradient, without sums: a kernel of floats has no registers for it
    assert taken.steps == [(FROM_Y, False)]
    taken.steps.clear()
    seen: list[Tensor] = []
    chain(lambda y: y.register_hook(seen.append)).backward()
    chain(Tensor.retain_grad).backward()
    loss = chain(seen.append)
    (gradient,) = alpha.grad(loss, seen[-1])
    np.testing.assert_array_equal(gradient.numpy(), seen[0].numpy())
    assert not taken.steps


@pytest.mark.usefixtures("on_hopper")
def test_a_second_backward_pass_takes_the_step_again(taken: Taken) -> None:
    device = hopper()
    rng = np.random.default_rng(0)
    x, w = (
        alpha.tensor(rng.standard_normal(n).astype("float32"), device=device, requires_grad=True)
        for n in ((8, 5, 5, 32), (32, 3, 3, 32))
    )
    z = F.conv2d(F.conv2d(x, w, None, 1, 1, negative_slope=0.5), w.detach(), None, 1, 1).sum()
    z.backward(retain_graph=True)
    first = x.grad.numpy()  # type: ignore[union-attr]
    z.backward()
    assert taken.steps == [(FROM_Y, False)] * 2
    np.testing.assert_array_equal(x.grad.numpy(), 2 * first)  # type: ignore[union-attr]
