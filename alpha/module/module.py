"""Module: a tree of layers with parameters, buffers and hooks."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast, overload

from alpha.core.host_values import DTypeLike
from alpha.core.missing_names import MissingName
from alpha.core.no_effect import check_memory_format
from alpha.core.numerics import BFLOAT16
from alpha.core.origins import LAYOUTS, Origin, settle
from alpha.core.tensor import Tensor, as_dtype
from alpha.errors import CheckpointError
from alpha.module.flattened import Names, advice_of_flattened
from alpha.module.hooks import Hooked, call_with_backward_hooks, hooks_act
from alpha.module.parameter import Buffer, Parameter, fill, move, state_of, with_place, zero_gradients
from alpha.module.state_dict import (
    IncompatibleKeys,
    StateDict,
    TorchLayout,
    advice_of_namesake,
    of_pytorch,
    read_state,
    targets_of,
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


class Module(Hooked):
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
        if cls.__module__.startswith(LAYERS) and "__init__" in vars(cls):
            cls.__init__ = with_place(cls.__init__)  # type: ignore[method-assign]

    _filters: ClassVar[tuple[str, ...]] = ()  # parameters of a layer that PyTorch has with channels second
    _namesake: ClassVar[tuple[str, str]] = ("", "")  # how names of another network's weights begin, and what to do then
    _maps: Mapping[tuple[str, bool], tuple[int, ...]] = {}  # see alpha/module/flattened.py
    _unturned: frozenset[str] = frozenset()  # tensors of four axes that PyTorch's weights have as the module has them
    _stays_evaluated = False  # whether a Trainer leaves this layer in evaluation mode
    _kept_places: frozenset[str] = frozenset()  # names that are None now, whose parts will stand where they stand
    _awaited: Mapping[str, bool] = {}  # whether it is persistent, for each Buffer in whose place there is None

    training = True
    device = _Default(device_of)
    is_hooked = _Default(hooks_act)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{type(self).__name__} defines no forward(self, ...)")

    def __setattr__(self, name: str, value: Any) -> None:
        """Assign an attribute; one that is a part of the model stays a part of its kind, or becomes None.

        A Tensor that is assigned to a Buffer's name becomes a Buffer with the same memory and graph, also if there was
        None in its place.

        Raises:
            TypeError: the attribute is a Parameter, a Buffer or a Module and the value is of another kind.
        """
        attributes = vars(self)
        current = attributes.get(name)
        was_part = isinstance(current, (Parameter, Buffer, Module))
        if was_part and value is None:
            attributes["_kept_places"] = self._kept_places | {name}
        becomes_part = not was_part and isinstance(value, (Parameter, Buffer, Module))
        if becomes_part and name in attributes and name not in self._kept_places:
            del attributes[name]  # a part comes behind those that are there, as in PyTorch
        if isinstance(current, (Parameter, Buffer, Module)) and not (value is None or isinstance(value, Parameter)):
            value = of_the_kind_of(current, value, f"{type(self).__name__}.{name}")
        elif value is None and isinstance(current, Buffer):
            self._await_buffer(name, current.persistent)
        elif current is None and name in self._awaited and isinstance(value, Tensor):
            value = as_buffer(value, self._awaited[name])
        if isinstance(value, (Parameter, Buffer)) and isinstance(value._base_version, Origin):
            settle(value, f"{type(self).__name__}.{name}", name in self._filters)
        object.__setattr__(self, name, value)

    if not TYPE_CHECKING:  # which would take every attribute to be there

        def __getattr__(self, name: str) -> Any:
            """Look up an attribute that was not found, or that a subclass asks for by `super().__getattr__(name)`.

            Raises:
                AttributeError: the module has no such attribute; the text says what Alpha has in its place.
            """
            if name in vars(self):
                return vars(self)[name]
            if hasattr(type(self), name):  # a property that has failed for want of another attribute
                return object.__getattribute__(self, name)
            raise MissingName(type(self).__name__, name, self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the attributes of a copy. Without it, a copy would be asked for it by a `__getattr__` of a subclass."""
        vars(self).update(state)

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
        maps = TorchLayout(self, flattened, unflattened).maps
        values, problems, keys = read_state(own, targets_of(self, own), state, layout, strict, maps)
        namesake = advice_of_namesake(self, state)
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
            local = {name for name in vars(module) if _dotted(path, name) in names}
            if local or module._unturned:
                vars(module)["_unturned"] = frozenset(local)

    if TYPE_CHECKING:  # alpha/nn/summary.py has it

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

    @property
    def _modules(self) -> Parts:
        """The direct submodules by name; what is written here becomes an attribute."""
        return Parts(self, Module)

    @property
    def _parameters(self) -> Parts:
        """The module's own parameters by name, without those that are None."""
        return Parts(self, Parameter)

    @property
    def _buffers(self) -> Parts:
        """The module's own buffers by name, without those that are None."""
        return Parts(self, Buffer)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(attribute name, module) of the direct submodules, in order of assignment; a shared one once."""
        seen: set[int] = set()
        for name, value in self._named_parts():
            if id(value) not in seen:
                seen.add(id(value))
                yield name, value

    def _named_parts(self) -> Iterator[tuple[str, Module]]:
        """(attribute name, module) of the direct submodules, a shared one by each of its names."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value

    def children(self) -> Iterator[Module]:
        """The modules that are attributes of this one, in order, each once."""
        for _, value in self.named_children():
            yield value

    def named_modules(self, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """(dotted name, module) of this and every module below; a shared one once, or with `False` by each name."""
        seen: set[int] = set()

        def walk(module: Module, name: str) -> Iterator[tuple[str, Module]]:
            if id(module) in seen:
                return
            if remove_duplicate:
                seen.add(id(module))
            yield name, module
            for child_name, child in module._named_parts():
                yield from walk(child, _dotted(name, child_name))

        return walk(self, prefix)

    def modules(self) -> Iterator[Module]:
        """All modules, each once: first this one, then those below it."""
        for _, module in self.named_modules():
            yield module

    def named_tensors(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, tensor) of the parameters and buffers.

        Args:
            prefix: what the names begin with, before a dot.
            recurse: False leaves out the modules below this one.
            remove_duplicate: a shared tensor comes once; False: by each of its names.
        """
        modules = self.named_modules(prefix, remove_duplicate) if recurse else [(prefix, self)]
        seen: set[int] = set()
        for path, module in modules:
            for name, value in vars(module).items():
                if isinstance(value, (Parameter, Buffer)) and id(value) not in seen:
                    if remove_duplicate:
                        seen.add(id(value))
                    yield _dotted(path, name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, parameter); arguments as of `named_tensors`."""
        for name, value in self.named_tensors(prefix, recurse, remove_duplicate):
            if isinstance(value, Parameter):
                yield name, value

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters of this and, with `recurse`, of all modules below, each once: what an optimizer takes."""
        for _, value in self.named_parameters(recurse=recurse):
            yield value

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Buffer]]:
        """(dotted name, buffer); arguments as of `named_tensors`."""
        for name, value in self.named_tensors(prefix, recurse, remove_duplicate):
            if isinstance(value, Buffer):
                yield name, value

    def buffers(self, recurse: bool = True) -> Iterator[Buffer]:
        """The buffers of this and, with `recurse`, of all modules below, each once, for example running statistics."""
        for _, value in self.named_buffers(recurse=recurse):
            yield value

    def get_submodule(self, target: str) -> Module:
        """The module of a dotted name, "" for this one; `AttributeError` if there is none."""
        return cast(Module, self._part(target, Module) if target else self)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter of a dotted name; `AttributeError` if there is none."""
        return cast(Parameter, self._part(target, Parameter))

    def get_buffer(self, target: str) -> Buffer:
        """The buffer of a dotted name; `AttributeError` if there is none."""
        return cast(Buffer, self._part(target, Buffer))

    def _part(self, target: str, kind: type) -> Any:
        path, _, name = target.rpartition(".")
        value = vars(self.get_submodule(path)).get(name)
        if not isinstance(value, kind):
            wanted = kind.__name__
            raise AttributeError(f"{type(self).__name__} has no {wanted} of the name {target!r}")
        return value

    def add_module(self, name: str, module: Module | None) -> None:
        """Assign a module, or None, to an attribute that is new or a module.

        Raises:
            TypeError: the value is of another kind, or the name is no string.
            KeyError: the name is empty, has a dot, or is another attribute.
        """
        self._register(name, module, Module)

    register_module = add_module

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Assign a Parameter, or None; errors as of `add_module`."""
        self._register(name, param, Parameter)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Assign a Tensor as a Buffer with the same memory, or None; errors as of `add_module`.

        Args:
            persistent: False leaves it out of state dicts.
        """
        if isinstance(tensor, Tensor) and not isinstance(tensor, Parameter):
            tensor = Buffer._of(tensor, persistent)
        self._register(name, tensor, Buffer)
        if tensor is None:
            self._await_buffer(name, persistent)

    def _await_buffer(self, name: str, persistent: bool) -> None:
        """Note that an attribute is None in place of a Buffer: a Tensor that is assigned to it becomes one."""
        vars(self)["_awaited"] = {**self._awaited, name: persistent}

    def _register(self, name: str, value: Any, kind: type) -> None:
        owner, wanted = type(self).__name__, kind.__name__
        if not isinstance(name, str):
            raise TypeError(f"{owner}: the name {name!r} of a {wanted} is not a string")
        if value is not None and not isinstance(value, kind):
            wanted = "Tensor" if kind is Buffer else wanted
            raise TypeError(f"{owner}.{name}: a {type(value).__name__} is not a {wanted}")
        taken = hasattr(self, name) and not isinstance(vars(self).get(name, ...), (kind, type(None)))
        if taken or not name or "." in name:
            reason = "is another attribute" if taken else "is empty" if not name else "has a dot"
            raise KeyError(f"{owner}: {name!r} cannot be the name of a {wanted}, because it {reason}")
        setattr(self, name, value)
        if value is None:
            vars(self)["_kept_places"] = self._kept_places | {name}

    def apply(self: Self, function: Callable[[Module], object]) -> Self:
        """Call `function` on every module below, children first, and then on this one."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self


def _is_state(value: Tensor) -> bool:
    return not isinstance(value, Buffer) or value.persistent


def _dotted(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def as_buffer(value: Tensor, persistent: bool) -> Tensor:
    """A Tensor as a Buffer of the same memory; a Parameter or a Buffer as it is."""
    return value if isinstance(value, (Parameter, Buffer)) else Buffer._of(value, persistent)


def of_the_kind_of(current: Parameter | Buffer | Module, value: Any, name: str) -> Any:
    """The value that may take the place of a part of a module, else `TypeError`."""
    if isinstance(current, Parameter):
        raise TypeError(
            f"{name} is a Parameter, and {type(value).__name__} cannot take its place; assign alpha.nn.Parameter(..) "
            "or None, or load values with load_state_dict"
        )
    if isinstance(value, Module) or (isinstance(current, Buffer) and isinstance(value, Buffer)):
        return value
    if isinstance(current, Buffer) and isinstance(value, Tensor):
        return as_buffer(value, current.persistent)
    kind, wanted = ("Buffer", "a Tensor") if isinstance(current, Buffer) else ("Module", "a Module")
    raise TypeError(f"{name} is a {kind}, and {type(value).__name__} cannot take its place; assign {wanted} or None")


class Parts(MutableMapping[str, Any]):
    """The attributes of a module that are of one kind, by name; what is written or deleted here is so in the module."""

    def __init__(self, module: Any, kind: type) -> None:
        self._module, self._kind = module, kind

    def __getitem__(self, name: str) -> Any:
        value = vars(self._module).get(name)
        if not isinstance(value, self._kind):
            raise KeyError(name)
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)

    def __delitem__(self, name: str) -> None:
        self[name]
        delattr(self._module, name)

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, value in vars(self._module).items() if isinstance(value, self._kind)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)})"
