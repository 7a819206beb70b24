"""Dragon-Alpha's other batch normalisations: by running statistics only, by means of squares, and by none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from alpha.autograd.grad_mode import no_grad
from alpha.autograd.recompute import repeating
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Buffer, Module, Parameter
from alpha.nn import functional as F
from alpha.nn import init
from alpha.nn.batchnorm import move
from alpha.ops.array.creation import zeros
from alpha.ops.kernel.options import integer, real
from alpha.ops.kernel.rectifier import IDENTITY, AffineRectified, rectifier_of
from alpha.ops.normalization.batch_norm import check_eps
from alpha.ops.normalization.group import shape_of_axes

__all__ = ["Affine", "GlobalBatchNorm", "GlobalSqBatchNorm", "SqBatchNorm"]


class Affine(Module):
    """Y = weight X + bias, elementwise over the last axes   (..., *normalized_shape) -> the same

    Args:
        normalized_shape: the lengths of the last axes; an integer is the length of the last one.
        bias: False has no bias.

    Attributes:
        weight, bias: (*normalized_shape), at first 1 and 0; the bias may be None.
    """

    bias: Parameter | None

    def __init__(self, normalized_shape: int | Sequence[int], bias: bool = True) -> None:
        self.normalized_shape = shape_of_axes("Affine", normalized_shape)
        self.weight = Parameter(init.ones(self.normalized_shape))
        self.register_parameter("bias", Parameter(init.zeros(self.normalized_shape)) if bias else None)

    def forward(self, x: Tensor, activation: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """`activation`: is applied to the result; with a bias the kernel computes ReLU, ReLU6 and leaky ReLU itself."""
        shape = self.normalized_shape
        if isinstance(x, Tensor) and x.shape[-len(shape) :] != shape:
            raise ShapeError(f"Affine: x {x.shape} must end in {shape}")
        if self.bias is None:
            y = F.mul(x, self.weight)
            return y if activation is None else activation(y)
        rectifier = rectifier_of(activation)
        y = AffineRectified.apply(x, self.weight, self.bias, rectifier=rectifier or IDENTITY)
        return y if activation is None or rectifier is not None else activation(y)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, bias={self.bias is not None}"


class _Statistics(Module):
    """Weight, bias and running statistics of channels."""

    names: ClassVar[tuple[str, str]]  # of the running statistics
    weight: Parameter | None
    bias: Parameter | None

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True) -> None:
        name = type(self).__name__
        self.num_features = integer(name, "num_features", num_features, least=1)
        check_eps(name, eps)
        self.eps, self.affine = eps, affine
        shape = (self.num_features,)
        self.register_parameter("weight", Parameter(init.ones(shape)) if affine else None)
        self.register_parameter("bias", Parameter(init.zeros(shape)) if affine else None)
        for statistic, values in zip(self.names, (init.zeros(shape), init.ones(shape)), strict=True):
            setattr(self, statistic, Buffer(values))

    @property
    def running(self) -> tuple[Tensor, Tensor]:
        first, second = (getattr(self, name) for name in self.names)
        return first, second

    def by_running_statistics(self, x: Tensor) -> Tensor:
        """Y = weight (X - mean) / sqrt(var + eps) + bias by the running statistics   x (..., C) -> the same"""
        mean, var = self.running
        if "sqmean" in self.names[1]:
            with no_grad():
                var = (var - mean * mean).clamp(min=0)
        return F.batch_norm(x, mean, var, self.weight, self.bias, eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}" + ("" if self.weight is not None else ", affine=False")


class GlobalBatchNorm(_Statistics):
    """Batch normalisation by the running statistics, in training, too   (..., C) -> the same

    The running statistics stay what they are: 0 and 1, or what `load_state_dict` takes from a `BatchNorm2d`. Weight and
    bias are trained.

    Args:
        num_features: the number C of channels, the last axis.
        eps: added to the variance.
        affine: False has no weight and no bias.

    Attributes:
        weight, bias: (num_features,), at first 1 and 0, or None.
        running_mean, running_var: (num_features,), at first 0 and 1.
    """

    names = ("running_mean", "running_var")

    def forward(self, x: Tensor) -> Tensor:
        return self.by_running_statistics(x)


class GlobalSqBatchNorm(_Statistics):
    """`GlobalBatchNorm` with the statistics of an `SqBatchNorm`   (..., C) -> the same

    Attributes:
        running_mean, running_sqmean: (num_features,), at first 0 and 1.
    """

    names = ("running_mean", "running_sqmean")

    def forward(self, x: Tensor) -> Tensor:
        return self.by_running_statistics(x)


class SqBatchNorm(_Statistics):
    """Batch normalisation whose running statistics are means of X and of X^2   (..., C) -> the same

    In training it is `BatchNorm2d`. In evaluation the variance is mean(X^2) - mean(X)^2, which counts how far the means
    of the batches lie apart, too.

    Args:
        num_features: the number C of channels, the last axis.
        eps: added to the variance.
        momentum: the share of a training batch in the new running statistics.
        affine: False has no weight and no bias.

    Attributes:
        weight, bias: (num_features,), at first 1 and 0, or None.
        running_mean, running_sqmean: (num_features,), at first 0 and 1.
    """

    names = ("running_mean", "running_sqmean")

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True) -> None:
        super().__init__(num_features, eps, affine)
        self.momentum = real("SqBatchNorm", "momentum", momentum)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return self.by_running_statistics(x)
        running = self.running
        mean, var = (zeros(old.shape, dtype=old.dtype, device=old.device) for old in running)
        y = F.batch_norm(x, mean, var, self.weight, self.bias, training=True, momentum=1.0, eps=self.eps)
        if not repeating():
            with no_grad():
                rows = x.size // x.shape[-1]
                square = var * ((rows - 1) / rows) + mean * mean  # var is the unbiased one
                move(running, (mean, square), self.momentum)
        return y

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, momentum={self.momentum}"
