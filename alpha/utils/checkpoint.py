"""`alpha.checkpoint` under the name that PyTorch's programs import it from, `torch.utils.checkpoint`."""

from alpha.autograd.checkpointing import checkpoint, checkpoint_sequential

__all__ = ["checkpoint", "checkpoint_sequential"]
