"""Module: a tree of layers with parameters and buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from alpha.errors import CheckpointError
from alpha.hooks import ForwardHook, HookHandle, PreHook
from alpha.numerics import BFLOAT16
from alpha.runtime import Device, get_device
from alpha.state_dict import StateDict, read_state
from alpha.tensor import Tensor, as_dtype, tensor
from alpha.tensor_operators import DTypeLike

__all__ = ["Buffer", "Module", "Parameter"]

Self = TypeVar("Self", bound="Module")


class Parameter(Tensor):
    """A tensor that a module trains; `values`, whatever `alpha.tensor` takes, are copied."""

    __slots__ = ()

    def __init__(self, values: Any, requires_grad: bool = True) -> None:
        super().__init__(tensor(values).array, requires_grad)


class Buffer(Tensor):
    """State of a module that is not trained, as running statistics; `values` as for `Parameter`."""

    __slots__ = ()

    def __init__(self, values: Any) -> None:
        super().__init__(tensor(values).array)

    @classmethod
    def _of(cls, value: Tensor) -> Buffer:
        """A Buffer that shares everything with a Tensor: memory, version, graph."""
        result = cls.__new__(cls)
        for name in Tensor.__slots__:
            if name != "__weakref__":
                setattr(result, name, getattr(value, name))
        return result


class Module:
    """Base of layers and models: assign parameters and modules as attributes, define `forward`.

    An attribute that is a `Parameter`, a `Buffer` or a `Module` is part of the model; anything
    else, as None, a plain tensor or a list, is not (`ModuleList` holds modules).

    Attributes:
        training: True after `train()` (the default), False after `eval()`.
    """

    training = True
    _pre_hooks: tuple[PreHook, ...] = ()
    _forward_hooks: tuple[ForwardHook, ...] = ()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{type(self).__name__} defines no forward(self, ...)")

    def __setattr__(self, name: str, value: Any) -> None:
        """Assign an attribute; one that is a part of the model stays a part of its kind, or becomes None.

        A Tensor that is assigned to a Buffer's name becomes a Buffer with the same memory and graph.

        Raises:
            TypeError: the attribute is a Parameter, a Buffer or a Module and the value is of another kind.
        """
        current = vars(self).get(name)
        if isinstance(current, (Parameter, Buffer, Module)) and not (value is None or isinstance(value, Parameter)):
            value = _of_the_kind_of(current, value, f"{type(self).__name__}.{name}")
        object.__setattr__(self, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for before in self._pre_hooks:
            result = before(self, args)
            if result is not None:
                args = result if isinstance(result, tuple) else (result,)
        output = self.forward(*args, **kwargs)
        for after in self._forward_hooks:
            replacement = after(self, args, output)
            output = output if replacement is None else replacement
        return output

    @property
    def is_hooked(self) -> bool:
        """Whether a hook sees what this module is given and makes; not, if all its hooks have `only_watches` set."""
        hooks = self._pre_hooks + self._forward_hooks
        return bool(hooks) and not all([getattr(hook, "only_watches", False) for hook in hooks])

    def register_forward_pre_hook(self, hook: PreHook) -> HookHandle:
        """Call `hook(module, args)` before each forward; a result, a tuple or the only argument, replaces the args."""
        return HookHandle(self, "_pre_hooks", hook)

    def register_forward_hook(self, hook: ForwardHook) -> HookHandle:
        """Call `hook(module, args, output)` after each forward; a result replaces the output."""
        return HookHandle(self, "_forward_hooks", hook)

    # -- the tree -----------------------------------------------------------------------------

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(attribute name, module) of the direct submodules, in order of assignment."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value

    def children(self) -> Iterator[Module]:
        for _, module in self.named_children():
            yield module

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """(dotted name, module) of this and every module below; a shared one comes once."""
        seen: set[int] = set()

        def walk(module: Module, name: str) -> Iterator[tuple[str, Module]]:
            if id(module) in seen:
                return
            seen.add(id(module))
            yield name, module
            for child_name, child in module.named_children():
                yield from walk(child, f"{name}.{child_name}" if name else child_name)

        return walk(self, prefix)

    def modules(self) -> Iterator[Module]:
        for _, module in self.named_modules():
            yield module

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, tensor) of every parameter and buffer; a shared one comes once."""
        seen: set[int] = set()
        for prefix, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, (Parameter, Buffer)) and id(value) not in seen:
                    seen.add(id(value))
                    yield (f"{prefix}.{name}" if prefix else name), value

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        for name, value in self.named_tensors():
            if isinstance(value, Parameter):
                yield name, value

    def parameters(self) -> Iterator[Parameter]:
        for _, value in self.named_parameters():
            yield value

    def named_buffers(self) -> Iterator[tuple[str, Buffer]]:
        for name, value in self.named_tensors():
            if isinstance(value, Buffer):
                yield name, value

    def buffers(self) -> Iterator[Buffer]:
        for _, value in self.named_buffers():
            yield value

    def apply(self: Self, function: Callable[[Module], object]) -> Self:
        """Call `function` on this and every module below."""
        for module in self.modules():
            function(module)
        return self

    # -- state --------------------------------------------------------------------------------

    def train(self: Self, mode: bool = True) -> Self:
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: Self) -> Self:
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Train every parameter, or freeze them all: `model.blocks.requires_grad_(False)`."""
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def zero_grad(self) -> None:
        for parameter in self.parameters():
            parameter.grad = None

    def to(self: Self, device: str | Device) -> Self:
        """Move parameters and buffers, in place; gradients are dropped."""
        target = get_device(device)
        for _, value in self.named_tensors():
            if value.device is not target:
                value.array = target.upload(value.numpy())
                value.grad = None
        return self

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
            if value.dtype.kind == "f" and value.dtype != target:
                value.array = value.device.upload(value.numpy().astype(target))
                value.grad = None
        return self

    @property
    def device(self) -> Device:
        """Where the first parameter or buffer lives; cpu for a module without any."""
        for _, value in self.named_tensors():
            return value.device
        return get_device("cpu")

    def state_dict(self) -> StateDict:
        """Copies of all parameters and buffers on the host, by dotted name; its `layout` is "NHWC"."""
        return StateDict(((name, value.numpy()) for name, value in self.named_tensors()), layout="NHWC")

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True, *, layout: str | None = None) -> None:
        """Copy values in by name; nothing is changed unless everything fits.

        PyTorch has filters as (OC, IC, FH, FW), and those of a transposed convolution as (IC, OC, FH, FW). With
        layout="NCHW" the second axis of each value of four axes becomes the last one. A Linear layer after a Flatten
        counts its features in another order, too, which no shape tells: turn such a weight, made for maps of C
        channels, H rows and W columns, by `weight.reshape(-1, C, H, W).transpose(0, 2, 3, 1).reshape(len(weight), -1)`.

        Args:
            state: arrays, or tensors of Alpha or PyTorch, by dotted name.
            strict: missing and unexpected names are errors; shapes that differ always are. PyTorch's
                `num_batches_tracked` of a batch norm is passed over.
            layout: "NHWC" for Alpha's weights or "NCHW" for PyTorch's. What `state_dict()` and
                `alpha.train.load_weights` return knows its layout. It must be given for PyTorch's tensors of four
                axes, and for plain arrays whose shape fits in both layouts.

        Raises:
            CheckpointError: lists every mismatch at once.
        """
        own = dict(self.named_tensors())
        values, problems = read_state(own, state, layout, strict)
        if problems:
            count = "1 mismatch" if len(problems) == 1 else f"{len(problems)} mismatches"
            raise CheckpointError(f"{count} between the weights and {type(self).__name__}:\n  " + "\n  ".join(problems))
        for name, value in values.items():
            target = own[name]
            target.array = target.device.upload(np.asarray(value, target.dtype, order="C"))
            target._version.bump("load_state_dict")

    def summary(self, input_shape: tuple[int, ...]) -> str:
        """A table of layers, from one forward pass on zeros in the precision in force; the module stays as it was.

        Its columns are the shape of the output, the parameters, the operations of convolutions and matrix products in
        millions, the share of a convolution's products that meet a zero and are skipped, the bytes that operators read
        and write, and the bytes of activations that are kept for the backward pass, as if there was
        no `alpha.checkpoint`. K, M and G are KiB, MiB and GiB.

        Args:
            input_shape: (N, H, W, C) of a batch, or whatever `forward` takes.
        """
        from alpha.nn.summary import summary

        return summary(self, input_shape)

    def extra_repr(self) -> str:
        """What `repr` shows between the parentheses; a layer's own arguments."""
        return ""

    def __repr__(self) -> str:
        lines = [f"  ({name}): " + repr(child).replace("\n", "\n  ") for name, child in self.named_children()]
        inside = self.extra_repr() + ("\n" + "\n".join(lines) + "\n" if lines else "")
        return f"{type(self).__name__}({inside})"


def _of_the_kind_of(current: Parameter | Buffer | Module, value: Any, name: str) -> Any:
    """The value that may take the place of a part of a module, else `TypeError`."""
    if isinstance(current, Parameter):
        raise TypeError(
            f"{name} is a Parameter, and {type(value).__name__} cannot take its place; assign alpha.nn.Parameter(..) "
            "or None, or load values with load_state_dict"
        )
    if isinstance(value, Module) or (isinstance(current, Buffer) and isinstance(value, Buffer)):
        return value
    if isinstance(current, Buffer) and isinstance(value, Tensor):
        return Buffer._of(value)
    kind, wanted = ("Buffer", "a Tensor") if isinstance(current, Buffer) else ("Module", "a Module")
    raise TypeError(f"{name} is a {kind}, and {type(value).__name__} cannot take its place; assign {wanted} or None")
