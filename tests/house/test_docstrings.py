"""Docstrings: every public name has one, those that people use first have an example, and all begin as they should.

Docstrings of alpha/, examples/ and tests/ begin with a verb or a noun, and not with a fragment of a sentence.

A docstring says what the thing returns or does: "True if X is Y", "Number of X", "Return Y", "The gradient of X". An
article or an adjective may come before the noun. It does not begin with a question word ("How many", "Whether"), a
preposition ("Of the rows"), a conjunction ("So that"), a relative or a bare pronoun ("Those of", "It"), for a reader
must not have to find the subject of the sentence elsewhere.

The first word has a capital letter, unless it is code: a text in backticks, an expression such as `y = max(x, 0)`, or a
name in the code of the module, class or function, such as an argument.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

import alpha
from alpha.nn import Module

ROOT = Path(__file__).parents[2]
FRAGMENT = re.compile(
    r"""(
    What|Whatever|When|Whenever|Where|Whether|Which|Who|Whoever|Whose|Why|How|
    About|Above|After|Among|At|Before|Below|Beside|Between|By|For|From|In|Inside|Into|Of|On|Through|To|Under|Until|
    With|Within|Without|
    And|As|Because|But|Either|Else|If|Neither|Nor|Not|Or|Otherwise|Since|So|Than|Though|Unless|While|
    It|Its|That|Their|They|These|This|Those|
    Also|Are|Even|Has|Here|Is|Once|Only
    )\b""",
    re.VERBOSE,
)
SMALL = re.compile(r"[a-z]+\b")
EXPRESSION = re.compile(r"[\w.]+( [-+*/^|<>=]|[(\[./^])")  # y = f(x), n / N, d^2, max(x, 0), docs/coverage.md

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def names_of(definition: ast.AST) -> set[str]:
    """All names in the code of a definition."""
    found: set[str] = set()
    for node in ast.walk(definition):
        for field in ("id", "arg", "attr", "name", "asname"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                found.update(name.split("."))
    return found


def fault(docstring: str, definition: ast.AST) -> str:
    """Text that says what is wrong with the beginning of a docstring; empty if nothing is."""
    if word := FRAGMENT.match(docstring):
        return f"begins with the fragment {word[0]!r}"
    word = SMALL.match(docstring)
    if word and not EXPRESSION.match(docstring) and word[0] not in names_of(definition):
        return f"begins with {word[0]!r}, which has no capital letter and is no name in its code"
    return ""


def faults(path: Path, source: str) -> Iterator[str]:
    """Faults of the docstrings of a file, each with its place."""
    for node in ast.walk(ast.parse(source)):
        docstring = ast.get_docstring(node) if isinstance(node, Documented) else None
        if docstring and (found := fault(docstring, node)):
            line = node.body[0].lineno  # type: ignore[attr-defined]
            yield f"{path}:{line} {found}: {docstring.splitlines()[0]}"


@pytest.mark.parametrize("folder", ["alpha", "examples", "tests"])
def test_docstrings_begin_with_a_verb_or_a_noun(folder: str) -> None:
    paths = sorted(ROOT.joinpath(folder).glob("**/*.py"))
    assert paths
    wrong = [text for path in paths for text in faults(path.relative_to(ROOT), path.read_text())]
    assert not wrong, "\n".join(wrong)


def test_a_file_has_one_subject() -> None:
    """The docstring of a module says what the file is, and lists no second subject."""
    paths = sorted(ROOT.joinpath("alpha").glob("**/*.py"))
    assert paths
    docstrings = {str(path): ast.get_docstring(ast.parse(path.read_text())) or "" for path in paths}
    assert not [path for path, text in docstrings.items() if "this file also has" in " ".join(text.lower().split())]


@pytest.mark.parametrize("place", ["module", "class", "method", "function", "coroutine"])
@pytest.mark.parametrize("text", ["What x is.", "Whether it holds.", "Of the rows.", "Its length.", "rows of x."])
def test_a_fragment_is_found_in_every_place(text: str, place: str) -> None:
    source = {
        "module": f'"""{text}"""',
        "class": f'class A:\n    """{text}"""',
        "method": f'class A:\n    """A class."""\n\n    def f(self):\n        """{text}"""',
        "function": f'def _f():\n    """{text}"""',
        "coroutine": f'async def f():\n    """{text}"""',
    }[place]
    (found,) = faults(Path("planted.py"), source)
    assert found.endswith(f": {text}")


@pytest.mark.parametrize(
    "text",
    ["True if x.", "The rows.", "Return x.", "`f` of x.", "y = f(x)", "x in float32.", "x.y twice.", "2 x.", "(N, C)"],
)
def test_a_verb_a_noun_or_code_may_begin(text: str) -> None:
    assert not list(faults(Path("planted.py"), f'def f(x):\n    """{text}"""'))


# -- public names ---------------------------------------------------------------------------------

# what a newcomer uses in the first days; each has an example that runs
FIRST = """
    alpha: Function Tensor arange capture cat checkpoint einsum from_numpy get_device grad load manual_seed matmul
    alpha: memory_stats no_grad ones precision rand randint randn relu save softmax stack tensor where zeros
    alpha.nn: AdaptiveAvgPool2d BatchNorm2d Conv2d ConvTranspose2d CrossEntropyLoss Dropout Embedding Flatten LSTM
    alpha.nn: LayerNorm Linear MaxPool2d Module MultiheadAttention Parameter ReLU Sequential
    alpha.nn.functional: conv2d cross_entropy interpolate mse_loss normalize_pixels pad
    alpha.nn.init: kaiming_normal_
    alpha.nn.utils: clip_grad_norm_
    alpha.optim: Adam AdamW SGD
    alpha.optim.lr_scheduler: CosineAnnealingLR
    alpha.data: DataLoader Dataset TensorDataset random_split
    alpha.transforms: Compose
    alpha.train: Trainer
    alpha.models: resnet18
"""

LATER = ("autograd", "data", "distributed", "train", "transforms", "utils")  # modules that `import alpha` does not load


def rooms() -> dict[str, ModuleType]:
    """The modules that a user imports names from: alpha, and those in `__all__` of one of them, but for alpha.ops."""
    found: dict[str, ModuleType] = {}

    def walk(module: ModuleType) -> None:
        found[module.__name__] = module
        for name in [*getattr(module, "__all__", ()), *(LATER if module is alpha else ())]:
            value = getattr(module, name)
            if isinstance(value, ModuleType) and value.__name__ not in (*found, "alpha.ops"):
                walk(value)

    walk(alpha)
    return found


def public() -> Iterator[tuple[str, Any]]:
    """(name, value) of the public functions and classes of Alpha, each once, and of the methods of these classes."""
    seen: set[int] = set()
    for room, module in rooms().items():
        inside = re.compile(rf"{re.escape(room)}(\.|$)")
        for name in getattr(module, "__all__", None) or dir(module):
            value = getattr(module, name)
            if id(value) in seen or not (inspect.isclass(value) or inspect.isroutine(value)):
                continue
            home = getattr(value, "__module__", None) or ""
            if name[0] == "_" or not (home.startswith("alpha.") if hasattr(module, "__all__") else inside.match(home)):
                continue
            seen.add(id(value))
            yield f"{room}.{name}", value
            if inspect.isclass(value):
                yield from ((f"{room}.{name}.{method}", found) for method, found in methods(value))


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class defines; the docstring of a base counts for those that it has."""
    for name, value in vars(kind).items():
        if name[0] == "_" or not isinstance(value, (FunctionType, property, classmethod, staticmethod)):
            continue
        if name == "forward" and issubclass(kind, Module):
            continue  # the class says what it computes
        found = getattr(value, "__func__", value)
        bases = [vars(base).get(name) for base in kind.__mro__[1:]]
        yield name, next((other for other in (found, *bases) if inspect.getdoc(other)), found)


def test_every_public_name_has_a_docstring() -> None:
    names = dict(public())
    assert len(names) > 1400
    assert not [name for name, value in names.items() if not inspect.getdoc(value)]


def test_dir_lists_public_names_alone() -> None:
    for room, module in rooms().items():
        if hasattr(module, "__all__"):
            names = set(dir(module)) - {"__version__"}
            assert names >= set(module.__all__), room
            assert not [name for name in names - set(module.__all__) if name[0] == "_"], room
            assert not names & {
                "Any",
                "TYPE_CHECKING",
                "annotations",
                "core",
                "importlib",
                "module",
                "runtime",
                "sys",
            }, room
    assert {"capture", "data", "float32", "load", "nn", "save", "tensor", "train"} <= set(dir(alpha))


def test_the_api_of_the_site_has_every_room() -> None:
    hooks = (ROOT / "docs" / "site" / "hooks.py").read_text()
    left_out = {"alpha.autograd", "alpha.utils", "alpha.nn.modules", "alpha.backends"}  # other names of what is there
    for room, module in rooms().items():
        own = [name for name, value in public() if name.rpartition(".")[0] == room and inspect.isroutine(value)]
        if own and not any(room == name or room.startswith(f"{name}.") for name in left_out):
            assert f'"{room}"' in hooks, f"{room} has no page: {module.__name__}"


@pytest.mark.parametrize(
    "name",
    [
        f"{room.strip()}.{name}"
        for line in FIRST.split("\n")
        if line
        for room, _, names in [line.partition(":")]
        for name in names.split()
    ],
)
def test_what_people_use_first_has_an_example(name: str) -> None:
    room, _, last = name.rpartition(".")
    assert ">>> " in (inspect.getdoc(getattr(importlib.import_module(room), last)) or "")


def test_examples_run_as_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every `>>>` of a public docstring; those that write files do so in a temporary folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    printed: list[str] = []
    parser = doctest.DocTestParser()
    for name, value in public():
        text = inspect.getdoc(value) or ""
        if ">>> " in text:
            runner.run(parser.get_doctest(text, {}, name, None, None), out=printed.append)
    assert runner.summarize(verbose=False).attempted > 150
    assert not printed, "".join(printed)
