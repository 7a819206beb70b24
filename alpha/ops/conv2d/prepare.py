"""Launches that prepare filters and activations for a convolution kernel."""

from __future__ import annotations

from math import prod

import numpy as np

from alpha.ops.conv2d.partial_sums import tiles_of
from alpha.ops.conv2d.problem import ConvProblem
from alpha.ops.conv2d.shape import ConvShape, as_axes_struct, ndim
from alpha.ops.kernel.dtypes import storage_type
from alpha.ops.kernel.plan import Buffer, KernelLaunch, Named

FP16 = np.dtype(np.uint16)  # the bits of an fp16 term


def split_filter(p: ConvProblem) -> tuple[KernelLaunch, Buffer]:
    """Stage 1 of KS-deconv: filters split by residue, rotated, OC contiguous   W -> C (FD FH FW, IC, OC), W's dtype"""
    s = p.shape
    grid = (tiles_of((s.IC, 32)), tiles_of((s.OC, 32)), s.taps)
    launch = KernelLaunch(
        "conv2d/ks_deconv/split_filter.cu",
        "split_filter",
        grid,
        (32, 8),
        (Named("C"), Named("W"), as_axes_struct(s)),
        {"TYPE": storage_type(p.dtype), "NDIM": ndim(s)},
    )
    return launch, Buffer((s.taps, s.IC, s.OC), p.dtype)


def filter_terms(entry: str, s: ConvShape, channels: tuple[int, int], terms: int) -> tuple[KernelLaunch, Buffer]:
    """Filters as fp16 terms   W -> P (terms, FD FH FW, GN, Kp), with (GN, K) = `channels` and Kp = K rounded up to 64

    Args:
        entry: "filter_terms" for ConvV2, "split_filter_terms" for the split filters of KS-deconv.
    """
    GN, K = channels
    Kp = -(-K // 64) * 64
    launch = KernelLaunch(
        "conv2d/prepare/filter_terms.cu",
        entry,
        (Kp // 64, -(-GN // 32), s.taps),
        (32, 8),
        (Named("P"), Named("W"), Named("absmax_b"), as_axes_struct(s), Kp),
        {"TERMS": terms, "NDIM": ndim(s)},
    )
    return launch, Buffer((terms, s.taps, GN, Kp), FP16)


def activation_terms(s: ConvShape, terms: int) -> tuple[KernelLaunch, Buffer]:
    """X as fp16 terms   X -> P (terms, N, IH, IW, IC)"""
    size = prod(s.X)
    launch = KernelLaunch(
        "conv2d/prepare/activation_terms.cu",
        "activation_terms",
        -(-size // 1024),
        256,
        (Named("P"), Named("X"), Named("absmax_a"), np.int64(size // 4)),
        {"TERMS": terms},
    )
    return launch, Buffer((terms, *s.X), FP16)
