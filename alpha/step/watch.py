"""What a step depends on, on the host: the objects that its code can reach, and whether they have changed.

A graph repeats what the step's Python code asked of the device when it was captured. It stays right as long as that
code would ask for the same again. So before each replay everything that the code reads is compared with what it was
then: the variables of its closure, the globals that it names, and from there modules, optimizers, tensors and lists.

Attributes of a program's own objects count if some code of the step names them, because such objects often hold
counters that the step never reads.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

from alpha.module import Module
from alpha.nn.lazy import waits
from alpha.optim.optimizer import Optimizer
from alpha.runtime.recording import StepValue
from alpha.step.code import globals_in, is_library, names_in
from alpha.step.compare import (
    MISSING,
    PLAIN,
    Values,
    change_of_attributes,
    change_of_mapping,
    change_of_parts,
    change_of_sequence,
    change_of_tensor,
    content,
    counted,
    items,
    same,
)
from alpha.tensor import Tensor

OPAQUE = (StepValue, type, types.ModuleType, types.BuiltinFunctionType)
INTERNAL = ("alpha.runtime", "alpha.data", "alpha.rng")  # what lies there is not what a step depends on
BY_NAME = ("alpha.train",)  # of these objects only the attributes count that some code of the step names
LARGE = 4096  # bytes of an array, or elements of a list, above which its content is not compared
MOST = 20_000  # objects
Tell = Callable[[Values, Values], str]  # what differs between the values of before and now, in words
_TENSOR = operator.attrgetter("array", "_requires_grad", "_node", "_hooks")  # what counts of a tensor
_HOOKS = operator.attrgetter("_hooks")


class Watch:
    """The state that `function` and the `objects` among its arguments reach now.

    Attributes:
        tensors: all tensors that it reaches, in the order in which they were found.
        reached: all objects that it reaches; they live as long as this, so that no address means another object.
        hooks: the names of tensors and modules that have hooks.
        lazy: lazy modules and uninitialised tensors, by name, which wait for their first forward.
    """

    def __init__(self, function: Callable[..., Any], objects: Mapping[str, Any]) -> None:
        self._names = names_in(function)
        known = -1
        # until there are no new names: one that is found late may be an attribute of an object that was found early
        while known < len(self._names):
            known = len(self._names)
            self.tensors: list[Tensor] = []
            self._tensor_values: list[tuple[str, tuple[Any, ...]]] = []
            self.hooks: list[str] = []
            self.lazy: dict[str, Any] = {}
            self._seen: set[int] = set()
            self.reached: list[Any] = []
            self._readers: list[tuple[Tell, Callable[[], Iterable[Any]], Values]] = []
            self._attributes: list[
                tuple[str, dict[str, Any], dict[str, Any]]
            ] = []  # all that an object has, now and before
            self._visit(getattr(function, "__name__", "the step"), function)
            for name, value in objects.items():
                self._visit(name, value)
        self._values = tuple(self._read())

    def _read(self) -> Iterable[Any]:
        """All values that count, one after the other."""
        parts = [read() for tell, read, values in self._readers]
        attributes = [held for name, held, values in self._attributes]
        return chain(
            chain.from_iterable(parts),
            map(len, attributes),
            chain.from_iterable(map(dict.values, attributes)),
            chain.from_iterable(map(_TENSOR, self.tensors)),
        )

    @property
    def leaves(self) -> list[Tensor]:
        """The tensors whose gradients a step may leave."""
        return [tensor for tensor in self.tensors if tensor._node is None and tensor._requires_grad]

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors, each with the name by which it was first found."""
        yield from zip([name for name, _ in self._tensor_values], self.tensors, strict=True)

    def change(self) -> str:
        """What has changed since, in words; empty if nothing has."""
        values = tuple(self._read())
        identical = len(values) == len(self._values) and all(map(operator.is_, values, self._values))
        if identical and not any(map(_HOOKS, self.tensors)):
            return ""
        change = self._change_by_name()
        if not change:
            self._values = values
        return change

    def _change_by_name(self) -> str:
        for index, (tell, read, before) in enumerate(self._readers):
            now = tuple(read())
            if not same(before, now):
                return tell(before, now)
            self._readers[index] = tell, read, now
        for name, held, values in self._attributes:
            if not same(tuple(values.values()), tuple(held.values())):
                return change_of_attributes(name, values, held)
        for (name, before), tensor in zip(self._tensor_values, self.tensors, strict=True):
            if not same(before, now := _tensor_values(tensor)):
                return change_of_tensor(name, before, now)
        return ""

    def _watch(self, tell: Tell, read: Callable[[], Iterable[Any]]) -> Values:
        """Compare what `read` gives; `tell` says in words what has changed in it."""
        values = tuple(read())
        self._readers.append((tell, read, values))
        return values

    def _visit(self, name: str, value: Any) -> None:
        if isinstance(value, PLAIN) or id(value) in self._seen:
            return
        self._seen.add(id(value))
        self.reached.append(value)
        if len(self._seen) > MOST:
            raise OverflowError(f"the step reaches more than {MOST} objects, the last one at {name}")
        if waits(value):
            self.lazy[name] = value
        elif isinstance(value, Tensor):
            self._visit_tensor(name, value)
        elif isinstance(value, np.ndarray):
            if value.nbytes <= LARGE and not value.dtype.hasobject:
                self._watch(lambda *_: f"{name}, values of a numpy array", lambda: (value.tobytes(),))
        elif isinstance(value, Optimizer):
            self._visit_optimizer(name, value)
        elif isinstance(value, (Mapping, list, tuple, set, frozenset)):
            self._visit_container(name, value)
        elif "captured_function" in getattr(value, "__dict__", ()):
            self._visit(name, value.captured_function)
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self._visit(name, part)
        elif isinstance(value, types.MethodType):
            self._visit(name, value.__self__)
            self._visit(name, value.__func__)
        elif isinstance(value, types.FunctionType):
            self._visit_function(name, value)
        elif not isinstance(value, OPAQUE) and not type(value).__module__.startswith(INTERNAL):
            self._visit_object(name, value)

    def _visit_tensor(self, name: str, tensor: Tensor) -> None:
        self.tensors.append(tensor)
        if tensor._hooks:
            self.hooks.append(name)
        self._tensor_values.append((name, _tensor_values(tensor)))
        if isinstance(tensor.array, np.ndarray):  # the step may read its values on the host
            self._watch(lambda *_: f"{name}, values of a tensor on cpu", lambda: (tensor._version.value,))
            self._visit(name, tensor.array)

    def _visit_optimizer(self, name: str, optimizer: Optimizer) -> None:
        """Its groups without what a replay reads anew, as the learning rates; its state without the count of steps.

        They count, too, if code of the step may read them itself, or if the program's own optimizer may.
        """
        own = not is_library(type(optimizer).__module__)
        rates = () if own or "param_groups" in self._names else optimizer.per_step - self._names
        counts = () if own or "state" in self._names else tuple(optimizer.counts)
        count = len(optimizer.param_groups)
        parts = ["state", "param_groups", *(f"param_groups[{number}]" for number in range(count))]
        whole = functools.partial(change_of_parts, name, ".{}", parts)
        self._watch(whole, lambda: (optimizer.state, optimizer.param_groups, *optimizer.param_groups))
        for number, group in enumerate(optimizer.param_groups):
            keys = [key for key in group if key not in (*rates, "params")]
            tell = functools.partial(change_of_parts, f"{name}.param_groups[{number}]", "[{!r}]", keys)
            self._watch(tell, items(group, keys))
            tell = functools.partial(change_of_sequence, f"{name}.param_groups[{number}]")
            self._watch(tell, lambda group=group: counted(optimizer._structure(group)))  # type: ignore[misc]
            self._visit(f"{name}.param_groups[{number}]['params']", group["params"])
        for slots in optimizer.state.values():
            keys = [key for key in slots if key not in counts]
            self._watch(functools.partial(change_of_parts, name + ".state[..]", "[{!r}]", keys), items(slots, keys))

    def _visit_container(self, name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            parts = [(f"{name}[{key!r}]", item) for key, item in value.items()]
            self._watch(
                functools.partial(change_of_mapping, name), lambda: (len(value), *value.keys(), *value.values())
            )
        else:
            parts = [(f"{name}[{index}]", item) for index, item in enumerate(value)]
            tell = functools.partial(change_of_sequence, name)
            if len(parts) > LARGE and isinstance(parts[0][1], PLAIN):
                self._watch(tell, lambda: (len(value),))
                return
            if not isinstance(value, (tuple, frozenset)):
                self._watch(tell, lambda: counted(value))
        for place, item in parts:
            self._visit(place, item)

    def _visit_function(self, name: str, function: types.FunctionType) -> None:
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for variable, cell in cells.items():
            tell = functools.partial(change_of_parts, "", "{}", [variable])
            (value,) = self._watch(tell, lambda c=cell: (content(c),))  # type: ignore[misc]
            self._visit(variable, value)
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._visit(f"a default of {name}", default)
        if is_library(function.__module__):
            return
        self._names |= names_in(function)
        scope = function.__globals__
        for variable in sorted(globals_in(function)):
            tell = functools.partial(change_of_parts, "", "{}", [variable])
            (value,) = self._watch(tell, lambda v=variable: (scope.get(v, MISSING),))  # type: ignore[misc]
            if isinstance(value, types.ModuleType) and not is_library(value.__name__):
                self._visit_attributes(variable, value)
            else:
                self._visit(variable, value)

    def _visit_object(self, name: str, value: Any) -> None:
        kind = type(value)
        kinds = ("_forward_hooks", "_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        if isinstance(value, Module) and any(getattr(value, hooks, None) for hooks in kinds):
            self.hooks.append(name)
        if not is_library(kind.__module__):
            for base in kind.__mro__:
                for key, member in vars(base).items() if not is_library(base.__module__) else ():
                    function = getattr(member, "__func__", getattr(member, "fget", member))
                    if isinstance(function, types.FunctionType) and self._may_run(key):
                        self._names |= names_in(function)
                        self._visit(f"{kind.__name__}.{function.__name__}", function)
            self._visit_class_attributes(kind)
        self._visit_attributes(name, value)

    def _may_run(self, method: str) -> bool:
        """Whether the step may call a method of this name: it names it, or Python or `Module` does."""
        return method in self._names or method == "forward" or (method.startswith("__") and method != "__init__")

    def _visit_class_attributes(self, kind: type) -> None:
        for base in kind.__mro__:
            if is_library(base.__module__) or id(base) in self._seen:
                continue
            self._seen.add(id(base))
            names = [key for key, member in vars(base).items() if key in self._names and not callable(member)]
            for key, item in zip(names, self._read_names(base.__name__, base, names), strict=True):
                self._visit(f"{base.__name__}.{key}", item)

    def _visit_attributes(self, name: str, value: Any) -> None:
        attributes, is_module = getattr(value, "__dict__", None), isinstance(value, types.ModuleType)
        if attributes is None:
            slots = [slot for base in type(value).__mro__ for slot in getattr(base, "__slots__", ())]
            names = [slot for slot in slots if hasattr(value, slot)]
        elif is_library(type(value).__module__) and not type(value).__module__.startswith(BY_NAME) and not is_module:
            self._attributes.append((name, attributes, attributes.copy()))
            for key, item in list(attributes.items()):
                self._visit(f"{name}.{key}", item)
            return
        else:
            names = [key for key, item in attributes.items() if key in self._names or _is_part(item)]
        for key, item in zip(names, self._read_names(name, value, names), strict=True):
            self._visit(f"{name}.{key}", item)

    def _read_names(self, name: str, owner: Any, names: list[str]) -> tuple[Any, ...]:
        held = vars(owner) if hasattr(owner, "__dict__") else None
        tell = functools.partial(change_of_parts, name, ".{}", names)
        if held is None:
            return self._watch(tell, lambda: tuple([getattr(owner, key, MISSING) for key in names]))
        return self._watch(tell, items(held, names))


def _tensor_values(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.array, tensor._requires_grad, tensor._node, len(tensor._hooks)


def _is_part(value: Any) -> bool:
    """Whether a module may use this attribute without naming it, as `children` finds submodules."""
    if isinstance(value, (list, tuple)):
        return any(map(_is_part, value[:100]))
    if isinstance(value, dict):
        return any(map(_is_part, list(value.values())[:100]))
    return isinstance(value, (Tensor, Module))
