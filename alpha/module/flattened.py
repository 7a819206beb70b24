"""Features of flattened maps: which layers count them, and how PyTorch's order of them becomes Alpha's, and back.

PyTorch flattens a map (C, H, W) channel by channel, and Alpha a map (H, W, C) pixel by pixel. So the columns of a
Linear layer behind a Flatten, the rows of one before an Unflatten, and a batch norm between them have another order,
which no shape tells. It is known of a layer

- that stands behind a Flatten, or before an Unflatten, in a Sequential whose other layers keep the order of features;
- that was named once, by `flattened=` of `load_state_dict`, by `remember`, or by `alpha.nn.utils.find_flattened`.

Of other layers `may_be_flattened` tells which may be meant, for a warning.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from alpha.autograd.grad_mode import enable_grad
from alpha.core.tensor import Tensor

if TYPE_CHECKING:
    from alpha.module.module import Module

Values = npt.NDArray[Any]
Shape = tuple[int, ...]
Names = Mapping[str, Sequence[int]]  # of layers or tensors: the map (C, H, W)


class KnownMaps(NamedTuple):
    """Layers that take or make flattened maps, by name, as two arguments of `load_state_dict` of the same names."""

    flattened: dict[str, Shape]
    unflattened: dict[str, Shape]


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
                form = _checked("unflattened" if makes else "flattened", name, shape)
                found = [full for full in own if full == name or full.rpartition(".")[0] == name]
                for full in found:
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
                remember(root, name, tuple(shape), bool(makes))
        if self.given:
            settled = self.settled(root) | {name.rpartition(".")[0] for names in self._known for name, _ in names}
            for name in may_be_flattened(root).keys() - settled:
                remember(root, name, ())

    def _in_order(self, full: str, value: Values, shape: Shape, makes: bool, back: bool = False) -> Values | None:
        """The value with its features in the other order; None if it has none of this map."""
        last = (*shape[1:], shape[0])
        if len(value.shape) == len(shape) and value.shape == (last if back else shape):
            return np.moveaxis(value, -1, 0) if back else np.moveaxis(value, 0, -1)
        order = np.moveaxis(np.arange(math.prod(shape)).reshape(shape), 0, -1).reshape(-1)
        is_weight = value.ndim > 1 or not self._has_matrix(full.rpartition(".")[0]) or makes
        axis = 0 if makes else value.ndim - 1
        if not is_weight or not value.ndim or value.shape[axis] != order.size:
            return None
        return np.take(value, np.argsort(order) if back else order, axis)

    def _has_matrix(self, path: str) -> bool:
        """True if a layer has a weight of two axes, so that its bias counts other features than it takes."""
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


# -- what is known -----------------------------------------------------------------------------------------------------


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
    """The layers of a Sequential that take or make a flattened map: name, whether it makes one, and (C, pixels)."""
    channels = features = 0  # of the map, and of the flattened map, that the next layer is given; 0 if not known
    makers: list[str] = []  # the last linear layer, and those behind it which keep the order
    made = 0  # features that it gives
    for path, layer in _steps(name, sequence):
        kind, parts = type(layer).__name__, vars(layer)
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
        elif kind == "Linear":
            count, gives = parts.get("in_features"), parts.get("out_features")
            if features and isinstance(count, int) and count > features and count % features == 0:
                yield path, False, (features, count // features)
            channels = features = 0
            makers, made = [path], gives if isinstance(gives, int) else 0
        elif isinstance(count := parts.get("num_features"), int):
            if features and count > features and count % features == 0:
                yield path, False, (features, count // features)
            if made == count:
                makers.append(path)
            elif made:
                made = 0
        elif kind in _CHANGING or (kind not in ("PReLU", "GroupNorm") and _has_weights(parts)):
            channels = features = made = 0


def _steps(name: str, sequence: Module) -> Iterator[tuple[str, Module]]:
    """The layers of a Sequential in order, and those of a Sequential within it."""
    for local, layer in sequence._named_parts():
        path = f"{name}.{local}" if name else local
        if type(layer).__name__ == "Sequential" and type(layer).__module__.startswith("alpha."):
            yield from _steps(path, layer)
        else:
            yield path, layer


def _has_weights(parts: Mapping[str, Any]) -> bool:
    return any(isinstance(value, Tensor) for value in parts.values()) or any(
        hasattr(value, "named_modules") for value in parts.values()
    )


# -- what one forward tells -------------------------------------------------------------------------------------------


def find_flattened(model: Module, *args: Any, **kwargs: Any) -> KnownMaps:
    """Find, by one forward, the layers that take or make flattened maps, and let them know it.

    `load_state_dict` and `state_dict(layout="NCHW")` turn the features of these layers afterwards. A map is found if
    it is flattened by `flatten`, `view`, `reshape` or a Flatten, and if what stands between it and the layer acts on
    each number for itself, as activations, dropouts and batch norms do.

    Args:
        model: a module; its mode, weights and gradients stay as they are, its running statistics too.
        args, kwargs: of its forward, such as a batch (N, H, W, C).

    Returns:
        The maps (C, H, W) by the names of the layers, as `flattened` and `unflattened` of `load_state_dict`.
    """
    names = {id(module): name for name, module in model.named_modules()}
    found = KnownMaps({}, {})
    made: dict[int, list[str]] = {}  # by the nodes of outputs of linear layers, and of those behind them
    ran: set[str] = set()
    kept: list[Any] = []  # outputs, whose nodes keep their addresses
    was_training = {id(module): module.training for module in model.modules()}
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]

    def before(module: Module, inputs: tuple[Any, ...]) -> None:
        x = next((part for part in inputs if isinstance(part, Tensor)), None)
        ran.add(names[id(module)])
        if x is None or (node := x._node) is None:
            return
        kept.append(x)
        if module._filters:
            found.unflattened.update(_makers_of(node, made))
        elif (
            x.ndim == 2
            and _features(vars(module)) == x.shape[-1]
            and (shape := _flattened_in(node, x.shape)) is not None
        ):
            found.flattened[names[id(module)]] = shape

    def after(module: Module, inputs: tuple[Any, ...], output: Any) -> None:
        if isinstance(output, Tensor) and output._node is not None and output.ndim == 2:
            kept.append(output)
            if isinstance(vars(module).get("out_features"), int):
                made[id(output._node)] = [names[id(module)]]
            elif isinstance(vars(module).get("num_features"), int) and inputs and isinstance(inputs[0], Tensor):
                source = id(inputs[0]._node)
                made[id(output._node)] = [*made.get(source, ()), names[id(module)]]

    handles = []
    for module in model.modules():
        if module._filters or _features(vars(module)):
            handles += [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    try:
        model.eval()
        for parameter in frozen:
            parameter.requires_grad = True
        with enable_grad():
            model(*map(_recorded, args), **{name: _recorded(value) for name, value in kwargs.items()})
    finally:
        for handle in handles:
            handle.remove()
        for parameter in frozen:
            parameter.requires_grad = False
        for module in model.modules():
            module.training = was_training[id(module)]
    for makes, maps in enumerate(found):
        for name, shape in maps.items():
            remember(model, name, shape, bool(makes))
    for name in may_be_flattened(model).keys() & ran - found.flattened.keys() - found.unflattened.keys():
        remember(model, name, ())
    return found


def _recorded(value: Any) -> Any:
    """An input that records what is computed of it, also if the model's weights are frozen."""
    if not isinstance(value, Tensor) or value.array.dtype.kind in "iub":
        return value
    copy = value.detach()
    copy.requires_grad = True
    return copy


def _inputs_of(node: Any) -> Iterator[tuple[Any, Shape]]:
    """The edges of a node with their shapes."""
    for edge in () if isinstance(node, Tensor) else node.edges:
        if isinstance(edge, Tensor):
            yield edge, edge.shape
        elif edge is not None and edge.form is not None:
            yield edge, edge.form[1]


def _flattened_in(node: Any, shape: Shape) -> Shape | None:
    """The map (C, H, W) that is flattened in the features of a node (N, F), or None."""
    for current, source, form in _back(node, shape):
        if current.name == "Reshape" and len(form) > 2 and form[0] == shape[0] and math.prod(form[1:]) == shape[-1]:
            is_map = math.prod(form[1:-1]) > 1 and form[-1] > 1 and _is_map(source, form)
            return (form[-1], *form[1:-1]) if is_map else None
    return None


# operators that change what a feature stands for
_MIXING = {"Linear", "Matmul", "Recurrent", "Permute", "Flip", "Roll", "Block", "SetBlock", "Band"}


def _back(node: Any, shape: Shape, of_maps: bool = False) -> Iterator[tuple[Any, Any, Shape]]:
    """The nodes from which a tensor comes through operators that act on each number: node, input, the input's shape.

    Args:
        of_maps: also through operators that act on each channel, as pools and interpolations.
    """

    def same(form: Shape) -> bool:
        return form == shape or (of_maps and len(form) == len(shape) and form[-1] == shape[-1])

    waiting, seen = [node], set()
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        for edge, form in _inputs_of(current):
            yield current, edge, form
        others = any(len(form) > 1 and not same(form) for _, form in _inputs_of(current))
        if others or "Conv" in current.name or current.name in _MIXING:
            continue
        waiting += [edge for edge, form in _inputs_of(current) if same(form) and not isinstance(edge, Tensor)]


def _is_map(source: Any, form: Shape) -> bool:
    """True if the last axis of what is flattened is channels: those of images, or of what a convolution has made."""
    waiting = [source]
    for _ in range(1000):
        if not waiting:
            return len(form) > 3
        node = waiting.pop()
        if isinstance(node, Tensor):
            continue
        if node.name in _MIXING:
            return False  # its axes are others than those of a map
        if "Conv" in node.name:
            return True
        waiting += [edge for edge, shape in _inputs_of(node) if len(shape) == len(form)]
    return len(form) > 3


def _makers_of(node: Any, made: Mapping[int, list[str]]) -> Iterator[tuple[str, Shape]]:
    """Layers whose features (N, F) became the map that a node gives, with (C, H, W)."""
    shape = node.form[1]
    for current, edge, form in _back(node, shape, of_maps=True):
        if current.name == "Reshape" and len(form) == 2 and form[0] == shape[0] and len(shape) > 2:
            nodes = [edge, *(part for _, part, f in _back(edge, form) if f == form)]
            for name in dict.fromkeys(name for part in nodes for name in made.get(id(part), ())):
                yield name, (shape[-1], *shape[1:-1])


# -- what may be ----------------------------------------------------------------------------------------------------


def may_be_flattened(root: Module) -> dict[str, tuple[str, int, int]]:
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
