"""bfloat16 operators against the float32 ones on the same numbers, on both devices; and the dtypes of gradients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import primitive_calls
import pytest
from helpers import assert_close
from primitive_calls import CASES, WITH_LENGTH, normal, positive, run
from rows.calls import TENSOR_ARGUMENTS, call, given, put
from rows.kinds import each
from rows.primitives import operands
from trials import trials

import alpha
from alpha import Tensor, nn
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.core.primitive import REGISTRY
from alpha.nn import functional as F
from alpha.ops.kernel.rectifier import GradientParts, KeptOutput, Rectified, RectifiedInput, Rectifier
from alpha.ops.pooling.pool_shape import PoolShape

F32, BF16, U8 = "float32", "bfloat16", "uint8"
STEP = 2.0**-8  # between neighbouring numbers, relative

# arguments that are bfloat16 where the primitive computes on activations, and what comes out
LOWERED: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    **{name: (tuple(range(p.mask, operands(p))), (BF16,)) for name, p in REGISTRY.items() if p.expression},
    **{
        name: ((0,), (BF16,))
        for name in (
            "broadcast_to",
            "drop_groups",
            "resample_axis1",
            "read_view",
            "take_rows",
            "avg_pool2d_forward",
            "avg_pool2d_backward",
        )
    },
    "sample": ((0,), (BF16,)),
    "sample_slopes": ((0, 1), (F32,)),
    "sample_taps": ((0,), ("int64", F32)),
    "matmul_batch": ((0, 1), (BF16,)),
    "sum_axis1": ((0,), (F32,)),
    "wide_sum_axis1": ((0,), ("float64",)),
    "channel_statistics": ((0,), (F32, F32)),
    "dropout_apply": ((0, 4), (BF16,)),
    "batch_norm_apply": ((0, 6), (BF16,)),
    "batch_norm_training": ((0, 5), (BF16, F32, F32)),
    "batch_norm_gradients": ((0, 1, 7), (BF16, F32, F32, BF16)),
    "batch_norm_gradients_from_output": ((0, 1), (BF16, F32, F32, BF16)),
    "batch_norm_gradients_begun": ((0, 2), (BF16, F32, F32)),
    "conv2d_forward": ((0, 1), (BF16,)),
    "conv2d_backward_input": ((0, 1), (BF16,)),
    "conv2d_backward_weight": ((0, 1), (F32,)),
    "softmax_cross_entropy": ((0,), (F32, BF16)),
    "max_pool2d_forward": ((0,), (BF16, U8)),
    "max_pool2d_backward": ((0, 3), (BF16,)),
    "compare": ((0, 1), ("bool",)),
    "running_extreme": ((0,), ("int64",)),
    "running_log_sum": ((0,), (BF16,)),
    "running_log_sum_gradient": ((0, 1, 2), (BF16,)),
}
# what returns nothing, such as the update of an optimizer, and the images of a data set have no bfloat16 form
NOTHING = {name for name, p in REGISTRY.items() if inspect.signature(p).return_annotation == "None"}
OF_KEPT_OUTPUTS = {"batch_norm_gradients_from_output": 4, "batch_norm_gradients_begun": 6}  # the place of the bias
OF_POOLS = {"batch_norm_pool", "batch_norm_pool_gradients"}  # numbers that rounding makes equal have another maximum
ELSEWHERE = {"cast", *OF_POOLS, "take_pixels", "take_entries", *NOTHING}

# packs of eight; what meets float32
_wide = PoolShape(2, 7, 6, 16, 3, 3, 2, 2, 1, 1, 4, 3)
MORE: dict[str, list[tuple[tuple[int, ...], tuple[Any, ...]]]] = {
    "add": [
        ((0,), (normal(6, 16), normal(16))),
        ((1,), (normal(6, 12), normal(12))),
        ((0,), (normal(6, 7), normal(7))),
        ((0, 1), (normal(40, 64), normal(40, 64))),
    ],
    "multiply": [((0,), (normal(8, 10), normal(1)))],
    "broadcast_to": [((0,), (normal(3, 1, 8), (3, 5, 8)))],
    "batch_norm_apply": [
        ((0,), (normal(90, 32), *(positive(32) for _ in range(4)), 1e-5)),
        ((0, 6), (normal(90, 32), *(positive(32) for _ in range(4)), 1e-5, normal(90, 32), Rectifier(0.2))),
    ],
    "batch_norm_gradients": [
        ((0, 1, 7), (normal(90, 32), normal(90, 32), *(positive(32) for _ in range(3)), 1e-5, True, rectified, 90))
        for rectified in (
            None,
            Rectified(Rectifier(0.2), positive(32), None),
            Rectified(Rectifier(0.25), None, normal(90, 32)),
        )
    ]
    + [
        (
            (0, 1),
            (primitive_calls.in_parts(90, 32), normal(90, 32), *(positive(32) for _ in range(3)), 1e-5, True, None, 90),
        )
    ],
    "channel_statistics": [((0,), (normal(90, 32), normal(32), positive(32), 0.3, 90))],
    "max_pool2d_forward": [((0,), (normal(2, 7, 6, 16), _wide))],
    "max_pool2d_backward": [
        ((0,), (*primitive_calls.taps(_wide), _wide)),
        ((0, 3), primitive_calls.rectified_pool(_wide, Rectifier(0.25))),
    ],
    "avg_pool2d_backward": [((0,), (normal(2, 4, 3, 16), _wide))],
}


def lower(values: Any) -> Any:
    """Arrays of float32 as bfloat16, anything else as it is."""
    if isinstance(values, Rectified):
        return values._replace(Y=lower(values.Y))
    if isinstance(values, RectifiedInput):
        return values._replace(X=lower(values.X))
    if isinstance(values, KeptOutput):
        return values._replace(Y=lower(values.Y), residual=lower(values.residual))
    if isinstance(values, GradientParts):
        return GradientParts(*map(lower, values))
    is_float = isinstance(values, np.ndarray) and values.dtype == FLOAT32
    return values.astype(BFLOAT16) if is_float else values


def _dtype(values: Any) -> Any:
    return values.dY.dtype if isinstance(values, GradientParts) else values.dtype


def widen(values: Any) -> Any:
    """Arrays of bfloat16 as float32, anything else as it is."""
    if isinstance(values, Rectified):
        return values._replace(Y=widen(values.Y))
    if isinstance(values, RectifiedInput):
        return values._replace(X=widen(values.X))
    if isinstance(values, KeptOutput):
        return values._replace(Y=widen(values.Y), residual=widen(values.residual))
    if isinstance(values, GradientParts):
        return GradientParts(*map(widen, values))
    return values.astype(np.float32) if isinstance(values, np.ndarray) and values.dtype == BFLOAT16 else values


def cases() -> Iterator[tuple[str, tuple[Any, ...], int]]:
    """(primitive, its arguments with the bfloat16 ones, length of its sums)"""
    for name, (lowered, _) in LOWERED.items():
        usual = [(lowered, case) for case in CASES[name] if _dtype(case[min(lowered)]) == np.float32]
        found = usual + MORE.get(name, [])
        for indices, case in found:
            *arguments, length = case if name in WITH_LENGTH else (*case, 1)
            chosen = [lower(a) if i in indices else a for i, a in enumerate(arguments)]
            yield name, tuple(chosen), length


ALL = list(cases())
CASTS = [
    (np.arange(9).astype(source), np.dtype(target), 1.0, 0.0)
    for other in ("float32", "float64", "uint8", "int32", "bool")
    for source, target in ((other, BF16), (BF16, other))
] + [(np.arange(250, dtype=np.uint8), BFLOAT16, 2 / 255, -1.0)]


@pytest.mark.parametrize(("name", "arguments", "length"), ALL, ids=[f"{name}-{i}" for i, (name, *_) in enumerate(ALL)])
def test_within_a_rounding_of_float32(device: str, name: str, arguments: tuple[Any, ...], length: int) -> None:
    if name in OF_KEPT_OUTPUTS and any(isinstance(argument, KeptOutput) for argument in arguments):
        at = OF_KEPT_OUTPUTS[name]  # the rounding error of a bias counts as noise
        arguments = (*arguments[:at], np.zeros_like(arguments[at]), *arguments[at + 1 :])
    widened = tuple(map(widen, arguments))
    expected, found = (run(REGISTRY[name], on, values) for on, values in (("cpu", widened), (device, arguments)))
    met = REGISTRY[name].expression and FLOAT32 in [a.dtype for a in arguments if isinstance(a, np.ndarray)]
    for dtype, e, f in zip((F32,) if met else LOWERED[name][1], expected, found, strict=False):
        assert f.dtype.name == dtype
        if dtype == U8:
            np.testing.assert_array_equal(f, e)
        elif dtype == F32 or e.dtype != np.float32:
            assert_close(f, e, length, name)
        else:
            wide = f.astype(np.float32)
            noise = 1e-6 * length**0.5 * max(1.0, float(np.abs(e).max(initial=0.0)))
            np.testing.assert_allclose(wide, e, rtol=STEP, atol=noise, err_msg=name)


@pytest.mark.slow
def test_any_other_primitive_takes_bfloat16_or_refuses_it(device: str) -> None:
    for name in sorted(set(CASES) - set(LOWERED) - ELSEWHERE):
        for case in CASES[name]:
            *arguments, length = case if name in WITH_LENGTH else (*case, 1)
            lowered = tuple(map(lower, arguments))
            widened = tuple(map(widen, lowered))
            try:
                found = run(REGISTRY[name], device, lowered)
            except TypeError:
                continue
            for e, f in zip(run(REGISTRY[name], "cpu", widened), found, strict=True):
                noise = STEP * length**0.5 * max(1.0, float(np.abs(e[np.isfinite(e)]).max(initial=0.0)))
                np.testing.assert_allclose(f.astype(np.float64), e, rtol=STEP, atol=noise, err_msg=name)


@pytest.mark.parametrize("arguments", CASTS)
def test_casts(device: str, arguments: tuple[Any, ...]) -> None:
    values, dtype, scale, shift = arguments
    (y, *_) = run(REGISTRY["cast"], device, arguments)
    exact = values if scale == 1.0 else values.astype(np.float32) * np.float32(scale) + np.float32(shift)
    np.testing.assert_array_equal(y, exact.astype(dtype))


def test_rounding_is_to_nearest_even(device: str) -> None:
    ends = [np.inf, -np.inf, np.nan, 0.0, -0.0, 3.4e38, 1e-40, -3.0]
    near = (1 + np.arange(64) * 2.0**-9).astype(np.float32)
    values = np.concatenate([np.array(ends, np.float32), near])
    x = alpha.tensor(values, device=device).astype("bfloat16")
    np.testing.assert_array_equal(x.numpy().astype(np.float32), values.astype(BFLOAT16).astype(np.float32))


def test_devices_hold_it(device: str) -> None:
    """Small arrays and those of the arena; filled, copied, uploaded, cut into rows."""
    on = alpha.get_device(device)
    for size in (3, 100_001):
        array = on.empty((size,), BFLOAT16)
        on.fill(array, 0.1)
        assert array.dtype == BFLOAT16
        np.testing.assert_array_equal(on.download(on.copy(array)), np.full(size, 0.1, BFLOAT16))
        assert not on.download(on.zeros((size,), BFLOAT16)).astype(np.float32).any()
    values = lower(normal(300, 101))
    x = alpha.tensor(values, device=device)
    np.testing.assert_array_equal(x.to("cpu").numpy(), values)
    np.testing.assert_array_equal(x[7:9].numpy(), values[7:9])
    assert x[0][1:2].item() == float(values[0, 1])
    assert "bfloat16" in repr(x)


def test_other_dtypes_do_not_meet_it(device: str) -> None:
    x = alpha.tensor([1.0, 2.0], device=device, dtype="bfloat16")
    other = alpha.tensor([1.0, 2.0], device=device, dtype="float64")
    if device == "cpu":
        assert (x + other).dtype == np.float64
        return
    with pytest.raises(TypeError, match="add: dtypes bfloat16 and float64 differ"):
        x + other


def test_float32_and_bfloat16_give_float32(device: str) -> None:
    """Mixed dtypes are as in PyTorch, so that a sum of losses or a running mean is not rounded to 8 bits."""
    one = alpha.full((3,), 1.0, dtype="bfloat16", device=device)
    total, mean = alpha.full((3,), 256.0, device=device), alpha.ones(3, device=device)
    for _ in range(3):
        total = total + one
    assert total.numpy().tolist() == [259.0] * 3
    assert (one + total).dtype == (one / total).dtype == (total**one).dtype == F.cat([one, total]).dtype == np.float32
    np.testing.assert_allclose((mean * 0.999 + (one * 3) * 0.001).numpy(), 1.002, rtol=1e-5)


@pytest.mark.slow
def test_a_tensor_of_no_axes_lowers_nothing_and_raises_nothing(device: str) -> None:
    one, number = (alpha.full(shape, 1.0, dtype=dtype, device=device) for shape, dtype in (((3,), BF16), ((), F32)))
    for found in (one + number, number + one, one / number, number - one, one * number, number**one, one**number):
        assert found.dtype == BFLOAT16
    assert (number + one.float()).dtype == (number.bfloat16() + one.float()).dtype == np.float32
    assert (number + number.bfloat16()).dtype == np.float32


def test_written_in_place_a_tensor_keeps_its_dtype(device: str) -> None:
    low, high = (alpha.full((3,), 3.0, dtype=dtype, device=device) for dtype in (BF16, F32))
    assert low.add_(high).dtype == low.mul_(high).dtype == low.pow_(high).dtype == BFLOAT16
    assert high.add_(low).dtype == np.float32


@pytest.mark.slow
@pytest.mark.parametrize("name", TENSOR_ARGUMENTS)
def test_one_argument_of_bfloat16(device: str, name: str) -> None:
    """The numbers of float32, or a clear error; and each gradient has the dtype of its tensor."""
    floating = [argument for argument in TENSOR_ARGUMENTS[name] if given(name)[argument].dtype == FLOAT32]
    with trials() as trial:
        for argument in floating:
            with trial(argument):
                arrays = {**given(name), argument: lower(given(name)[argument])}
                alpha.manual_seed(0)
                expected = call(name, put({key: each(widen, values) for key, values in arrays.items()}, "cpu")).numpy()
                tensors = put(arrays, device)
                for other in floating:
                    tensors[other].requires_grad = True
                alpha.manual_seed(0)
                written = {first: x * 1 for first, x in tensors.items() if name.endswith("_")}  # no leaf
                try:
                    found = call(name, {**tensors, **written})
                except (TypeError, ValueError) as error:
                    assert "bfloat16" in str(error) or "requires a gradient" in str(error)  # noqa: PT017
                    continue
                np.testing.assert_allclose(found.numpy().astype(expected.dtype), expected, rtol=4 * STEP, atol=4 * STEP)
                if found.requires_grad:
                    found.sum().backward()
                for tensor in (tensors[other] for other in floating):
                    assert tensor.grad is None or tensor.grad.dtype == tensor.dtype


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x * w + w,
        lambda x, w: w - x / w,
        lambda x, w: (x * x).add_(w),
        lambda x, w: (w * w).mul_(x.detach()),
        lambda x, w: F.gelu(x * w).mean(dim=0) * 3.0,
        lambda x, w: F.leaky_relu(x + w, inplace=True).reshape(3, 2, 8)[1:].sum(),
    ],
)
def test_gradients_have_the_dtype_of_their_tensors(device: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    values = positive(6, 8), positive(6, 8)

    def gradients(dtype: str) -> list[np.ndarray]:
        x = alpha.tensor(lower(values[0]).astype(dtype), requires_grad=True, device=device)
        w = alpha.tensor(values[1], requires_grad=True, device=device)
        y = function(x, w)
        y.backward(alpha.tensor(np.ones(y.shape, y.dtype), device=device))
        found = []
        for leaf in (x, w):
            if leaf.grad is not None:
                assert leaf.grad.dtype == leaf.dtype
                found.append(leaf.grad.numpy().astype(np.float32))
        return found

    for e, f in zip(gradients("float32"), gradients("bfloat16"), strict=True):
        np.testing.assert_allclose(f, e, rtol=8 * STEP, atol=8 * STEP)


def layers() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    alpha.manual_seed(0)
    return {
        "conv": (nn.Conv2d(8, 16, 3, 1, 1), (3, 6, 5, 8)),
        "transposed": (nn.ConvTranspose2d(8, 4, 3, 2, 1), (3, 4, 5, 8)),
        "linear": (nn.Linear(24, 10), (5, 24)),
        "block": (
            nn.Sequential(
                nn.Conv2d(8, 16, 3, bias=False),
                nn.BatchNorm2d(16),
                nn.GELU(),
                nn.AvgPool2d(2),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(16, 4),
            ),
            (16, 8, 8, 8),
        ),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conv", "transposed", "linear", "block"])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_layers_take_and_give_bfloat16(device: str, name: str, dtype: str) -> None:
    """Layers on cuda take either input with precision "bf16"; on cpu the input is bfloat16. Parameters stay float32."""
    results = {}
    for precision in ("float32", "bf16"):
        layer, shape = layers()[name]
        layer.to(device)
        values = lower(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
        kind = dtype if precision == "bf16" else F32
        x = alpha.tensor(values.astype(kind), requires_grad=True, device=device)
        with alpha.precision(precision):
            y = layer(x)
        lowered = precision == "bf16" and BF16 in (dtype, "bfloat16" if device == "cuda" else "")
        assert y.dtype.name == (BF16 if lowered else F32)
        g = np.random.default_rng(1).standard_normal(y.shape).astype(y.dtype)
        y.backward(alpha.tensor(g, device=device))
        tensors = [x, *layer.parameters()]
        assert all(t.grad is not None and t.grad.dtype == t.dtype for t in tensors)
        assert all(p.dtype == np.float32 for p in layer.parameters())
        results[precision] = [y.numpy(), *(t.grad.numpy() for t in tensors if t.grad is not None)]
    for e, f in zip(results["float32"], results["bf16"], strict=True):
        error = np.linalg.norm(f.astype(np.float64) - e) / np.linalg.norm(e)
        assert error < 8 * STEP if name == "block" else error < 2 * STEP


def test_loss_stays_float32(device: str) -> None:
    values, labels = lower(normal(6, 10)), np.arange(6, dtype=np.int32)
    losses = {}
    for dtype in (F32, BF16):
        x = alpha.tensor(values.astype(dtype), requires_grad=True, device=device)
        loss = F.cross_entropy(x, alpha.tensor(labels, device=device))
        loss.backward()
        assert loss.dtype == np.float32
        assert x.grad is not None
        assert x.grad.dtype.name == dtype
        losses[dtype] = loss.item(), x.grad.numpy().astype(np.float32)
    assert losses[F32][0] == pytest.approx(losses[BF16][0], rel=1e-6)
    np.testing.assert_allclose(losses[BF16][1], losses[F32][1], rtol=2 * STEP)
