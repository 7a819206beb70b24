"""First steps of the gradients of activations and batch normalisations, taken by the kernels of KS-deconv."""

from __future__ import annotations

from typing import Any

import conv2d_geometry
import conv2d_steps as steps
import numpy as np
import pytest
from conv2d_cases import hopper, operands, reordered
from helpers import sample_names, sample_of

import alpha
import alpha.nn.functional as F
from alpha import Tensor, nn
from alpha.ops.conv2d.problem import INPUT, Configuration, MathMode
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.kernel.rectifier import FROM_OUTPUT, FROM_SUM, FROM_X, FROM_Y, RectifierStep

TAKERS = [v for v in CONFIGURATIONS if v.supports_step]
SAMPLE = sample_names([v for v in TAKERS if v.precision != "tf32"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "row",
    [
        *sample_of(v for v in TAKERS if v.precision != "tf32"),
        # sums of tf32 reach the same code as those of float32
        *(pytest.param(v, id=v.name, marks=pytest.mark.gate) for v in TAKERS if v.precision == "tf32"),
    ],
)
def test_a_step_is_what_it_says(row: Configuration) -> None:
    """A step gives dZ, its sums and its magnitude; at the batch's edge, for all residues, with split-K.

    A kernel is compiled for each row, form and shape. So the rows that `make test` runs take every form on one shape,
    and the widest forms on the others. Any other row takes the widest forms and one more, on one shape, in turn. Rows
    in TF32 also take a filter that the kernel transposes.
    """
    turn, widest = TAKERS.index(row), steps.WIDEST
    shapes = [*steps.SHAPES, *[s for s in conv2d_geometry.of(row) if s.IC % 8 == 0][:1]]
    if row.name in SAMPLE:
        cases = [(shapes[0], form) for form in steps.FORMS] + [(s, form) for s in shapes[1:] for form in widest]
    else:
        cases = [(shapes[turn % len(shapes)], form) for form in (*widest, steps.FORMS[turn % len(steps.FORMS)])]
    if row.math is MathMode.TF32:
        cases += [(steps.TRANSPOSED, form) for form in (widest if row.name in SAMPLE else [widest[turn % len(widest)]])]
    taken = 0
    for s, form in dict.fromkeys(cases):
        if steps.is_asked_for(form, row):
            judged = steps.judge(row, s, form, hopper())
            assert judged.fault is None, judged.fault
            taken += judged.taken
    tile = output_tile(row)
    assert taken > 0 or tile > 128 * 128, f"{row.name} takes no step"


@pytest.mark.slow
def test_a_step_beside_a_filter_that_is_transposed() -> None:
    row = next(v for v in TAKERS if v.name == "ks_deconv_sm90_tf32_128x64")
    for form in (steps.Form(FROM_SUM, True, True), steps.Form(FROM_Y, False, False)):
        assert steps.judge(row, steps.TRANSPOSED, form, hopper()) == steps.Judged(True)


def output_tile(row: Configuration) -> int:
    """Sums of an output tile."""
    return int(row.tile["BM"]) * int(row.tile["BN"])


@pytest.mark.slow
def test_the_order_of_blocks_changes_no_bit() -> None:
    row = next(v for v in TAKERS if v.name == "ks_deconv_sm90_fp16x3_128x64")
    s = steps.SHAPES[1]
    arrays = {name: a.astype("float32") for name, a in steps.arrays_for(s, np.dtype(np.float32)).items()}
    dY, W = operands(INPUT, s, "float32")
    results = []
    for device in (hopper(), reordered("sm_90a"), reordered("sm_90a", 2)):
        given = {name: device.upload(a) for name, a in arrays.items()}
        step = steps.step_of(steps.Form(FROM_X, True, True), steps.rectifier_of(FROM_X), {**given, "Y": given["X"]})
        found = steps.launch_step(row, (device.upload(dY), device.upload(W)), s, step, device)
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


@pytest.mark.slow
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
    kept = mode != "fast" and isinstance(activation, nn.LeakyReLU)
    first, join = FROM_OUTPUT if kept else FROM_X, FROM_SUM if kept and precision != "bf16" else FROM_Y
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


@pytest.mark.slow
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
