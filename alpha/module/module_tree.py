"""Parts of a module: the parameters, buffers and modules among its attributes, and their dotted names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

from alpha.core.names.missing_names import MissingName
from alpha.core.origins import Origin, settle
from alpha.core.tensor import Tensor
from alpha.module.hooks import Hooked
from alpha.module.parameter import Buffer, Parameter

if TYPE_CHECKING:
    from alpha.module.module import Module


class Tree(Hooked):
    """Attributes of a `Module`, of which some are its parts, and everything that goes through the parts below it."""

    _filters: ClassVar[tuple[str, ...]] = ()  # parameters of a layer that PyTorch has with channels second
    _kept_places: frozenset[str] = frozenset()  # names that are None now, whose parts will stand where they stand
    # for each Buffer in whose place there is None, whether it is persistent; for a Parameter None
    _awaited: Mapping[str, bool | None] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        """Assign an attribute; one that is a part of the model stays a part of its kind, or becomes None.

        A Tensor that is assigned to a Buffer's name becomes a Buffer with the same memory and graph, also if there was
        None in its place.

        Raises:
            TypeError: the attribute is a Parameter, a Buffer or a Module and the value is of another kind.
        """
        attributes = vars(self)
        current = attributes.get(name)
        was_part = isinstance(current, (Parameter, Buffer, Tree))
        if was_part and value is None:
            attributes["_kept_places"] = self._kept_places | {name}
        becomes_part = not was_part and isinstance(value, (Parameter, Buffer, Tree))
        if becomes_part and name in attributes and name not in self._kept_places:
            del attributes[name]  # a part comes behind those that are there, as in PyTorch
        if isinstance(current, (Parameter, Buffer, Tree)) and not (value is None or isinstance(value, Parameter)):
            value = of_the_kind_of(current, value, f"{type(self).__name__}.{name}")
        elif value is None and isinstance(current, (Parameter, Buffer)):
            self._await(name, current.persistent if isinstance(current, Buffer) else None)
        elif current is None and value is not None and name in self._awaited:
            value = in_place_of_none(value, self._awaited[name], f"{type(self).__name__}.{name}")
        if isinstance(value, (Parameter, Buffer)) and isinstance(value._base_version, Origin):
            settle(value, f"{type(self).__name__}.{name}", name in self._filters)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        """Delete an attribute; nothing is known of its name any more."""
        object.__delattr__(self, name)
        if name in self._awaited:
            vars(self)["_awaited"] = {awaited: kind for awaited, kind in self._awaited.items() if awaited != name}

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

    @property
    def _modules(self) -> Parts:
        """The direct submodules by name; what is written here becomes an attribute."""
        return Parts(self, Tree)

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
            if isinstance(value, Tree):
                yield name, value  # type: ignore[misc]  # the one subclass of Tree

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
                yield from walk(child, dotted(name, child_name))

        return walk(cast("Module", self), prefix)

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
                    yield dotted(path, name), value

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
        return cast("Module", self._part(target, Tree) if target else self)

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
            raise AttributeError(f"{type(self).__name__} has no {_word(kind)} of the name {target!r}")
        return value

    def add_module(self, name: str, module: Module | None) -> None:
        """Assign a module, or None, to an attribute that is new or a module.

        Raises:
            TypeError: the value is of another kind, or the name is no string.
            KeyError: the name is empty, has a dot, or is another attribute.
        """
        self._register(name, module, Tree)

    register_module = add_module

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Assign a Parameter, or None; errors as of `add_module`."""
        self._register(name, param, Parameter)
        if param is None:
            self._await(name, None)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Assign a Tensor as a Buffer with the same memory, or None; errors as of `add_module`.

        Args:
            persistent: False leaves it out of state dicts.
        """
        if isinstance(tensor, Tensor) and not isinstance(tensor, Parameter):
            tensor = Buffer._of(tensor, persistent)
        self._register(name, tensor, Buffer)
        if tensor is None:
            self._await(name, persistent)

    def _await(self, name: str, persistent: bool | None) -> None:
        """Note that an attribute is None in place of a Buffer, which a Tensor becomes there, or of a Parameter."""
        vars(self)["_awaited"] = {**self._awaited, name: persistent}

    def _register(self, name: str, value: Any, kind: type) -> None:
        owner, wanted = type(self).__name__, _word(kind)
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


def _word(kind: type) -> str:
    """Name of a kind of parts, as the user knows it."""
    return "Module" if kind is Tree else kind.__name__


def dotted(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def as_buffer(value: Tensor, persistent: bool) -> Tensor:
    """A Tensor as a Buffer of the same memory; a Parameter or a Buffer as it is."""
    return value if isinstance(value, (Parameter, Buffer)) else Buffer._of(value, persistent)


def in_place_of_none(value: Any, persistent: bool | None, name: str) -> Any:
    """The value that may be assigned where None stands for a Buffer, or for a Parameter; else `TypeError`."""
    if persistent is not None:
        return as_buffer(value, persistent) if isinstance(value, Tensor) else value
    if isinstance(value, Parameter):
        return value
    raise TypeError(
        f"{name} is None in the place of a Parameter, which {type(value).__name__} cannot take, as it would not be "
        "trained; assign alpha.nn.Parameter(..), or delete the attribute before"
    )


def of_the_kind_of(current: Parameter | Buffer | Tree, value: Any, name: str) -> Any:
    """The value that may take the place of a part of a module, else `TypeError`."""
    if isinstance(current, Parameter):
        raise TypeError(
            f"{name} is a Parameter, and {type(value).__name__} cannot take its place; assign alpha.nn.Parameter(..) "
            "or None, or load values with load_state_dict"
        )
    if isinstance(value, Tree) or (isinstance(current, Buffer) and isinstance(value, Buffer)):
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
