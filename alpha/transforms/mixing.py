"""Images mixed with others of their batch, and their labels with them: MixUp and CutMix."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.core.numerics import is_floating
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError, type_name
from alpha.nn import functional as F
from alpha.ops.array.creation import arange
from alpha.ops.array.random_tensors import rand
from alpha.ops.kernel.options import integer, real
from alpha.transforms.images import Transform, check_images, number_type

__all__ = ["CutMix", "MixUp"]


class Mixing(Transform):
    """The base of MixUp and CutMix: a subclass defines `mixed(x, share)`."""

    def __init__(self, *, alpha: float = 1.0, num_classes: int | None = None) -> None:
        name = type(self).__name__
        self.alpha = real(name, "alpha", alpha)
        if self.alpha <= 0:
            raise ValueError(f"{name}: alpha={alpha!r} must be above 0")
        self.num_classes = None if num_classes is None else integer(name, "num_classes", num_classes, least=1)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        """x (N, H, W, C), labels (N,) of integers or (N, num_classes) of floats   -> images, targets (N, num_classes)

        Both have the dtype of x. In evaluation mode it returns what it was given: both, or x alone.

        Raises:
            ShapeError: x or labels have other axes.
            TypeError: x is no floating tensor, or labels are missing, or no tensor of integers or floats.
            ValueError: labels are integers and there is no num_classes, or a label on cpu is not below it.
        """
        name = type(self).__name__
        check_images(name, x)
        if not self.training:
            return x if labels is None else (x, labels)
        if labels is None:
            raise TypeError(
                f"{name}: labels are needed in training: call it, or a Compose of it, with (images, labels)"
            )
        targets = self._targets(x, labels)
        y, share = self.mixed(x, symmetric_beta(x, self.alpha))
        share = share.reshape(1, 1)
        return y.astype(x.dtype), (targets * share + targets.roll(1, 0) * (1 - share)).astype(x.dtype)

    def mixed(self, x: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        """Images that keep a share (1, 1, 1, 1) of themselves, and the share that they really keep."""
        raise NotImplementedError

    def _targets(self, x: Tensor, labels: Any) -> Tensor:
        """The share of each class   labels (N,) or (N, num_classes) -> (N, num_classes)"""
        name = type(self).__name__
        if not isinstance(labels, Tensor):
            raise TypeError(f"{name}: labels are a {type_name(labels)}, a Tensor is needed")
        soft = is_floating(labels.dtype)
        if not soft and labels.dtype.kind not in "iu":
            raise TypeError(
                f"{name}: labels have dtype {labels.dtype.name}; integers, or shares of classes, are needed"
            )
        if labels.ndim != 1 + soft or labels.shape[0] != x.shape[0]:
            form = "(N, num_classes) of floats" if soft else "(N,) of integers"
            raise ShapeError(
                f"{name}: labels {form}, one for each image, are needed  (x {x.shape}, labels {labels.shape})"
            )
        if soft:
            if self.num_classes not in (None, labels.shape[1]):
                raise ShapeError(f"{name}: num_classes={self.num_classes} for labels of {labels.shape[1]} classes")
            return labels.astype(number_type(x))
        if self.num_classes is None:
            raise ValueError(f"{name}: labels of integers need num_classes, as in {name}(num_classes=10)")
        return F.one_hot(labels.astype(np.int64), self.num_classes).astype(number_type(x))

    def extra_repr(self) -> str:
        return f"alpha={self.alpha:g}, num_classes={self.num_classes}"


class MixUp(Mixing):
    """Each image is mixed with the one before it in the batch, and so are their labels (Zhang et al. 2018)

    `MixUp(num_classes=10)(images, labels)`: images (N, H, W, C), labels (N,) -> images, targets (N, num_classes).

    The batch has one share l, drawn from Beta(alpha, alpha): image i becomes l x[i] + (1 - l) x[i - 1], and its target
    has l of its own class and 1 - l of the other one. Labels may also be shares of classes (N, num_classes) already, of
    another MixUp for example. In evaluation mode images and labels stay as they are.

    Args:
        alpha: small numbers leave most batches nearly as they are, 1 draws all shares equally often.
        num_classes: needed if labels are integers.

    Raises:
        ValueError: alpha is not above 0, or num_classes is below 1.
    """

    def mixed(self, x: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        return x * share + x.roll(1, 0) * (1 - share), share


class CutMix(Mixing):
    """A rectangle of each image shows the image before it in the batch; labels are mixed by area (Yun et al. 2019)

    `CutMix(num_classes=10)(images, labels)`: images (N, H, W, C), labels (N,) -> images, targets (N, num_classes).

    The batch has one rectangle. Its middle is any pixel; its sides are sqrt(1 - l) of the image's, rounded down to an
    even number of pixels, with l of Beta(alpha, alpha), and it ends at the edge of the image. A target has the part of
    the pixels that an image really keeps of its own class, and the rest of the other one. Labels may also be shares of
    classes (N, num_classes). In evaluation mode images and labels stay as they are.

    Args:
        alpha: small numbers make most rectangles nearly as large as the image or nearly empty.
        num_classes: needed if labels are integers.

    Raises:
        ValueError: alpha is not above 0, or num_classes is below 1.
    """

    def mixed(self, x: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        lengths = x.shape[1:3]
        reach = (1 - share).sqrt() * 0.5
        sides, within = [], []
        for axis, length in enumerate(lengths, 1):
            middle, half = (_one_number(x) * length).floor(), (reach * length).floor()
            first, stop = F.clamp(middle - half, min=0.0), F.clamp(middle + half, max=float(length))
            shape = (1, length, 1, 1) if axis == 1 else (1, 1, length, 1)
            place = arange(length, dtype=first.dtype, device=x.device).reshape(shape)
            within.append(F.logical_and(place >= first, place < stop))
            sides.append(stop - first)
        y = x.roll(1, 0).where(F.logical_and(*within), x)
        return y, 1 - sides[0] * sides[1] / max(1, math.prod(lengths))


def _one_number(x: Tensor) -> Tensor:
    """A uniform number of [0, 1) for the whole batch   -> (1, 1, 1, 1)"""
    return rand((1, 1, 1, 1), dtype=number_type(x), device=x.device)


def symmetric_beta(x: Tensor, alpha: float) -> Tensor:
    """A number of Beta(alpha, alpha) for the whole batch, on the device of x   -> (1, 1, 1, 1)

    If T has Student's distribution of 2 alpha degrees of freedom, (1 + T / sqrt(2 alpha + T^2)) / 2 has this one
    (Devroye 1996), and T = sqrt(2 alpha (1 / w - 1)) c is exact for w = U^(1 / alpha), c = cos(2 pi V) and uniform U
    and V (Bailey 1994). Written without 1 / w, which would be infinite for a small alpha.
    """
    log_w = (-_one_number(x)).log1p() / alpha
    w, rest = log_w.exp(), -log_w.expm1()
    c = (_one_number(x) * (2 * math.pi)).cos()
    return F.clamp(0.5 + 0.5 * c * (rest / (w + c * c * rest)).sqrt(), 0.0, 1.0)
