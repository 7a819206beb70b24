"""Work of a launch: its arithmetic and the bytes that it moves, from which a profile finds how fast it is."""

from __future__ import annotations

from typing import NamedTuple


class Work(NamedTuple):
    """Work of one launch, or of one operator of the cpu.

    Attributes:
        flop: operations of the products that it computes; a multiply-add counts as two.
        skipped: operations that it leaves out, because trimming finds that they meet padded zeros.
        read, written: bytes of the arrays that it is given and of those that it makes, each counted once.
        math: the name of the way in which products are computed, a `MathMode` of the convolutions; empty without any.
        cycles: how long it takes by the model of convolutions, in cycles of the GPU; 0: the model does not know it.
    """

    flop: float = 0.0
    skipped: float = 0.0
    read: int = 0
    written: int = 0
    math: str = ""
    cycles: float = 0.0


NO_WORK = Work()
