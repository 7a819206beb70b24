"""The switches of `torch.backends.cuda`."""

from alpha.backends.switches import ALLOW_TF32, FP32_PRECISION, Switches, switch, with_switches
from alpha.cuda import is_available

matmul = Switches(f"{__name__}.matmul")
with_switches(
    matmul,
    allow_tf32=ALLOW_TF32,
    fp32_precision=FP32_PRECISION,
    allow_fp16_reduced_precision_reduction=switch(True),
    allow_bf16_reduced_precision_reduction=switch(True),
)


def is_built() -> bool:
    """True if a GPU works."""
    return is_available()
