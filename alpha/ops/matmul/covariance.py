"""Covariances and correlations of variables."""

from __future__ import annotations

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.diagonals import diag
from alpha.ops.array.layout import view as reshaped
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.common_dtype import as_floating
from alpha.ops.kernel.options import real
from alpha.ops.math.clamp import clamp
from alpha.ops.matmul.matmul import matmul

__all__ = ["corrcoef", "cov"]


@check_arguments
def cov(
    x: AnyTensor, *, correction: float = 1, fweights: AnyTensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """The covariances of variables, whose observations are the rows of x   x (V, N) -> (V, V), or () for one variable

    Args:
        correction: what is taken from the number of observations; 0 or 1.
        fweights: (N,) of integers, how often each observation counts.
        aweights: (N,), the weight of each observation.

    That weights are not negative is a test of their values, which waits for the device.

    Raises:
        ShapeError: x has more axes than two, or weights have another shape than (N,).
        TypeError: fweights are not integers.
        ValueError: a weight is negative.
    """
    if x.ndim > 2:
        raise ShapeError(f"cov: x (V, N) or (N,) is needed  (x {x.shape})")
    take = real("cov", "correction", correction)
    rows = as_floating(x).reshape(x.shape[0] if x.ndim == 2 else 1, -1)
    count = rows.shape[1]
    for name, weights in (("fweights", fweights), ("aweights", aweights)):
        if weights is not None and weights.shape != (count,):
            raise ShapeError(f"cov: {name} ({count},) is needed  ({name} {weights.shape})")
        if weights is not None and bool((weights < 0).any()):
            raise ValueError(f"cov: {name} has a negative weight; all must be at least 0")
    if fweights is not None and fweights.dtype.kind not in "iu":
        raise TypeError(f"cov: fweights has dtype {fweights.dtype.name}; int64 or int32 is needed")
    weights = fweights
    if aweights is not None:
        weights = aweights if fweights is None else fweights * aweights
    if weights is None:
        centred = rows - rows.mean(1, keepdim=True)
        return _shaped(unchecked(matmul)(centred, centred.T) / max(0.0, count - take))
    total, wide = weights.sum(), weights.astype(rows.dtype)
    centred = rows - (rows * wide).sum(1, keepdim=True) / total.astype(rows.dtype)
    taken = take if aweights is None or take == 0 else (weights * aweights).sum() * take / total
    left = unchecked(clamp)(as_floating(total) - taken, min=0)
    return _shaped(unchecked(matmul)(centred, (centred * wide).T) / left.astype(rows.dtype))


def _shaped(covariances: Tensor) -> Tensor:
    """A number for one variable   (V, V) -> the same, (1, 1) -> ()"""
    return reshaped(covariances, ()) if covariances.shape == (1, 1) else covariances


@check_arguments
def corrcoef(x: AnyTensor) -> Tensor:
    """The correlations of variables, whose observations are the rows of x   x (V, N) -> (V, V), or () for one"""
    if x.ndim > 2:
        raise ShapeError(f"corrcoef: x (V, N) or (N,) is needed  (x {x.shape})")
    found = cov(x)
    if not found.ndim:
        return found / found
    deviations = diag(found).sqrt()
    return unchecked(clamp)(found / deviations.unsqueeze(1) / deviations, -1, 1)
