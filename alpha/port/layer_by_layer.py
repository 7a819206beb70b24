"""`alpha.compare`: a network of PyTorch beside one of Alpha with the same weights, layer by layer."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.core.host_values import host_array, is_torch, torch_tensor
from alpha.core.tensor import Tensor, tensor
from alpha.errors import first_few, type_name
from alpha.module.find_flattened import find_flattened
from alpha.module.flattened_layers import known_maps
from alpha.module.module import Module
from alpha.module.pytorch_layout import TorchLayout

__all__ = ["Comparison", "Difference", "compare"]

Values = NDArray[Any]
NOTHING = 1e-3  # of the largest gradient of all: below it, a gradient may be rounding alone, as of a bias before a norm
Key = tuple[str, int]  # the name of a layer, and the number of its call


@dataclass(frozen=True)
class Difference:
    """Difference of the values of two layers of one name.

    Attributes:
        name: of the layer, or of the parameter.
        layers: the classes, of PyTorch and of Alpha.
        shapes: of PyTorch's values and of Alpha's.
        largest: the largest difference of two numbers; NaN if the shapes do not fit or a number is NaN on one side.
        relative: that, divided by the largest number of PyTorch.
        at_input: the relative difference of what the layers were given, or None.
    """

    name: str
    layers: tuple[str, str]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    largest: float
    relative: float
    at_input: float | None = None

    def exceeds(self, tolerance: float) -> bool:
        """True if the values are further apart than the tolerance, relative to PyTorch's largest number."""
        return not self.relative <= tolerance

    def __str__(self) -> str:
        theirs, ours = self.layers
        name = self.name or "the model"
        kinds = theirs if theirs == ours else f"{theirs} and {ours}"
        if math.isnan(self.largest) and sorted(self.shapes[0]) != sorted(self.shapes[1]):
            return f"{name} ({kinds}): shapes {self.shapes[0]} of PyTorch and {self.shapes[1]} of Alpha"
        facts = f"{self.largest:.3g} apart, {self.relative:.3g} of PyTorch's largest number"
        return f"{name} ({kinds}), {self.shapes[1]}: {facts}"


@dataclass(frozen=True)
class Comparison:
    """Result of `alpha.compare`; its text names the first layer that differs.

    Attributes:
        outputs: the layers' outputs, in the order in which PyTorch's were made.
        gradients: gradients of what the layers gave and of parameters, from the last layer to the first.
        only_in: names of layers that only PyTorch's network has called, and of those that only Alpha's has.
        tolerance: what counts as equal.
    """

    outputs: list[Difference]
    gradients: list[Difference]
    only_in: tuple[list[str], list[str]]
    tolerance: float

    @property
    def first_output(self) -> Difference | None:
        """The first layer whose output differs, or None."""
        return next((found for found in self.outputs if found.exceeds(self.tolerance)), None)

    @property
    def first_gradient(self) -> Difference | None:
        """The first gradient that differs, counted from the loss, or None."""
        return next((found for found in self.gradients if found.exceeds(self.tolerance)), None)

    @property
    def equal(self) -> bool:
        """True if all outputs and gradients are equal within the tolerance."""
        return self.first_output is None and self.first_gradient is None

    def __str__(self) -> str:
        lines = [
            f"{len(self.outputs)} outputs and {len(self.gradients)} gradients compared, tolerance {self.tolerance:g}"
        ]
        for what, all_, first in (
            ("output", self.outputs, self.first_output),
            ("gradient", self.gradients, self.first_gradient),
        ):
            if first is None:
                worst = max((found.relative for found in all_), default=0.0)
                lines.append(f"every {what} is equal; the largest difference is {worst:.3g}")
                continue
            lines.append(f"the first {what} that differs: {first}")
            if first.at_input is not None and not first.at_input <= self.tolerance:
                lines.append(
                    f"  what it is given differs, too ({first.at_input:.3g}): the cause stands in the forward before it"
                )
            elif first.at_input is not None:
                lines.append("  what it is given is equal: the cause is in this layer, its arguments or its weights")
        for program, names in zip(("PyTorch", "Alpha"), self.only_in, strict=True):
            if names:
                lines.append(f"called in {program} only: {first_few(names, 8)}")
        return "\n".join(lines)


def compare(
    torch_model: Any,
    alpha_model: Module,
    x: Any,
    *,
    alpha_x: Any = None,
    train: bool = False,
    dtype: str = "float64",
    tolerance: float = 1e-6,
) -> Comparison:
    """Carry PyTorch's weights over, run both networks on one batch, and compare layer by layer, also the gradients.

        print(alpha.compare(torch_model, alpha_model, images))

    Layers are compared by their names, in the order in which PyTorch calls them, and gradients from the loss back. The
    loss is a weighted sum of all outputs, with fixed random weights. Copies of both networks run, on the cpu; only the
    weights of `alpha_model` change.

    Args:
        torch_model: a `torch.nn.Module`.
        alpha_model: its counterpart, whose parameters and buffers have the same names.
        x: what both are given, or a tuple of several: a tensor of PyTorch or an array in PyTorch's layout, or a Tensor
            in Alpha's. Floating numbers with four or five axes get the other program's layout.
        alpha_x: what Alpha's is given in place of `x`, if that is another form, as for sequences (N, C, L).
        train: compare in training mode, without dropout.
        dtype: of the copies; "float64" leaves the rounding far below the tolerance.
        tolerance: of a difference, relative to the largest number of PyTorch's values.

    Returns:
        The differences, as text or by `first_output`, `first_gradient` and `equal`.

    Raises:
        TypeError: a model is of another program.
        CheckpointError: weights do not fit, by name or by shape.
    """
    if not is_module_of_torch(torch_model) or not isinstance(alpha_model, Module):
        raise TypeError(
            f"compare: a module of PyTorch and one of Alpha are needed, in this order, not a "
            f"{type_name(torch_model)} and "
            f"a {type_name(alpha_model)}"
        )
    given = x if isinstance(x, tuple) else (x,)
    theirs = [_for_pytorch(value) for value in given]
    own = given if alpha_x is None else alpha_x if isinstance(alpha_x, tuple) else (alpha_x,)
    ours = [_for_alpha(value) for value in own]
    _carry_over(torch_model, alpha_model, ours)
    first = copy.deepcopy(torch_model).cpu().to(getattr(_torch(), dtype))
    second = copy.deepcopy(alpha_model).cpu().astype(dtype)
    theirs = [value.to(getattr(_torch(), dtype)) if value.is_floating_point() else value for value in theirs]
    ours = [value.astype(dtype) if value.array.dtype.kind == "f" else value for value in ours]
    for model in (first, second):
        model.train(train)
        for module in model.modules():
            if "Dropout" in type(module).__name__ or "DropPath" in type(module).__name__:
                module.eval()
    one, two = _Record(), _Record()
    one.run(first, theirs, lambda value: value.detach().cpu().numpy().copy(), lambda value: _is_floating_torch(value))
    two.run(second, ours, lambda value: value.numpy().copy(), lambda value: isinstance(value, Tensor))
    return _compared(one, two, first, second, tolerance)


def is_module_of_torch(value: Any) -> bool:
    """True for a `torch.nn.Module`, without an import of PyTorch."""
    return any(kind.__module__ == "torch.nn.modules.module" for kind in type(value).__mro__)


def _torch() -> Any:
    import torch

    return torch


def _is_floating_torch(value: Any) -> bool:
    return is_torch(value) and hasattr(value, "is_floating_point") and value.is_floating_point()


def _has_channels(array: Values) -> bool:
    return array.ndim in (4, 5) and array.dtype.kind == "f"


def _for_pytorch(value: Any) -> Any:
    """A tensor of PyTorch: Alpha's with channels second."""
    if is_torch(value):
        return value.detach().cpu()
    array = value.numpy() if isinstance(value, Tensor) else host_array(value)
    turned = np.moveaxis(array, -1, 1) if isinstance(value, Tensor) and _has_channels(array) else array
    return torch_tensor(turned)


def _for_alpha(value: Any) -> Tensor:
    """A tensor of Alpha: PyTorch's with channels last."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    array = host_array(value)
    return tensor(np.ascontiguousarray(np.moveaxis(array, 1, -1)) if _has_channels(array) else array)


def _carry_over(torch_model: Any, alpha_model: Module, inputs: list[Tensor]) -> None:
    """Give Alpha's network PyTorch's weights; layers that take flattened maps are found by a forward before."""
    copied = copy.deepcopy(alpha_model).cpu()
    find_flattened(copied, *[_like(value, copied) for value in inputs])
    known = known_maps(copied)
    alpha_model.load_state_dict(
        torch_model.state_dict(), layout="NCHW", flattened=known.flattened, unflattened=known.unflattened
    )


def _like(value: Tensor, model: Module) -> Tensor:
    """An input in the dtype of a model's parameters."""
    kinds = [p.dtype for p in model.parameters()]
    return value.astype(kinds[0]) if kinds and value.array.dtype.kind == "f" else value


@dataclass
class _Record:
    """Record of what one network has computed, in the order in which its layers ended.

    Attributes:
        outputs, inputs, gradients: by layer and call; gradients are those of outputs.
        kinds: the classes of layers by name.
    """

    outputs: dict[Key, Values] = field(default_factory=dict)
    inputs: dict[Key, Values] = field(default_factory=dict)
    gradients: dict[Key, Values] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    def run(self, model: Any, inputs: list[Any], read: Callable[[Any], Values], fits: Callable[[Any], bool]) -> None:
        """Run a network forward and backward, with hooks on all of its layers."""
        calls: dict[str, int] = {}
        handles = []

        taken: dict[str, Any] = {}  # what a layer is given, before it may be written in place

        def take(name: str, given: Any) -> None:
            first = next((part for part in _parts(given) if fits(part)), None)
            taken[name] = None if first is None else read(first)

        def note(name: str, output: Any) -> None:
            key = (name, calls.get(name, 0))
            calls[name] = key[1] + 1
            first = next((part for part in _parts(output) if fits(part)), None)
            if first is None:
                return
            self.outputs[key] = read(first)
            if taken.get(name) is not None:
                self.inputs[key] = taken[name]
            if first.requires_grad:

                def keep(gradient: Any) -> None:
                    self.gradients[key] = read(gradient)

                first.register_hook(keep)

        for name, module in model.named_modules():
            self.kinds[name] = type(module).__name__
            handles.append(module.register_forward_pre_hook(lambda _, given, name=name: take(name, given)))
            handles.append(module.register_forward_hook(lambda _, given, output, name=name: note(name, output)))
        try:
            outputs = [part for part in _parts(model(*inputs)) if fits(part)]
            total: Any = None
            for number, output in enumerate(outputs):
                term = (output * _weights(output, number)).sum()
                total = term if total is None else total + term
            if total is not None and total.requires_grad:
                total.backward()
        finally:
            for handle in handles:
                handle.remove()


def _weights(output: Any, number: int) -> Any:
    """Fixed random numbers for a sum of an output, which are the same in both layouts."""
    shape = tuple(output.shape)
    ours = isinstance(output, Tensor)
    channels = (shape[0], shape[-1], *shape[1:-1]) if ours and len(shape) > 3 else shape
    drawn = np.random.default_rng(number).uniform(0.5, 1.5, channels)
    drawn = drawn.astype(output.dtype if ours else str(output.dtype).removeprefix("torch."))
    if not ours:
        return torch_tensor(drawn)
    return tensor(np.ascontiguousarray(np.moveaxis(drawn, 1, -1)) if len(shape) > 3 else drawn)


def _parts(value: Any) -> Iterator[Any]:
    """The tensors of a structure."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _parts(part)
    elif value is not None:
        yield value


def _compared(one: _Record, two: _Record, first: Any, second: Module, tolerance: float) -> Comparison:
    shapes = [value.shape for record in (two.inputs, two.outputs) for value in record.values()]
    maps = {shape[1:] for shape in shapes if len(shape) > 2}

    def difference(key: Key, a: Values, b: Values, at_input: float | None = None, floor: float = 0.0) -> Difference:
        largest, relative = _apart(a, b, maps, floor)
        kinds = (one.kinds.get(key[0], ""), two.kinds.get(key[0], ""))
        return Difference(key[0], kinds, (a.shape, b.shape), largest, relative, at_input)

    outputs = []
    for key, value in one.outputs.items():
        if key in two.outputs:
            both = key in one.inputs and key in two.inputs
            before = _apart(one.inputs[key], two.inputs[key], maps)[1] if both else None
            outputs.append(difference(key, value, two.outputs[key], before))
    gradients = []
    held = [value for value in one.gradients.values() if value.size]
    floor = NOTHING * max((float(np.abs(value).max()) for value in held), default=0.0)
    layout, theirs = TorchLayout(second), dict(first.named_parameters())
    ours = dict(second.named_parameters())
    owned: dict[str, list[str]] = {}
    for name in ours:
        owned.setdefault(name.rpartition(".")[0], []).append(name)
    done: set[str] = set()
    for name, call in reversed(one.outputs):
        key = (name, call)
        if key in one.gradients and key in two.gradients:
            gradients.append(difference(key, one.gradients[key], two.gradients[key], None, floor))
        for full in owned.get(name, []):
            if full not in done and full in theirs:
                done.add(full)
                gradients += _of_parameter(full, theirs[full], ours[full], layout, floor)
    for full in ours:
        if full not in done and full in theirs:
            gradients += _of_parameter(full, theirs[full], ours[full], layout, floor)
    missing = [sorted({n for n, _ in a.outputs} - {n for n, _ in b.outputs}) for a, b in ((one, two), (two, one))]
    return Comparison(outputs, gradients, (missing[0], missing[1]), tolerance)


def _of_parameter(name: str, theirs: Any, ours: Tensor, layout: TorchLayout, floor: float) -> list[Difference]:
    """The difference of the gradients of a parameter; none if both have none."""
    a = None if theirs.grad is None else layout.inward(name, theirs.grad.detach().cpu().numpy())
    b = None if ours.grad is None else ours.grad.numpy()
    if a is None and b is None:
        return []
    a = np.zeros(ours.shape) if a is None else a
    b = np.zeros(ours.shape) if b is None else b
    largest, relative = _distance(a, b, floor) if a.shape == b.shape else (math.nan, math.nan)
    return [Difference(f"{name}.grad", ("Parameter", "Parameter"), (tuple(theirs.shape), b.shape), largest, relative)]


def _apart(a: Values, b: Values, maps: set[tuple[int, ...]], floor: float = 0.0) -> tuple[float, float]:
    """The largest difference of PyTorch's and Alpha's values, absolute and relative, in the form that fits best.

    A map of PyTorch has its channels second, and features of a flattened one another order.
    """
    forms = [a] if a.shape == b.shape else []
    if a.ndim > 2:
        moved = np.moveaxis(a, 1, -1)
        forms += [moved] if moved.shape == b.shape else []
    elif a.ndim == 2 and a.shape == b.shape:
        for shape in maps:
            if math.prod(shape) == a.shape[1]:
                forms.append(np.moveaxis(a.reshape(len(a), shape[-1], *shape[:-1]), 1, -1).reshape(a.shape))
    found = [_distance(form, b, floor) for form in forms]
    return min(found, key=lambda pair: pair[1] if pair[1] == pair[1] else math.inf, default=(math.nan, math.nan))


def _distance(a: Values, b: Values, floor: float = 0.0) -> tuple[float, float]:
    """The largest difference, and the same relative to the largest number of a, but at least to a floor."""
    if not a.size:
        return 0.0, 0.0
    with np.errstate(invalid="ignore"):
        apart = np.abs(a.astype(np.float64) - b.astype(np.float64))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    apart = np.where(same, 0.0, apart)
    largest = float(apart.max()) if not np.isnan(apart).any() else math.nan
    scale = max(floor, float(np.abs(a[np.isfinite(a)]).max(initial=0.0)))
    return largest, largest / scale if scale > 0 else largest
