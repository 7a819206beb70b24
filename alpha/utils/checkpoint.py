"""`alpha.checkpoint` under the name that PyTorch's programs import it from, `torch.utils.checkpoint`."""

from alpha.autograd.checkpointing import checkpoint, checkpoint_sequential
from alpha.core.names.missing_names import tell_instead as _tell_instead

__all__ = ["checkpoint", "checkpoint_sequential"]

_tell_instead(__name__)
