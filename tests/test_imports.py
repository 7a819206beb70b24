"""The house's order: who may import whom, what `import alpha` brings in, and the ALPHA_* table."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

import child
import pytest

import alpha
from alpha import config, data, nn, optim
from alpha.models import torchvision

ROOT = Path(__file__).parents[1]
LAYERS = {  # a module may import modules of its own layer and of lower ones
    "accelerator": 3,
    "amp": 2,
    "backends": 3,
    "checkpointing": 2,
    "backward_hooks": 2,
    "config": 0,
    "count": 1,
    "cuda": 2,
    "dtypes": 2,
    "einops_backend": 5,
    "errors": 0,
    "exports": 0,
    "runtime": 1,
    "pickle_parts": 0,
    "pickles": 0,
    "primitive": 2,
    "arrays": 2,
    "autograd": 2,
    "backward": 2,
    "generators": 2,
    "grad_mode": 2,
    "hooks": 2,
    "host_values": 2,
    "gradients": 2,
    "tensor": 2,
    "tensor_conversions": 2,
    "tensor_files": 2,
    "tensor_facts": 2,
    "tensor_hooks": 2,
    "tensor_operators": 2,
    "memory": 2,
    "tensor_inplace": 2,
    "tensor_math": 2,
    "tensor_structure": 2,
    "uninitialized": 2,
    "missing_names": 0,
    "module": 2,
    "module_parts": 2,
    "module_tree": 2,
    "no_effect": 2,
    "numerics": 2,
    "origins": 2,
    "flattened": 2,
    "parameter": 2,
    "placing": 2,
    "reading": 0,
    "recompute": 2,
    "rng": 2,
    "state_dict": 2,
    "state_reading": 2,
    "static_function": 2,
    "torch_files": 2,
    "versions": 2,
    "in_torch": 3,
    "typed_tensors": 3,
    "linalg": 3,
    "ops": 3,
    "nn": 4,
    "optim": 4,
    "transforms": 5,
    "data": 4,
    "models": 5,
    "step": 5,
    "train": 6,
    "serialization": 6,
    "utils": 5,
    "examples": 7,
}
MOST_LINES = 600
MOST_PARAMETERS = 8  # of a function
ROOMS = (data, nn, nn.functional, optim, optim.lr_scheduler, torchvision)  # which offer PyTorch's names
FACADE = 5  # `import alpha` gives what is up to the models
TOP = 7  # alpha/utils/doctor.py sees everything
KNOWN_TO_DATA = {"data", "config", "errors", "generators", "missing_names", "reading", "rng", "tensor", "versions"}
UPWARD = {  # a method of Tensor is an operator, so these three reach up when they are called
    ("alpha/core/tensor.py", "alpha.ops.array.layout"),
    ("alpha/autograd/engine.py", "alpha.ops.kernel.elementwise"),
    ("alpha/module/module.py", "alpha.nn.summary"),
}
SOURCES = sorted([*ROOT.glob("alpha/**/*.py"), *ROOT.glob("examples/*.py")])


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def layer_of(module: str) -> int:
    parts = module.split(".")
    if parts[0] == "examples":
        return LAYERS["examples"]
    return LAYERS.get(parts[1], TOP) if len(parts) > 1 else FACADE


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """(module, whether at import time) of every import of alpha; a name may be a submodule."""
    tree = ast.parse(path.read_text())
    lazy = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for inner in ast.walk(node)
    }
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) not in lazy) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            whole = base == "alpha"  # `from alpha import nn` names modules
            names = [f"alpha.{alias.name}" for alias in node.names] if whole else [base]
            found += [(name, id(node) not in lazy) for name in names]
    return [(name, now) for name, now in found if name.split(".")[0] == "alpha"]


def test_imports_point_downwards() -> None:
    for path in SOURCES:
        name = name_of(path)
        module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        own = layer_of(module)
        wrong = [
            target for target, now in imports(path) if layer_of(target) > own and (now or (name, target) not in UPWARD)
        ]
        assert not wrong, f"{name} (layer {own}) imports {wrong} from above"


def test_files_are_short() -> None:
    """A file that grows beyond this is looked at: it may be two subjects."""
    paths = sorted([*SOURCES, *ROOT.glob("examples/*/*.py")])
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in paths}
    assert not {name: length for name, length in lengths.items() if length > MOST_LINES}


def test_signatures_are_short() -> None:
    """Only PyTorch's and torchvision's own signatures, which are offered under their names, are longer."""
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


def test_the_exceptions_are_all_needed() -> None:
    used = {(name_of(path), target) for path in SOURCES for target, now in imports(path) if not now}
    assert used >= UPWARD


def test_siblings_that_do_not_know_each_other() -> None:
    """data stacks tensors, but knows no operators; ops do not import models, nn not optim."""
    for path in ROOT.glob("alpha/data/*.py"):
        above = {target.split(".")[1] for target, _ in imports(path)} - KNOWN_TO_DATA
        assert not above, f"{path.name} imports {above}"
    for path in ROOT.glob("alpha/nn/*.py"):
        assert not any(target.startswith("alpha.optim") for target, _ in imports(path)), path.name


@pytest.mark.parametrize("package", ["pycuda", "pynvml", "cuda.bindings"])
def test_only_the_runtime_knows_the_gpu_packages(package: str) -> None:
    pattern = re.compile(rf"^\s*(import|from) {re.escape(package)}\b", re.MULTILINE)
    users = [name_of(path) for path in SOURCES if pattern.search(path.read_text())]
    assert all(name.startswith("alpha/runtime/cuda/") for name in users), users


def test_importing_alpha_is_light() -> None:
    code = "import sys, alpha, alpha.train, alpha.data; print(*sorted(sys.modules))"
    run = child.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    heavy = {"pycuda", "torch", "matplotlib", "pynvml", "cuda"} & set(run.stdout.split())
    assert not heavy


def test_data_and_train_are_loaded_when_they_are_named() -> None:
    code = """
import sys, alpha
assert not {"alpha.data", "alpha.train"} & set(sys.modules), "import alpha loads them"
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
