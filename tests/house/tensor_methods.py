"""The types of Tensor's methods, for type checkers and editors, as they follow from the functions that are installed.

    python tests/house/tensor_methods.py      # writes alpha/core/methods.py anew

tests/house/test_typing.py compares the file with what this would write.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from alpha.core.tensor import Tensor
from alpha.ops.api.install import METHODS, REFUSED

TARGET = Path(__file__).parents[2] / "alpha" / "core" / "methods.py"
HEAD = '''"""Types of the methods of Tensor that are operators; alpha/ops/api/install.py installs the methods.

`python tests/house/tensor_methods.py` writes this file.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from alpha.core.host_values import Axes, Dims, DTypeLike

if TYPE_CHECKING:
    from typing_extensions import Self

    from alpha.core.generators import Generator
    from alpha.core.results import Extremes, MinMax, Sorted
    from alpha.core.tensor import Tensor


class Casts:
    """Methods with the names of built-in types, which would hide these in the annotations of the others."""

    __slots__ = ()

    if TYPE_CHECKING:
'''
REST = '''

class Methods(Casts):
    """The base of Tensor."""

    __slots__ = ()

    if TYPE_CHECKING:
'''
BUILT_IN = ("bool", "float", "int", "type")
WRITING = re.compile(r"[a-z].*_|__i(?!nvert)\w+__")  # names of methods that write their tensor and return it
NARROWER = {"AnyTensor": "Tensor", "Size": "Any", "Where": "Any", "Tensors": "Sequence[Tensor]"}
IGNORED = {"__eq__": "override", "__ne__": "override"}


def parameters(name: str, method: Any) -> str:
    """The parameters of a method as source text."""
    found, kinds = [], inspect.Parameter
    given = list(inspect.signature(method).parameters.values())
    if name.startswith("__"):  # Python gives one operand
        given = [p for p in given if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    star = False
    for number, parameter in enumerate(given):
        if number == 0:
            found.append("self")
            continue
        if parameter.kind is kinds.KEYWORD_ONLY and not star:
            found.append("*")
        star = star or parameter.kind in (kinds.KEYWORD_ONLY, kinds.VAR_POSITIONAL)
        stars = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is kinds.empty else f" = {parameter.default!r}"
        found.append(f"{stars}{parameter.name}: {annotation(parameter.annotation)}{default}")
    return ", ".join(found)


def annotation(given: Any) -> str:
    """An annotation as source text, by the names that the file imports."""
    assert isinstance(given, str), f"an annotation is missing: {given}"
    return re.sub(r"\w+", lambda word: NARROWER.get(word[0], word[0]), given)


def within(name: str, text: str) -> str:
    """A signature in the class of its method."""
    return re.sub(rf"\b({'|'.join(BUILT_IN)})\b", r"builtins.\1", text) if name in BUILT_IN else text


def returned(name: str, method: Any) -> str:
    if WRITING.fullmatch(name):
        return "Self"
    found = annotation(inspect.signature(method).return_annotation)
    return "Tensor" if name.startswith("__") and found == "Any" else found


def source() -> str:
    """The text of alpha/core/methods.py, before it is formatted."""
    lines = [HEAD]
    for name, method in sorted(METHODS.items(), key=lambda item: (item[0] not in BUILT_IN, item[0])):
        if name in REFUSED:
            continue
        if name not in BUILT_IN and REST not in lines:
            lines.append(REST)
        if isinstance(method, property):
            lines += ["        @property\n", f"        def {name}(self) -> Tensor: ...\n"]
            if method.fset is not None:
                lines += [f"        @{name}.setter\n", f"        def {name}(self, value: Tensor) -> None: ...\n"]
            continue
        ignored = f"  # type: ignore[{IGNORED[name]}]" if name in IGNORED else ""
        types = within(name, f"({parameters(name, method)}) -> {returned(name, method)}")
        lines.append(f"        def {name}{types}: ...{ignored}\n")
    return "".join(lines)


def main() -> None:
    assert all(name in vars(Tensor) for name in METHODS)
    TARGET.write_text(source())
    for command in (["check", "--quiet", "--fix", "--select=F401"], ["format", "--quiet"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, str(TARGET)], check=True)


if __name__ == "__main__":
    main()
