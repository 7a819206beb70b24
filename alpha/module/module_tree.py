"""The tree that a module is the root of: its parts by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from alpha.core.tensor import Tensor
from alpha.module.module_parts import Parts
from alpha.module.parameter import Buffer, Parameter

if TYPE_CHECKING:
    from alpha.module.module import Module

Self = TypeVar("Self", bound="ModuleTree")


class ModuleTree:
    """What a `Module` offers to go through its parts, which are its attributes."""

    _filters: ClassVar[tuple[str, ...]] = ()  # parameters of a layer that PyTorch has with channels second
    _namesake: ClassVar[tuple[str, str]] = ("", "")  # how names of another network's weights begin, and what to do then
    _awaited: Mapping[str, bool] = {}  # whether it is persistent, for each Buffer in whose place there is None

    def _form_of(self, name: str) -> tuple[int | None, ...] | None:
        """What is known of the shape of an uninitialised parameter or buffer: None for a length, or for all of them."""
        return None

    @property
    def _modules(self) -> Parts:
        """The direct submodules by name; what is written here becomes an attribute."""
        return Parts(self, ModuleTree)

    @property
    def _parameters(self) -> Parts:
        """The module's own parameters by name, without those that are None."""
        return Parts(self, Parameter)

    @property
    def _buffers(self) -> Parts:
        """The module's own buffers by name, without those that are None."""
        return Parts(self, Buffer)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(attribute name, module) of the direct submodules, in order of assignment."""
        for name, value in vars(self).items():
            if isinstance(value, ModuleTree):
                yield name, value  # type: ignore[misc]  # the only subclass is Module

    def children(self) -> Iterator[Module]:
        for value in vars(self).values():
            if isinstance(value, ModuleTree):
                yield value  # type: ignore[misc]

    def named_modules(self, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """(dotted name, module) of this and every module below; a shared one once, or with `False` by each name."""
        seen: set[int] = set()

        def walk(module: Module, name: str) -> Iterator[tuple[str, Module]]:
            if id(module) in seen:
                return
            if remove_duplicate:
                seen.add(id(module))
            yield name, module
            for child_name, child in module.named_children():
                yield from walk(child, _dotted(name, child_name))

        return walk(cast("Module", self), prefix)

    def modules(self) -> Iterator[Module]:
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
        modules = self.named_modules(prefix, remove_duplicate) if recurse else [(prefix, cast("Module", self))]
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
        for _, value in self.named_buffers(recurse=recurse):
            yield value

    def get_submodule(self, target: str) -> Module:
        """The module of a dotted name, "" for this one; `AttributeError` if there is none."""
        return cast("Module", self._part(target, ModuleTree) if target else self)

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
            wanted = "Module" if kind is ModuleTree else kind.__name__
            raise AttributeError(f"{type(self).__name__} has no {wanted} of the name {target!r}")
        return value

    def add_module(self, name: str, module: Module | None) -> None:
        """Assign a module, or None, to an attribute that is new or a module.

        Raises:
            TypeError: the value is of another kind, or the name is no string.
            KeyError: the name is empty, has a dot, or is another attribute.
        """
        self._register(name, module, ModuleTree)

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
        owner, wanted = type(self).__name__, "Module" if kind is ModuleTree else kind.__name__
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

    def apply(self: Self, function: Callable[[Module], object]) -> Self:
        """Call `function` on every module below, children first, and then on this one."""
        for child in self.children():
            child.apply(function)
        function(cast("Module", self))
        return self


def _dotted(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def as_buffer(value: Tensor, persistent: bool) -> Tensor:
    """A Tensor as a Buffer of the same memory; a Parameter or a Buffer as it is."""
    return value if isinstance(value, (Parameter, Buffer)) else Buffer._of(value, persistent)


def of_the_kind_of(current: Parameter | Buffer | ModuleTree, value: Any, name: str) -> Any:
    """The value that may take the place of a part of a module, else `TypeError`."""
    if isinstance(current, Parameter):
        raise TypeError(
            f"{name} is a Parameter, and {type(value).__name__} cannot take its place; assign alpha.nn.Parameter(..) "
            "or None, or load values with load_state_dict"
        )
    if isinstance(value, ModuleTree) or (isinstance(current, Buffer) and isinstance(value, Buffer)):
        return value
    if isinstance(current, Buffer) and isinstance(value, Tensor):
        return as_buffer(value, current.persistent)
    kind, wanted = ("Buffer", "a Tensor") if isinstance(current, Buffer) else ("Module", "a Module")
    raise TypeError(f"{name} is a {kind}, and {type(value).__name__} cannot take its place; assign {wanted} or None")
