"""Layers that count the features of a flattened map, found by what one forward records."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from alpha.autograd.function import Function
from alpha.autograd.grad_mode import enable_grad
from alpha.core.nested import tensors_in
from alpha.core.tensor import Tensor
from alpha.module.flattened_layers import (
    KnownMaps,
    Shape,
    features_of,
    layer_of,
    may_be_flattened,
    normed_features,
    remember,
)

if TYPE_CHECKING:
    from alpha.module.module import Module


def find_flattened(model: Module, *args: Any, **kwargs: Any) -> KnownMaps:
    """Find, by one forward, the layers that take or make flattened maps, and let them know it.

    `load_state_dict` and `state_dict(layout="NCHW")` turn the features of these layers afterwards. A map is found if
    it is flattened by `flatten`, `view`, `reshape` or a Flatten, and if what stands between it and the layer acts on
    each number for itself, as activations, dropouts and norms do. A warning names layers and parameters that count
    features of a map in another way, for example joined with others by `cat`, and layers that make a map which no
    convolution takes alone: these are not turned.

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
    reordered: set[str] = set()  # layers that take maps whose axes were permuted, and are not in PyTorch's order
    kept: list[Any] = []  # outputs, whose nodes keep their addresses
    was_training = {id(module): module.training for module in model.modules()}
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]

    def before(module: Module, inputs: tuple[Any, ...]) -> None:
        x = next((part for part in inputs if isinstance(part, Tensor)), None)
        if x is None:
            return
        if (node := x._node) is None:
            if x.requires_grad or x.array.dtype.kind in "iub":  # else nothing tells how it was computed
                ran.add(names[id(module)])
            return
        kept.append(x)
        ran.add(names[id(module)])
        parts = vars(module)
        if module._filters:
            found.unflattened.update(_makers_of(node, made))
        elif (
            x.ndim > 1
            and x.shape[-1] in (features_of(parts), normed_features(parts))
            and (shape := _flattened_in(node, x.shape)) is not None
        ):
            found.flattened[names[id(module)]] = shape
        elif x.ndim > 1 and _is_reordered(node, x.shape):
            reordered.add(names[id(module)])

    def after(module: Module, inputs: tuple[Any, ...], output: Any) -> None:
        if isinstance(output, Tensor) and output._node is not None and output.ndim == 2:
            kept.append(output)
            if isinstance(vars(module).get("out_features"), int):
                made[id(output._node)] = [names[id(module)]]
            elif normed_features(vars(module)) and inputs and isinstance(inputs[0], Tensor):
                source = id(inputs[0]._node)
                made[id(output._node)] = [*made.get(source, ()), names[id(module)]]

    handles = []
    for module in model.modules():
        handles += [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    try:
        model.eval()
        for parameter in frozen:
            parameter.requires_grad = True
        with enable_grad():
            result = model(*map(_recorded, args), **{name: _recorded(value) for name, value in kwargs.items()})
        unclear = _unclear(result, model, found.flattened)
        unturned = _made_in_no_known_way(result, model, found.unflattened)
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
    open_names = {layer_of(name) or name for name in [*unclear, *unturned]}
    settled = ran - found.flattened.keys() - found.unflattened.keys() - open_names - reordered
    for name in may_be_flattened(model).keys() & settled:
        remember(model, name, ())
    if unclear:
        facts = "; ".join(f"{name!r} with the map (C, H, W) = {shape}" for name, shape in unclear.items())
        text = (
            f"find_flattened: features of a flattened map are joined or mixed with others before a weight counts them: "
            f"{facts}. PyTorch counts them in another order, and its weights are not turned there, so outputs would be "
            "wrong; write x.movedim(-1, 1) before the flatten, which gives PyTorch's order, and load them as they are"
        )
        warnings.warn(text, stacklevel=2)
    if unturned:
        facts = ", ".join(f"{shape} of {name!r}" for name, shape in unturned.items())
        text = (
            f"find_flattened: a map (C, H, W) is made of what a layer gives: {facts}. If PyTorch's program has "
            "(N, C, H, W) there, its weights are in another order, and not turned; write x.view(N, C, H, W)"
            ".movedim(1, -1) for x.view(N, H, W, C), and load them as they are"
        )
        warnings.warn(text, stacklevel=2)
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
    """The map (C, H, W) that is flattened in the last axis of what a node gives, or None."""
    found = _flattening(node, shape)
    return None if found is None else _merged(*found)


def _flattening(node: Any, shape: Shape) -> tuple[Any, Shape, Shape] | None:
    """The reshape that makes the features of a node: what it is given, the shape of this, and of its result."""
    waiting, seen = [(node, shape)], set()
    while waiting:
        current, shape = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if current.name == "Reshape":
            ((source, form),) = _inputs_of(current)
            if form[-1:] == shape[-1:]:  # only the axes before the features are others
                waiting += [] if isinstance(source, Tensor) else [(source, form)]
                continue
            return source, form, shape
        waiting += [(edge, shape) for edge in _same(current, shape)]
    return None


def _is_reordered(node: Any, shape: Shape) -> bool:
    """True if a map is flattened whose axes were permuted, but not its channels moved to the first place."""
    found = _flattening(node, shape)
    if found is None:
        return False
    waiting, seen = [found[:2]], set()
    while waiting:
        current, form = waiting.pop()
        if isinstance(current, Tensor) or id(current) in seen:
            continue
        seen.add(id(current))
        if current.name == "Permute":
            _, *axes = zip(form, current.pieces[0].source.strides, strict=True)
            strides = [stride for n, stride in axes if n > 1]
            return strides != [1, *sorted(strides, reverse=True)[:-1]]
        if current.name == "Reshape":
            waiting += _inputs_of(current)
        waiting += [(edge, form) for edge in _same(current, form)]
    return False


# operators whose axes are others than those of a map that they are given
_OTHER_AXES = {"Linear", "Matmul", "Recurrent", "Permute"}
# operators that change what a feature stands for
_MIXING = {*_OTHER_AXES, "Flip", "Roll", "Block", "SetBlock", "Band"}


def _same(node: Any, shape: Shape, of_maps: bool = False) -> list[Any]:
    """The nodes of this shape from which a node comes, if it acts on each number for itself.

    Args:
        of_maps: also through operators that act on each channel, as pools and interpolations.
    """

    def same(form: Shape) -> bool:
        return form == shape or (of_maps and len(form) == len(shape) and form[-1] == shape[-1])

    def one_for_all(form: Shape) -> bool:  # as a norm by which features are divided
        return len(form) < 2 or (len(form) == len(shape) and form[-1] == 1)

    inputs = list(_inputs_of(node))
    others = any(not same(form) and not one_for_all(form) for _, form in inputs)
    if others or "Conv" in node.name or node.name in _MIXING:
        return []
    return [edge for edge, form in inputs if same(form) and not isinstance(edge, Tensor)]


def _back(node: Any, shape: Shape, of_maps: bool = False) -> Iterator[tuple[Any, Any, Shape]]:
    """The nodes from which a tensor comes through operators that keep features: node, input, the input's shape."""
    waiting, seen = [node], set()
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        for edge, form in _inputs_of(current):
            yield current, edge, form
        waiting += _same(current, shape, of_maps)


def _merged(source: Any, form: Shape, shape: Shape) -> Shape | None:
    """The map (C, H, W) whose axes a reshape from one shape to another makes the last one; None if it does not."""
    for k in range(len(form) - 2, 0, -1):
        if math.prod(form[k:]) == shape[-1]:
            is_map = math.prod(form[k:-1]) > 1 and form[-1] > 1 and _is_map(source, form, k)
            return (form[-1], *form[k:-1]) if is_map else None
    return None


def _is_map(source: Any, form: Shape, k: int) -> bool:
    """True if the last of the axes from k on is channels: those of images, or of what a convolution has made."""
    waiting, seen = [(source, form)], set()
    is_image = len(form) > 3 and k == 1
    while waiting:
        node, shape = waiting.pop()
        if isinstance(node, Tensor) or id(node) in seen:
            continue
        seen.add(id(node))
        if node.name in _OTHER_AXES:
            return False
        if "Conv" in node.name:
            return True
        ends = shape[k - len(form) :]
        waiting += [
            (edge, before)
            for edge, before in _inputs_of(node)
            if len(before) == len(shape) or (len(ends) > 2 and before[-len(ends) :] == ends)
        ]
    return is_image


def _makers_of(node: Any, made: Mapping[int, list[str]]) -> Iterator[tuple[str, Shape]]:
    """Layers whose features (N, F) became the map that a node gives, with (C, H, W)."""
    shape = node.form[1]
    for current, edge, form in _back(node, shape, of_maps=True):
        if current.name == "Reshape" and len(form) == 2 and form[0] == shape[0] and len(shape) > 2:
            nodes = [edge, *(part for _, part, f in _back(edge, form) if f == form)]
            for name in dict.fromkeys(name for part in nodes for name in made.get(id(part), ())):
                yield name, (shape[-1], *shape[1:-1])


# -- what is flattened, and not turned ---------------------------------------------------------------------------------


def _unclear(result: Any, model: Module, turned: Mapping[str, Shape]) -> dict[str, Shape]:
    """The parameters that count features of a flattened map, without being those of a layer that is turned.

    A map's features are followed from where it is flattened to the first weights that multiply them.

    Args:
        result: of the model's forward.
        turned: layers that are known to take a flattened map.

    Returns:
        The map (C, H, W) by the name of a parameter's layer, or of the parameter itself if it is the model's own.
    """
    named = {id(value): name for name, value in model.named_parameters() if math.prod(value.shape) > 1}
    weights: dict[int, list[str]] = {}  # the parameters from which alone a node is computed
    maps: dict[int, Shape] = {}  # the map whose features a node has on its last axis
    makers: dict[int, list[str]] = {}  # the parameters whose outputs are the features of a node
    found: dict[str, Shape] = {}
    for node in _nodes_of(result):
        inputs, shape = list(_inputs_of(node)), node.form[1]
        own = [[named[id(edge)]] if id(edge) in named else weights.get(id(edge), []) for edge, _ in inputs]
        names = [name for part in own for name in part]
        if inputs and all(own):
            weights[id(node)] = names
            continue
        flat = next((maps[id(edge)] for edge, _ in inputs if id(edge) in maps), None)
        alike = [edge for (edge, form), part in zip(inputs, own, strict=True) if form == shape and not part]
        if node.name == "Reshape":
            ((source, form),) = inputs
            flat = _merged(source, form, shape) or (None if shape[-1:] < form[-1:] else flat)
        if "Conv" in node.name or node.name in ("Linear", "Matmul", "Recurrent"):
            makers[id(node)] = names
        else:
            makers[id(node)] = [name for edge in alike for name in makers.get(id(edge), ())]
        if flat is None:
            continue
        if any(id(edge) in maps for edge in alike):  # features that others made meet those of the map
            others = [name for edge in alike if id(edge) not in maps for name in makers.get(id(edge), ())]
            found |= {layer_of(name) or name: flat for name in others}
        found |= {layer_of(name) or name: flat for name in names if layer_of(name) not in turned}
        is_lost = node.name != "Reshape" and (shape[-1:] == (1,) or all(len(shape) < len(form) for _, form in inputs))
        if not is_lost and ("Conv" not in node.name and node.name not in ("Linear", "Matmul", "Recurrent")):
            maps[id(node)] = flat
    return found


def _made_in_no_known_way(result: Any, model: Module, turned: Mapping[str, Shape]) -> dict[str, Shape]:
    """The parameters whose features (N, F) become a map that is given back, or that a convolution takes with others.

    Args:
        result: of the model's forward.
        turned: layers that are known to make a map.

    Returns:
        The map (C, H, W) by the name of a parameter's layer, or of the parameter itself if it is the model's own.
    """
    named = {id(value): name for name, value in model.named_parameters()}
    makers: dict[int, set[str]] = {}  # the layers whose outputs are the features of a node
    maps: dict[int, dict[str, Shape]] = {}  # the maps that a node's values come from, by the layers that made them
    found: dict[str, Shape] = {}
    given = {id(tensor._node) for tensor in tensors_in(result) if tensor._node is not None}
    for node in _nodes_of(result):
        inputs, shape = list(_inputs_of(node)), node.form[1]
        held = {name: map_ for edge, _ in inputs for name, map_ in maps.get(id(edge), {}).items()}
        if "Conv" in node.name or node.name in _OTHER_AXES:
            makers[id(node)] = {layer_of(named[id(edge)]) or named[id(edge)] for edge, _ in inputs if id(edge) in named}
            found |= held if "Conv" in node.name else {}
            continue
        makers[id(node)] = {name for edge, form in inputs if form == shape for name in makers.get(id(edge), ())}
        is_split = node.name == "Reshape" and len(inputs[0][1]) == 2 and inputs[0][1][0] == shape[0] and len(shape) > 3
        if is_split and math.prod(shape[1:-1]) > 1 and shape[-1] > 1:
            names = makers.get(id(inputs[0][0]), set()) - turned.keys()
            held = dict.fromkeys(sorted(names), (shape[-1], *shape[1:-1]))
        if held and len(shape) > 3:
            maps[id(node)] = held
            found |= held if id(node) in given else {}
    return found


def _nodes_of(result: Any) -> list[Any]:
    """All nodes behind what a forward gives, in the order in which they were recorded."""
    waiting = [tensor._node for tensor in tensors_in(result) if tensor._node is not None]
    nodes: dict[int, Any] = {}
    while waiting:
        node = waiting.pop()
        if id(node) not in nodes:
            nodes[id(node)] = node
            waiting += [edge for edge in node.edges if isinstance(edge, Function)]
    return sorted(nodes.values(), key=lambda node: node.id)
