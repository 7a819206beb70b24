"""Layers of einops for tensors of Alpha: `from alpha.nn.einops import Rearrange`, as of `einops.layers.torch`.

The functions of einops, such as `einops.rearrange`, take tensors of Alpha as they are.
"""

from typing import TYPE_CHECKING

from alpha.core.names.missing_names import tell_instead as _tell_instead

if TYPE_CHECKING:
    from alpha.nn.einops.einops_layers import EinMix as EinMix
    from alpha.nn.einops.einops_layers import Rearrange as Rearrange
    from alpha.nn.einops.einops_layers import Reduce as Reduce

__all__ = ["EinMix", "Rearrange", "Reduce"]

_tell_instead(__name__, dict.fromkeys(__all__, "alpha.nn.einops.einops_layers"))  # loads einops when first asked for
