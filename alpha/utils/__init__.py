"""The names of `torch.utils` that Alpha has: `alpha.utils.data` is `alpha.data`, and `alpha.utils.checkpoint`."""

from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.utils import checkpoint, data

__all__ = ["checkpoint", "data"]

_tell_instead(__name__)
