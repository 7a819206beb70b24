"""Weights of PyTorch that count the features of a flattened map, in the order of Alpha's maps.

PyTorch flattens a map (C, H, W) channel by channel, and Alpha a map (H, W, C) pixel by pixel. So the columns of a
Linear layer behind a Flatten, the rows of one before an Unflatten, and a batch norm between them have another order.
No shape tells it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from alpha.core.tensor import Tensor
from alpha.module.module_tree import ModuleTree

Values = npt.NDArray[Any]
Shape = tuple[int, ...]
Names = Mapping[str, Sequence[int]]  # of layers or tensors: the map (C, H, W)


class FlattenedMaps:
    """Which layers take flattened maps, and which ones make them.

    Args:
        flattened, unflattened: see `Module.load_state_dict`.
        own: the tensors of the module by name.
    """

    def __init__(self, flattened: Names | None, unflattened: Names | None, own: Mapping[str, Tensor]) -> None:
        self.given = flattened is not None or unflattened is not None
        self._own = own
        self._axes: dict[str, list[tuple[str, Shape, bool]]] = {}  # of each tensor
        self._unknown: list[str] = []
        for names, makes in ((flattened or {}, False), (unflattened or {}, True)):
            for name, shape in names.items():
                form = _checked("unflattened" if makes else "flattened", name, shape)
                found = [full for full in own if full == name or full.rpartition(".")[0] == name]
                for full in found:
                    self._axes.setdefault(full, []).append((name, form, makes))
                if not found:
                    self._unknown.append(name)

    def turn(self, values: Mapping[str, Values]) -> tuple[dict[str, Values], list[str]]:
        """Those of PyTorch's values that count features of a map, in Alpha's order, and a line for each bad name."""
        turned: dict[str, Values] = {}
        problems = [f"flattened   {name}: the model has no layer and no tensor of this name" for name in self._unknown]
        if not values and self._axes:
            problems.append("flattened   flattened= is for weights of PyTorch, whose layout is NCHW; there are none")
        missed: dict[str, str] = {}
        used: set[str] = set()
        for full, value in values.items():
            for name, shape, makes in self._axes.get(full, ()):
                before = turned.get(full, value)
                after = self._in_order(full, before, shape, makes)
                if after is None:
                    missed[name] = f"{full} has {value.shape}, and none of them is {' x '.join(map(str, shape))}"
                else:
                    turned[full] = after
                    used.add(name)
        problems += [f"flattened   {name}: {fact}" for name, fact in missed.items() if name not in used]
        return turned, problems

    def _in_order(self, full: str, value: Values, shape: Shape, makes: bool) -> Values | None:
        if value.shape == shape:
            return np.moveaxis(value, 0, -1)
        order = np.moveaxis(np.arange(np.prod(shape)).reshape(shape), 0, -1).reshape(-1)
        is_weight = value.ndim > 1 or not self._has_matrix(full.rpartition(".")[0]) or makes
        axis = 0 if makes else value.ndim - 1
        if not is_weight or not value.ndim or value.shape[axis] != order.size:
            return None
        return np.take(value, order, axis)

    def _has_matrix(self, path: str) -> bool:
        """Whether a layer has a weight of two axes, so that its bias counts other features than it takes."""
        return any(name.rpartition(".")[0] == path and len(_shape(value)) > 1 for name, value in self._own.items())


def _checked(argument: str, name: object, shape: object) -> Shape:
    fits = isinstance(shape, (tuple, list)) and len(shape) > 1 and all(isinstance(n, int) and n > 0 for n in shape)
    if not (isinstance(name, str) and fits):
        raise TypeError(
            f"load_state_dict: {argument}={{{name!r}: {shape!r}}} is not the name of a layer and the shape (C, H, W) "
            "of a map, as {'fc1': (16, 5, 5)}"
        )
    return tuple(shape)  # type: ignore[arg-type]


def _shape(value: Tensor) -> Shape:
    try:
        return value.shape
    except Exception:  # a lazy layer before its first forward
        return ()


def may_be_flattened(root: ModuleTree) -> dict[str, tuple[str, int, int]]:
    """Layers that may take or make a flattened map, by the order in which the module has its parts.

    A layer takes one if the layer with weights before it has maps of C channels, it takes a multiple of C features, and
    no pool to one pixel lies between them. It makes one if a convolution follows that takes C channels.

    Returns:
        By the name of a layer: the argument of `load_state_dict` that tells it, the channels, and the pixels of a map.
    """
    found: dict[str, tuple[str, int, int]] = {}
    channels, features, makers = 0, 0, [""]  # of the last map; of the last layers behind which a convolution may follow
    for name, module in root.named_modules():
        parts = vars(module)
        if module._filters:
            takes = parts.get("in_channels")
            if isinstance(takes, int) and takes and features >= 4 * takes and features % takes == 0:
                found.update(
                    {maker: ("unflattened", takes, features // takes) for maker in makers if maker not in found}
                )
            channels, features = parts.get("out_channels") or 0, 0
        elif parts.get("output_size") in (1, (1,), (1, 1), (1, 1, 1), [1, 1]):
            channels = 0
        elif isinstance(normed := parts.get("num_features"), int) and not type(module).__name__.endswith("1d"):
            channels = normed
        elif taken := _features(parts):
            if channels and taken > channels and taken % channels == 0:
                found[name] = ("flattened", channels, taken // channels)
            if normed is None:
                channels, features, makers = 0, parts.get("out_features") or 0, [name]
            elif normed == features:
                makers.append(name)
    return found


def _features(parts: Mapping[str, Any]) -> int:
    """The features that a layer takes which is no convolution; 0 if it takes maps or anything else."""
    known = [parts.get(name) for name in ("in_features", "num_features", "input_size")]
    has_weights = any(isinstance(value, Tensor) for value in parts.values())
    return next((count for count in known if isinstance(count, int)), 0) if has_weights else 0


def advice_of_flattened(root: ModuleTree, names: set[str]) -> str:
    """What to give to `load_state_dict` for layers that may take or make flattened maps; empty if there are none.

    Args:
        names: of the tensors that get PyTorch's values.
    """
    layers = {name.rpartition(".")[0] for name in names}
    found = {name: fact for name, fact in may_be_flattened(root).items() if name in layers}
    if not found:
        return ""
    facts, examples = [], []
    for argument in ("flattened", "unflattened"):
        maps = {name: (C, pixels) for name, (kind, C, pixels) in found.items() if kind == argument}
        if maps:
            verb = "take" if argument == "flattened" else "make"
            facts += [
                f"{name!r} may {verb} a flattened map of {C} channels and {n} pixels" for name, (C, n) in maps.items()
            ]
            inside = ", ".join(f"{name!r}: ({C}, {_sides(n)})" for name, (C, n) in maps.items())
            examples.append(f"{argument}={{{inside}}}")
    return (
        f"load_state_dict: {'; '.join(facts)}, whose features PyTorch counts in another order than Alpha, so outputs "
        f"would be wrong; give {', '.join(examples)} with the right (C, H, W), or flattened={{}} if there is none"
    )


def _sides(pixels: int) -> str:
    side = math.isqrt(pixels)
    return f"{side}, {side}" if side * side == pixels else f"H, W of {pixels} pixels"
