"""The switches of `torch.backends.cudnn`."""

from alpha.backends.switches import ALLOW_TF32, FP32_PRECISION, switch, with_switches

with_switches(
    __name__,
    enabled=switch(True),
    benchmark=switch(False),
    benchmark_limit=switch(10),
    deterministic=switch(True),
    allow_tf32=ALLOW_TF32,
    fp32_precision=FP32_PRECISION,
)


def is_available() -> bool:
    """False: Alpha has kernels of its own in the place of cuDNN."""
    return False
