"""Features of flattened maps: how PyTorch's order of them becomes Alpha's, and back.

PyTorch flattens a map (C, H, W) channel by channel, and Alpha a map (H, W, C) pixel by pixel. So the columns of a
Linear layer behind a Flatten, the rows of one before an Unflatten, and a batch norm between them have another order,
which no shape tells. Which layers these are stands in flattened_layers.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from alpha.core.tensor import Tensor
from alpha.module.flattened_layers import Shape, known_maps, layer_of, may_be_flattened, remember, shape_of

if TYPE_CHECKING:
    from alpha.module.module import Module

Values = npt.NDArray[Any]
Names = Mapping[str, Sequence[int]]  # of layers or tensors: the map (C, H, W)


class FlattenedMaps:
    """Layers that take flattened maps, and layers that make them.

    Args:
        flattened, unflattened: see `Module.load_state_dict`; if both are None, what is known of the layers.
        root: the module.
        own: its tensors by name.
    """

    def __init__(
        self, flattened: Names | None, unflattened: Names | None, root: Module, own: Mapping[str, Tensor]
    ) -> None:
        self.given = flattened is not None or unflattened is not None
        self._own = own
        self._axes: dict[str, list[tuple[str, Shape, bool]]] = {}  # of each tensor
        self._unknown: list[str] = []
        self._known = ([*(flattened or {}).items()], [*(unflattened or {}).items()])
        if not self.given:
            known = known_maps(root)
            self._known = ([*known.flattened.items()], [*known.unflattened.items()])
        for makes, names in enumerate(self._known):
            for name, shape in names:
                form = _checked("unflattened" if makes else "flattened", name, shape) if self.given else tuple(shape)
                found = [full for full in own if full == name or layer_of(full) == name]
                for full in found:
                    if full == name or makes or _may_count_inputs(full):
                        self._axes.setdefault(full, []).append((name, form, bool(makes)))
                if not found:
                    self._unknown.append(name)

    def settled(self, root: Module) -> set[str]:
        """The names of the layers of which is known that they take or make a map, or that they do not."""
        modules = root.named_modules(remove_duplicate=False)
        return {name for names in self._known for name, _ in names} | {name for name, part in modules if part._maps}

    def turn(self, values: Mapping[str, Values]) -> tuple[dict[str, Values], list[str]]:
        """Values of PyTorch that count features of a map, in Alpha's order, and a line of text for each bad name."""
        turned: dict[str, Values] = {}
        if not self.given:
            for full, value in values.items():
                after = self.inward(full, value)
                if after is not value:
                    turned[full] = after
            return turned, []
        problems = [f"flattened   {name}: the model has no layer and no tensor of this name" for name in self._unknown]
        if not values and self._axes:
            problems.append("flattened   flattened= is for weights of PyTorch, whose layout is NCHW; there are none")
        missed: dict[str, str] = {}
        used: set[str] = set()
        for full, value in values.items():
            for name, shape, makes in self._axes.get(full, ()):
                before = turned.get(full, value)
                moved = self._in_order(full, before, shape, makes)
                if moved is None:
                    missed[name] = f"{full} has {value.shape}, and none of them is {' x '.join(map(str, shape))}"
                else:
                    turned[full] = moved
                    used.add(name)
        problems += [f"flattened   {name}: {fact}" for name, fact in missed.items() if name not in used]
        return turned, problems

    def inward(self, full: str, value: Values) -> Values:
        """A value of PyTorch in Alpha's order; the value itself if it counts no features of a map."""
        for _, shape, makes in self._axes.get(full, ()):
            moved = self._in_order(full, value, shape, makes)
            value = value if moved is None else moved
        return value

    def outward(self, full: str, value: Values) -> Values:
        """A value of Alpha in PyTorch's order; the value itself if it counts no features of a map."""
        for _, shape, makes in self._axes.get(full, ()):
            moved = self._in_order(full, value, shape, makes, back=True)
            value = value if moved is None else moved
        return value

    def remember(self, root: Module) -> None:
        """Let the layers know their maps, so that later loads need not be told; and others that they have none."""
        for makes, names in enumerate(self._known):
            for name, shape in names:
                if 0 not in shape:
                    remember(root, name, tuple(shape), bool(makes))
        if self.given:
            settled = self.settled(root) | {name.rpartition(".")[0] for names in self._known for name, _ in names}
            for name in may_be_flattened(root).keys() - settled:
                remember(root, name, ())

    def _in_order(self, full: str, value: Values, shape: Shape, makes: bool, back: bool = False) -> Values | None:
        """The value with its features in the other order; None if it has none of this map."""
        if 0 in shape:  # a lazy layer, whose weights tell how many pixels there are
            pixels, rest = divmod(value.shape[-1], shape[0]) if value.ndim == 2 else (0, 0)
            if rest or pixels < 2:
                return None
            shape = (shape[0], pixels)
        last = (*shape[1:], shape[0])
        if len(value.shape) == len(shape) and value.shape == (last if back else shape):
            return np.moveaxis(value, -1, 0) if back else np.moveaxis(value, 0, -1)
        order = np.moveaxis(np.arange(math.prod(shape)).reshape(shape), 0, -1).reshape(-1)
        is_weight = value.ndim > 1 or full.endswith("_v") or not self._has_matrix(layer_of(full)) or makes
        axis = 0 if makes else value.ndim - 1
        if not is_weight or not value.ndim or value.shape[axis] != order.size:
            return None
        return np.take(value, np.argsort(order) if back else order, axis)

    def _has_matrix(self, path: str) -> bool:
        """True if a layer has a weight of two axes, so that its bias counts other features than it takes."""
        return any(layer_of(name) == path and len(shape_of(value)) > 1 for name, value in self._own.items())


# tensors of recurrent layers that count states, or outputs of the layer below; one of a spectral norm's two vectors
_NO_INPUTS = re.compile(r"weight_(hh|hr|ih_l[1-9]\d*)|(.*\.|weight)_u$")


def _may_count_inputs(full: str) -> bool:
    """False for a tensor of a layer none of whose axes counts what the layer takes, though it may have as many."""
    return not _NO_INPUTS.match(full[len(layer_of(full)) :].lstrip("."))


def _checked(argument: str, name: object, shape: object) -> Shape:
    fits = isinstance(shape, (tuple, list)) and len(shape) > 1 and all(isinstance(n, int) and n > 0 for n in shape)
    if not (isinstance(name, str) and fits):
        raise TypeError(
            f"load_state_dict: {argument}={{{name!r}: {shape!r}}} is not the name of a layer and the shape (C, H, W) "
            "of a map, as {'fc1': (16, 5, 5)}"
        )
    return tuple(shape)  # type: ignore[arg-type]
