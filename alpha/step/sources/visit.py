"""The visit of all objects that a step can reach: for each kind what is compared of it, and where it leads.

`watch.py` says which objects and attributes count, and when the visits are made. An object whose content cannot be
compared is `unknown`.
"""

from __future__ import annotations

import builtins
import functools
import importlib.util
import sys
import types
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from alpha.core.tensor import Tensor
from alpha.module.module import Module
from alpha.nn.lazy import waits
from alpha.optim.optimizer import Optimizer
from alpha.step.sources import look
from alpha.step.sources.code import (
    BY_NAME,
    STATE_OF_ANOTHER,
    codes_in,
    facts,
    is_known,
    is_proven,
    is_standard,
    names_in,
)
from alpha.step.sources.dependence import (
    MISSING,
    Values,
    became,
    change_of_attributes,
    change_of_mapping,
    change_of_parts,
    change_of_sequence,
    content,
    counted,
    entry,
)
from alpha.step.sources.kinds import (
    LARGE,
    LRU,
    Chooses,
    attributes_of,
    chooser,
    counts_of_alpha,
    counts_of_class,
    equal_items,
    hidden_base,
    is_a,
    is_constant,
    is_data,
    is_leaf,
    is_seen_elsewhere,
    items_of,
    mapping,
    may_run,
    names_of,
    parts_of,
    reader_of,
    results_of,
    slots_of,
    tensor_values,
)
from alpha.step.sources.ran import Ran, asks

MOST = 20_000  # objects
Tell = Callable[[Values, Values], str]  # what differs between the values of before and now, in words
_AT_ONCE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")  # what runs where it is made
_MEMBERS = (types.FunctionType, staticmethod, classmethod, property, types.BuiltinFunctionType)


class Visit:
    """Visit of all that a function reaches, from object to object, and how each of them is compared later."""

    def __init__(self, function: Callable[..., Any], ran: Ran) -> None:
        self._ran = ran
        self._names = set(names_in(function)) | self._ran.names
        self._own_names = set(self._ran.own_names)  # those in code that is not Alpha's
        self._computes = self._ran.computes
        self._begin()

    def _begin(self) -> None:
        """Forget what was reached until now."""
        self.tensors: list[Tensor] = []
        self.hooks: list[str] = []
        self.lazy: dict[str, Any] = {}
        self.reached: list[Any] = []
        self.unknown: list[str] = []
        self._visited: set[int] = set()  # ids of what was entered
        self._left: list[tuple[str, Any]] = []  # to be visited, the last one first
        self._tensor_values: list[tuple[str, tuple[Any, ...]]] = []
        self._readers: list[tuple[Tell, Callable[[], Iterable[Any]], Values]] = []
        self._plain: list[tuple[Callable[[], Iterable[Any]], Values]] = []  # those that no look covers
        self._looks: dict[Any, tuple[look.Reader, list[Any]]] = {}
        self._states: list[tuple[str, Optimizer, dict[Tensor, dict[str, Any]]]] = []
        self._scopes: dict[int, tuple[str, dict[str, Any], set[str]]] = {}
        # dicts of Python's library, in which packages register what they have: what of it runs is seen
        self._registries: set[int] = set()
        self._codes: set[types.CodeType] = set()  # of the functions that are reached
        self._nested: set[types.CodeType] = set()  # with those of the functions that these make

    # -- what is compared ---------------------------------------------------------------------

    def _look(self, key: Any, read: look.Reader, owner: Any) -> None:
        """Compare an object by one of the readers of `look`; those with the same key are read together."""
        self._looks.setdefault(key, (read, []))[1].append(owner)

    def _by_name(self, tell: Tell, read: Callable[[], Iterable[Any]]) -> None:
        """Add a reader which says in words, beside a look, what has changed."""
        self._readers.append((tell, read, tuple(read())))

    def _watch(self, tell: Tell, read: Callable[[], Iterable[Any]]) -> Values:
        """Compare what `read` gives; `tell` says in words what has changed in it."""
        self._by_name(tell, read)
        values = self._readers[-1][-1]
        self._plain.append((read, values))
        return values

    def _watch_named(
        self, name: str, owner: Any, chooses: Chooses, form: str = ".{}", direct: bool = False
    ) -> list[str]:
        """Compare those attributes, or items if `direct`, that count, and return their names."""

        asks = not direct and not is_a(owner, type) and is_a(type(owner).__getattribute__, types.FunctionType)

        def read() -> Values:
            held = owner if direct else object.__getattribute__(owner, "__dict__") if asks else owner.__dict__
            found = [key for key, value in list(held.items()) if chooses(key, value)]
            return type(owner), len(found), *found, *map(held.get, found)

        def tell(before: Values, now: Values) -> str:
            if before[0] is not now[0]:
                return became(f"{name}.__class__", before[0], now[0])
            return change_of_attributes(name, items_of(before[1:]), items_of(now[1:]), form)

        (self._watch if asks else self._by_name)(
            lambda before, now: "" if equal_items(before, now) else tell(before, now), read
        )
        keys = [*items_of(self._readers[-1][-1][1:])]
        if direct or is_a(owner, type):
            self._looks.setdefault("items", (look.Items(), []))
            read_items, owners = self._looks["items"]
            assert isinstance(read_items, look.Items)
            held = owner if direct else vars(owner)
            read_items.add(held, keys)
            owners.append(held)
        elif not asks:
            key = ("named", *keys)
            self._look(key, self._looks[key][0] if key in self._looks else look.named(keys), owner)
        return keys

    # -- what is reached ----------------------------------------------------------------------

    def _visit(self, name: str, value: Any) -> None:
        if not is_constant(value) and id(value) not in self._visited:
            self._left.append((name, value))

    def _visit_all(self) -> None:
        while self._left:
            name, value = self._left.pop()
            if id(value) in self._visited:
                continue
            self._visited.add(id(value))
            self.reached.append(value)
            if len(self._visited) > MOST:
                raise OverflowError(f"the step reaches more than {MOST} objects, the last one at {name}")
            before = len(self._left)
            self._enter(name, value)
            self._left[before:] = reversed(self._left[before:])

    def _enter(self, name: str, value: Any) -> None:
        kind = type(value)
        if is_a(value, (Tensor, Module)) and waits(value):
            self.lazy[name] = value
        elif is_a(value, Tensor):
            self._enter_tensor(name, value)
        elif is_a(value, Optimizer):
            self._enter_optimizer(name, value)
        elif is_a(value, types.FunctionType):
            self._enter_function(name, value)
        elif is_a(value, types.ModuleType):
            self._enter_module(name, value, self._names)
        elif is_a(value, type):
            self._enter_class(value)
        elif kind.__module__.startswith("alpha.runtime") or is_seen_elsewhere(value):
            if not is_known(kind.__module__):
                self._enter_object(name, value)
        elif kind.__module__ == "alpha.step.capturing.captured":
            self._visit(name, value.captured_function)
        elif (names := names_of(value)) is not None:
            self._names.update(names)
        else:
            self._enter_content(name, value)

    def _enter_content(self, name: str, value: Any) -> None:
        """Enter the content of an object of a C type, if its type has one, and its attributes."""
        kind = type(value)
        if is_a(value, (types.BuiltinFunctionType, types.MethodWrapperType)) and (why := asks(value)):
            self.unknown.append(f"it depends on {name}, which is {why}")
            return
        parts = parts_of(value)
        if parts is not None:
            if is_a(value, functools.partial):
                self._look("partials", look.partials, value)
                self._by_name(
                    functools.partial(change_of_parts, name, ".{}", ["func", "args", "keywords"]),
                    lambda: (value.func, value.args, value.keywords),
                )
            for place, item in parts.items():
                self._visit(name + place, item)
        elif (read := reader_of(value)) is not None:
            self._enter_read(name, value, read)
        elif is_a(value, dict):
            self._enter_dict(name, value)
        elif is_a(value, (list, set, deque)):
            self._enter_sequence(name, value)
        elif is_a(value, types.CellType):
            self._watch(functools.partial(change_of_parts, "", "{}", [name]), lambda: (content(value),))
            self._visit(name, content(value))
        elif is_a(value, BaseException):
            self._visit(f"{name}.args", value.args)
            self._watch(functools.partial(change_of_parts, name, ".{}", ["args"]), lambda: (value.args,))
        elif is_a(value, np.ndarray):
            self._not_compared(name, f"a numpy array of {value.nbytes:,} bytes")
        elif callable(value) and is_proven(getattr(value, "__module__", None)) and kind.__flags__ & 1 << 9 == 0:
            pass  # a function of numpy that is written in C
        elif (hidden := hidden_base(kind)) is not None:
            text = hidden.__name__ if hidden.__module__ == "builtins" else f"{hidden.__module__}.{hidden.__name__}"
            self._not_compared(name, f"an object of the type {text}")
            return
        self._enter_object(name, value)

    def _not_compared(self, name: str, what: str) -> None:
        self.unknown.append(f"it depends on {name}, {what}, whose content is not compared before each replay")

    def _enter_read(self, name: str, value: Any, read: Callable[[], Values]) -> None:
        """An object whose content a function reads."""
        if is_a(value, (types.MappingProxyType, dict)):
            self._watch(functools.partial(change_of_mapping, name), read)
            for key, item in list(value.items()):
                self._visit(entry(name, key), item)
            return
        if is_a(value, np.ndarray):
            text = f"{name}, values of a numpy array"
        elif is_a(value, np.void):
            text = f"{name}, values of a numpy record"
        else:
            text = f"{name}, the content of a {type(value).__name__}"
        values = self._watch(lambda *_: text, read)
        for item in values if not is_a(value, LRU) else (value.__wrapped__, *results_of(value)):
            self._visit(name, item)

    def _enter_dict(self, name: str, value: dict[Any, Any]) -> None:
        if value is sys.modules:
            self._not_compared(name, "the table of all modules")
            return
        if len(value) > LARGE:
            self._not_compared(name, f"a dict of {len(value):,} elements")
            return
        self._look("dicts", look.dicts, value)
        self._by_name(
            functools.partial(change_of_mapping, name),
            lambda: (dict.__len__(value), *dict.keys(value), *dict.values(value)),
        )
        for key, item in list(dict.items(value)):
            for label, part in ((entry(name, key), item), (f"a key of {name}", key)):
                if id(value) not in self._registries or not is_a(part, (types.FunctionType, type)):
                    self._visit(label, part)
        if isinstance(value, defaultdict):
            made: Any = value
            tell = functools.partial(change_of_parts, name, ".{}", ["default_factory"])
            self._watch(tell, lambda: (made.default_factory,))
            self._visit(f"{name}.default_factory", value.default_factory)

    def _enter_sequence(self, name: str, value: Any) -> None:
        kind = next(kind for kind in (list, set, deque) if is_a(value, kind))
        if len(value) > LARGE:
            self._not_compared(name, f"a {kind.__name__} of {len(value):,} elements")
            return
        self._look(kind, {list: look.lists, set: look.sets, deque: look.deques}[kind], value)
        self._by_name(functools.partial(change_of_sequence, name), lambda: (kind.__len__(value), *kind.__iter__(value)))
        for index, item in enumerate(kind.__iter__(value)):
            self._visit(f"{name}[{index}]", item)

    def _enter_tensor(self, name: str, tensor: Tensor) -> None:
        self.tensors.append(tensor)
        if tensor._hooks:
            self.hooks.append(name)
        self._tensor_values.append((name, tensor_values(tensor)))
        if not is_leaf(tensor):
            self._by_name(functools.partial(change_of_parts, name, ".{}", ["grad"]), lambda: (tensor._grad,))
            self._visit(f"{name}.grad", tensor._grad)
        if isinstance(tensor.array, np.ndarray):  # the step may read its values on the host
            version = tensor._version
            self._watch(lambda *_: f"{name}, values of a tensor on cpu", lambda: (version.value, version.shared))
            if tensor.array.nbytes <= LARGE:
                self._visit(name, tensor.array)
            elif version.shared:  # whose writes by another library are not counted
                self._not_compared(name, f"a tensor on cpu of {tensor.array.nbytes:,} bytes that numpy has, too")
        self._enter_object(name, tensor)

    def _enter_optimizer(self, name: str, optimizer: Optimizer) -> None:
        """Enter the groups and the state of an optimizer.

        The groups leave out what a replay reads anew, as the learning rates; the state leaves out the count of steps.

        They count, too, if code of the step may read them itself, or if the program's own optimizer may.
        """
        own = not is_known(type(optimizer).__module__)
        hidden = frozenset() if own or "param_groups" in self._names else optimizer.per_step - self._names
        counts = () if own or STATE_OF_ANOTHER in self._names else tuple(optimizer.counts)
        self._look(("optimizer", id(optimizer)), look.optimizer(optimizer, hidden, counts), optimizer)
        count = len(optimizer.param_groups)
        parts = ["state", "param_groups", *(f"param_groups[{number}]" for number in range(count))]
        whole = functools.partial(change_of_parts, name, ".{}", parts)
        self._by_name(whole, lambda: (optimizer.state, optimizer.param_groups, *optimizer.param_groups))
        for number, group in enumerate(optimizer.param_groups):
            self._by_name(
                functools.partial(change_of_mapping, f"{name}.param_groups[{number}]"),
                lambda group=group: mapping({k: v for k, v in group.items() if k not in hidden}),  # type: ignore[misc]
            )
            tell = functools.partial(change_of_sequence, f"{name}.param_groups[{number}]")
            self._by_name(tell, lambda group=group: counted(optimizer._structure(group)))  # type: ignore[misc]
            self._visit(f"{name}.param_groups[{number}]['params']", group["params"])
            for key, item in group.items():
                self._visit(entry(f"{name}.param_groups[{number}]", key), item)
        self._states.append((name, optimizer, dict(optimizer.state)))
        for slots in list(optimizer.state.values()):
            self._by_name(
                functools.partial(change_of_mapping, name + ".state[..]"),
                lambda slots=slots: mapping({k: v for k, v in slots.items() if k not in counts}),  # type: ignore[misc]
            )
            if own:
                for key, item in slots.items():
                    self._visit(entry(f"{name}.state[..]", key), item)
        states = [optimizer.state[parameter] for parameter in optimizer.state]
        self._by_name(lambda *_: f"{name}.state, a number of steps", lambda: look.ages(states, counts))
        self._enter_object(name, optimizer, ("state", "param_groups"))

    def _enter_function(self, name: str, function: types.FunctionType) -> None:
        self._look("functions", look.functions, function)
        tell = functools.partial(change_of_parts, name, ".{}", ["__code__", "__defaults__", "__kwdefaults__"])
        self._by_name(tell, lambda: (function.__code__, function.__defaults__, function.__kwdefaults__))
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if id(cell) in self._visited:
                continue
            self._visited.add(id(cell))
            self.reached.append(cell)
            value = content(cell)
            tell = functools.partial(change_of_parts, "", "{}", [variable])
            if value is MISSING:
                self._watch(tell, lambda c=cell: (content(c),))  # type: ignore[misc]
            else:
                self._look("cells", look.cells, cell)
                self._by_name(tell, lambda c=cell: (content(c),))  # type: ignore[misc]
                self._visit(variable, value)
        for default in function.__defaults__ or ():
            self._visit(f"a default of {name}", default)
        self._visit(f"{name}.__kwdefaults__", function.__kwdefaults__)
        self._codes.add(function.__code__)
        self._nested.update(codes_in(function.__code__))
        module = function.__globals__.get("__name__")
        if is_known(module) and not str(module).startswith(BY_NAME):
            return
        found = facts(function.__code__)
        self._names |= found.names
        if not str(module).startswith(BY_NAME):
            self._own_names |= found.names
        self._computes |= found.computes
        self._enter_scope(function.__code__, function.__globals__)
        self._enter_object(name, function)

    def _enter_scope(self, code: types.CodeType, scope: dict[str, Any]) -> None:
        """The global variables and the modules that a code may read."""
        found = facts(code)
        asked = found.variables | (found.names if found.scopes else frozenset())
        _, _, known = self._scopes.setdefault(id(scope), ("", scope, set()))
        known |= asked
        for variable in sorted(asked):
            value = scope.get(variable, MISSING)
            if is_a(value, dict) and is_standard(scope.get("__name__")):
                self._registries.add(id(value))
            if is_a(value, types.ModuleType):
                self._enter_module(variable, value, found.names)
            elif value is not MISSING:
                self._visit(variable, value)
        for level, name in found.imports:
            with_dots = "." * level + name
            try:
                full = importlib.util.resolve_name(with_dots, str(scope.get("__package__") or ""))
            except ImportError:
                continue
            self._watch(lambda *_, full=full: f"the module {full}", lambda full=full: (sys.modules.get(full, MISSING),))  # type: ignore
            parts = full.split(".")
            for count in range(1, len(parts) + 1):
                path = ".".join(parts[:count])
                if (module := sys.modules.get(path)) is not None:
                    self._enter_module(path, module, found.names)

    def _enter_module(self, name: str, module: types.ModuleType, asked: Iterable[str]) -> None:
        """The attributes of a module that the code names; of one of the program's, all that any code names."""
        library = is_known(module.__name__) and not module.__name__.startswith(BY_NAME)
        scope = vars(module)
        label, _, known = self._scopes.setdefault(id(scope), (name, scope, set()))
        if not label:
            self._scopes[id(scope)] = name, scope, known
        new = ({*asked, "__getattr__"} if library else {*asked, *self._names, "__getattr__"}) - known
        if self._computes and not library:
            new |= scope.keys() - known
        known |= new
        self.reached.append(module)
        for key in sorted(new & scope.keys()):
            value = scope[key]
            if is_a(value, types.ModuleType):
                if not library or value.__name__.startswith(f"{module.__name__}.") or not is_known(value.__name__):
                    self._enter_module(f"{name}.{key}", value, asked)
            elif not (library and is_a(value, (types.FunctionType, type, types.BuiltinFunctionType))):
                self._visit(f"{name}.{key}", value)
            elif is_a(value, types.BuiltinFunctionType) and isinstance(value.__self__, types.ModuleType):
                pass  # if it is called, that is seen

    def _watch_scopes(self) -> None:
        absent: set[str] = set()
        for name, scope, asked in list(self._scopes.values()):
            form = f"{name}.{{}}" if name else "{}"
            self._watch_named("", scope, lambda key, _, asked=asked: key in asked, form, direct=True)  # type: ignore
            absent |= asked - scope.keys()
        self._watch_named("", vars(builtins), lambda key, _: key in absent, "{}", direct=True)

    def _visit_what_ran(self) -> None:
        """The functions that have run, which no object that was reached has led to."""
        for (code, _), scope in list(self._ran.codes.items()):
            self._enter_scope(code, scope)
            self._visit_all()
        missing = [
            code
            for (code, _), scope in self._ran.codes.items()
            if code not in (self._codes if code.co_freevars and code.co_name not in _AT_ONCE else self._nested)
            and not is_standard(scope.get("__name__"))
        ]
        if missing:
            import gc

            for found in gc.get_referrers(*missing):
                if isinstance(found, types.FunctionType) and found.__code__ in missing:
                    self._visit(found.__name__, found)
            self._visit_all()
        for code in missing:
            if code not in self._nested and code.co_freevars:
                self.unknown.append(f"it runs the function {code.co_name}, and its closure is not found")

    def _enter_class(self, kind: type) -> None:
        """The attributes of a class and its bases that the step may read."""
        for base in kind.__mro__:
            if base is not kind and id(base) in self._visited:
                continue
            self._visited.add(id(base))
            self.reached.append(base)
            if base.__module__.startswith(("alpha.runtime", "alpha.step")) or base is object:
                continue
            if is_proven(base.__module__) and base.__module__.startswith("alpha"):
                self._watch_named(
                    base.__name__, base, functools.partial(counts_of_alpha, self._names, base in Tensor.__mro__)
                )
            elif not is_known(base.__module__):
                self._look("orders", look.orders, base)
                tell = functools.partial(change_of_parts, base.__name__, ".{}", ["__mro__"])
                self._by_name(tell, lambda base=base: (base.__mro__,))  # type: ignore[misc]
                chooses = functools.partial(counts_of_class, self._names, self._computes)
                for key in self._watch_named(base.__name__, base, chooses):
                    if key not in ("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__"):
                        self._enter_member(base, key, vars(base)[key])
        if not is_known(type(kind).__module__):
            self._visit(type(kind).__name__, type(kind))

    def _enter_member(self, base: type, key: str, member: Any) -> None:
        if not is_a(member, _MEMBERS) or may_run(self._names, key):
            self._visit(f"{base.__name__}.{key}", member)

    def _enter_object(self, name: str, value: Any, without: tuple[str, ...] = ()) -> None:
        """The class of an object, its attributes and its slots."""
        kind = type(value)
        kinds = ("_forward_hooks", "_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        if is_a(value, Module) and any(getattr(value, hooks, None) for hooks in kinds):
            self.hooks.append(name)
        if not is_a(value, (types.FunctionType, types.MethodType, types.BuiltinFunctionType)):
            self._visit(kind.__name__, kind)
        slots = [] if is_a(value, Tensor) and is_known(kind.__module__) else slots_of(kind)
        if slots and not is_a(value, Tensor):
            self._enter_slots(name, value, slots)
        held = attributes_of(value)
        if held is None:
            return
        if kind.__module__.startswith("alpha.") and not kind.__module__.startswith(BY_NAME) and not without:
            self._look("everything", look.everything, value)
            self._by_name(
                lambda before, now: change_of_attributes(name, items_of(before[1:]), items_of(now[1:])),
                lambda: (type(value), *mapping(value.__dict__)),
            )
            keys = list(held)
        else:
            computes = self._computes and not is_a(value, types.FunctionType)
            keys = self._watch_named(name, value, chooser(value, self._names, computes, without))
        for key in keys:
            item = held[key]
            if kind.__module__.startswith("alpha.data") and key not in self._own_names and is_data(item):
                continue  # the values of a data set count if the program reads them itself
            self._visit(f"{name}.{key}", item)

    def _enter_slots(self, name: str, value: Any, slots: list[str]) -> None:
        whole = type(value).__module__.startswith("alpha.") or self._computes
        names = [slot for slot in slots if whole or slot in self._names]
        if not names:
            return
        tell = functools.partial(change_of_parts, name, ".{}", ["__class__", *names])

        def read() -> Values:
            return type(value), *[getattr(value, key, MISSING) for key in names]

        if all(hasattr(value, key) for key in names):
            key = ("slots", *names)
            self._look(key, self._looks[key][0] if key in self._looks else look.slots(names), value)
            self._by_name(tell, read)
        else:
            self._watch(tell, read)
        for slot in names:
            self._visit(f"{name}.{slot}", getattr(value, slot, None))
