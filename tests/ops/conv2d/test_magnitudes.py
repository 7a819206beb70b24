"""The largest magnitudes of a convolution's operands, each found once."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conv2d_cases import CUDA_ROWS, LONG, arrays_of, hopper, make
from helpers import choosing, sample_of
from launch_log import observed_launches
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha import Tensor, nn
from alpha.core.numerics import BFLOAT16
from alpha.ops.conv2d import magnitudes
from alpha.ops.conv2d.magnitudes import Magnitudes, absmax
from alpha.ops.conv2d.plan import compute, cuda_target, plan_configuration
from alpha.ops.conv2d.problem import FORWARD, Configuration, ConvProblem, Epilogue
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.kernel.plan import Plan
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver
from alpha.runtime.cuda.planning.driver_dry import DryDevice
from alpha.runtime.registry import standing_in

SIZES = (32, 8, 8, 64), (64, 3, 3, 64)


def draw(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def test_each_array_is_read_once() -> None:
    device = hopper()
    a, b, c = (device.upload(np.array([value, -1, np.inf, np.nan], np.float32)) for value in (-2, 3, 4))
    with observed_launches(device) as log, Magnitudes() as magnitudes:
        found = [absmax(a, b), absmax(c, b), absmax(a, c)]
    assert [int(device.download(x)[0]) for pair in found for x in pair] == [bits(v) for v in (2, 3, 4, 3, 2, 4)]
    assert [launched.entry for launched in log].count("absmax") == 2
    with observed_launches(device) as log:
        absmax(a, b)  # outside nothing is remembered
        with magnitudes:
            absmax(a, b)
    assert [launched.entry for launched in log].count("absmax") == 1


def test_a_launch_finds_nothing_of_the_launch_before() -> None:
    device = hopper()
    many = np.zeros(9000, np.float32)  # of several blocks
    with Magnitudes() as magnitudes:
        for value in range(4, 0, -1):
            many[-5] = -value
            a, b = device.upload(many), device.upload(many[:5] + np.float32(value / 2))
            again = magnitudes.copy()
            found = [*again.of(a, b), *magnitudes.of(b, a)]
            expected = [value, value / 2, value / 2, value]
            assert [int(device.download(x)[0]) for x in found] == [bits(v) for v in expected]
            c = device.upload(many[-6:])
            assert int(device.download(magnitudes.of(a, c)[1])[0]) == bits(value)


def test_no_array_is_kept_alive() -> None:
    device = hopper()
    with Magnitudes():
        before = device.memory_stats().live
        absmax(*(device.upload(np.zeros(1 << 20, np.float32)) for _ in range(2)))
        assert device.memory_stats().live - before < 1 << 16


def in_fp16_terms(v: Configuration) -> bool:
    return "sm90_fp16x3" in v.name


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["conv2d", "conv_transpose2d"])
def test_a_convolution_finds_three_magnitudes(layer: str) -> None:
    device = hopper()
    x, w = (Tensor(device.upload(draw(shape, i)), requires_grad=True) for i, shape in enumerate(SIZES))
    with choosing(in_fp16_terms), observed_launches(device) as log:
        y = getattr(F, layer)(x, w, padding=1)
        y.backward(alpha.tensor(draw(y.shape, 2), device=device))
    assert [launched.entry for launched in log].count("absmax") == 2  # of x and w, of the gradient of y


def test_a_gradient_that_is_written_into_between_two_passes_has_its_own_scale() -> None:
    """The old scale would let the fp16 terms of the second pass overflow."""
    device = hopper()
    x, w = (Tensor(device.upload(draw(shape, i)), requires_grad=True) for i, shape in enumerate(SIZES))
    with choosing(in_fp16_terms):
        y = F.conv2d(x, w, padding=1)
        dy = alpha.tensor(draw(y.shape, 2), device=device)
        y.backward(dy, retain_graph=True)
        assert x.grad is not None
        first = x.grad.numpy()
        x.zero_grad()
        dy *= 2.0**20
        y.backward(dy)
        assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), first * np.float32(2.0**20))


# -- magnitudes that the kernel found which made the array ----------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 1), (2, 8), (5, 7), (700, 20), (9000, 72)], ids=str)
def test_batch_norm_finds_the_magnitudes_of_its_result_and_its_gradient(shape: tuple[int, int]) -> None:
    """Twice, because the second launch may find nothing of the first."""
    device = hopper()
    for scale in (100, 1):
        x, dy, residual = (Tensor(device.upload(draw(shape, i)), requires_grad=i == 0) for i in range(3))
        w, b = (Tensor(device.upload(scale * draw(shape[1:], i))) for i in range(3, 5))
        for activation, added in ((None, None), (F.relu, None), (F.leaky_relu, residual)):
            y = F.batch_norm(x, None, None, w, b, True, activation=activation, residual=added)
            assert y._node is not None
            dx = y._node.backward(dy.array)[0]
            for array in (y.array, dx):
                assert int(device.download(array.magnitude)[0]) == bits(np.abs(device.download(array)).max())


FINDERS = [v for v in CUDA_ROWS if v.operator == FORWARD and v.supports_epilogue and arrays_of(v) == np.float32]
RESULTS = [
    make(41, (6, 5), (64, 72), (3, 3), p=(1, 1)),  # images, pixels and channels that no tile fills
    make(3, (9, 7), (8, 13), (3, 3), (2, 2), (1, 1)),
    make(5, (9, 7), (3, 20), (3, 3), p=(1, 1)),
    make(2, (9, 30), (3, 64), (7, 7), (2, 2), (3, 3)),
]


@pytest.mark.slow
@pytest.mark.parametrize("row", sample_of(FINDERS))
def test_a_convolution_finds_the_magnitude_of_its_result(row: Configuration) -> None:
    """Rows beyond the last image have the bias alone, which is larger than any result.

    Twice, because the second launch may find nothing of the first.
    """
    device = hopper(num_sms=2)  # which the tiles fill; those of a GPU may be split, and then nobody finds it
    found = 0
    for s in RESULTS:
        if not row.supports(s, cuda_target(device)) or has_split_sums(row, s, device):
            continue
        bias = device.upload(np.full(s.OC, 100, np.float32))
        for scale in (50, 25):
            X, W = np.abs(draw(s.X, 0)), -np.abs(draw(s.W, 1)) * np.float32(scale / (s.taps * s.IC))
            Y = compute(row, device.upload(X), device.upload(W), s, bias, 0.5)
            values = np.abs(device.download(Y))
            assert values.max() < 100
            assert int(device.download(Y.magnitude)[0]) == bits(values.max())
            found += 1
    assert found


def has_split_sums(row: Configuration, s: ConvShape, device: CudaDevice) -> bool:
    """True if blocks share the sums of a tile; exactly then the plan has no output for the magnitude."""
    problem = ConvProblem(FORWARD, s, row.precision, Epilogue(bias=True, activation=True, magnitude=True))
    made = plan_configuration(problem, row, cuda_target(device))
    split = bool(made.launches[-1].defines.get("SPLIT_K"))
    assert ("magnitude" in made.outputs) == (not split)
    return split


def test_a_kernel_that_splits_sums_leaves_the_magnitude_to_another() -> None:
    row = next(v for v in FINDERS if v.name == "conv_v2_sm90_fp16x3_128x64")
    assert has_split_sums(row, LONG, hopper())
    assert not has_split_sums(row, make(512, (8, 8), (64, 64), (3, 3), p=(1, 1)), hopper())


def test_no_other_operator_is_asked_for_a_magnitude() -> None:
    """Results in bfloat16 have no scale, so the forward operator is not asked either."""
    for v in CUDA_ROWS:
        s = next((s for s in RESULTS if v.supports(s, cuda_target(hopper()))), None)
        if s is not None and (v.operator != FORWARD or v.precision == "bf16"):
            problem = ConvProblem(v.operator, s, v.precision, Epilogue(magnitude=True), arrays_of(v))
            assert "magnitude" not in plan_configuration(problem, v, cuda_target(hopper())).outputs, v.name


def test_a_magnitude_is_that_of_finite_numbers() -> None:
    device = hopper()
    x = Tensor(device.upload(np.array([[np.inf, np.nan], [1, -3], [2, -7]], np.float32)))
    mean, var = (Tensor(device.upload(np.full(2, value, np.float32))) for value in (0, 1))
    y = F.batch_norm(x, mean, var, eps=0.0)
    assert int(device.download(y.array.magnitude)[0]) == bits(7)


def test_only_where_operands_are_scaled() -> None:
    x = draw((6, 8), 0)
    device = hopper()
    assert F.batch_norm(Tensor(device.upload(x.astype(BFLOAT16))), None, None, training=True).array.magnitude is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALPHA_ARCH", "sm_80")
        other = CudaDevice(EmulatedDriver())
    assert F.batch_norm(Tensor(other.upload(x)), None, None, training=True).array.magnitude is None


def between_batch_norms(device: CudaDevice, layer: str, forget: bool) -> list[np.ndarray]:
    """The result and the gradients of norm(conv(norm(x)))"""
    x, w = (Tensor(device.upload(draw(shape, i)), requires_grad=True) for i, shape in enumerate(SIZES))
    with choosing(in_fp16_terms):
        y = F.batch_norm(x, None, None, training=True, activation=F.relu)
        if forget:
            y.array.magnitude = None
        z = F.batch_norm(getattr(F, layer)(y, w, padding=1), None, None, training=True)
        (z * Tensor(device.upload(draw(z.shape, 2)))).sum().backward()
    assert x.grad is not None
    assert w.grad is not None
    return [t.numpy() for t in (z, x.grad, w.grad)]


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["conv2d", "conv_transpose2d"])
def test_a_convolution_between_batch_norms_looks_for_one_magnitude(layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device, sought, plan = hopper(), [], magnitudes._plan

    def noting(operands: tuple[tuple[str, int], ...], num_sms: int) -> Plan:
        sought.append([size for _, size in operands])
        return plan(operands, num_sms)

    monkeypatch.setattr(magnitudes, "_plan", noting)
    found, own = (between_batch_norms(device, layer, forget) for forget in (False, True))
    x, w = map(math.prod, SIZES)
    assert sought == [[w], [x, w]]
    for mine, other in zip(found, own, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_only_weights_are_looked_through_where_kernels_make_the_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first convolution gets an array of the user. Behind it are rectifiers and a pool, as in the paper's VGGs."""
    sought, plan = [], magnitudes._plan

    def noting(operands: tuple[tuple[str, int], ...], num_sms: int) -> Plan:
        sought.append([size for _, size in operands])
        return plan(operands, num_sms)

    monkeypatch.setattr(magnitudes, "_plan", noting)
    device = DryDevice.of("sm_90a")
    x, w = (Tensor(device.empty(shape, np.float32)) for shape in ((512, 32, 32, 64), (64, 3, 3, 64)))
    with choosing(in_fp16_terms), standing_in(device):
        for _ in range(2):
            x = F.conv2d(x, w, padding=1, negative_slope=0.01)
        F.conv2d(F.max_pool2d(x, 2), w, padding=1, negative_slope=0.01)
    image, weight = 512 * 32 * 32 * 64, math.prod(w.shape)
    assert sought == [[image, weight], [weight], [weight]]


def parameter_of(y: Tensor) -> nn.Parameter:
    """A parameter in the memory of y."""
    parameter = nn.Parameter(y)
    parameter.data = y
    return parameter


def optimized(y: Tensor) -> Tensor:
    parameter = parameter_of(y)
    parameter.grad = y.detach() * -LARGE
    alpha.optim.SGD([parameter], lr=1.0).step()
    return y


def loaded(y: Tensor) -> Tensor:
    layer = nn.Module()
    layer.weight = parameter_of(y)
    layer.load_state_dict({"weight": y.detach() * LARGE})
    return layer.weight.detach()  # type: ignore[no-any-return]


def accumulated(y: Tensor) -> Tensor:
    leaf = nn.Parameter(y.detach() * 1.0)
    leaf.grad = y
    with alpha.enable_grad():
        (leaf * LARGE).sum().backward()
    assert leaf.grad is not None
    return leaf.grad


def assigned(y: Tensor) -> Tensor:
    return parameter_of(y.mul_(LARGE)).detach()


def replayed(y: Tensor) -> Tensor:
    """y, which a captured step writes."""
    step = alpha.capture(lambda x: (y.mul_(x), x * 1.0)[1])
    for _ in range(5):
        step(Tensor(y.device.upload(np.full((), 16, np.float32))))
    assert len(step.graphs) == 1, step.why_not
    return y


def statistics(y: Tensor) -> Tensor:
    """y as running statistics, which batch normalisation moves."""
    row = y.reshape(-1, y.shape[-1])[0]
    x = Tensor(y.device.upload(draw((6, len(row)), 3) * np.float32(LARGE)))
    F.batch_norm(x, row, row.detach(), training=True, momentum=0.9)
    return y


def at_index(y: Tensor) -> Tensor:
    y[:, 2:4, 1] = LARGE
    return y


def normalized(y: Tensor, w: Tensor, residual: Tensor | None = None) -> Tensor:
    conv, norm = nn.Conv2d(64, 64, 3, padding=1, bias=False).to(y.device), nn.BatchNorm2d(64).to(y.device)
    conv.weight.data = w
    return nn.conv_batch_norm(conv, norm, y, residual=residual)


def added_to(y: Tensor, w: Tensor) -> Tensor:
    """A convolution of a batch normalisation to whose result y is added: the limit of it needs that of y."""
    x = Tensor(y.device.upload(draw(y.shape, 4)))
    return F.conv2d(normalized(x, w, y), w, padding=1)


LARGE = 2.0**20
# How the values of a tensor may change whose magnitude a kernel has found.
CHANGES: list[Callable[[Tensor], Tensor]] = [
    lambda y: y.mul_(LARGE),
    lambda y: (y.reshape(-1).mul_(LARGE), y)[1],
    lambda y: (y[:1].mul_(LARGE), y)[1],
    lambda y: (y[1].fill_(LARGE), y)[1],
    lambda y: (y.detach().mul_(LARGE), y)[1],
    lambda y: (y.data.mul_(LARGE), y)[1],
    lambda y: y.mul_(LARGE).reshape(y.shape),
    lambda y: y.copy_(y * LARGE),
    lambda y: nn.init.constant_(y, LARGE),
    lambda y: (parameter_of(y).data.mul_(LARGE), y)[1],
    *(at_index, optimized, loaded, accumulated, assigned, replayed, statistics),
]
# The functions of Alpha that make a tensor with a magnitude.
MAKERS: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda x, w: F.batch_norm(x, None, None, training=True),
    lambda x, w: F.conv2d(x, w, padding=1, negative_slope=0.25),
    lambda x, w: F.max_pool2d(x, 3, 1, 1),
    normalized,
]
# The functions of Alpha that read the magnitude of a tensor.
READERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "conv2d": lambda y, w: F.conv2d(y, w, padding=1),
    "_convolve": lambda y, w: F.conv2d(y[0], w, padding=1),
    "_convolve_transposed": lambda y, w: F.conv_transpose2d(y, w, padding=1),
    "conv_batch_norm": normalized,
    "forget_stale_magnitude": added_to,
}


def reading_copies(v: Configuration) -> bool:
    return v.reads_half


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "rows"), [("float32", in_fp16_terms), ("tf32", reading_copies), ("tf32", in_fp16_terms)]
)
def test_what_is_written_to_a_result_changes_its_scale(precision: str, rows: Callable[[Configuration], bool]) -> None:
    """The old scale would let the fp16 terms overflow, and an old copy has the old numbers."""
    device = hopper()
    w = Tensor(device.upload(draw(SIZES[1], 1)), requires_grad=True)
    with alpha.precision(precision), alpha.no_grad(), choosing(rows), standing_in(device), trials() as trial:
        for number, change in enumerate(CHANGES):
            made = MAKERS[number % len(MAKERS)]
            with alpha.enable_grad():  # without a gradient no copies are written
                y = made(Tensor(device.upload(draw((2, 4, 4, 64), 0))), w)
            magnitude = y.array.magnitude
            assert magnitude is not None or rows is reading_copies  # whose makers are other rows
            assert made is not normalized or (magnitude.half is None) == (precision == "float32")
            with trial(number):
                y = change(y)
                assert np.abs(y.numpy()).max() > LARGE / 2
            for name, reader in READERS.items():
                with trial(number, name):
                    found = reader(y, w).numpy()
                    assert np.isfinite(found).all()
                    np.testing.assert_array_equal(found, reader(Tensor(device.upload(y.numpy())), w).numpy())


def test_who_reads_the_magnitude_of_an_array() -> None:
    """Readers of tensors are those of the test above; the others have a gradient, or the array that they made."""
    found = {"magnitude_of": set(), "magnitude": set()}
    for path in sorted(Path(alpha.__file__).parent.rglob("*.py")):
        if "transforms" in path.parts:  # whose magnitudes are those of RandAugment
            continue
        text = path.read_text()
        for function in ast.walk(ast.parse(text if "magnitude" in text else "")):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "magnitude_of":
                    found["magnitude_of"].add(function.name)
                read = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr == "magnitude"
                if read or (isinstance(node, ast.Constant) and node.value == "magnitude"):
                    found["magnitude"].add(f"{path.stem}.{function.name}")
    assert found["magnitude_of"] == set(READERS)
    assert found["magnitude"] == {
        "magnitudes.magnitude_of",
        *("__init__.conv2d", "__init__.backward"),  # a keyword, and the gradient that backward is given
        *("magnitudes.with_magnitude", "magnitudes.made_alone"),  # and with the copies in fp16:
        *("batch_norm_cuda.plan_apply", "batch_norm_cuda.plan_gradients", "batch_norm_cuda.plan_begun"),
        *("batch_norm_cuda._half", "batch_norm_cuda._input_gradient"),
        *("magnitudes.drop_half", "magnitudes.half_alone", "__init__._keep_half_alone"),
        *("casts.__init__", "batch_norm_cuda._kept", "rectifier.operands"),
        # that of a residual, and of dZ, which limit what is made of them
        *("magnitudes.found_beside", "magnitudes.forget_stale_magnitude"),
        *("batch_norm_cuda._application", "batch_norm_cuda.gradients_begun"),
        *("batch_norm_pool._", "batch_norm_pool.plan_forward", "batch_norm_pool.plan_gradients"),
        *("magnitudes.magnitude_parts", "max_pool._"),
        # that of Y, which the kernel of a convolution makes with a rectifier
        *(
            "__init__.conv2d_forward",
            "plan.compute",
            "plan.plan_configuration",
            "launch.prepare",
            "direct.direct_forward_sm80",
        ),
        *("output_launch.magnitude", "output_launch.launch", "output_launch._meeting"),
        # that of dZ, which the kernel of an input gradient makes with a first step
        *("__init__.conv2d_backward_input", "output_launch.plan"),
        *("conv_batch_norm.convolved_and_normalized", "conv_batch_norm._joined"),
    }


def test_a_leafs_gradient_that_another_one_is_added_to_has_its_own_scale() -> None:
    """The first part is the result of a pool's kernel, which has found its magnitude."""
    device = hopper()
    w = Tensor(device.upload(draw(SIZES[1], 1)))
    for hooked in (False, True):
        x = Tensor(device.upload(draw((2, 4, 4, 64), 0)), requires_grad=True)
        outputs = [F.max_pool2d(x, 2), F.max_pool2d(x, 2)]
        parts = [Tensor(device.upload(np.full(outputs[0].shape, value, np.float32))) for value in (2.0**30, 1.0)]
        if hooked:
            x.register_hook(lambda grad: None)
            (outputs[0] * parts[0] + outputs[1] * parts[1]).sum().backward()
            assert x.grad is not None
            found = x.grad
        else:
            (found,) = alpha.grad(outputs, [x], parts)
        with choosing(in_fp16_terms), alpha.no_grad():
            assert np.isfinite(F.conv2d(found, w, padding=1).numpy()).all()


@pytest.mark.slow
@pytest.mark.parametrize("branch", [lambda z: z * 1.0, lambda z: z[0]], ids=["of all", "of a part"])
def test_a_gradient_that_another_one_is_added_to_has_its_own_scale(branch: Callable[[Tensor], Tensor]) -> None:
    """Batch normalisation gives its gradient first, because its node is newer. A larger one is added in place."""
    device = hopper()
    found = []
    for normalised in (True, False):
        x, w = (Tensor(device.upload(draw(shape, i)), requires_grad=True) for i, shape in enumerate(SIZES))
        with choosing(in_fp16_terms):
            z = F.conv2d(x, w, padding=1)
            large = branch(z) * 2.0**20
            y = (F.batch_norm(z, None, None, training=True) if normalised else z * 0.0) + large
            (y * Tensor(device.upload(draw(z.shape, 2)))).sum().backward()
        assert x.grad is not None
        assert w.grad is not None
        found.append((x.grad.numpy(), w.grad.numpy()))
    for mine, most in zip(*found, strict=True):
        np.testing.assert_allclose(mine, most, rtol=1e-4, atol=1e-4 * np.abs(most).max())


@pytest.mark.slow
def test_a_gradient_from_the_user_has_its_own_scale() -> None:
    """The gradient of batch normalisation, multiplied since, is given to a convolution by the user or by a hook."""
    device = hopper()
    x, w = (Tensor(device.upload(draw(shape, i)), requires_grad=True) for i, shape in enumerate(SIZES))
    with choosing(in_fp16_terms):
        wanted = None
        for by_hook in (None, False, True):
            grad = F.batch_norm(Tensor(device.upload(draw((32, 8, 8, 64), 2))), None, None, training=True)
            grad.mul_(2.0**20)
            if by_hook is None:
                grad.array.magnitude = None
            y = F.conv2d(x, w, padding=1)
            if by_hook:
                y.register_hook(lambda _, grad=grad: grad)
            x.grad = w.grad = None
            y.backward(Tensor(device.upload(draw(y.shape, 3))) if by_hook else grad)
            assert x.grad is not None
            wanted = x.grad.numpy() if wanted is None else wanted
            assert np.isfinite(wanted).all()
            np.testing.assert_array_equal(x.grad.numpy(), wanted)


def test_a_captured_step_finds_the_magnitudes_of_each_replay() -> None:
    """Each batch is larger than the one before, so a magnitude of an earlier replay would overflow."""
    device = hopper()
    alpha.manual_seed(0)
    conv, norm = nn.Conv2d(64, 64, 3, padding=1, bias=False).to(device), nn.BatchNorm2d(64).to(device)

    def step(x: Tensor, weight: Tensor) -> Tensor:
        y = F.batch_norm(x, None, None, weight, training=True, activation=F.relu)
        return norm(conv(y))  # type: ignore[no-any-return]

    captured = alpha.capture(step)
    with choosing(in_fp16_terms), standing_in(device):
        for i in range(4):
            x = Tensor(device.upload(draw((8, 8, 8, 64), i)))
            weight = Tensor(device.upload(np.full(64, 2.0 ** (10 * i), np.float32)))
            found = captured(x, weight).numpy()
            assert np.isfinite(found).all()
            np.testing.assert_array_equal(found, step(x, weight).numpy())
    assert len(captured.graphs) == 1, captured.why_not
