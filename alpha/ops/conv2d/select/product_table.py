"""Matrix products as convolutions; and input gradients of 1x1 convolutions as matrix products, without a filter pass.

The latter are computed on mma.sync (cuda/matmul/sm80.cu).

    dX (N, IC) = dY (N, OC) W (OC, IC)

N counts the pixels of all images: see `ConvShape.as_product`. KS-deconv transposes the filter in a launch of its own
first, which takes as long as the product if channels are few.
"""

from __future__ import annotations

from alpha.core.numerics import FLOAT32
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Configuration, ConvProblem, MathMode, Target
from alpha.ops.conv2d.shape import ConvShape, conv_shape
from alpha.ops.gemm.tiles import Product, plan_mma
from alpha.ops.kernel.plan import Plan

LEAST_LENGTH = 8  # of M, N and K for which a product is computed as a convolution
FEW = 64  # output channels; with more, wgmma is faster


def product_of(s: ConvShape) -> Product:
    """The product that gives dX."""
    return Product(1, s.N, s.IC, s.OC, False, False)


def as_convolution(p: Product) -> tuple[str, ConvShape] | None:
    """The operator that computes a product, and its shape; None if the product is not a convolution."""
    none = p.D > 1 or (p.transpose_a and p.transpose_b)
    if none or min(p.M, p.N, p.K) < LEAST_LENGTH:
        return None
    if p.transpose_a:
        return WEIGHT, _shape(p.K, p.N, p.M)
    if p.transpose_b:
        return FORWARD, _shape(p.M, p.K, p.N)
    return INPUT, _shape(p.M, p.N, p.K)


def _shape(N: int, IC: int, OC: int) -> ConvShape:
    return conv_shape("matmul", (N, 1, 1, IC), (OC, 1, 1, IC), (1, 1), (0, 0))


def vector_of(s: ConvShape) -> int:
    """Elements of a load: rows of both channels must be whole 16 bytes for four."""
    return 4 if s.IC % 4 == s.OC % 4 == 0 else 1


def supports(s: ConvShape, target: Target) -> bool:
    """True for the shape of a product, `ConvShape.as_product`, on GPUs with tf32."""
    pixels = s.IH == s.IW == s.OH == s.OW == 1
    plain = s.is_dense and (s.sh, s.sw, s.ph, s.pw, s.taps) == (1, 1, 0, 0, 1)
    return pixels and plain and target.compute_capability >= (8, 0)


def few_outputs(s: ConvShape, target: Target) -> bool:
    """True for so few output channels that most of KS-deconv's time would be the launch that splits the filter."""
    return s.OC <= FEW


def product(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """dY, W -> dX"""
    made = plan_mma(product_of(p.shape), True, vector_of(p.shape), (FLOAT32, FLOAT32), target.num_sms)
    launches = tuple(launch.renamed({"A": "dY", "B": "W", "Y": "dX"}) for launch in made.launches)
    return Plan(v.name, launches, {"dX": p.result}, made.workspaces)


PRODUCTS = (
    Configuration(
        "product_sm80_tf32",
        INPUT,
        "cuda",
        product,
        "a matrix product on mma.sync, which reads the filter as it is",
        supports=supports,
        preferred=few_outputs,
        math=MathMode.TF32,
        registers=168,
    ),
)
