"""Parameters and statistics of layers as they were at first, written in place: what `reset_parameters` does."""

from __future__ import annotations

import math

from alpha.core.tensor import Tensor
from alpha.module.module import Buffer, Module
from alpha.nn import init


def reset_uniform(fan: int, *tensors: Tensor | None) -> None:
    """Draw tensors from U(-b, b) with b = 1 / sqrt(fan)."""
    bound = 1 / math.sqrt(fan) if fan else 0.0
    for tensor in tensors:
        if tensor is not None:
            init.uniform_(tensor, -bound, bound)


def reset_table(weight: Tensor, padding_idx: int | None) -> None:
    """Draw a table from N(0, 1), and let its padding row be 0."""
    init.normal_(weight)
    if padding_idx is not None:
        init.zeros_(weight.data[padding_idx])


class Resets(Module):
    """A normalisation: its weight and running variance are 1 at first, its bias and running mean 0."""

    def _hold(self, name: str, buffer: Buffer | None) -> None:
        """Keep a buffer, or None, in whose place a Tensor that is assigned later becomes one."""
        setattr(self, name, buffer)
        if buffer is None:
            self._await_buffer(name, persistent=True)

    def reset_running_stats(self) -> None:
        """Forget the running statistics, if there are any and the layer tracks them."""
        if not getattr(self, "track_running_stats", True):
            return
        for name, write in (("mean", init.zeros_), ("var", init.ones_)):
            if (found := getattr(self, f"running_{name}", None)) is not None:
                write(found)
        if (count := getattr(self, "num_batches_tracked", None)) is not None:
            count.zero_()

    def reset_parameters(self) -> None:
        """Let weight, bias and running statistics be what they were at first."""
        self.reset_running_stats()
        if not (getattr(self, "affine", True) and getattr(self, "elementwise_affine", True)):
            return
        for name, write in (("weight", init.ones_), ("bias", init.zeros_)):
            if (found := getattr(self, name, None)) is not None:
                write(found)
