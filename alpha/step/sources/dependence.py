"""Comparison of what a step depends on: how it is read, if it is the same as before, and the change in words."""

from __future__ import annotations

import types
from collections.abc import Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from reprlib import repr as shortened
from typing import Any

import numpy as np

PLAIN = (
    *(int, float, complex, str, bytes, bool, type(None), type(Ellipsis), range, slice, np.generic, np.dtype),
    *(Decimal, Fraction, date, time, timedelta, PurePath),
)
MISSING = object()  # in the place of the value of an attribute or a variable that does not exist

Values = tuple[Any, ...]


def same(before: Values, now: Values) -> bool:
    """True if all values are the same objects, or equal numbers, texts or tuples of these."""
    return len(before) == len(now) and all(map(_equal, before, now))


def _equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return same(a, b)
    return isinstance(a, PLAIN) and bool(a == b or (a != a and b != b)) and repr(a) == repr(b)  # 0.0 is not -0.0


def entry(name: str, key: Any) -> str:
    """An entry of a mapping, in words. Only plain keys are shown: to show a tensor reads its values."""
    return f"{name}[{key!r}]" if isinstance(key, PLAIN) else f"{name}[a {type(key).__name__}]"


def change_of_parts(owner: str, form: str, keys: Sequence[Any], before: Values, now: Values) -> str:
    """The first of the values that has changed; `form` makes of a key what follows the name of the owner."""
    for key, a, b in zip(keys, before, now, strict=False):
        if not same((a,), (b,)):
            return became(owner + form.format(key), a, b)
    return owner


def change_of_attributes(name: str, before: dict[str, Any], now: dict[str, Any], form: str = ".{}") -> str:
    """The first attribute of an object that has changed, is new or is gone."""
    keys = [*before, *(key for key in now if key not in before)]
    values = [tuple([held.get(key, MISSING) for key in keys]) for held in (before, now)]
    return change_of_parts(name, form, keys, *values)


def change_of_mapping(name: str, before: Values, now: Values) -> str:
    """Change of a mapping, in words; its values are its length, its keys and its items."""
    old, new = (dict(zip(v[1 : 1 + v[0]], v[1 + v[0] :], strict=True)) for v in (before, now))
    keys = [*old, *(key for key in new if key not in old)]
    values = [tuple([held.get(key, MISSING) for key in keys]) for held in (old, new)]
    return name if same(*values) else change_of_parts("", "{}", [entry(name, key) for key in keys], *values) or name


def change_of_sequence(name: str, before: Values, now: Values) -> str:
    """Change of a list or a set, in words; its values are its length and its items."""
    if before[0] != now[0]:
        return f"{name}, which has {now[0]} elements in place of {before[0]}"
    return change_of_parts(name, "[{}]", range(before[0]), before[1:], now[1:])


def change_of_tensor(name: str, before: Values, now: Values) -> str:
    """Change of a tensor, in words; its values are its array, `requires_grad`, its node and the number of hooks."""
    if before[0] is not now[0]:
        return (
            f"{name}.data, which becomes other memory: write into it, for example `{name}.data.mul_(m).add_(x, "
            f"alpha=1 - m)`, or `{name}.data.copy_(x)`"
        )
    return change_of_parts(name, ".{}", ("data", "requires_grad", "grad_fn", "hooks"), before, now)


def became(name: str, a: Any, b: Any) -> str:
    """Text that says that `a` became `b`."""
    if a is MISSING or b is MISSING:
        return f"{name}, which is {'new' if a is MISSING else 'gone'}"
    if type(a) is type(b) and not isinstance(a, PLAIN):
        return f"{name}, which is another {type(a).__name__}"
    return f"{name}: {_text(a)} became {_text(b)}"


def _text(value: Any) -> str:
    return shortened(value) if isinstance(value, PLAIN) else f"a {type(value).__name__}"


def counted(values: Any) -> Values:
    """The number of the values, and these."""
    return len(values), *values


def content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return MISSING
