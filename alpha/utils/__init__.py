"""The names of `torch.utils` that Alpha has: `alpha.utils.data` is `alpha.data`, and `alpha.utils.checkpoint`."""

from alpha.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
