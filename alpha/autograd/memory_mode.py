"""Arrays that a forward pass keeps for its gradients: a choice between the fastest step and the least memory.

    alpha.set_memory_mode("balanced")            # from here on, in this thread
    with alpha.memory_mode("least"): ...         # inside only

In training a batch normalisation needs its input X for its gradients, and the layer behind it needs the output Y for
its own. "fast" (the default) keeps both. The other modes keep less:

- **The output in place of the input.** An activation that loses nothing, such as a leaky ReLU, can be undone: X,
  normalised, is (act^-1(Y) - residual - bias) / weight. Both other modes do so where another layer keeps Y in any
  case, and the residual, too (Rota Bulo et al. 2018, "In-Place Activated BatchNorm"). In bfloat16, where X is found
  again to 2^-9 |Y| / |weight| (0 stands for it where that is large beside 1), "balanced" does so without a residual,
  and "least" where, besides, no rectifier of the same kernel makes Y. A weight nearer to 0 than `SMALLEST_WEIGHT`
  counts as that in the forward pass in training, so there is always something to divide by: Y differs by at most
  `SMALLEST_WEIGHT` times X normalised. That does not concern a batch normalisation with the pool behind it as one
  operator, which keeps X in each mode, nor one whose X stays for the gradient of the function that made it, as that of
  a convolution with a rectifier.
- **A copy in place of the output.** In tf32 on Hopper a convolution may keep the fp16 copy of its input in place of the
  floats (alpha/ops/conv2d/magnitudes.py), in the other modes only where nothing else keeps the floats. A batch
  normalisation keeps that copy, too. Where a residual was added it has the sign of Y. Elsewhere "balanced" and "least"
  keep it in place of X, which is found again from it to 1.4e-4 |Y| / |weight|. "Least" makes no other copies.
- **No copies.** In bf16 an optimizer keeps a bfloat16 copy of each weight that is multiplied
  (alpha/autograd/derived.py). In "least" the weights are cast where they are multiplied.
- **The output again.** "least" also drops the output of a batch normalisation that cannot be undone (ReLU), is of
  bfloat16 arrays, or whose X stays, if no residual was added: the backward pass computes it a second time from X. The
  values are the same, bit for bit.
- **What is made of an image again.** "least" also drops the output of a convolution whose input needs no gradient and,
  as it is multiplied, has at most a quarter of its bytes: the backward pass computes it a second time, bit for bit.

A gradient is that of the mode in force during its forward pass.
"""

from __future__ import annotations

from collections.abc import Callable

from alpha.core.primitive import Array
from alpha.runtime.settings import Setting, Within

MODES = FAST, BALANCED, LEAST = "fast", "balanced", "least"
# of a batch normalisation that is undone: X is found again to 6e-8 |Y| / |weight| in float32, to 1.4e-4 of a copy,
# to 2e-3 in bfloat16
SMALLEST_WEIGHT = 1e-5

setting = Setting("memory mode", MODES)


def get_memory_mode() -> str:
    """The memory mode in force in this thread: "fast", "balanced" or "least"."""
    return setting.name


def set_memory_mode(name: str) -> None:
    """Set what forward passes of this thread keep for their gradients.

    Args:
        name: "fast" keeps the input and the output of each batch normalisation, or the fp16 copy of the output;
            "balanced" keeps one of them where the other can be found again from it; "least" also computes outputs a
            second time, among them those of a convolution that reads an image, and casts weights in each step in bf16.

    Raises:
        ValueError: another name.
    """
    setting.name = setting.checked(name)


class memory_mode(Within):
    """`with alpha.memory_mode("balanced"): ...`, or as a decorator; see `alpha.set_memory_mode`.

    Examples:
        >>> import alpha
        >>> with alpha.memory_mode("least"):
        ...     alpha.get_memory_mode()
        ...
        'least'
        >>> alpha.get_memory_mode()
        'fast'
    """

    def __init__(self, name: str) -> None:
        super().__init__(setting, name)


class Again:
    """An array that is computed again when it is first asked for, for all functions that have kept it.

    Args:
        compute: makes the array, the same one bit for bit.
    """

    def __init__(self, compute: Callable[[], Array]) -> None:
        self._compute = compute
        self._made: Array | None = None

    def array(self) -> Array:
        """The array."""
        if self._made is None:
            self._made = self._compute()
        return self._made
