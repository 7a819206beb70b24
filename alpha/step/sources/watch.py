"""Dependencies of a step on the host: the objects that its code can reach, and whether they have changed.

A graph repeats what the step's Python code asked of the device when it was captured. It stays right as long as that
code would ask for the same again. So before each replay everything that the code reads is compared with what it was
then: the variables of its closure, the globals that it names, and from there modules, optimizers, tensors, lists and
objects. What code there is follows from the functions that are reached, and from those that have run (`Ran`).

Attributes of a program's own objects count if some code of the step names them, because such objects often hold
counters that the step never reads. If some code computes the names of attributes, all count. An object whose content
cannot be compared is `unknown`, and a step that reaches one is not captured.
"""

from __future__ import annotations

import abc
import operator
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from alpha import config
from alpha.core.tensor import Tensor
from alpha.step.sources import look
from alpha.step.sources.dependence import change_of_tensor, same
from alpha.step.sources.kinds import is_leaf, tensor_values
from alpha.step.sources.ran import Ran, count_exchanges, exchanges
from alpha.step.sources.visit import Visit

_HOOKS = operator.attrgetter("_hooks")
_ENVIRONMENT = config.reader(*config.VARIABLES)  # some of which choose kernels
_ASK_CLASSES = frozenset(("isinstance", "issubclass", "get_cache_token"))


class Watch(Visit):
    """The state that `function` and the `objects` among its arguments reach now.

    Args:
        ran: the code that earlier calls of the function have run.

    Attributes:
        tensors: all tensors that it reaches, in the order in which they were found.
        reached: all objects that it reaches; they live as long as this, so that no address means another object.
        hooks: the names of tensors and modules that have hooks.
        lazy: lazy modules and uninitialised tensors, by name, which wait for their first forward.
        unknown: what it depends on and cannot be compared, in words.
    """

    def __init__(self, function: Callable[..., Any], objects: Mapping[str, Any], ran: Ran | None = None) -> None:
        super().__init__(function, ran or Ran())
        count_exchanges()
        self._exchanges = exchanges()
        known = None
        # until there are no new names: one that is found late may be an attribute of an object that was found early
        while known != (known := (len(self._names), self._computes)):
            self._begin()
            self._visit(getattr(function, "__name__", "the step"), function)
            self._visit("Tensor", Tensor)  # which the arguments are
            for name, value in objects.items():
                self._visit(name, value)
            self._visit_all()
            self._visit_what_ran()
            self._watch_scopes()
            self._look("results", look.results, _ENVIRONMENT)
            self._look("results", look.results, exchanges)
            self._by_name(lambda *_: "one of the variables ALPHA_*", _ENVIRONMENT)
            if self._computes or not _ASK_CLASSES.isdisjoint(self._names):
                self._look("results", look.results, _registered)
                self._by_name(lambda *_: "the classes that an abstract class has registered", _registered)
        self._parts = [
            (name, tensor._version, tensor._version.base())
            for name, tensor in self.named_tensors()
            if tensor._version.unaware is not None
        ]
        self._read_parts()
        for tensor in self.tensors:
            if is_leaf(tensor):
                self._look("leaves", look.leaves, tensor)
            else:
                self._look("tensors", look.tensors, tensor)
        self._remember()

    def _read(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Objects that must be the same, and values that must be equal."""
        same_objects: look.Parts = []
        equal: look.Parts = []
        for read, owners in self._looks.values():
            read(owners, same_objects, equal)
        return tuple(chain.from_iterable(same_objects)), tuple(chain.from_iterable(equal))

    def _remember(self) -> None:
        self._same, self._equal = self._read()  # these objects live on, so that no other one gets their addresses
        self._addresses = look.addresses(self._same)

    def _read_parts(self) -> str:
        """Read tensors again that are copies of a part of other memory, and return in words of which that is gone."""
        for name, version, base in self._parts:
            version.refresh()
            if version.base() is not base:
                return f"{name}, a part of a tensor that is gone"
        return ""

    def holders(self) -> Iterator[Any]:
        """The objects with which this itself holds tensors and their arrays."""
        yield from (self.tensors, self.reached, self._same, *[values for _, values in self._tensor_values])
        yield from [owners for _, owners in self._looks.values()]
        yield from [values for _, _, values in self._readers]
        yield from [values for _, values in self._plain]
        yield from chain.from_iterable([getattr(read, "__closure__", None) or () for _, read, _ in self._readers])

    @property
    def leaves(self) -> list[Tensor]:
        """The tensors whose gradients a step may leave."""
        return [tensor for tensor in self.tensors if is_leaf(tensor)]

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors, each with the name by which it was first found."""
        yield from zip([name for name, _ in self._tensor_values], self.tensors, strict=True)

    def change(self, by_step: bool = False) -> str:
        """Change since the watch began, in words; empty if there is none.

        Args:
            by_step: it is the step itself that has run since, and its optimizer may have begun new states.
        """
        if self._parts and not by_step and (change := self._read_parts()):
            return change
        try:
            same_objects, equal = self._read()
            if (
                equal == self._equal
                and look.addresses(same_objects) == self._addresses
                and all([same(before, tuple(read())) for read, before in self._plain])
                and not any(map(_HOOKS, self.tensors))
            ):
                return ""
        except (AttributeError, KeyError, ValueError, RuntimeError):
            pass  # something is gone; it is found by its name
        change = self._change_by_name(by_step)
        if not change and not by_step:
            self._remember()
        return change

    def _change_by_name(self, by_step: bool) -> str:
        if self._exchanges != exchanges() and not by_step:
            return "a function of Alpha, which is another one"
        for index, (tell, read, before) in enumerate(self._readers):
            now = tuple(read())
            if not same(before, now) and (change := tell(before, now)):
                return change
            self._readers[index] = tell, read, now
        for name, optimizer, states in self._states:
            if any(optimizer.state.get(parameter) is not slots for parameter, slots in states.items()):
                return f"{name}.state, of which a part is gone or another one"
            if len(optimizer.state) != len(states) and not by_step:
                return f"{name}.state, which has {len(optimizer.state)} elements in place of {len(states)}"
        for (name, values), tensor in zip(self._tensor_values, self.tensors, strict=True):
            if not same(values, current := tensor_values(tensor)):
                return change_of_tensor(name, values, current)
        return ""


def _registered() -> tuple[object, ...]:
    """Token that changes if `register` of any abstract class is called."""
    return (abc.get_cache_token(),)
