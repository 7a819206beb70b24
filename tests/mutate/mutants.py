"""The mutants of a file: each one is the file with one small change that a test should notice.

The changes are those of mutmut 3, whose operators make one or two mutants of each expression: arguments of a call and
branches are among them, which cosmic-ray lacks, while 60 % of cosmic-ray's mutants exchange one arithmetic operator for
each of eleven others. Only the operators are taken: mutmut's own runner skips decorated functions and wraps the others,
which a `@primitive` does not survive.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from libcst import matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

CRASHES = (mutators.operator_assignment, mutators.operator_lambda)  # None for a value: any use of it fails
QUIET = m.Name("overload") | m.Name("abstractmethod") | m.Name("TYPE_CHECKING") | m.Name("__all__")
# What cannot change behaviour, or changes only a text for people.
SKIPPED = (
    m.Annotation()
    | m.Decorator(decorator=m.Call(func=m.Name("dataclass")))
    | m.FunctionDef(decorators=[m.ZeroOrMore(), m.Decorator(decorator=QUIET), m.ZeroOrMore()])
    | m.If(test=QUIET | m.Comparison(left=m.Name("__name__")))
    | m.Assign(targets=[m.AssignTarget(target=QUIET)])
    | m.SimpleStatementLine(body=[m.Expr(value=m.SimpleString())])
    | m.Subscript(value=m.Name("Callable") | m.Name("Union"))  # a type
    | m.Call(
        func=m.Name("cast")
        | m.Name("TypeVar")
        | m.Name("ParamSpec")
        | m.Name("print")
        | m.Attribute(attr=m.Name("warn"))
    )
    | m.Arg(keyword=m.Name("strict"))  # of zip: lengths that never differ
)
SKIPPED_TYPES = (
    *(cst.Annotation, cst.Arg, cst.Assign, cst.Call, cst.Decorator, cst.FunctionDef, cst.If),
    *(cst.SimpleStatementLine, cst.Subscript),
)
STORED = m.Attribute() | m.Subscript()
REMOVABLE = (
    m.Raise()
    | m.Expr(value=m.Call())
    | m.Assign(targets=[m.AssignTarget(target=STORED)])
    | m.AnnAssign(target=STORED, value=~m.MatchIfTrue(lambda value: value is None))
    | m.AugAssign(target=STORED)
)


@dataclass
class Mutant:
    """One change of a file. `first` and `last` are the lines of the statement that it is in."""

    file: str
    line: int
    first: int
    last: int
    function: str
    operator: str
    module: cst.Module
    node: cst.CSTNode
    changed: cst.CSTNode
    number: int = 0  # tells mutants apart that are otherwise equal

    def code(self) -> str:
        """The whole file with the change."""
        changed = self.module.deep_replace(self.node, self.changed)
        assert isinstance(changed, cst.Module)
        return changed.code

    @property
    def texts(self) -> tuple[str, str]:
        """The expression or statement before and after, each on one line."""
        before, after = (" ".join(self.module.code_for_node(n).split()) for n in (self.node, self.changed))
        return before, after

    @property
    def name(self) -> str:
        """Stays the same when the file changes elsewhere."""
        before, after = self.texts
        place = f"{self.file}:{self.function}"
        return f"{place}: {before} -> {after}" + (f" #{self.number}" if self.number else "")


def mutants_of(root: Path, file: str) -> list[Mutant]:
    """All mutants of a file, in the order of its lines."""
    module = cst.parse_module((root / file).read_text())
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    visitor = _Visitor(file, module)
    wrapper.visit(visitor)
    seen: Counter[str] = Counter()
    for mutant in visitor.found:
        seen[mutant.name] += 1
        mutant.number = seen[mutant.name] - 1
    return visitor.found


def sample(files: Iterable[list[Mutant]], count: int, seed: int) -> list[Mutant]:
    """`count` mutants, from each file in proportion to its statements: at most one of a statement.

    What is drawn depends on the names of the mutants, so that an edit leaves the rest of the sample as it is.
    """
    statements = [_one_each_statement(mutants, seed) for mutants in files]
    total = sum(map(len, statements))
    drawn: list[Mutant] = []
    passed = 0
    for ranked in statements:
        passed += len(ranked)
        due = round(min(count, total) * passed / max(1, total)) - len(drawn)
        drawn += sorted(ranked[:due], key=lambda x: x.line)
    return drawn


def _one_each_statement(mutants: list[Mutant], seed: int) -> list[Mutant]:
    def rank(*text: object) -> bytes:
        return hashlib.sha256(repr((seed, text)).encode()).digest()

    groups: dict[tuple[int, int], list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        groups[mutant.first, mutant.last].append(mutant)
    # the operator first, else those with many mutants would crowd out the others
    drawn = [min(g, key=lambda x: (rank(x.operator, x.file, x.function), rank(x.name))) for g in groups.values()]
    return sorted(drawn, key=lambda x: rank(x.name))


class _Visitor(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, file: str, module: cst.Module) -> None:
        super().__init__()
        self.file = file
        self.module = module
        self.found: list[Mutant] = []
        self.names: list[str] = []
        self.statements: list[tuple[int, int]] = []
        self.inside_raise = 0

    def on_visit(self, node: cst.CSTNode) -> bool:
        if _skipped(node):
            return False
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            self.names.append(node.name.value)
        if isinstance(node, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
            self.statements.append(self._lines(node))
        if not self.inside_raise:
            for operator, part, changed in _changes(node):
                first, last = self.statements[-1] if self.statements else self._lines(node)
                line = self.get_metadata(PositionProvider, part).start.line
                place = ".".join(self.names)
                self.found.append(Mutant(self.file, line, first, last, place, operator, self.module, part, changed))
        self.inside_raise += isinstance(node, cst.Raise)  # a message
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if _skipped(original_node):
            return
        self.inside_raise -= isinstance(original_node, cst.Raise)
        if isinstance(original_node, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
            self.statements.pop()
        if isinstance(original_node, (cst.FunctionDef, cst.ClassDef)):
            self.names.pop()

    def _lines(self, node: cst.CSTNode) -> tuple[int, int]:
        """First and last line; of a compound statement those of its head."""
        position = self.get_metadata(PositionProvider, node)
        body = getattr(node, "body", None)
        if isinstance(node, cst.BaseCompoundStatement) and isinstance(body, cst.IndentedBlock):
            return position.start.line, max(position.start.line, self._lines(body.body[0])[0] - 1)
        return position.start.line, position.end.line


def _skipped(node: cst.CSTNode) -> bool:
    return isinstance(node, SKIPPED_TYPES) and m.matches(node, SKIPPED)


def _changes(node: cst.CSTNode) -> Iterator[tuple[str, cst.CSTNode, cst.CSTNode]]:
    if isinstance(node, cst.BaseSmallStatement) and m.matches(node, REMOVABLE):
        yield "remove_statement", node, cst.Pass()
    if isinstance(node, cst.If):
        test = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        yield "negate_if", node.test, cst.UnaryOperation(cst.Not(), test)
    for kind, operator in mutators.mutation_operators:
        if not isinstance(node, kind) or operator in CRASHES:
            continue
        changes = list(operator(node))
        if isinstance(node, cst.Call) and operator is mutators.operator_arg_removal:
            changes = list(_without_an_argument(node))
        elif operator is mutators.operator_string:
            changes = changes[:1] if " " not in getattr(node, "value", " ") else []  # else a text for people
        for changed in changes:
            yield operator.__name__.removeprefix("operator_"), node, changed


def _without_an_argument(node: cst.Call) -> Iterator[cst.Call]:
    """Calls without one argument: one with a keyword, or the last one, which may have a default. Others would fail."""
    for index, argument in enumerate(node.args):
        told = argument.keyword is not None and argument.keyword.value not in ("strict", "stacklevel")
        if told or (argument.keyword is None and not argument.star and argument is node.args[-1] and index):
            yield node.with_changes(args=[*node.args[:index], *node.args[index + 1 :]])
