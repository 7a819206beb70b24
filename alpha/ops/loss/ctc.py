"""Connectionist temporal classification: the loss of a sequence whose labels are known and their times are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.core.tensor import Tensor, full
from alpha.errors import ShapeError
from alpha.ops.activation.softmax import logsumexp
from alpha.ops.array.creation import arange
from alpha.ops.array.joining import cat, stack
from alpha.ops.indexing.gather_scatter import gather
from alpha.ops.indexing.where import where
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.function_layer import function_layer
from alpha.ops.kernel.options import integer
from alpha.ops.loss.pointwise import LossLayer, as_bool, check_reduction, reduced, widened
from alpha.ops.sequence.packing import kept_on
from alpha.runtime.recording import refuse

__all__ = ["CTCLoss", "ctc_loss"]

NEVER = -1e30  # the logarithm of a probability of 0; finite, so that no gradient is NaN
Lengths = Tensor | Sequence[int]


@check_arguments
def ctc_loss(
    log_probs: Tensor,
    targets: AnyTensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability of all ways to read the labels from the outputs (Graves et al. 2006)   -> () or (N,)

    log_probs (T, N, C), or (T, C) of one sequence: logarithms of probabilities, as of `log_softmax`, of each class at
    each time. A way names a class for each time; without repetitions and then without blanks it reads the labels.

    It computes one time after the other with ordinary operators, some ten launches per time on cuda. The gradient is
    that of log_probs themselves, and 0 if the loss is infinite. PyTorch's counts on a `log_softmax` before them, behind
    which both are the same.

    Args:
        targets: labels (N, S), or those of all sequences one after the other, without the blank.
        input_lengths: N numbers of outputs that count, 1 to T; a tensor on cuda is waited for.
        target_lengths: N numbers of labels, 0 to S.
        blank: the class that is no label.
        reduction: "mean" over the sequences of the loss over its number of labels, "sum" or "none".
        zero_infinity: True: the loss is 0, and no longer infinite, if the labels need more times than there are.

    Raises:
        ShapeError: the shapes and lengths do not fit each other.
        TypeError: targets are no integers, or a length is none.
    """
    check_reduction("ctc_loss", None, None, reduction)
    if log_probs.ndim not in (2, 3) or 0 in log_probs.shape:
        raise ShapeError(f"ctc_loss: log_probs (T, N, C) or (T, C) are needed  (log_probs {log_probs.shape})")
    if targets.dtype.kind != "i":
        raise TypeError(f"ctc_loss: targets have dtype {targets.dtype.name}; int64 or int32 is needed")
    x = widened(log_probs)
    if log_probs.ndim == 2:
        x = x.reshape(x.shape[0], 1, x.shape[1])
    T, N, C = x.shape
    if not 0 <= integer("ctc_loss", "blank", blank) < C:
        raise ShapeError(f"ctc_loss: blank={blank} is no class of {C}")
    times, counts = _lengths("input_lengths", input_lengths, N), _lengths("target_lengths", target_lengths, N)
    if times.min() < 1 or times.max() > T or counts.min() < 0:
        raise ShapeError(
            f"ctc_loss: input_lengths from {times.min()} to {times.max()} must be from 1 to {T}, and target_lengths "
            f"from {counts.min()} at least 0"
        )
    losses = -_log_likelihood(x, _extended(_labels(targets, counts), blank), blank, times, counts)
    infinite = losses > -NEVER / 2
    losses = losses.where(~infinite, 0.0 if zero_infinity else np.inf)
    if reduction == "mean":
        losses = losses / kept_on(np.maximum(counts, 1).astype(x.dtype), x.device)
    result = reduced(losses, reduction)
    return result.reshape(()) if log_probs.ndim == 2 else result


def _lengths(name: str, lengths: Any, N: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """N whole numbers on the host."""
    if isinstance(lengths, Tensor) and lengths.device.name == "cuda":
        refuse(f"ctc_loss: {name} on cuda are read on the host; give a list, or a tensor on cpu")
    values = np.asarray(lengths.numpy() if isinstance(lengths, Tensor) else lengths)
    if values.dtype.kind not in "iu":
        raise TypeError(f"ctc_loss: {name} have dtype {values.dtype.name}; whole numbers are needed")
    if values.size != N or values.ndim > 1:
        raise ShapeError(f"ctc_loss: {N} {name} are needed, not an array {values.shape}")
    return values.reshape(N).astype(np.int64)


def _labels(targets: Tensor, counts: np.ndarray[Any, np.dtype[np.int64]]) -> Tensor:
    """The labels as rows; what is behind the end of a row is any label   -> (N, S) of int64, S the largest count"""
    N, S = len(counts), int(counts.max())
    if targets.ndim == 2 and targets.shape[0] == N and targets.shape[1] >= S:
        return targets[:, :S].astype(np.int64)
    if targets.ndim != 1 or targets.size != counts.sum():
        raise ShapeError(
            f"ctc_loss: targets (N, S), or (sum of target_lengths,), are needed  (targets {targets.shape}, "
            f"target_lengths {counts.tolist()})"
        )
    if not S:
        return targets.reshape(N, 0).astype(np.int64)
    at = np.minimum((np.cumsum(counts) - counts)[:, None] + np.arange(S), targets.size - 1)
    return targets.astype(np.int64)[kept_on(at, targets.device)]


def _extended(labels: Tensor, blank: int) -> Tensor:
    """The labels with a blank before, between and behind them   (N, S) -> (N, 2 S + 1)"""
    N, S = labels.shape
    states = full((N, 2 * S + 1), blank, labels.dtype, labels.device)
    if S:
        states[:, 1::2] = labels
    return states


def _log_likelihood(x: Tensor, states: Tensor, blank: int, times: Any, counts: Any) -> Tensor:
    """Logarithm of the sum over all ways, by the forward recursion over (time, state)

    x (T, N, C), states (N, L) -> (N,)
    """
    T, (N, L) = x.shape[0], states.shape

    def never(width: int) -> Tensor:
        return full((N, width), NEVER, x.dtype, x.device)

    emitted = gather(x, 2, states.reshape(1, N, L).expand(T, N, L))
    ends = kept_on(times.reshape(N, 1), x.device)
    reached = where(arange(L, device=x.device) < 2, emitted[0], NEVER)
    two_before = cat([full((N, min(2, L)), blank, states.dtype, states.device), states[:, : max(0, L - 2)]], 1)
    skips = (states != blank).logical_and(states != two_before)  # a blank between other labels may be left out
    for t in range(1, T):
        ways = [reached]
        if L > 1:
            ways.append(cat([never(1), reached[:, :-1]], 1))
            ways.append(where(skips, cat([never(2), reached[:, :-2]], 1), NEVER))
        reached = where(ends > t, logsumexp(stack(ways), 0) + emitted[t], reached)
    # a way ends in the last label or in the blank behind it
    last = kept_on(np.stack([2 * counts, np.maximum(2 * counts - 1, 0)], 1), x.device)
    some = kept_on(np.stack([counts >= 0, counts > 0], 1), x.device)
    return logsumexp(where(some, gather(reached, 1, last), NEVER), 1)


@function_layer(ctc_loss, zero_infinity=as_bool)
class CTCLoss(LossLayer):
    """`ctc_loss` of log_probs (T, N, C), targets and both lengths; the arguments are those of `ctc_loss`."""

    blank: int = 0
    reduction: str = "mean"
    zero_infinity: bool = False
