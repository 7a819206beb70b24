"""The first step of a gradient, which the function that makes dY may take in the same kernel.

Many gradient rules begin with work on each element of dY: an activation multiplies it by its own gradient, and a batch
normalisation adds it up. If the function that makes dY does so before it writes dY to memory, nobody reads dY again.

A function offers a step as `Function.first_step`. Another one that has `takes_first_steps` finds it in `self.behind`,
if it makes the last part of dY; the parts that have arrived are `other`. Having taken it, it sets `taken` and gives the
result dZ as the gradient of its first input. The function that offered it then finds the step in `self.begun`, and dZ
in place of dY.
"""

from __future__ import annotations

from alpha.core.primitive import Array


class FirstStep:
    """dZ = f(dY + other), the first step of a function's gradient rule; a subclass says what f is.

    Attributes:
        other: the gradient that other users of the output have given, or None.
        taken: whether dZ is there.
    """

    other: Array | None = None
    taken = False
