"""`Rearrange`, `Reduce` and `EinMix`: einops's own layers, as modules of Alpha."""

from __future__ import annotations

import importlib
from typing import Any

from alpha.core.tensor import Tensor
from alpha.module.module import Module
from alpha.module.parameter import Parameter
from alpha.nn.init import uniform_
from alpha.ops.array.creation import empty
from alpha.ops.matmul.einsum import einsum

try:
    _layers: Any = importlib.import_module("einops.layers")
    _einmix: Any = importlib.import_module("einops.layers._einmix")
except ImportError as error:
    raise ImportError("alpha.nn.einops has the layers of the package einops: pip install einops") from error

__all__ = ["EinMix", "Rearrange", "Reduce"]


class _Recipe(Module):
    """A layer that does what its pattern says; einops's class beside it reads the pattern."""

    _apply_recipe: Any

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self._apply_recipe(x)
        return result


class Rearrange(_layers.RearrangeMixin, _Recipe):  # type: ignore[misc]
    """`einops.rearrange` as a layer.

    nn.Sequential(Rearrange("b (h p) (w q) c -> b (h w) (p q c)", p=4, q=4), nn.Linear(48, 64))

    Args:
        pattern: axes before and after, as of `einops.rearrange`. Images are "b h w c" in Alpha.
        axes_lengths: the lengths of axes that the shape of the input does not tell.

    Raises:
        einops.EinopsError: the pattern, or an input that does not fit it.
    """


class Reduce(_layers.ReduceMixin, _Recipe):  # type: ignore[misc]
    """`einops.reduce` as a layer, as `Reduce("b h w c -> b c", "mean")`.

    Args:
        pattern: axes before and after, as of `einops.reduce`. Images are "b h w c" in Alpha.
        reduction: "mean", "sum", "min", "max" or "prod".
        axes_lengths: the lengths of axes that the shape of the input does not tell.

    Raises:
        einops.EinopsError: the pattern, or an input that does not fit it.
    """


class EinMix(_einmix._EinmixMixin, Module):  # type: ignore[misc]
    """A sum of products with weights that it learns, written as a pattern of einops.

    EinMix("b n cin -> b n cout", weight_shape="cin cout", bias_shape="cout", cin=8, cout=16)

    Args:
        pattern: axes of the input and of the output.
        weight_shape: axes of the weight.
        bias_shape: axes of the bias; None for none.
        axes_lengths: the lengths of the axes of weight and bias.

    Attributes:
        weight, bias: parameters, as einops draws them; bias may be None.

    Raises:
        einops.EinopsError: the pattern, or an input that does not fit it.
    """

    def _create_parameters(
        self, weight_shape: list[int], weight_bound: float, bias_shape: list[int] | None, bias_bound: float
    ) -> None:
        self.weight = Parameter(uniform_(empty(*weight_shape), -weight_bound, weight_bound))
        self.bias: Parameter | None = None
        if bias_shape is not None:
            self.bias = Parameter(uniform_(empty(*bias_shape), -bias_bound, bias_bound))

    def _create_rearrange_layers(
        self,
        before: str | None,
        before_lengths: dict[str, int] | None,
        after: str | None,
        after_lengths: dict[str, int],
    ) -> None:
        self.pre_rearrange = None if before is None else Rearrange(before, **(before_lengths or {}))
        self.post_rearrange = None if after is None else Rearrange(after, **after_lengths)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.pre_rearrange is None else self.pre_rearrange(x)
        x = einsum(self.einsum_pattern, x, self.weight)
        x = x if self.bias is None else x + self.bias
        result: Tensor = x if self.post_rearrange is None else self.post_rearrange(x)
        return result
