"""Search for layers that take or make flattened maps, by the graph of one forward."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from alpha.autograd.grad_mode import enable_grad
from alpha.core.tensor import Tensor
from alpha.module.flattened_layers import KnownMaps, Shape, features_of, may_be_flattened, remember

if TYPE_CHECKING:
    from alpha.module.module import Module


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
            and features_of(vars(module)) == x.shape[-1]
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
        if module._filters or features_of(vars(module)):
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
