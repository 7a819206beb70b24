"""Names, steps and calls that a pickle may have: the written lists, and nothing else."""

from __future__ import annotations

import contextlib
import copyreg
import itertools
import pickle
import pickletools
import random
import struct
import sys
import types
import warnings
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz_readers import STORAGES as BYTES
from fuzz_readers import archive
from trials import trials

import alpha
from alpha.errors import CheckpointError
from alpha.io import torch_files
from alpha.io.pickles import Budget, Keyed, Maker, Reader, Refused

BUILTINS = ("bytearray", "bytes", "complex", "frozenset", "set", "slice")
TORCH = (
    *("Size", "device"),
    *("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"),
    *("uint16", "uint32", "uint64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)
OF_STORAGES = [
    f"{kind}Storage" for kind in ("Double", "Float", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte")
]
OF_STORAGES += ["BoolStorage", "ComplexFloatStorage", "ComplexDoubleStorage", "UntypedStorage"]
ADMITTED = {  # all that a file may name
    *(("builtins", name) for name in BUILTINS),
    *(("__builtin__", name) for name in BUILTINS),
    *(("torch", name) for name in (*TORCH, *OF_STORAGES)),
    *(("torch.storage", name) for name in OF_STORAGES),
    *(("torch._utils", f"_rebuild_tensor{version}") for version in ("", "_v2", "_v3")),
    *(("torch._utils", f"_rebuild_parameter{version}") for version in ("", "_with_state")),
    ("collections", "OrderedDict"),
    ("collections", "Counter"),
    ("_codecs", "encode"),
}
LISTED = """
PROTO FRAME STOP MARK POP POP_MARK NONE NEWTRUE NEWFALSE INT LONG BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT
SHORT_BINUNICODE BINUNICODE BINUNICODE8 SHORT_BINBYTES BINBYTES BINBYTES8 BYTEARRAY8 EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3
TUPLE EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS EMPTY_SET ADDITEMS FROZENSET GLOBAL STACK_GLOBAL REDUCE
BUILD BINPERSID BINGET LONG_BINGET BINPUT LONG_BINPUT MEMOIZE
"""
INSTRUCTIONS = set(LISTED.split())  # all that a file may do
PLAIN = (str, bytes, bytearray, int, float, complex, bool, type(None), tuple, list, dict, set, frozenset, slice)


def everything() -> Iterator[tuple[str, str]]:
    """Every name of every module that is loaded, of its classes and modules, and other spellings of the modules."""
    for module, value in list(sys.modules.items()):
        names = [*vars(value)] if isinstance(value, types.ModuleType) else []
        for name in map(str, names):
            yield module, name
            inner = vars(value).get(name)
            if isinstance(inner, type) and inner.__module__ in (module, "builtins"):
                yield from ((module, f"{name}.{part}") for part in list(vars(inner)))
    for name in (*vars(__import__("builtins")), *TORCH, *OF_STORAGES, "OrderedDict", "encode"):
        for module in (
            "builtins",
            "__builtin__",
            "__builtins__",
            "Builtins",
            "builtins ",
            "alpha.builtins",
            "copy_reg",
            "copyreg",
        ):
            yield module, name
        for module in (
            "torch",
            "torch.storage",
            "torch._utils",
            "torch.Tensor",
            "torch.storage.builtins",
            "",
            ".",
            "numpy",
        ):
            yield module, name
            yield module, f"{name}.__class__"


def names() -> Any:
    """Function that gives what a name in a file of PyTorch's stands for."""
    read, keyed = torch_files._Object(None, "", 0), Keyed(Budget(0))  # type: ignore[arg-type]

    def find(module: str, name: str) -> Any:
        return keyed.makers[module, name] if (module, name) in keyed.makers else read._find(module, name)

    return find


@pytest.mark.slow
def test_only_the_written_names_are_known() -> None:
    find, found, tried = names(), set(), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that other libraries have given up warn when they are read
        every = {*everything(), *ADMITTED}
    for module, name in every:
        tried += 1
        with contextlib.suppress(Refused):
            find(module, name)
            found.add((module, name))
    assert found == ADMITTED
    assert tried > 10_000
    with pytest.raises(Refused, match=r"holds a os.system, which is neither a tensor nor plain data"):
        find("os", "system")


def load(pickled: bytes) -> Any:
    read = torch_files._Object(None, "", 0)  # type: ignore[arg-type]
    return Reader(pickled, read._find, read._storage, Budget(1000)).load()


def spellings(module: str, name: str) -> Iterator[bytes]:
    """Programs that push what a name stands for, in each protocol."""
    text = [b"X" + struct.pack("<I", len(part.encode())) + part.encode() for part in (module, name)]
    short = [b"\x8c" + bytes([len(part.encode())]) + part.encode() for part in (module, name)]
    for protocol in (b"", b"\x80\x01", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        yield protocol + b"c" + module.encode() + b"\n" + name.encode() + b"\n."
        yield protocol + text[0] + text[1] + b"\x93."
        yield protocol + short[0] + b"\x94" + short[1] + b"\x94\x93."


def test_no_spelling_and_no_protocol_admits_another_name() -> None:
    dangerous = [
        ("builtins", "eval"),
        ("os", "system"),
        ("posix", "system"),
        ("builtins", "getattr"),
        ("__builtins__", "set"),
    ]
    dangerous += [
        ("collections", "OrderedDict.__init__"),
        ("torch", "load"),
        ("alpha", "load"),
        ("_codecs", "decode"),
        ("", ""),
    ]
    with trials() as trial:
        for known in ADMITTED:
            for program in spellings(*known):
                with trial(*known, program):
                    assert isinstance(load(program), (Maker, np.dtype))
        for module, name in dangerous:
            for program in spellings(module, name):
                with trial(module, name, program), pytest.raises(Refused):
                    load(program)


def test_only_the_written_instructions_are_known() -> None:
    known = {code.name for code in pickletools.opcodes if code.code.encode("latin-1") in Reader.STEPS} | {"STOP"}
    assert known == INSTRUCTIONS
    copyreg.add_extension("os", "system", 0x77)  # which other pickles of the process may have used already
    try:
        for code in set(range(256)) - {ord(code.code) for code in pickletools.opcodes if code.name in INSTRUCTIONS}:
            program = b"\x80\x02(N)" + bytes([code]) + b"\x77\0\0\0os\nsystem\n."
            with pytest.raises(Refused, match=r"has the instruction .*, which plain data do not need"):
                load(program)
    finally:
        copyreg.remove_extension("os", "system", 0x77)


VALUES = [
    None,
    True,
    -1,
    2**70,
    1.5,
    float("nan"),
    "latin1",
    "x" * 99,
    b"x",
    [],
    [[1, 2]],
    {},
    {"a": 1},
    set(),
    (),
    (1, 2),
]


def arguments(maker: Maker) -> Iterator[tuple[Any, ...]]:
    draw = random.Random(0)
    storage = np.arange(6, dtype=np.float32)
    values = [
        *VALUES,
        storage,
        np.dtype("f4"),
        maker,
        0,
        (0,),
        (6,),
        (1,),
        (-1,),
        (2**62, 4),
        [[[], 1]],
        np.zeros(4, np.uint8),
    ]
    for count in range(3):
        yield from itertools.product(values, repeat=count)
    for _ in range(300):
        yield tuple(draw.choices(values, k=draw.randrange(3, 10)))
        parts = (
            storage,
            draw.choice((0, 1, 5, -1)),
            *draw.choices([(2,), (0,), (3, 2), (6,), (7,), (1,), (-1,), ()], k=2),
        )
        yield *parts, *draw.choices([*VALUES, np.dtype("f4"), {"conj": True}, {"neg": True}], k=draw.randrange(5))


def test_what_may_be_called_makes_a_value_or_an_error_of_any_arguments() -> None:
    find, state = names(), repr([torch_files.DTYPES, torch_files.STORAGES, torch_files.KNOWN, torch_files.COPYING])
    makers = {known: find(*known) for known in sorted(ADMITTED) if isinstance(find(*known), Maker)}
    assert len(makers) == 2 * len(BUILTINS) + 10
    for known, maker in makers.items():
        for given in arguments(maker):
            try:
                value = maker.make(*given)
            except (TypeError, ValueError, KeyError, AttributeError, OverflowError, Refused):
                continue
            assert type(value) in (*PLAIN, OrderedDict, Counter, np.ndarray), (known, given)
    assert state == repr([torch_files.DTYPES, torch_files.STORAGES, torch_files.KNOWN, torch_files.COPYING])


FLOATS, FLAGS = np.arange(4, dtype=np.float32), np.array([0, 1, 2], np.uint8).view(bool)
RAW, SHORT = np.zeros(5, np.uint8), np.dtype("u2")


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("_utils._rebuild_tensor_v2", ([1], 0, (1,), (1,)), "a tensor is no part of a list"),
        ("_utils._rebuild_tensor_v2", (FLOATS, -1, (1,), (1,)), r"a tensor of shape \(1,\) begins at -1"),
        ("_utils._rebuild_tensor_v2", (FLOATS, 0.0, (1,), (1,)), r"a tensor of shape \(1,\) begins at 0\.0"),
        ("_utils._rebuild_tensor_v2", (FLOATS, 0, (-1,), (1,)), r"a tensor of shape \(-1,\) begins at 0"),
        ("_utils._rebuild_tensor_v2", (FLOATS, 3, (2,), (-1,)), r"begins at 3, with the steps \(-1,\)"),
        ("_utils._rebuild_tensor_v2", (FLOATS, 1, (4,), (1,)), r"of shape \(4,\) reaches beyond its 4 numbers"),
        (
            "_utils._rebuild_tensor",
            (FLAGS, 0, (3,), (1,)),
            "a tensor of bool holds bytes that are neither True nor False",
        ),
        ("_utils._rebuild_tensor_v3", ([1], 0, (1,), (1,), False, None, SHORT), "a tensor of bytes of a list"),
        ("_utils._rebuild_tensor_v3", (FLOATS, 0, (1,), (1,), False, None, SHORT), "a tensor of bytes of a ndarray"),
        ("_utils._rebuild_tensor_v3", (RAW, 0, (1,), (1,), False, None, "u2"), "a tensor of bytes of a ndarray"),
        ("_utils._rebuild_tensor_v3", (RAW, 0, (3,), (1,), False, None, SHORT), "reaches beyond its 2 numbers"),
        ("_utils._rebuild_parameter", ([1], False, None), "a parameter is no list"),
        ("Size", ([1],), "a size is a tuple, and no list"),
        ("Size", ((1,) * 1000,), "a size has 1,000 numbers, at most"),
        ("Size", ((1.0,),), "a size has numbers that are not whole, or have more than 64 bits"),
        ("Size", ((1 << 63,),), "a size has numbers that are not whole, or have more than 64 bits"),
        ("device", (0,), "a device is no int"),
    ],
)
def test_what_a_tensor_cannot_be_made_of_is_refused(name: str, given: tuple[Any, ...], message: str) -> None:
    module, _, last = f"torch.{name}".rpartition(".")
    with pytest.raises((TypeError, ValueError), match=f"^{message}|{message}$"):
        names()(module, last).make(*given)


def test_a_tensor_of_bytes_is_what_its_dtype_says() -> None:
    made = names()("torch._utils", "_rebuild_tensor_v3").make(
        np.array([1, 0, 2, 1, 9], np.uint8), 0, (2,), (1,), False, None, np.dtype("<u2")
    )
    assert (made.tolist(), made.dtype) == ([1, 258], np.uint16)


def test_what_is_named_beside_the_pickle_is_a_storage() -> None:
    storage = torch_files._Object(None, "", 0)._storage  # type: ignore[arg-type]
    right: tuple[Any, ...] = ("storage", np.dtype("f4"), "0", "cpu", 1)
    for place, wrong in ((0, "module"), (1, "f4"), (2, 0), (4, 1.0), (4, True)):
        with pytest.raises(Refused, match=r"^it refers to a '(storage|module)', which is no storage"):
            storage((*right[:place], wrong, *right[place + 1 :]))


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x", "w") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so does zipfile
        for content in (b"\x80\x02N.", b"\x80\x02K\x01."):
            file.writestr("a/data.pkl", content)
    with pytest.raises(CheckpointError, match="two files in the archive have one name"):
        alpha.load(tmp_path / "x")


@pytest.mark.parametrize("state", [b"}X\x01\x00\x00\x00aNs", b"N}\x86", b"N", b"(NNt"])
def test_no_state_is_set(state: bytes) -> None:
    found = load(b"\x80\x02ccollections\nOrderedDict\n)R" + state + b"b.")  # PyTorch's versions are passed over
    assert (found, vars(found)) == ({}, {})
    for value in (b"]", b"}", b"N", b"\x8f", b"ctorch\nfloat32\n", b"ctorch\nSize\n", b"cbuiltins\nset\n)R"):
        with pytest.raises(Refused, match=r"it sets the state of a"):
            load(b"\x80\x04" + value + state + b"b.")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_of_every_protocol(tmp_path: Path, protocol: int) -> None:
    data = {
        "numbers": [0, 255, 65535, -1, 2**31, -(2**70), 2**2100, 1.5, float("inf"), True, False, None, 2j],
        "texts": ["", "\u00e9\u1234", "x" * 300, b"", b"\x00\xff", b"y" * 300, bytearray(b"z")],
        (1, (2, "a")): {1, 2},
        frozenset({3}): slice(1, None, 2),
        "dicts": [OrderedDict(b=1, a=2), Counter("aab"), {}],
        **{i: i for i in range(1200)},
    }
    data["again"] = data["texts"]
    (tmp_path / "x").write_bytes(archive(pickle.dumps(data, protocol), **BYTES))
    if protocol == 0:  # in which torch.save cannot write
        with pytest.raises(CheckpointError, match=r"has the instruction"):
            alpha.load(tmp_path / "x")
        return
    found = alpha.load(tmp_path / "x")
    assert found == data
    assert repr(found) == repr(data)
    assert found["again"] is found["texts"]
