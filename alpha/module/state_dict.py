"""State dicts: weights by name, as `Module.state_dict` returns and `Module.load_state_dict` reads them.

Reading finds which value goes where and in which layout, and says what does not fit. PyTorch flattens a map (C, H, W)
channel by channel, and Alpha a map (H, W, C) pixel by pixel. So the columns of a Linear layer behind a Flatten, the
rows of one before an Unflatten, and a batch norm between them have another order, which no shape tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from alpha.core.host_values import host_array, is_torch
from alpha.core.numerics import is_floating
from alpha.core.origins import LAYOUTS, layout_of
from alpha.core.tensor import Tensor
from alpha.errors import CheckpointError, type_name
from alpha.module.parameter import Buffer, Uninitialized

if TYPE_CHECKING:
    from alpha.module.module import Module

__all__ = ["StateDict"]


class StateDict(dict[str, Any]):
    """Tensors, or arrays of the host, by dotted name, and the layout of the filters among them.

    Attributes:
        layout: "NHWC" (filters (OC, FH, FW, IC), as Alpha has them), "NCHW" (filters (OC, IC, FH, FW), as PyTorch has
            them), or None if it is not known. It is that of the values with which the dict was made; one that is put
            in later has the layout that it would have in any other dict, as `Module.load_state_dict` says.
    """

    def __init__(self, values: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), layout: str | None = None) -> None:
        super().__init__(values)
        self.layout = layout
        self._first = dict(self)

    def layout_of(self, name: str) -> str | None:
        """The layout of the dict, if the value of this name is the one with which it was made; else None."""
        return self.layout if self._first.get(name, ...) is self[name] else None

    def copy(self) -> StateDict:
        result = StateDict(self, self.layout)
        result._first = self._first.copy()
        return result

    def numpy(self) -> StateDict:
        """Copies of the values on the host as arrays, which later steps do not change; a shared tensor is one array."""
        arrays = {id(value): value.numpy() for value in self.values() if _has_values(value)}
        return self._with({name: arrays.get(id(value), value) for name, value in self.items()})

    def filter(self, keep: Callable[[str], bool]) -> StateDict:
        """The entries for whose name `keep(name)` is true, in the same layout; a plain dict would not know it."""
        return self._with({name: value for name, value in self.items() if keep(name)})

    def _with(self, values: Mapping[str, Any]) -> StateDict:
        """Other values in place of some, or all, of its own."""
        result = StateDict(values, self.layout)
        known = [name for name in values if layout_in(self, name) == self.layout]
        result._first = {name: values[name] for name in known}
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (dict(self), self.layout, [name for name in self if self.layout_of(name)])


def _restored(values: dict[str, Any], layout: str | None, first: list[str]) -> StateDict:
    result = StateDict(values, layout)
    result._first = {name: values[name] for name in first}
    return result


def _has_values(value: Any) -> bool:
    return isinstance(value, Tensor) and not isinstance(value, Uninitialized)


def layout_in(state: Mapping[str, Any], name: str) -> str | None:
    """The layout of a value, which the dict knows or the value itself; None if neither does."""
    return (isinstance(state, StateDict) and state.layout_of(name)) or _own_layout(state[name])


def common_layout(state: Mapping[str, Any]) -> str | None:
    """The layout of a state dict, if all of its values have it; else None."""
    layout = state.layout if isinstance(state, StateDict) else None
    return layout if all(layout_in(state, name) == layout for name in state) else None


def _own_layout(value: Any) -> str | None:
    return layout_of(value) if isinstance(value, Tensor) else None


Values = npt.NDArray[Any]
Shape = tuple[int, ...]
Form = tuple[int | None, ...]  # a shape, with None for a length that is not known yet


class IncompatibleKeys(NamedTuple):
    """Result of `Module.load_state_dict`: names that the weights lack, and names that the module does not have."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Reading(NamedTuple):
    """Values that a module's tensors take, in the module's layout, by name, and what does not fit, a line each."""

    values: dict[str, Values]
    problems: list[str]
    keys: IncompatibleKeys


class Target(NamedTuple):
    """Requirements of a tensor of a module on the values that are loaded into it.

    Attributes:
        form: its shape; None if nothing is known of it.
        is_filter: whether it is the filters of a convolution, which are read in a layout.
        is_buffer: whether it is a Buffer.
    """

    form: Form | None
    is_filter: bool
    is_buffer: bool

    def takes(self, shape: Shape) -> bool:
        return self.form is None or (
            len(shape) == len(self.form) and all(n in (None, m) for n, m in zip(self.form, shape, strict=True))
        )

    def takes_both(self, value: Values) -> bool:
        """True if the shape fits as it is and with the second axis last, and these are not the same."""
        return self.takes(value.shape) and self.takes(_channels_last(value).shape) and max(value.shape[1:]) > 1

    def has_channels(self, value: Values) -> bool:
        """True if the second axis of PyTorch's value is the channels, which Alpha has last.

        That is so for a filter, and for any other value of four axes, which may be the filter of a layer of one's own;
        but not for one that fits as it is and would not fit otherwise, such as a mask (1, 1, T, T).
        """
        if value.ndim < 3 or (self.form is not None and len(self.form) != value.ndim):
            return False
        only_as_it_is = self.takes(value.shape) and not self.takes(_channels_last(value).shape)
        return self.is_filter or (value.ndim == 4 and not only_as_it_is)

    def __str__(self) -> str:
        if self.form is None or None not in self.form:
            return "of any shape" if self.form is None else str(self.form)
        return str(tuple("any" if n is None else n for n in self.form)).replace("'", "")


def targets_of(root: Module, own: Mapping[str, Tensor]) -> dict[str, Target]:
    """Requirements of each tensor of a module on its values, by its dotted name in `own`."""
    modules = dict(root.named_modules(remove_duplicate=False))
    found = {}
    for name, value in own.items():
        path, _, last = name.rpartition(".")
        module = modules[path]
        form = module._form_of(last) if isinstance(value, Uninitialized) else value.shape
        found[name] = Target(form, last in module._filters, isinstance(value, Buffer))
    return found


def read_state(
    own: Mapping[str, Tensor],
    targets: Mapping[str, Target],
    state: Mapping[str, Any],
    layout: str | None,
    strict: bool,
    maps: FlattenedMaps,
) -> Reading:
    """Read the weights of a module.

    Args:
        own: the module's tensors by name; a shared one has several names.
        targets: what each of them takes; the filters of convolutions are read in a layout, as all tensors of four axes.
        state, layout, strict: see `Module.load_state_dict`.
        maps: which weights of PyTorch count the features of a flattened map.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"load_state_dict: the state is a {type_name(state)}, not a dict of arrays or tensors by name")
    if layout is not None and layout not in LAYOUTS:
        raise ValueError(f"load_state_dict: layout={layout!r} is not one of 'NHWC', 'NCHW'")
    known = state.layout if isinstance(state, StateDict) else None
    if None not in (layout, known) and layout != known:
        raise CheckpointError(
            f"load_state_dict: layout={layout!r} was given, but the weights have the layout {known!r}"
        )
    empty = {name for name in own if isinstance(state.get(name), Uninitialized)}
    given, unread = _host_arrays({name: state[name] for name in own if name in state and name not in empty})
    turned = {name: _channels_last(value) for name, value in given.items() if targets[name].has_channels(value)}
    layouts = {name: layout or layout_in(state, name) for name in given}
    in_nchw = {name for name, found in layouts.items() if found == "NCHW"}
    ordered, problems = maps.turn({name: given[name] for name in in_nchw})
    turned.update(ordered)
    problems += [*unread.values(), *_shape_problems(targets, given, turned, layouts)]
    problems += [
        f"values      {name}: the weights are of a lazy layer before its first forward, the model has {targets[name]}"
        for name in sorted(empty)
        if not isinstance(own[name], Uninitialized)
    ]
    both = {name for name in turned if name not in ordered and targets[name].takes_both(given[name])}
    problems += [
        f"layout      {name}: a Buffer {given[name].shape} may have channels or not; leave it out with strict=False, "
        "and assign it"
        for name in given
        if name in in_nchw & both and not targets[name].is_filter and targets[name].is_buffer
        if not np.array_equal(given[name], turned[name])
    ]
    open_ = {name: given[name] for name in given if layouts[name] is None}
    told = _others_tell(targets, open_, turned)
    problems += _unclear(
        [name for name in turned if name in open_ and (is_torch(state[name]) or (not told and name in both))]
    )
    if layout == "NCHW" and known is None:
        problems += [
            f"layout      {name}: is a tensor that Alpha has made, so its filters are NHWC, but layout='NCHW' was "
            "given; leave layout= out, or give alpha.nn.StateDict(values, 'NCHW') if they are not"
            for name in given
            if name in both and layout_in(state, name) == "NHWC" and not np.array_equal(given[name], turned[name])
        ]
    values = {name: turned.get(name, value) if name in in_nchw else value for name, value in given.items()}
    if not problems:
        problems = _alias_problems(own, values)
    there = {id(own[name]) for name in (*given, *unread, *empty)}
    missing = [name for name, tensor in own.items() if id(tensor) not in there]
    unexpected = [name for name in state if name not in own and not _is_counter(name, own)]
    if strict:
        problems += [f"missing     {name} {targets[name]}" for name in missing]
        problems += [f"unexpected  {name}" for name in unexpected]
    return Reading(values, problems, IncompatibleKeys(missing, unexpected))


def _host_arrays(values: Mapping[str, Any]) -> tuple[dict[str, Values], dict[str, str]]:
    """The values as arrays, by name, and a line for each that numpy cannot read."""
    arrays, unread = {}, {}
    for name, value in values.items():
        try:
            arrays[name] = host_array(value)
        except (TypeError, ValueError) as error:
            unread[name] = f"values      {name}: {str(error).removeprefix('tensor: ')}"
    return arrays, unread


def _shape_problems(
    targets: Mapping[str, Target],
    given: Mapping[str, Values],
    turned: Mapping[str, Values],
    layouts: Mapping[str, str | None],
) -> list[str]:
    """Values that are not numbers, or that have another shape than the module's."""
    problems = []
    for name, value in given.items():
        target = targets[name]
        in_nchw = turned.get(name, value).shape
        is_nchw = layouts[name] == "NCHW"
        shape, other, advice = (in_nchw, value.shape, "NHWC") if is_nchw else (value.shape, in_nchw, "NCHW")
        if value.dtype.kind not in "iub" and not is_floating(value.dtype):
            problems.append(f"dtype       {name}: {value.dtype} is not a number")
        elif not target.takes(shape):
            hint = f"; they fit with layout={advice!r}" if target.takes(other) else ""
            problems.append(f"shape       {name}: the weights have {value.shape}, the model {target}{hint}")
    return problems


def _alias_problems(own: Mapping[str, Tensor], values: Mapping[str, Values]) -> list[str]:
    """Names of one tensor whose values are not the same."""
    first: dict[int, str] = {}
    problems = []
    for name, value in values.items():
        other = first.setdefault(id(own[name]), name)
        if value is not values[other]:
            one, two = (np.asarray(v, own[name].dtype, order="C").tobytes() for v in (values[other], value))
            if one != two:
                problems.append(f"values      {name}: not those of {other}, which is the same tensor in the model")
    return problems


def _others_tell(targets: Mapping[str, Target], given: Mapping[str, Values], turned: Mapping[str, Values]) -> bool:
    """True if some filters fit only in Alpha's layout and none only in PyTorch's: then all of them are in Alpha's."""
    filters = [name for name in given if name in turned and targets[name].is_filter]
    kinds = {(targets[name].takes(given[name].shape), targets[name].takes(turned[name].shape)) for name in filters}
    return (True, False) in kinds and (False, True) not in kinds


def _unclear(found: Sequence[str]) -> list[str]:
    """One line about the weights whose layout cannot be told."""
    if not found:
        return []
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return [
        f"layout      {found[0]}{more}: NHWC or NCHW cannot be told from the shape; "
        "pass layout='NCHW' for PyTorch's weights, layout='NHWC' for Alpha's"
    ]


def _channels_last(value: Values) -> Values:
    """(OC, IC, FH, FW) -> (OC, FH, FW, IC), a view, with any number of axes of the filter"""
    return np.moveaxis(value, 1, -1)


def _is_counter(name: object, own: Mapping[str, Tensor]) -> bool:
    """True if the name is PyTorch's count of a batch norm's batches, which Alpha's batch norm does not need."""
    if not isinstance(name, str):
        return False
    prefix, _, last = name.rpartition("num_batches_tracked")
    return not last and f"{prefix}running_mean" in own


def advice_of_namesake(root: Module, state: Mapping[str, Any]) -> str:
    """Advice for weights of another network of the same name; empty if they are none."""
    start, advice = root._namesake
    return advice if start and any(str(name).startswith(start) for name in state) else ""


def of_pytorch(state: Mapping[str, Any], layout: str | None) -> set[str]:
    """The names of the values that are PyTorch's."""
    return {
        name
        for name, value in state.items()
        if (layout or layout_in(state, name) or ("NCHW" if is_torch(value) else "")) == "NCHW"
    }


Names = Mapping[str, Sequence[int]]  # of layers or tensors: the map (C, H, W)


class FlattenedMaps:
    """Layers that take flattened maps, and layers that make them.

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
        """Values of PyTorch that count features of a map, in Alpha's order, and a line of text for each bad name."""
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


def advice_of_flattened(root: Module, names: set[str]) -> str:
    """Advice on the arguments of `load_state_dict` for layers that may take or make flattened maps; empty without any.

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
