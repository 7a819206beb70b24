"""Matrix products: gradients, transposes, batches, agreement with PyTorch."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from helpers import check_gradient, check_torch, first_of
from launch_log import observed_launches

import alpha
import alpha.nn.functional as F
from alpha import ShapeError
from alpha.core.numerics import BFLOAT16
from alpha.ops.gemm.tiles import Product
from alpha.ops.matmul import cuda as matmul_cuda
from alpha.ops.matmul.matmul import matmul_batch
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver

SHAPES = [
    ((3, 4), (4, 5)),
    ((1, 1), (1, 1)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 2, 3, 4), (2, 2, 4, 1)),
    ((2, 2, 3, 4), (4, 3)),
    ((1, 7), (7, 1)),
    ((1, 3, 4), (1, 4, 2)),
]
LINEAR = [((5, 3), (4, 3), (4,)), ((2, 3, 6), (2, 6), (2,)), ((7,), (3, 7), (3,)), ((130, 36), (65, 36), (65,))]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_matmul_gradients(shapes: tuple[tuple[int, ...], ...]) -> None:
    check_gradient(lambda a, b: a @ b, *shapes)


@pytest.mark.parametrize("shapes", LINEAR[:3], ids=str)
def test_linear_gradients(shapes: tuple[tuple[int, ...], ...]) -> None:
    check_gradient(F.linear, *shapes)
    check_gradient(F.linear, *shapes[:2])


@pytest.mark.torch
@pytest.mark.parametrize("shapes", [*SHAPES, ((300, 70), (70, 130)), ((5, 2000), (2000, 6))], ids=str)
def test_matmul_as_in_pytorch(device: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    check_torch(lambda a, b: a @ b, lambda a, b: a @ b, *shapes, device=device, length=2000)


@pytest.mark.torch
@pytest.mark.parametrize("shapes", LINEAR, ids=str)
def test_linear_as_in_pytorch(device: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    torch = pytest.importorskip("torch")
    check_torch(F.linear, torch.nn.functional.linear, *shapes, device=device)
    check_torch(F.linear, torch.nn.functional.linear, *shapes[:2], device=device)


@pytest.mark.parametrize(("a", "b"), [((0, 4), (4, 5)), ((3, 0), (0, 5)), ((3, 4), (4, 0)), ((0, 3, 4), (4, 2))])
def test_empty(device: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = (alpha.tensor(np.ones(s, np.float32), requires_grad=True, device=device) for s in (a, b))
    z = x @ y
    np.testing.assert_array_equal(z.numpy(), np.ones(a, np.float32) @ np.ones(b, np.float32))
    z.sum().backward()
    for leaf in (x, y):
        assert leaf.grad is not None
        assert leaf.grad.shape == leaf.shape
        assert not leaf.grad.numpy().any()


def test_errors(device: str) -> None:
    def ones(*shape: int) -> alpha.Tensor:
        return alpha.tensor(np.ones(shape, np.float32), device=device)

    with pytest.raises(ShapeError, match=r"matmul: .*  \(x \(2, 3\), other \(4, 5\)\)"):
        ones(2, 3) @ ones(4, 5)
    with pytest.raises(ShapeError, match=r"matmul: the batch axes do not .*  \(x \(2, 3, 4\), other \(3, 4, 5\)\)"):
        ones(2, 3, 4) @ ones(3, 4, 5)
    with pytest.raises(ShapeError, match="linear: x has 3 features but weight expects 4"):
        F.linear(ones(2, 3), ones(5, 4))
    with pytest.raises(ShapeError, match=r"linear: bias has shape \(4,\), weight \(5, 3\) needs \(5,\)"):
        F.linear(ones(2, 3), ones(5, 3), ones(4))
    for wrong in (np.ones((3, 2), np.float32), [[1.0]] * 3):
        with pytest.raises(TypeError, match=r"matmul: other is a (ndarray|list), a Tensor is needed"):
            ones(2, 3).matmul(wrong)  # type: ignore[arg-type]
        np.testing.assert_array_equal((ones(2, 3) @ wrong).numpy()[:, 0], [3, 3])
    np.testing.assert_array_equal((np.ones((4, 2)) @ ones(2, 3)).numpy(), np.full((4, 3), 2))
    if device == "cuda":
        with pytest.raises(TypeError, match="matmul: cuda computes in float32, not float64"):
            alpha.tensor(np.ones((2, 2)), device=device) @ alpha.tensor(np.ones((2, 2)), device=device)


# -- rows of the convolution table ------------------------------------------------------------------

PRODUCTS = [
    Product(1, M, N, K, a, b)
    for M, N, K in ((136, 72, 200), (70, 37, 50))  # the last fits no row
    for a, b in ((False, False), (False, True), (True, False), (True, True))
]
LIMITS = {"float32": 1e-6, "tf32": 1e-3, "bf16": 1e-2}


@functools.cache
def gpu(arch: str) -> CudaDevice:
    """The GPU where it is of that architecture, else the emulated driver as one."""
    device = alpha.get_device("cuda")
    if device.properties.arch.removesuffix("a") == arch.removesuffix("a"):
        return device
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALPHA_ARCH", arch)
        return CudaDevice(EmulatedDriver())


def operands_of(p: Product) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A and B as they are stored, and Y in float64."""
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal((1, *n), np.float32) for n in ((p.M, p.K), (p.K, p.N)))
    exact = A.astype(np.float64) @ B
    a, b = (X.transpose(0, 2, 1) if t else X for X, t in zip((A, B), p[4:], strict=True))
    return np.ascontiguousarray(a), np.ascontiguousarray(b), exact


def error(value: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(value.astype(np.float64) - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("precision", ["float32", "tf32"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("p", PRODUCTS, ids=str)
def test_products_on_tensor_cores(p: Product, arch: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every transpose by the row that the table chooses, as if it paid at any size."""
    monkeypatch.setattr(matmul_cuda, "faster_than_ffma", lambda p, v, target: not v.is_ffma)
    matmul_cuda._choose_configuration.cache_clear()
    device = gpu(arch)
    row = matmul_cuda.choose_configuration(p, device, precision)
    fits = not (p.transpose_a and p.transpose_b)
    if precision == "float32" or p.transpose_a or p.transpose_b:  # a row for all lengths is only for A B in tf32
        fits = fits and p.N % 8 == 0
    assert (row is not None) == fits
    A, B, exact = operands_of(p)
    Y = matmul_batch(device.upload(A), device.upload(B), *p[4:], precision)
    matmul_cuda._choose_configuration.cache_clear()
    assert Y.dtype == np.float32
    assert error(device.download(Y), exact) < LIMITS[precision]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("p", PRODUCTS, ids=str)
def test_products_of_bfloat16(p: Product, arch: str) -> None:
    """Products run by a bf16 row or through float32; weight gradients keep what the sum has."""
    device = gpu(arch)
    A, B, _ = operands_of(p)
    a, b = A.astype(BFLOAT16), B.astype(BFLOAT16)
    x, y = (m.astype(np.float64)[0] for m in (a, b))
    exact = ((x.T if p.transpose_a else x) @ (y.T if p.transpose_b else y))[None]
    for out, limit in ((None, 5e-3), (np.dtype(np.float32), 1e-4 if p.transpose_a else 5e-3)):
        for where in (device, alpha.get_device("cpu")):
            Y = matmul_batch(where.upload(a), where.upload(b), *p[4:], "bf16", out)
            assert Y.dtype == (out or BFLOAT16)
            assert error(where.download(Y), exact) < limit


@pytest.mark.parametrize("precision", ["float32", "bf16"])  # that tf32 is used: test_math_mode.py
def test_linear_in_every_precision(device: str, precision: str) -> None:
    """Activations and their gradients in bfloat16 on cuda, the parameters' gradients in float32."""
    rng = np.random.default_rng(0)
    X, W, b, g = (rng.standard_normal(n, np.float32) for n in ((70, 40), (24, 40), (24,), (70, 24)))
    x, w, c = (alpha.tensor(v, requires_grad=True, device=device) for v in (X, W, b))
    with alpha.precision(precision):
        hidden = F.linear(x, w, c)
        y = F.linear(hidden, alpha.tensor(np.eye(24, dtype=np.float32), device=device))
    half = precision == "bf16" and device == "cuda"
    assert y.dtype == (BFLOAT16 if half else np.float32)
    y.backward(alpha.tensor(g.astype(y.dtype), device=device))
    exact = X.astype(np.float64), W.astype(np.float64), g.astype(np.float64)
    expected = (exact[2] @ exact[1], exact[2].T @ exact[0], exact[2].sum(axis=0))
    limit = LIMITS[precision]
    assert error(y.numpy(), exact[0] @ exact[1].T + b) < limit
    for leaf, gradient in zip((x, w, c), expected, strict=True):
        assert leaf.grad is not None
        assert leaf.grad.dtype == np.float32
        assert error(leaf.grad.numpy(), gradient) < limit


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_a_row_adds_the_bias_of_a_linear_layer(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bias is added in one launch; at an address that is not aligned it is added in another one."""
    math = {"float32": "fp16x3", "tf32": "tf32", "bf16": "bf16"}[precision]
    monkeypatch.setenv("ALPHA_CONV_KERNEL", f"conv_v2_sm90_{math}_128x64")
    device, rng = gpu("sm_90a"), np.random.default_rng(0)
    X, W, b = (rng.standard_normal(n, np.float32) for n in ((1, 136, 64), (1, 72, 64), (73,)))
    exact, dtype = X.astype(np.float64) @ W[0].T + b[1:], BFLOAT16 if precision == "bf16" else np.float32
    x, w = (device.upload(v.astype(dtype)) for v in (X, W))
    for bias, added in ((device.upload(b[1:]), 0), (device.upload(b).slice_rows(1, 73), 1)):
        with observed_launches(device) as log:
            Y = matmul_batch(x, w, False, True, precision, bias=bias)
        assert sum(launched.source.startswith("elementwise/") for launched in log) == added
        assert error(device.download(Y), exact) < LIMITS[precision]


def test_a_bias_in_bfloat16_is_added_by_a_kernel_of_its_own() -> None:
    x, w, b = (alpha.ones(*shape).astype("bfloat16") for shape in ((512, 512), (512, 512), (512,)))
    for bias, added in ((b.astype("float32"), 0), (b, 1)):
        with alpha.precision("bf16"):
            run = alpha.dry_run(lambda bias=bias: F.linear(x, w, bias), gpu="sm_90a")
        assert [step.launch.entry for step in run.launches].count("map") == added


def test_a_row_is_taken_where_it_pays(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ALPHA_DEBUG", "1")

    def name(p: Product, arch: str = "sm_90a", precision: str = "float32") -> str:
        row = matmul_cuda.choose_configuration(p, gpu(arch), precision)
        return row.name if row else "FFMA"

    large = Product(1, 4096, 4096, 4096, False, True)
    assert name(large).startswith("conv_v2")
    assert name(large._replace(transpose_b=False)).startswith("ks_deconv")
    assert name(large._replace(transpose_a=True, transpose_b=False)).startswith("sk_dilated")
    assert name(large._replace(transpose_a=True)) == "FFMA"
    assert name(large._replace(D=2)) == "FFMA"
    assert name(large, "sm_80").startswith("conv_v2")
    for arch in ("sm_75", "sm_89"):  # in float32 three products of sm_89 take longer than one of FFMA
        assert name(large, arch) == "FFMA"
    assert name(large, "sm_89", "tf32").startswith("conv_v2")
    few = Product(1, 64, 1024, 4096, False, True)  # few tiles and a long K, which FFMA splits
    assert name(few) == "FFMA"
    assert name(few._replace(transpose_a=True, transpose_b=False)).startswith("sk_dilated")
    assert "alpha: matmul A B^T D 1 M 64 N 1024 K 4096 float32: matmul\n" in capsys.readouterr().err
    monkeypatch.setenv("ALPHA_CONV_KERNEL", "conv_v2_sm80_tf32x3_64x64")
    assert name(few) == "conv_v2_sm80_tf32x3_64x64"


@pytest.mark.parametrize(("M", "N", "K"), [(3, 5, 1_200_000), (400_000, 3, 5), (5, 400_000, 3), (300, 200, 100)])
def test_products_that_workers_share(monkeypatch: pytest.MonkeyPatch, M: int, N: int, K: int) -> None:
    monkeypatch.setenv("ALPHA_CPU_THREADS", "3")
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((M, K)), rng.standard_normal((K, N))
    found = (alpha.tensor(A) @ alpha.tensor(B)).numpy()
    np.testing.assert_allclose(found, np.einsum("mk,kn->mn", A, B, optimize=True), rtol=0, atol=1e-9)


def test_bilinear(device: str) -> None:
    """y_o = x1^T W_o x2 + b_o, and its gradients, as sums over every index."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 5, 3), (2, 5, 4), (6, 3, 4), (6,))]
    tensors = [alpha.tensor(array, device=device, requires_grad=True) for array in arrays]
    y = F.bilinear(*tensors)
    a, b, W, bias = arrays
    np.testing.assert_allclose(y.numpy(), np.einsum("nsi,nsj,oij->nso", a, b, W) + bias, rtol=1e-4, atol=1e-5)
    g = rng.standard_normal(y.shape).astype(np.float32)
    y.backward(alpha.tensor(g, device=device))
    sums = [("nso,nsj,oij->nsi", (g, b, W)), ("nso,nsi,oij->nsj", (g, a, W))]
    sums += [("nso,nsi,nsj->oij", (g, a, b)), ("nso->o", (g,))]
    for x, (terms, factors) in zip(tensors, sums, strict=True):
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), np.einsum(terms, *factors), rtol=1e-4, atol=1e-4)
    with pytest.raises(ShapeError, match=r"bilinear: input1 \(\.\.\., I\), input2"):
        F.bilinear(tensors[0], tensors[0], tensors[2])


# -- batches on tensor cores ------------------------------------------------------------------------

BATCHES = first_of(
    (5, 65, 65, 64),  # attention of 64 patches and a class token
    (3, 130, 100, 36),  # several tiles, loads of four elements
    (2, 17, 9, 700),  # K is split
    (3, 1, 5, 7),
    (70, 33, 64, 65),
    (2, 48, 200, 20),
)


@pytest.mark.slow
@pytest.mark.parametrize("transposes", [(False, False), (False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize("sizes", BATCHES, ids=str)
def test_batches_on_tensor_cores(sizes: tuple[int, int, int, int], transposes: tuple[bool, bool]) -> None:
    """Batches are of floats, of bfloat16 with either result, of one B for all, and from unaligned addresses."""
    device, (D, M, N, K) = gpu("sm_90a"), sizes
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((D, M, K), np.float32), rng.standard_normal((D, K, N), np.float32)
    stored = [np.ascontiguousarray(X.swapaxes(1, 2) if t else X) for X, t in zip((A, B), transposes, strict=True)]

    def product(a: Any, b: Any, precision: str, out: Any = None) -> np.ndarray:
        with observed_launches(device) as log:
            Y = matmul_batch(a, b, *transposes, precision, out)
        assert Y.dtype == (out or a.dtype)
        assert log[0].entry == "matmul_sm80"
        assert log[0].mode == ("tf32" if a.dtype == np.float32 else "bf16")
        return device.download(Y).astype(np.float64)

    wide = [X.astype(np.float64) for X in (A, B)]
    assert error(product(*map(device.upload, stored), "tf32"), wide[0] @ wide[1]) < 5e-4
    assert error(product(*map(device.upload, stored), "bf16"), wide[0] @ wide[1]) < 5e-4
    assert error(product(device.upload(stored[0]), device.upload(stored[1][:1]), "tf32"), wide[0] @ wide[1][:1]) < 5e-4
    shifted = [device.upload(np.concatenate([X[:1], X])).slice_rows(1, D + 1) for X in stored]
    np.testing.assert_allclose(product(*shifted, "tf32"), wide[0] @ wide[1], rtol=0, atol=5e-3 * np.sqrt(K))
    narrow = [X.astype(BFLOAT16) for X in stored]
    a, b = (
        X.astype(np.float64).swapaxes(1, 2) if t else X.astype(np.float64)
        for X, t in zip(narrow, transposes, strict=True)
    )
    assert error(product(*map(device.upload, narrow), "float32"), a @ b) < 5e-3
    assert error(product(*map(device.upload, narrow), "float32", np.dtype(np.float32)), a @ b) < 1e-6


def test_batches_in_float32_and_on_old_gpus_have_no_tensor_cores() -> None:
    for arch, precision in (("sm_90a", "float32"), ("sm_75", "tf32")):
        device = gpu(arch)
        a, b = (device.upload(np.ones((2, 20, 20), np.float32)) for _ in range(2))
        with observed_launches(device) as log:
            matmul_batch(a, b, False, False, precision)
        assert [launched.source for launched in log] == ["matmul/ffma.cu"]


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("sizes", [(70, 37, 50), (3, 0, 5), (1, 1, 1)], ids=str)
def test_linear_of_sizes_that_no_row_takes(device: str, sizes: tuple[int, int, int], precision: str) -> None:
    """The bias also arrives if the product is that of cuda/matmul, or one of no numbers."""
    R, I, O = sizes
    rng = np.random.default_rng(0)
    X, W, b = (rng.standard_normal(shape, np.float32) for shape in ((R, I), (O, I), (O,)))
    with alpha.precision(precision):
        y = F.linear(*(alpha.tensor(v, device=device) for v in (X, W, b)))
    np.testing.assert_allclose(y.numpy(), X @ W.T + b, rtol=0.02, atol=0.1 if precision == "bf16" else 5e-3)


def test_equal_tiles_exceed_a_product_by_little() -> None:
    from alpha.ops.gemm.tiles import _mma_tile

    assert _mma_tile(Product(9, 65, 65, 64, False, True), 128, 96) == (80, 80, 1)
    assert _mma_tile(Product(9, 200, 97, 64, False, True), 128, 96) == (112, 64, 1)
    assert _mma_tile(Product(9, 16, 5, 64, False, True), 128, 96) == (16, 32, 4)
    assert _mma_tile(Product(9, 300, 300, 64, False, True), 32, 32) == (32, 32, 2)
