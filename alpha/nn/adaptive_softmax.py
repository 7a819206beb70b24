"""A softmax over very many classes, the rare ones in clusters that are computed only where a target is in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from alpha.core.tensor import Tensor, tensor
from alpha.errors import ShapeError, type_name
from alpha.module.module import Module
from alpha.nn import functional as F
from alpha.nn.containers import ModuleList, Sequential
from alpha.nn.layers import Linear
from alpha.ops.array.axes import lengths_of
from alpha.ops.kernel.options import integer, real

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

Integers = npt.NDArray[np.int64]


class ASMoutput(NamedTuple):
    """Result of `AdaptiveLogSoftmaxWithLoss`: the logarithm of each target's probability, and their mean times -1."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """The loss of an adaptive softmax (Grave et al. 2017)   (N, in_features), targets (N,) -> output (N,), loss ()

    The head has the first, most frequent classes and one output for each cluster of the others. A class of a cluster
    has the probability of the cluster times its own within it. The layers of clusters become narrower, and only the
    rows whose target is in a cluster go through its layers. Which these are is read on the host, so the layer waits for
    the device, and a step with it is not captured.

    Args:
        in_features, n_classes: of the input, and how many classes there are; class 0 is the most frequent one.
        cutoffs: the first class of each cluster, rising, from 1 to n_classes - 1.
        div_value: cluster i, from 1 on, has layers of in_features / div_value^i features.
        head_bias: whether the head has a bias.

    Attributes:
        head: a `Linear` from in_features to the first classes and the clusters.
        tail: for each cluster two `Linear` without bias.

    Raises:
        ValueError: cutoffs are no such classes, or div_value leaves a cluster without features.
    """

    _resets_when_made = False  # as in PyTorch, for its layers draw themselves

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0, head_bias: bool = False
    ) -> None:
        name = "AdaptiveLogSoftmaxWithLoss"
        self.in_features = integer(name, "in_features", in_features, least=1)
        self.n_classes = integer(name, "n_classes", n_classes, least=2)
        given = list(lengths_of(name, "cutoffs", cutoffs))
        if not given or any(after <= before for before, after in pairwise([0, *given, self.n_classes])):
            raise ValueError(
                f"{name}: cutoffs={given} must rise from at least 1 to at most n_classes - 1, {n_classes - 1}"
            )
        self.cutoffs = [*given, self.n_classes]
        self._made_with = list(self.cutoffs)
        self.div_value, self.head_bias = real(name, "div_value", div_value), bool(head_bias)
        self.shortlist_size, self.n_clusters = given[0], len(given)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(self.in_features, self.head_size, bias=self.head_bias)
        self.tail = ModuleList()
        for i, (start, stop) in enumerate(pairwise(self.cutoffs), 1):
            width = int(self.in_features // self.div_value**i)
            if width < 1:
                raise ValueError(f"{name}: div_value={div_value} leaves no feature of {in_features} for cluster {i}")
            layers = Linear(self.in_features, width, bias=False), Linear(width, stop - start, bias=False)
            self.tail.append(Sequential(*layers))

    def reset_parameters(self) -> None:
        """Draw the parameters anew, in place."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.reset_parameters()

    def forward(self, input: Tensor, target: Tensor) -> ASMoutput:
        """The logarithm of the probability of each target, and the loss, their mean times -1

        input (N, in_features), target (N,) of int64 or int32 -> (N,), (), or (in_features,), () -> (), ()

        Raises:
            ShapeError: the shapes are others.
            TypeError: the targets are no integers.
            IndexError: a target is no class.
        """
        name = "AdaptiveLogSoftmaxWithLoss"
        for what, value in (("input", input), ("target", target)):
            if not isinstance(value, Tensor):
                raise TypeError(f"{name}: {what} is a {type_name(value)}, a Tensor is needed")
        if target.dtype.kind != "i":
            raise TypeError(f"{name}: target has dtype {target.dtype.name}; int64 or int32 is needed")
        if input.ndim not in (1, 2) or input.shape != (*target.shape, self.in_features):
            raise ShapeError(
                f"{name}: input (N, {self.in_features}) and target (N,) are needed, or ({self.in_features},) and ()  "
                f"(input {input.shape}, target {target.shape})"
            )
        self._check_cutoffs()
        x = input.reshape(target.size, self.in_features)
        classes: Any = target.numpy().reshape(target.size).astype(np.int64)
        wrong = classes[(classes < 0) | (classes >= self.n_classes)]
        if wrong.size:
            raise IndexError(f"{name}: target {wrong[0]} is no class of 0 to {self.n_classes - 1}")
        clusters = np.searchsorted(self.cutoffs, classes, side="right")
        outputs = np.where(clusters == 0, classes, self.shortlist_size + clusters - 1)  # of the head
        output = _picked(self.head(x), outputs)
        for i in np.unique(clusters[clusters > 0]).tolist():
            rows = np.flatnonzero(clusters == i)
            index = tensor(rows, device=x.device)
            own = _picked(self.tail[i - 1](F.index_select(x, 0, index)), classes[rows] - self.cutoffs[i - 1])
            output = F.index_add(output, 0, index, own)
        output = output.reshape(*target.shape)
        return ASMoutput(output, -output.mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """The logarithm of the probability of every class   (N, in_features) -> (N, n_classes)"""
        self._check(input, "log_prob")
        return self._log_prob(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class   (N, in_features) -> (N,) of int64

        Where the largest output of the head is a class, no class of a cluster can be more probable, so only the other
        rows go through the clusters. Which these are is read on the host.
        """
        self._check(input, "predict")
        head = self.head(input)
        classes: Tensor = head.argmax(1)
        rows = np.flatnonzero(classes.numpy() >= self.shortlist_size)
        if not rows.size:
            return classes
        index = tensor(rows, device=input.device)
        found = self._log_prob(F.index_select(input, 0, index), F.index_select(head, 0, index)).argmax(1)
        made: Tensor = F.index_copy(classes, 0, index, found)
        return made

    def _check_cutoffs(self) -> None:
        if self.cutoffs != self._made_with:
            raise ValueError(
                f"AdaptiveLogSoftmaxWithLoss: cutoffs={self.cutoffs} were written after the layer was made, and its "
                f"layers are those of {self._made_with}, the last of which is n_classes; make another layer"
            )

    def _check(self, input: Tensor, method: str) -> None:
        self._check_cutoffs()
        if not isinstance(input, Tensor) or input.ndim != 2 or input.shape[1] != self.in_features:
            found = input.shape if isinstance(input, Tensor) else type_name(input)
            raise ShapeError(f"AdaptiveLogSoftmaxWithLoss.{method}: (N, {self.in_features}) is needed  (input {found})")

    def _log_prob(self, x: Tensor, head: Tensor) -> Tensor:
        return F.cat(list(self._parts(x, F.log_softmax(head, 1))), 1)

    def _parts(self, x: Tensor, head: Tensor) -> Iterator[Tensor]:
        """Logarithms of the probabilities of the first classes, and of those of each cluster."""
        yield head[:, : self.shortlist_size]
        for i, layers in enumerate(self.tail):
            at = self.shortlist_size + i
            yield F.log_softmax(layers(x), 1) + head[:, at : at + 1]

    def extra_repr(self) -> str:
        changed = "" if self.div_value == 4.0 else f", div_value={self.div_value}"
        return f"{self.in_features}, {self.n_classes}, cutoffs={self.cutoffs[:-1]}{changed}, head_bias={self.head_bias}"


def _picked(scores: Tensor, columns: Integers) -> Tensor:
    """log_softmax of each row, at one column   (N, C), (N,) -> (N,)"""
    index = tensor(columns.reshape(-1, 1), device=scores.device)
    return F.gather(F.log_softmax(scores, 1), 1, index).reshape(len(columns))
