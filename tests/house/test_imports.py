"""The house's order: who may import whom, what `import alpha` brings in, and the ALPHA_* table."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import child
import pytest

import alpha
from alpha import config, data, nn, optim
from alpha.models import torchvision

ROOT = Path(__file__).parents[2]
ORDER = (  # a file imports files of its own line and of the lines above it
    "errors",
    "config installation",
    "runtime",
    "core autograd",
    "module",
    "io",
    "ops",
    "linalg amp nn optim cuda backends distributed",
    "data",
    "transforms",
    "step",
    "onnx",
    "models",
    "",  # `import alpha`
    "serve",
    "train",
    "utils run port examples",
)
OPS = (  # the same of the folders of alpha/ops
    *("kernel", "array", "indexing", "math", "reduction", "activation", "gemm", "conv2d", "convolution", "matmul"),
    *("noise", "pooling", "image", "normalization", "sequence", "loss", "api"),
)
MOST_ENTRIES, MOST_FILES = 28, 15  # of alpha/; of a folder there or in tests/
LARGER: dict[str, int] = {}  # folders that are still to be divided; none of them grows
MOST_CIRCLES = 4
MOST_SHARED_NAMES = 9
MOST_PARAMETERS = 8  # of a function
ROOMS = (data, nn, nn.functional, optim, optim.lr_scheduler, torchvision)  # which offer PyTorch's names
KNOWN_TO_DATA = {"autograd", "core", "data", "config", "errors", "installation", "io"}
LATER = {
    f"alpha.{name}" for name in ("data", "distributed", "onnx", "port", "serve", "train", "transforms", "utils")
}  # not by `import alpha`
SOURCES = sorted([*ROOT.glob("alpha/**/*.py"), *ROOT.glob("examples/*.py")])


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def line_of(module: str) -> int:
    parts = module.split(".")
    top = parts[0] if parts[0] == "examples" else parts[1] if len(parts) > 1 else ""
    return next(number for number, line in enumerate(ORDER) if top in (line.split() or [""]))


@cache
def modules() -> dict[str, Path]:
    """The files by the names of their modules."""
    names = {path: name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in SOURCES}
    return {name: path for path, name in names.items()}


@cache
def imports(module: str) -> frozenset[str]:
    """The modules of alpha that a module imports anywhere, at import or later, also for types."""
    found = set()
    for node in ast.walk(ast.parse(modules()[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {
                full if (full := f"{node.module}.{alias.name}") in modules() else node.module for alias in node.names
            }
    return frozenset(name for name in found if name in modules()) - {module}


def test_imports_point_upwards_in_the_order() -> None:
    wrong = [
        f"{module} imports {target}"
        for module in modules()
        for target in imports(module)
        if line_of(target) > line_of(module) and not (module == "alpha" and target in LATER)
    ]
    assert not wrong


def test_families_of_operators_stand_on_those_before_them() -> None:
    def family(module: str) -> int:
        parts = module.split(".")
        return OPS.index(parts[2]) if parts[:2] == ["alpha", "ops"] and len(parts) > 2 else -1

    wrong = [
        f"{module} imports {target}"
        for module in modules()
        for target in imports(module)
        if family(target) > family(module) > -1
    ]
    assert not wrong


def circles() -> list[list[str]]:
    """The sets of modules each of which imports, by way of others, all others of its set."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in imports(module):
            if target not in index:
                visit(target)
            if target in stack:
                low[module] = min(low[module], low[target])
        if low[module] == index[module]:
            circle = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(circle) > 1:
                found.append(circle)

    for module in modules():
        if module not in index:
            visit(module)
    return found


def test_circles_of_imports() -> None:
    """Few, and none across folders, but that a tensor and its graph know each other."""
    across = []
    for circle in circles():
        folders = {module.rpartition(".")[0] for module in circle}
        if len(folders) > 1 and folders != {"alpha.core", "alpha.autograd"}:
            across.append(sorted(circle))
    assert not across
    assert len(circles()) <= MOST_CIRCLES, circles()


def test_folders_are_small() -> None:
    """A newcomer reads the list of a folder at one look, of the tests as of the code."""
    entries = [path for path in (ROOT / "alpha").iterdir() if path.name != "__pycache__"]
    assert len(entries) <= MOST_ENTRIES
    paths = [path for top in ("alpha", "tests") for path in (ROOT / top).rglob("*.py") if path.name != "__init__.py"]
    sizes = Counter(name_of(path.parent) for path in paths)
    assert {folder: size for folder, size in sizes.items() if size > LARGER.get(folder, MOST_FILES)} == {}
    assert {folder: size for folder, size in LARGER.items() if sizes[folder] < size} == {}, "the limit can be lower"


def test_file_names_are_rarely_shared() -> None:
    """A name is found once, apart from those that mean the same in each folder, and those of PyTorch's own modules."""
    count = Counter(path.name for path in SOURCES if "alpha" in path.parts and path.name != "__init__.py")
    assert sum(number > 1 for number in count.values()) <= MOST_SHARED_NAMES, count.most_common(12)


def test_signatures_are_short() -> None:
    """PyTorch's and torchvision's own signatures alone, which are offered under their names, are longer."""
    offered = {name for room in ROOMS for name in room.__all__}
    bases = {base.__name__ for name in offered for base in getattr(getattr(nn, name, None), "__mro__", ())}
    for path in sorted([*SOURCES, *ROOT.glob("examples/**/*.py")]):
        tree = ast.parse(path.read_text())
        inits = {id(f): c.name for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for f in c.body}
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
                count = sum(argument.arg not in ("self", "cls") for argument in given)
                name = inits.get(id(function), function.name)
                right = count <= MOST_PARAMETERS or name in offered | bases
                assert right, f"{name_of(path)}: {name} has {count} parameters"


def test_a_trainer_keeps_its_private_names() -> None:
    """The modules around a Trainer use its public names alone, as its `machine` and its `place`."""
    reads = re.compile(r"\b_?trainer\._(?!_)\w+")
    wrong = {name_of(path): found for path in SOURCES if (found := reads.findall(path.read_text()))}
    assert not wrong


def test_siblings_that_do_not_know_each_other() -> None:
    """The package `data` stacks tensors and shows progress, but knows no operators; `nn` does not import `optim`."""
    for module in modules():
        if module.startswith("alpha.data"):
            others = set(imports(module)) - {f"alpha.runtime.{name}" for name in ("activity", "progress", "ranks")}
            above = {target.split(".")[1] for target in others} - KNOWN_TO_DATA
            assert not above, f"{module} imports {above}"
        if module.startswith("alpha.nn"):
            assert not any(target.startswith("alpha.optim") for target in imports(module)), module


@pytest.mark.parametrize("package", ["pycuda", "pynvml", "cuda.bindings", "cupti"])
def test_only_the_runtime_knows_the_gpu_packages(package: str) -> None:
    pattern = re.compile(rf"^\s*(import|from) {re.escape(package)}\b", re.MULTILINE)
    users = [name_of(path) for path in SOURCES if pattern.search(path.read_text())]
    assert all(name.startswith("alpha/runtime/cuda/") for name in users), users


def test_importing_alpha_is_light() -> None:
    code = "import sys, alpha, alpha.train, alpha.data; print(*sorted(sys.modules))"
    run = child.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    heavy = {"pycuda", "torch", "matplotlib", "pynvml", "cuda", "cupti", "nvtx"} & set(run.stdout.split())
    assert not heavy


def test_data_and_train_are_loaded_when_they_are_named() -> None:
    code = """
import sys, alpha
assert not {"alpha.data", "alpha.serve", "alpha.train"} & set(sys.modules), "import alpha loads them"
assert {"data", "train", "nn"} <= set(dir(alpha))
print(alpha.data.DataLoader.__name__, alpha.train.Trainer.__name__, "alpha.train" in sys.modules)
alpha.dates
"""
    run = child.run([sys.executable, "-c", code], cwd=ROOT)
    assert run.stdout.split() == ["DataLoader", "Trainer", "True"], run.stderr
    assert "module 'alpha' has no attribute 'dates'" in run.stderr


def test_utils_has_pytorchs_names_of_rooms() -> None:
    from alpha.utils import checkpoint
    from alpha.utils import data as data_of_utils

    assert checkpoint.checkpoint is alpha.checkpoint
    assert alpha.utils.data is data_of_utils
    assert {name: getattr(data_of_utils, name) for name in data.__all__} == {n: getattr(data, n) for n in data.__all__}


def test_every_variable_is_in_the_table() -> None:
    table = {variable.name for variable in config.VARIABLES}
    kernels = " ".join(path.read_text() for path in ROOT.glob("cuda/**/*.*"))
    texts = [*SOURCES, ROOT / "README.md", *ROOT.glob("docs/*.md"), ROOT / "Makefile"]
    used = {name for path in texts for name in re.findall(r"\bALPHA_[A-Z][A-Z_]*[A-Z]\b", path.read_text())}
    unknown = {name for name in used - table if name not in kernels}  # those are macros
    assert not unknown


def test_variables_are_read_in_one_place() -> None:
    reads = re.compile(r"(environ|getenv).*ALPHA_")
    readers = [name_of(path) for path in SOURCES if reads.search(path.read_text())]
    assert not readers  # config.py reads them by the name in its table


def test_a_variable_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_CPU_THREADS", "two")
    with pytest.raises(ValueError, match="ALPHA_CPU_THREADS='two' is not a whole number"):
        config.CPU_THREADS.integer()
    monkeypatch.setenv("ALPHA_CPU_THREADS", "")
    assert config.CPU_THREADS.integer() == 0
