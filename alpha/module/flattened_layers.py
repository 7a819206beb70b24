"""Layers that take or make flattened maps: what they know of themselves, what their place tells, and what may be.

It is known of a layer

- that stands behind a Flatten, or before an Unflatten, in a Sequential whose other layers keep the order of features;
- that was named once, by `flattened=` of `load_state_dict`, by `remember`, or by `alpha.nn.utils.find_flattened`.

Of other layers `may_be_flattened` tells which may be meant, for a warning.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from alpha.core.tensor import Tensor

if TYPE_CHECKING:
    from alpha.module.module import Module

Shape = tuple[int, ...]


class KnownMaps(NamedTuple):
    """Layers that take or make flattened maps, by name, as two arguments of `load_state_dict` of the same names."""

    flattened: dict[str, Shape]
    unflattened: dict[str, Shape]


def remember(root: Module, name: str, shape: Shape, makes: bool = False) -> None:
    """Note in a layer that it takes the features of a flattened map, or makes those of one.

    Args:
        root: a module.
        name: of the layer in it, or of one of its tensors.
        shape: (C, H, W) of the map; () if the order of its features is PyTorch's.
        makes: whether a map is made of the features that the layer gives.
    """
    modules = dict(root.named_modules(remove_duplicate=False))
    path, local = (name, "") if name in modules else (name.rpartition(".")[0], name.rpartition(".")[2])
    if path in modules:
        layer = modules[path]
        vars(layer)["_maps"] = {**layer._maps, (local, makes): shape}


def known_maps(root: Module) -> KnownMaps:
    """Maps of which the layers know themselves, or which their place in a Sequential tells."""
    known = KnownMaps({}, {})
    for name, module in root.named_modules(remove_duplicate=False):
        if type(module).__name__ == "Sequential" and type(module).__module__.startswith("alpha."):
            for path, makes, shape in _in_sequence(name, module):
                known[makes].setdefault(path, shape)
    for name, module in root.named_modules(remove_duplicate=False):
        for (local, makes), shape in module._maps.items():
            if not shape:
                known[makes].pop(name, None)
                continue
            known[makes][".".join(filter(None, (name, local)))] = shape
    return known


# layers without weights that change what a feature stands for, or how many there are
_CHANGING = {"Unflatten", "PixelShuffle", "PixelUnshuffle", "Fold", "Unfold", "GLU", "ChannelShuffle"}


def _in_sequence(name: str, sequence: Module) -> Iterator[tuple[str, bool, Shape]]:
    """The layers of a Sequential that take or make a flattened map: name, whether it makes one, and (C, pixels).

    The pixels are 0 before a lazy layer knows how many there are.
    """
    channels = features = 0  # of the map, and of the flattened map, that the next layer is given; 0 if not known
    makers: list[str] = []  # the last linear layer, and those behind it which keep the order
    made = 0  # features that it gives
    for path, layer in _steps(name, sequence):
        kind, parts = _kind(layer), vars(layer)
        ours = type(layer).__module__.startswith("alpha.")
        if not ours:
            channels = features = made = 0
        elif layer._filters:
            out = parts.get("out_channels")
            channels, features, made = out if isinstance(out, int) else 0, 0, 0
        elif kind == "Flatten":
            features = channels if (parts.get("start_dim"), parts.get("end_dim")) == (1, -1) else 0
            channels = made = 0
        elif kind == "Unflatten":
            size = parts.get("unflattened_size")
            if made and parts.get("dim") == 1 and isinstance(size, tuple) and math.prod(size) == made and len(size) > 1:
                for maker in makers:
                    yield maker, True, (size[-1], *size[:-1])
            channels, features, made = 0, 0, 0
        elif kind in ("Linear", "LazyLinear"):
            count, gives = parts.get("in_features"), parts.get("out_features")
            if features and isinstance(count, int) and count > features and count % features == 0:
                yield path, False, (features, count // features)
            elif features and kind == "LazyLinear" and not count:
                yield path, False, (features, 0)
            channels = features = 0
            makers, made = [path], gives if isinstance(gives, int) else 0
        elif count := normed_features(parts):
            if features and count > features and count % features == 0:
                yield path, False, (features, count // features)
            if made == count:
                makers.append(path)
            elif made:
                made = 0
        elif kind in _CHANGING or (_has_weights(parts) and (kind != "GroupNorm" or features) and kind != "PReLU"):
            channels = features = made = 0


def _steps(name: str, sequence: Module) -> Iterator[tuple[str, Module]]:
    """The layers of a Sequential in order, and those of a Sequential within it."""
    for local, layer in sequence._named_parts():
        path = f"{name}.{local}" if name else local
        if type(layer).__name__ == "Sequential" and type(layer).__module__.startswith("alpha."):
            yield from _steps(path, layer)
        else:
            yield path, layer


def _kind(layer: Module) -> str:
    """The name of a layer's class, before its weights were parametrized."""
    name = type(layer).__name__
    return name.removeprefix("Parametrized") if "parametrizations" in vars(layer) else name


def _has_weights(parts: Mapping[str, Any]) -> bool:
    return any(isinstance(value, Tensor) for value in parts.values()) or any(
        hasattr(value, "named_modules") for value in parts.values()
    )


def may_be_flattened(root: Module) -> dict[str, tuple[str, int, int]]:
    """Layers that may take or make a flattened map, by the order in which the module has its parts.

    A layer takes one if the layer with weights before it has maps of C channels, it takes a multiple of C features, and
    no pool to one pixel lies between them; or if the last maps have C channels, it takes 4 C, 8 C, .. features or so,
    and no layers before it give as many; or if there are no maps before it, but a Flatten, and it takes the numbers of
    a square image of three colours. It makes a map if a convolution follows that takes C channels.

    Returns:
        By the name of a layer: the argument of `load_state_dict` that tells it, the channels, and the pixels of a map.
    """
    found: dict[str, tuple[str, int, int]] = {}
    channels, features, makers = 0, 0, [""]  # of the last map; of the last layers behind which a convolution may follow
    maps, given = 0, {0}  # channels of the last map, also behind linear layers; features that layers give
    is_image = False  # whether what a layer takes may be an image, as there was a Flatten, and nothing else
    for name, module in root.named_modules():
        parts = vars(module)
        if "parametrizations" in name.split("."):
            continue
        if module._filters:
            takes = parts.get("in_channels")
            if isinstance(takes, int) and takes and features >= 4 * takes and features % takes == 0:
                found.update(
                    {maker: ("unflattened", takes, features // takes) for maker in makers if maker not in found}
                )
            channels = maps = parts.get("out_channels") or 0
            features = 0
        elif parts.get("output_size") in (1, (1,), (1, 1), (1, 1, 1), [1, 1]):
            channels = maps = 0
        elif isinstance(normed := parts.get("num_features"), int) and not type(module).__name__.endswith("1d"):
            channels = maps = normed
        elif taken := features_of(parts):
            if channels and taken > channels and taken % channels == 0:
                found[name] = ("flattened", channels, taken // channels)
            elif not channels and maps and taken >= 4 * maps and taken % maps == 0 and not _explained(taken, given):
                found[name] = ("flattened", maps, taken // maps)
            elif is_image and taken % 3 == 0 and math.isqrt(taken // 3) ** 2 == taken // 3 > 3:
                found[name] = ("flattened", 3, taken // 3)
            is_image = False
            if normed is None:
                channels, features, makers = 0, parts.get("out_features") or 0, [name]
            elif normed == features:
                makers.append(name)
        elif type(module).__name__ == "Flatten":
            is_image = not maps and given == {0}
        given |= _given(parts)
    return found


def _given(parts: Mapping[str, Any]) -> set[int]:
    """Numbers of features that a layer may give which is no convolution."""
    known = [parts.get(name) for name in ("out_features", "embedding_dim", "embed_dim", "hidden_size")]
    return {count for count in known if isinstance(count, int)}


def _explained(taken: int, given: set[int]) -> bool:
    """True if layers give so many features: one or two of them, or one of which a half or a third is taken."""
    return any(taken - count in given or (count and count % taken == 0) for count in given)


def features_of(parts: Mapping[str, Any]) -> int:
    """The features that a layer takes which is no convolution; 0 if it takes maps or anything else."""
    known = [parts.get(name) for name in ("in_features", "num_features", "input_size")]
    has_weights = "parametrizations" in parts or any(isinstance(value, Tensor) for value in parts.values())
    count = next((count for count in known if isinstance(count, int)), None) if has_weights else 0
    if count == 0 and len(shape := shape_of(parts.get("weight"))) == 2:
        return shape[1]  # of a lazy layer that has its weights, and has not run yet
    return count or 0


def normed_features(parts: Mapping[str, Any]) -> int:
    """The features each of which a norm or an activation has a weight of its own for; 0 if it is neither."""
    shape, count = parts.get("normalized_shape"), parts.get("num_parameters")
    if isinstance(shape, tuple) and len(shape) == 1:
        return int(shape[0])
    known = parts.get("num_features")
    return known if isinstance(known, int) else count if isinstance(count, int) and count > 1 else 0


def advice_of_flattened(root: Module, names: set[str], known: set[str], method: str) -> str:
    """Advice on the arguments of a method for layers that may take or make flattened maps; empty without any.

    Args:
        names: of the tensors that get PyTorch's values, or become them.
        known: layers that are turned.
        method: the method.
    """
    layers = {name.rpartition(".")[0] for name in names} - {name.removesuffix(".weight") for name in known}
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
        f"{method}: {'; '.join(facts)}, whose features PyTorch counts in another order than Alpha, so outputs "
        f"would be wrong; give {', '.join(examples)} with the right (C, H, W), or flattened={{}} if there is none, or "
        "call alpha.nn.utils.find_flattened(model, x) before, which finds them by one forward"
    )


def _sides(pixels: int) -> str:
    side = math.isqrt(pixels)
    return f"{side}, {side}" if side * side == pixels else f"H, W of {pixels} pixels"


def layer_of(full: str) -> str:
    """The name of the layer of a tensor, also of what a parametrization computes a weight from."""
    return full.partition(".parametrizations.")[0] if ".parametrizations." in full else full.rpartition(".")[0]


def shape_of(value: Tensor | None) -> Shape:
    try:
        return () if value is None else value.shape
    except Exception:  # a lazy layer before its first forward
        return ()
