"""Numbers that functions, modules and Alpha itself hold: a captured step that reads one is never stale.

Variables, globals, defaults, code, arguments of the program and methods are among them.
"""

from __future__ import annotations

import abc
import copy
import copyreg
import functools
import importlib
import json
import logging
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from host_sources import Read, Sources, Write, nothing

import alpha
import alpha.nn.functional as F
from alpha import nn
from alpha.ops.activation import relu_family as activation
from alpha.step.sources import look
from alpha.step.sources.watch import Watch

pytestmark = pytest.mark.usefixtures("cuda")

SOURCES = Sources(98)
SCALE = 1.0


@SOURCES.add()
def keyword_defaults() -> tuple[Read, Write]:
    def read(*, scale: float = 1.0) -> float:
        return scale

    return read, lambda value: read.__kwdefaults__.__setitem__("scale", value)


@SOURCES.add()
def registered_classes() -> tuple[Read, Write]:
    class Kind(abc.ABC):  # noqa: B024
        pass

    objects = [type("One", (), {})() for _ in range(9)]
    left = iter(objects)
    return lambda: float(
        sum([isinstance(o, Kind) for o in objects])
    ), lambda _: Kind.register(type(next(left))) and None


@SOURCES.add()
def a_registry_of_python() -> tuple[Read, Write]:
    """A registry has functions that lead to whatever another package has, which the step never calls."""
    held, others = types.SimpleNamespace(scale=1.0), type("Others", (), {})
    many = [[] for _ in range(30_000)]  # type: ignore[var-annotated]
    copyreg.pickle(others, lambda _: (len, (many,)))
    return lambda: copy.copy(held).scale, lambda value: setattr(held, "scale", value)


@SOURCES.add()
def a_variable() -> tuple[Read, Write]:
    scale = 1.0

    def write(value: float) -> None:
        nonlocal scale
        scale = value

    return lambda: scale, write


@SOURCES.add()
def a_global() -> tuple[Read, Write]:
    globals()["SCALE"] = 1.0
    return lambda: SCALE, lambda value: globals().update(SCALE=value)


@SOURCES.add()
def a_global_that_comes_later() -> tuple[Read, Write]:
    globals().pop("LATER", None)

    def read() -> float:
        try:
            return LATER  # type: ignore[name-defined,no-any-return]
        except NameError:
            return 1.0

    return read, lambda value: globals().update(LATER=value)


@SOURCES.add()
def a_global_over_a_builtin() -> tuple[Read, Write]:
    globals().pop("abs", None)
    return lambda: abs(-1.0), lambda value: globals().update(abs=lambda _: value)


@SOURCES.add()
def a_global_by_its_text() -> tuple[Read, Write]:
    globals()["SCALE"] = 1.0
    return lambda: globals()["SCALE"], lambda value: globals().update(SCALE=value)


@SOURCES.add()
def eval_of_a_text() -> tuple[Read, Write]:
    globals()["SCALE"] = 1.0
    return lambda: eval("SCA" + "LE"), lambda value: globals().update(SCALE=value)


@SOURCES.add()
def an_environment_variable() -> tuple[Read, Write]:
    os.environ.pop("CAPTURE_TEST", None)
    return lambda: float(os.environ.get("CAPTURE_TEST", "1")), lambda value: os.environ.update(CAPTURE_TEST=str(value))


@SOURCES.add()
def getenv() -> tuple[Read, Write]:
    os.environ["CAPTURE_TEST"] = "1"
    return lambda: float(os.getenv("CAPTURE_TEST", "1")), lambda value: os.environ.update(CAPTURE_TEST=str(value))


@SOURCES.add()
def arguments_of_the_program() -> tuple[Read, Write]:
    sys.argv[1:] = ["1"]
    return lambda: float(sys.argv[1]), lambda value: sys.argv.__setitem__(1, str(value))


def program_module() -> types.ModuleType:
    package, module = types.ModuleType("captured_package"), types.ModuleType("captured_package.config")
    package.config = module  # type: ignore[attr-defined]
    module.scale = 1.0  # type: ignore[attr-defined]
    sys.modules |= {"captured_package": package, "captured_package.config": module}
    return module


@SOURCES.add()
def an_import_in_the_step() -> tuple[Read, Write]:
    module = program_module()

    def read() -> float:
        import captured_package.config  # type: ignore[import-not-found]

        return captured_package.config.scale  # type: ignore[no-any-return]

    return read, functools.partial(setattr, module, "scale")


@SOURCES.add()
def a_name_that_is_imported_in_the_step() -> tuple[Read, Write]:
    module = program_module()

    def read() -> float:
        from captured_package.config import scale

        return scale  # type: ignore[no-any-return]

    return read, functools.partial(setattr, module, "scale")


@SOURCES.add()
def a_module_in_a_module() -> tuple[Read, Write]:
    module = program_module()
    package = sys.modules["captured_package"]
    return lambda: package.config.scale, functools.partial(setattr, module, "scale")


@SOURCES.add(refused="the table of all modules|importlib|captured_package")
def the_table_of_modules() -> tuple[Read, Write]:
    module = program_module()
    return lambda: sys.modules["captured_package.config"].scale, functools.partial(setattr, module, "scale")


@SOURCES.add()
def a_default() -> tuple[Read, Write]:
    def read(value: float = 1.0) -> float:
        return value

    return read, lambda value: setattr(read, "__defaults__", (value,))


@SOURCES.add()
def a_code() -> tuple[Read, Write]:
    def read() -> float:
        return 1.0

    def write(value: float) -> None:
        read.__code__ = (lambda: 3.0).__code__ if value == 3.0 else (lambda: 0.25).__code__

    return lambda: read(), write


@SOURCES.add()
def an_attribute_of_a_function() -> tuple[Read, Write]:
    def read() -> float:
        return getattr(read, "scale", 1.0)

    return read, lambda value: setattr(read, "scale", value)


@SOURCES.add()
def a_wrapped_function() -> tuple[Read, Write]:
    box = [1.0]

    @functools.wraps(np.sum)
    def read() -> float:
        return box[0]

    return read, lambda value: box.__setitem__(0, value)


@SOURCES.add()
def lru_cache() -> tuple[Read, Write]:
    box = [1.0]

    @functools.lru_cache(maxsize=2)
    def read() -> float:
        return box[0]

    def write(value: float) -> None:
        box[0] = value
        read.cache_clear()

    return lambda: read(), write


@SOURCES.add()
def singledispatch() -> tuple[Read, Write]:
    @functools.singledispatch
    def read(value: Any) -> float:
        return 1.0

    return lambda: read(1), lambda value: read.register(int)(lambda _: value) and None


@SOURCES.add()
def a_function_within_numpy() -> tuple[Read, Write]:
    box = [1.0]
    function = np.frompyfunc(lambda _: box[0], 1, 1)
    return lambda: function(0.0), lambda value: box.__setitem__(0, value)


@SOURCES.add()
def a_partial_that_is_set_anew() -> tuple[Read, Write]:
    function = functools.partial(float, 1.0)
    return lambda: function(), lambda value: function.__setstate__((float, (value,), {}, None))  # type: ignore


@SOURCES.add()
def a_level_of_logging() -> tuple[Read, Write]:
    logger = logging.getLogger("captured")
    logger.setLevel(logging.INFO)
    write = lambda value: logger.setLevel(logging.ERROR if value > 1 else logging.INFO)  # noqa: E731
    return lambda: 2.0 if logger.isEnabledFor(logging.INFO) else 1.0, write


@SOURCES.add()
def output() -> tuple[Read, Write]:
    """A function that only writes something for people to read does not stop a capture."""
    logger, box = logging.getLogger("captured"), [1.0]

    def read() -> float:
        logger.debug("the scale is %s", box[0])
        print(end="")
        return box[0]

    return read, lambda value: box.__setitem__(0, value)


@SOURCES.add()
def json_and_copies() -> tuple[Read, Write]:
    table = {"a": [1.0]}
    return lambda: json.loads(json.dumps(copy.deepcopy(table)))["a"][0], lambda value: table.update(a=[value])


@SOURCES.add()
def a_gradient() -> tuple[Read, Write]:
    held = [alpha.zeros(1, device="cuda"), alpha.zeros(1, requires_grad=True)]

    def write(value: float) -> None:
        held[value > 1].grad = alpha.zeros(1, device="cuda" if value <= 1 else "cpu")

    return lambda: float(sum(2**index for index, tensor in enumerate(held) if tensor.grad is not None)), write


@SOURCES.add()
def a_registry() -> tuple[Read, Write]:
    table = {"scale": lambda: 1.0}
    return lambda: table["scale"](), lambda value: table.update(scale=lambda: value)


@SOURCES.add()
def a_context_manager() -> tuple[Read, Write]:
    import contextlib

    box = [1.0]

    @contextlib.contextmanager
    def inside() -> Iterator[float]:
        yield box[0]

    def read() -> float:
        with inside() as value:
            return value

    return read, lambda value: box.__setitem__(0, value)


# -- Alpha's own ----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore what the sources write outside of themselves."""
    relu, forward, argv, environ = F.relu, nn.ReLU.forward, list(sys.argv), dict(os.environ)
    yield
    F.relu, activation.relu, nn.ReLU.forward = relu, relu, forward  # type: ignore[method-assign]
    sys.argv[:] = argv
    os.environ.clear()
    os.environ.update(environ)
    for name in ("abs", "LATER"):
        globals().pop(name, None)
    for name in ("captured_package", "captured_package.config"):
        sys.modules.pop(name, None)


def of_relu(value: float) -> Any:
    return lambda *args: args[-1] * value


@SOURCES.add()
def a_function_of_Alpha() -> tuple[Read, Write]:
    return lambda: F.relu(alpha.ones(1, device="cuda")), lambda value: setattr(F, "relu", of_relu(value))


@SOURCES.add()
def an_inner_function_of_Alpha() -> tuple[Read, Write]:
    layer = nn.ReLU()
    return lambda: layer(alpha.ones(1, device="cuda")), lambda value: setattr(activation, "relu", of_relu(value))


@SOURCES.add()
def forward_of_a_class_of_Alpha() -> tuple[Read, Write]:
    layer = nn.ReLU()
    return lambda: layer(alpha.ones(1, device="cuda")), lambda value: setattr(nn.ReLU, "forward", of_relu(value))


@SOURCES.add()
def forward_of_a_layer() -> tuple[Read, Write]:
    layer = nn.ReLU()
    return lambda: layer(alpha.ones(1, device="cuda")), lambda value: setattr(layer, "forward", of_relu(value))


@SOURCES.add(refused="import_module|the table of all modules")
def a_module_by_its_text() -> tuple[Read, Write]:
    module = program_module()
    return lambda: importlib.import_module("captured_package.config").scale, functools.partial(setattr, module, "scale")


@pytest.mark.parametrize("name", SOURCES)
def test_a_number_that_a_function_reads_is_never_stale(name: str) -> None:
    SOURCES.check(name)


PLANTED = {  # what is forgotten, and a source that shows it
    "globals": (Watch, "_watch_scopes", "a global"),
    "what has run": (Watch, "_visit_what_ran", "a function within numpy"),
    "attributes": (look, "everything", "forward of a layer"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_forgotten_of_functions_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, function, row = PLANTED[name]
    monkeypatch.setattr(owner, function, nothing)
    SOURCES.check_noticed(row)


@pytest.mark.parametrize("name", ["relu", "__mul__", "__rsub__", "__neg__"])
def test_methods_of_tensors_are_never_stale(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class of the arguments is none that an object of the step leads to."""

    @alpha.capture
    def step(x: alpha.Tensor) -> alpha.Tensor:
        return 1 - (-x * 2.0).relu()

    x = alpha.tensor(np.array([1.0, -2.0], np.float32), device="cuda")
    for _ in range(6):
        assert step(x).tolist() == [1, -3]
    assert step.graphs
    method = getattr(alpha.Tensor, name)
    monkeypatch.setattr(alpha.Tensor, name, lambda self, *args: method(method(self, *args), *args))
    expected = step.captured_function(x).tolist()
    assert [step(x).tolist() for _ in range(6)] == [expected] * 6
