"""Module: a tree of layers with parameters, buffers and hooks."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from alpha.core.host_values import DTypeLike
from alpha.core.names.no_effect import check_memory_format
from alpha.core.numerics import BFLOAT16
from alpha.core.origins import LAYOUTS
from alpha.core.tensor import Tensor, as_dtype
from alpha.errors import CheckpointError
from alpha.module.flattened import Names
from alpha.module.flattened_layers import advice_of_flattened
from alpha.module.hooks import call_with_backward_hooks, hooks_act
from alpha.module.module_tree import Tree, dotted
from alpha.module.parameter import Buffer, Parameter, fill, move, state_of, with_place, zero_gradients
from alpha.module.pytorch_layout import TorchLayout
from alpha.module.state_dict import StateDict
from alpha.module.state_reading import (
    IncompatibleKeys,
    advice_of_namesake,
    of_pytorch,
    read_state,
    unturned,
    weights_of,
)
from alpha.runtime import Device, get_device
from alpha.runtime.recording import state
from alpha.runtime.registry import names_device

__all__ = ["Buffer", "Module", "Parameter"]

Self = TypeVar("Self", bound="Module")
T = TypeVar("T")
LAYERS = "alpha.nn.", "alpha.ops."  # where they are defined
# methods by which a module of PyTorch keeps more than tensors in a state dict
OWN_STATE = "get_extra_state", "set_extra_state", "_save_to_state_dict", "_load_from_state_dict"


@contextmanager
def evaluation_of(model: Module) -> Iterator[None]:
    """Context with a model in evaluation mode; afterwards each module of it has its own mode of before."""
    modes, was_training = [(module, module.training) for module in model.modules()], model.training
    model.eval()
    try:
        yield
    finally:
        if was_training:
            model.train()  # which a module may have for more than its mode
        for module, training in modes:
            module.training = training


def device_of(module: Module) -> Device:
    """Device of the first parameter or buffer; cpu for a module without any."""
    for _, value in module.named_tensors():
        return value.device
    return get_device("cpu")


class _Default(Generic[T]):
    """A property in whose place a model may assign an attribute of its own, because PyTorch's modules have none."""

    def __init__(self, read: Callable[[Module], T]) -> None:
        self._read, self.__doc__ = read, read.__doc__

    @overload
    def __get__(self, module: None, owner: type) -> _Default[T]: ...

    @overload
    def __get__(self, module: Module, owner: type) -> T: ...

    def __get__(self, module: Module | None, owner: type) -> _Default[T] | T:
        return self if module is None else self._read(module)


class Module(Tree):
    """Base of layers and models: assign parameters and modules as attributes, define `forward`.

    An attribute that is a `Parameter`, a `Buffer` or a `Module` is part of the model; anything
    else, as None, a plain tensor or a list, is not (`ModuleList` holds modules).

    Attributes:
        training: True after `train()` (the default), False after `eval()`.
        device: where the first parameter or buffer lives; cpu for a module without any.
        is_hooked: whether a hook sees what this module is given and makes.

    Layers of Alpha take PyTorch's `device=` and `dtype=` behind their own arguments: `nn.Linear(3, 4, device="cuda")`.

    Examples:
        >>> import alpha
        >>> from alpha import nn
        >>> class Net(nn.Module):
        ...     def __init__(self):
        ...         self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)
        ...     def forward(self, x):
        ...         return self.last(self.first(x).relu())
        ...
        >>> model = Net()
        >>> model(alpha.ones(3, 4)).shape
        (3, 2)
        >>> [name for name, _ in model.named_parameters()]
        ['first.weight', 'first.bias', 'last.weight', 'last.bias']
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.__module__.startswith(LAYERS):
            _warn_of_uncalled(cls)
        elif "__init__" in vars(cls):
            cls.__init__ = with_place(cls.__init__, _reset_as_subclass(cls))  # type: ignore[method-assign]

    # methods of PyTorch's module which a subclass may define there, and which nothing calls here
    _uncalled: ClassVar[tuple[str, ...]] = ("_apply",)
    _resets_when_made: ClassVar[bool] = True  # whether a constructor calls the `reset_parameters` of a subclass

    _namesake: ClassVar[tuple[str, str]] = ("", "")  # how names of another network's weights begin, and what to do then
    _maps: Mapping[tuple[str, bool], tuple[int, ...]] = {}  # see alpha/module/flattened_layers.py
    _unturned: frozenset[str] = frozenset()  # tensors of four axes that PyTorch's weights have as the module has them
    _stays_evaluated = False  # whether a Trainer leaves this layer in evaluation mode

    training = True
    device = _Default(device_of)
    is_hooked = _Default(hooks_act)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{type(self).__name__} defines no forward(self, ...)")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if "input" in kwargs:  # PyTorch's name of the x of its layers
            known = inspect.signature(self.forward).parameters
            own = "x" if "x" in known and "input" not in known else "input"
            kwargs = {own if name == "input" else name: value for name, value in kwargs.items()}
        listener = state.listener
        if listener is not None and listener.module is not self:
            return listener.call(self, args, kwargs)
        if self._backward_hooks or self._backward_pre_hooks:
            return call_with_backward_hooks(self, args, kwargs)
        for before in self._pre_hooks:
            args, kwargs = before(self, args, kwargs)
        output = self.forward(*args, **kwargs)
        for after in self._forward_hooks:
            output = after(self, args, kwargs, output)
        return output

    # -- state --------------------------------------------------------------------------------

    def train(self: Self, mode: bool = True) -> Self:
        """Set the mode of this and all modules below, and return the module: dropout and batch statistics, or not."""
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self: Self) -> Self:
        """Set the mode of evaluation here and below, and return the module: no dropout, running statistics."""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Train every parameter, or freeze them all: `model.blocks.requires_grad_(False)`."""
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop every gradient, or fill it with zeros in place if not `set_to_none`."""
        zero_gradients(self.parameters(), set_to_none)

    def to(
        self: Self,
        device: Any = None,
        dtype: DTypeLike = None,
        non_blocking: bool = False,
        *,
        memory_format: Any = None,
    ) -> Self:
        """Move parameters and buffers, turn them into a floating dtype, or both, in place; gradients are dropped.

        A dtype may come first, or a Tensor, whose device and dtype are taken: `to("cuda")`, `to("float64")`, `to(x)`.
        non_blocking has no effect, nor has memory_format: channels are always last.
        """
        check_memory_format("Module.to", memory_format)
        if isinstance(device, Tensor):
            device, dtype = device.device, device.dtype if dtype is None else dtype
        elif dtype is None and device is not None and not names_device(device):
            device, dtype = None, device
        target = None if device is None else get_device(device)
        if dtype is not None:
            self.astype(dtype)
        for _, value in self.named_tensors():
            move(value, target)
        return self

    def cpu(self: Self) -> Self:
        """Move parameters and buffers to the cpu, as `to` does."""
        return self.to("cpu")

    def cuda(self: Self, device: Any = None) -> Self:
        """Move parameters and buffers to a GPU, by default the first, as `to` does."""
        return self.to("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)

    def double(self: Self) -> Self:
        """Turn parameters and buffers into float64, as `to` does; for the cpu alone."""
        return self.astype("float64")

    def float(self: Self) -> Self:
        """Turn parameters and buffers into float32, as `to` does."""
        return self.astype("float32")

    def bfloat16(self: Self) -> Self:
        """Refused, for parameters stay float32: `alpha.set_precision("bf16")` makes the activations bfloat16."""
        return self.astype("bfloat16")

    def astype(self: Self, dtype: DTypeLike) -> Self:
        """Turn floating parameters and buffers into `dtype`, in place; gradients are dropped."""
        target = as_dtype(dtype)
        if target == BFLOAT16:
            raise TypeError(
                "Module.astype: parameters stay float32; under alpha.precision('bf16') the activations are bfloat16"
            )
        if target.kind != "f":
            raise TypeError(f"Module.astype: {target.name} is not a floating dtype")
        for _, value in self.named_tensors():
            if value.dtype.kind == "f":
                move(value, dtype=target)
        return self

    def _state(self) -> dict[str, Tensor]:
        """Tensors of a state dict, by dotted name; a shared tensor has each of its names."""
        return {name: value for name, value in self.named_tensors(remove_duplicate=False) if _is_state(value)}

    def state_dict(
        self,
        *,
        prefix: str = "",
        keep_vars: bool = False,
        layout: str = "NHWC",
        flattened: Names | None = None,
        unflattened: Names | None = None,
    ) -> StateDict:
        """All parameters and persistent buffers by dotted name, detached, in Alpha's layout or in PyTorch's.

        With the layout "NHWC" the tensors share the memory of the module's own, as in PyTorch, so a later step changes
        them; `copy.deepcopy(..)` or `.numpy()` keeps the values of now. A shared one comes under each of its names, as
        one tensor. What a lazy layer has not initialised yet is there as an `UninitializedParameter` or an
        `UninitializedBuffer`.

        With the layout "NCHW" they are copies on the host as PyTorch has them: filters are (OC, IC, FH, FW), and layers
        that take or make flattened maps count features as PyTorch does. `.torch()` of the result is a dict of PyTorch's
        tensors for `torch_model.load_state_dict`, and `alpha.save(result, "x.safetensors")` writes a file that
        `safetensors.torch.load_file` reads.

        Args:
            prefix: put before each name.
            keep_vars: give the parameters and buffers themselves.
            layout: "NHWC" or "NCHW".
            flattened, unflattened: with "NCHW", layers that take or make flattened maps, as of `load_state_dict`;
                without both, what the layers know of themselves, and a warning names others that may be meant.

        Raises:
            ValueError: the layout is another one, or arguments do not go together.
            TypeError: a module defines methods of PyTorch's that keep more in a state dict, which are not called.
        """
        if layout not in LAYOUTS:
            raise ValueError(f"state_dict: layout={layout!r} is not one of 'NHWC', 'NCHW'")
        own = self._state()
        self._check_own_state("state_dict")
        if layout == "NCHW":
            if keep_vars:
                raise ValueError("state_dict: keep_vars gives the parameters themselves, which are in NHWC")
            turning = TorchLayout(self, flattened, unflattened)
            problems = turning.maps.turn({})[1] if turning.maps.given else []
            named = [text for text in problems if "no layer and no tensor" in text]
            if named:
                raise ValueError("\n  ".join(["state_dict:", *named]))
            if not turning.maps.given and (
                advice := advice_of_flattened(self, set(own), turning.maps.settled(self), "state_dict")
            ):
                warnings.warn(advice, stacklevel=2)
            turning.maps.remember(self)
            return turning.state(prefix)
        if flattened is not None or unflattened is not None:
            raise ValueError("state_dict: flattened= and unflattened= are for layout='NCHW'")
        values = {id(value): value if keep_vars else state_of(value) for value in own.values()}
        return StateDict(((prefix + name, values[id(value)]) for name, value in own.items()), layout="NHWC")

    def load_state_dict(
        self,
        state: Mapping[str, Any],
        strict: bool = True,
        *,
        layout: str | None = None,
        flattened: Names | None = None,
        unflattened: Names | None = None,
    ) -> IncompatibleKeys:
        """Copy values in by name; nothing is changed unless everything fits.

        PyTorch has filters as (OC, IC, FH, FW), and those of a transposed convolution as (IC, OC, FH, FW). With
        layout="NCHW" the second axis becomes the last one, in the filters of convolutions with one to three axes and in
        each other value of four axes, unless only the value as it is fits, as a mask (1, 1, T, T) does. A Linear layer
        after a Flatten counts its features in another order, too, which no shape tells. It is turned by itself behind a
        Flatten in the same Sequential, and where a layer knows it from an earlier load, or from one forward by
        `alpha.nn.utils.find_flattened(model, x)`; else `flattened` tells it. A warning names other layers that may need
        it, if neither of the two arguments is given.

        Without layout=, the values of a state dict that knows its layout have that one. In any other dict, Tensors of
        Alpha have NHWC, so a copy or an average of `state_dict()` needs no layout; those that `alpha.load` read from a
        file of PyTorch, and their copies, have NCHW; arrays of numpy, tensors of PyTorch, and tensors that were made or
        computed from them have the layout that their shapes tell.

        Args:
            state: arrays, or tensors of Alpha or PyTorch, by dotted name. One name of a shared tensor is enough; all
                that are given must have the same values. A whole checkpoint does, too, if one of its values is such a
                dict, as {"model": .., "epoch": ..}; and "module." and the like before all names is left out.
            strict: missing and unexpected names are errors; shapes that differ always are. PyTorch's
                `num_batches_tracked` of a batch norm is passed over. Values that a lazy layer is given initialise it.
            layout: "NHWC" for Alpha's weights or "NCHW" for PyTorch's. What `state_dict()`, its `filter`, `alpha.load`
                and `alpha.train.load_weights` return knows its layout. It must be given for PyTorch's filters and
                tensors of four axes, and for values of unknown origin whose shape fits in both layouts.
            flattened: of PyTorch's weights, the map (C, H, W) that was flattened, by the name of a layer that takes its
                features: `{"fc1": (16, 5, 5)}`; or by the name of a tensor whose last axis counts them. If this or
                `unflattened` is given, they are all that is turned, and the layers know it from then on.
            unflattened: the map that is made of the features that a layer gives, or of a tensor's first axis.

        Returns:
            `missing_keys` and `unexpected_keys`, two lists of names.

        Raises:
            CheckpointError: lists every mismatch at once.
            TypeError: a module defines methods of PyTorch's that keep more in a state dict, which are not called.
        """
        own = self._state()
        self._check_own_state("load_state_dict")
        state = weights_of(state, own)
        turning = TorchLayout(self, flattened, unflattened)
        values, problems, keys = read_state(turning, state, layout, strict)
        maps, namesake = turning.maps, advice_of_namesake(self, state)
        if problems:
            count = "1 mismatch" if len(problems) == 1 else f"{len(problems)} mismatches"
            lines = [f"{count} between the weights and {type(self).__name__}:", *problems, *filter(None, [namesake])]
            raise CheckpointError("\n  ".join(lines))
        for target, value in {id(own[name]): (own[name], value) for name, value in values.items()}.values():
            fill(target, value)
            target._version.bump("load_state_dict")
        foreign = of_pytorch(state, layout)
        if foreign:
            maps.remember(self)
            self._note_unturned(unturned(state, values, foreign))
        flat = "" if maps.given else advice_of_flattened(self, foreign, maps.settled(self), "load_state_dict")
        for advice in filter(None, (namesake, flat)):
            warnings.warn(advice, stacklevel=2)
        return keys

    def _check_own_state(self, operator: str) -> None:
        """Refuse modules that keep more by methods of PyTorch's which are not called here; it would be lost.

        Raises:
            TypeError: a module has one of `OWN_STATE`. A `state_dict` of its own, below this one, is a warning.
        """
        for path, module in self.named_modules():
            kind = type(module)
            own = [name for name in OWN_STATE if hasattr(kind, name)]
            text = "{}: {}, a {}, defines {}, which is not called for a part of a model; keep what it has in a Buffer"
            if own:
                raise TypeError(text.format(operator, path or "the module", kind.__name__, own[0]))
            if path and kind.state_dict is not Module.state_dict:
                warnings.warn(text.format(operator, path, kind.__name__, "state_dict"), UserWarning, stacklevel=3)

    def _note_unturned(self, names: set[str]) -> None:
        """Let the modules know which of their loaded tensors of four axes PyTorch has as they have them."""
        for path, module in self.named_modules(remove_duplicate=False):
            local = {name for name in vars(module) if dotted(path, name) in names}
            if local or module._unturned:
                vars(module)["_unturned"] = frozenset(local)

    if TYPE_CHECKING:  # alpha/nn/summary/model_summary.py has it

        def summary(
            self, input_shape: tuple[int, ...] | Tensor | tuple[Tensor, ...], dtype: DTypeLike = None
        ) -> str: ...

    def extra_repr(self) -> str:
        """Text that `repr` shows between the parentheses: a layer's own arguments."""
        return ""

    def __repr__(self) -> str:
        lines = [f"  ({name}): " + repr(child).replace("\n", "\n  ") for name, child in self._named_parts()]
        inside = self.extra_repr() + ("\n" + "\n".join(lines) + "\n" if lines else "")
        return f"{type(self).__name__}({inside})"

    def _form_of(self, name: str) -> tuple[int | None, ...] | None:
        """Shape of an uninitialised parameter or buffer, as far as it is known: None for a length, or for all."""
        return None

    def apply(self: Self, function: Callable[[Module], object]) -> Self:
        """Call `function` on every module below, children first, and then on this one."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self


def _warn_of_uncalled(kind: type[Module]) -> None:
    """Warn of methods of a class that change what PyTorch's layer does, and are not called here."""
    for name in kind._uncalled:
        if name in vars(kind):
            base = next(cls for cls in kind.__mro__ if cls.__module__.startswith("alpha.")).__name__
            text = f"{kind.__name__}.{name}: Alpha's {base} calls no {name}, PyTorch's does; override a public method"
            warnings.warn(text, UserWarning, stacklevel=3)


def _reset_as_subclass(layer: type[Module]) -> Callable[[Any], None]:
    """Function that calls the `reset_parameters` of a subclass of a layer which is made, as PyTorch's constructor does.

    Alpha's own layers draw their parameters once, as they make them.
    """

    def reset(made: Any) -> None:
        kind = type(made)
        if kind is layer or not (layer._resets_when_made and hasattr(layer, "reset_parameters")):
            return
        made_by = next(cls for cls in kind.__mro__ if cls.__module__.startswith(LAYERS) and "__init__" in vars(cls))
        defining = next(cls for cls in kind.__mro__ if "reset_parameters" in vars(cls))
        if made_by is layer and not defining.__module__.startswith(LAYERS):
            made.reset_parameters()

    return reset


def _is_state(value: Tensor) -> bool:
    return not isinstance(value, Buffer) or value.persistent
