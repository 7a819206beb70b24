"""Additions in one file: they are offered everywhere, and one without a test row is noticed."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from types import ModuleType

import child
import pytest

import alpha
import alpha.nn.functional as F
from alpha import nn, optim

ROOT = Path(__file__).parents[2]
ROOMS = [
    importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    for pattern in ("ops/**/*.py", "nn/*.py", "optim/*.py")
    for path in sorted((ROOT / "alpha").glob(pattern))
    if path.stem not in ("__init__", "functional")
    and path.stem not in ("in_torch", "inplace_functions", "typed_tensors")  # whose names are of `alpha` alone
    and path.parent.name != "conv2d"  # which offers nothing by itself
]
ACTIVATION = """

_SWITCH = activation(
    "switch",
    ("a > 0 ? 1 : 0", lambda y, a: np.copyto(y, a > 0)),
    ("0 * a", lambda dx, a, b: np.multiply(a, 0, out=dx)),
)


@check_arguments
def switch(x: Tensor) -> Tensor:
    return _SWITCH(x)


@function_layer(switch)
class Switch(FunctionLayer):
    pass


__all__ += ["Switch", "switch"]
"""
UNARY = '''

@unary(("cbrt(a)", np.cbrt), ("a / (3 * b * b)", lambda dx, a, b: np.divide(a, 3 * b * b, out=dx)), "Y")
def cbrt(x: AnyTensor) -> Tensor:
    """The cube root, elementwise"""


__all__ += ["cbrt"]
'''


@pytest.mark.parametrize(
    "room", [*ROOMS, alpha.ops.convolution, alpha.module.module, alpha.module.state_dict], ids=lambda r: r.__name__
)
def test_what_a_room_exports_is_offered(room: ModuleType) -> None:
    if room is nn.init:
        return  # it is imported from as it is
    package = {"ops": F, "optim": optim}.get(room.__name__.split(".")[1], nn)
    for name in getattr(room, "__all__", ()):
        where = nn if package is F and isinstance(getattr(room, name), type) else package
        hint = f"{where.__name__} needs `from {room.__name__} import *`"
        assert name in where.__all__, hint
        assert getattr(where, name) is getattr(room, name), hint


def test_functions_and_layers_are_apart() -> None:
    assert not set(F.__all__) & set(nn.__all__)
    assert not [name for name in F.__all__ if isinstance(getattr(F, name), type)]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy in which one file has an activation more, and another one a function of one tensor."""
    for folder in ("alpha", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "cuda").symlink_to(ROOT / "cuda")
    for room, addition in (("activation/smooth.py", ACTIVATION), ("math/unary.py", UNARY)):
        path = tmp_path / "alpha" / "ops" / room
        path.write_text(path.read_text() + addition)
    return tmp_path


def run(folder: Path, *command: str) -> str:
    result = child.run([sys.executable, *command], cwd=folder, env=child.environment(folder))
    return result.stdout + result.stderr


@pytest.mark.slow
def test_an_addition_is_one_file_and_one_row(checkout: Path) -> None:
    """An activation is a function and a layer, a function of one tensor a method, too, and the tests ask for rows."""
    program = "import alpha; F = alpha.nn.functional; x = alpha.tensor([-2.0, 2.0]); "
    program += (
        "print(F.switch(x).numpy(), alpha.nn.Switch()(x).numpy(), 'switch' in F.__all__, 'Switch' in alpha.nn.__all__)"
    )
    program += "; x = x * 4; print(alpha.cbrt(x).numpy(), x.cbrt_().numpy(), x is x.cbrt_(), F.cbrt is alpha.cbrt)"
    assert run(checkout, "-c", program) == "[0. 1.] [0. 1.] True True\n[-2.  2.] [-2.  2.] True True\n"
    test = "tests/nn/test_arguments.py::test_every_layer_and_function_has_a_row"
    output = run(checkout, "-m", "pytest", "-q", "-p", "no:cacheprovider", test)
    assert "['F.cbrt', 'F.switch', 'nn.Switch']" in output
    assert "needs one row in tests/rows/" in output
