"""Methods of Tensor take PyTorch's keywords, of all forms of a method, or are on the list of what is not offered."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import Tensor
from alpha.ops.kernel.arguments import other_names

NEVER = {
    "out",
    "memory_format",
    "layout",
    "pin_memory",
    "implicit",
    "sparse_grad",
    "force",
    "tensor_indices_or_sections",
}
# of one method: what PyTorch's own reader of arguments or its documentation names otherwise
ELSEWHERE = {
    ("copy_", "other"),
    ("requires_grad_", "mode"),
    ("uniform_", "from_"),  # which Python cannot name: from is a word of its own
    ("broadcast_to", "size"),
    ("view", "size"),
    ("view", "dtype"),
    ("to", "other"),
    ("pin_memory", "device"),
}


NAMED = {  # arguments for named axes, of PyTorch before 2.13
    *(("diagonal", "outdim"), ("flatten", "dims"), ("flatten", "out_dim"), ("unflatten", "names"))
}


def forms() -> dict[str, set[str]]:
    """The keywords of each method of PyTorch's tensors, from the stubs that it comes with."""
    torch = pytest.importorskip("torch")
    tree = ast.parse((Path(torch.__file__).parent / "_C" / "__init__.pyi").read_text())
    base = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "TensorBase")
    found: defaultdict[str, set[str]] = defaultdict(set)
    for function in base.body:
        if isinstance(function, ast.FunctionDef) and not function.name.startswith("__"):
            found[function.name] |= {a.arg for a in (*function.args.args[1:], *function.args.kwonlyargs)}
    return found


@pytest.mark.torch
def test_every_keyword_of_pytorchs_methods_is_taken_or_listed() -> None:
    missing = []
    listed = set()
    for name, keywords in forms().items():
        method = getattr(Tensor, name, None)
        if not callable(method):
            continue
        own = list(inspect.signature(method).parameters)[1:]
        taken = {*own, *other_names(name, own)}
        listed |= {(name, keyword) for keyword in keywords - taken} & ELSEWHERE
        missing += [(name, keyword) for keyword in keywords - taken - NEVER if (name, keyword) not in ELSEWHERE | NAMED]
    assert not missing
    assert listed == ELSEWHERE, "an entry of the list is not needed any more"


def test_other_names_of_arguments(device: str) -> None:
    index = alpha.tensor([[0, 1]], device=device)
    x, one = alpha.zeros(2, 2, device=device), alpha.ones(2, 2, device=device)
    for value in (
        x.scatter_(dim=0, index=index, value=3.0),
        alpha.zeros(2, 2, device=device).scatter(0, index, value=3),
    ):
        assert value.tolist() == [[3, 0], [0, 3]]
    assert x.scatter_(dim=0, index=index, value=1.0, reduce="add").tolist() == [[4, 0], [0, 4]]
    with pytest.raises(TypeError, match="value= and src= are one argument; give one of them"):
        x.scatter_(0, index, src=one, value=3.0)
    assert x.max(other=one).tolist() == [[4, 1], [1, 4]]
    assert x.min(other=one).tolist() == [[1, 0], [0, 1]]
    assert alpha.max(x, other=one).tolist() == [[4, 1], [1, 4]]
    assert [part.shape for part in x.split(split_size=1, dim=1)] == [(2, 1), (2, 1)]
    assert [part.shape for part in x.hsplit(sections=2)] == [(2, 1), (2, 1)]
    assert [part.shape for part in x.tensor_split(indices=[1], dim=0)] == [(1, 2), (1, 2)]


DRAWS: dict[str, tuple[Any, ...]] = {
    "bernoulli_": (0.5,),
    "cauchy_": (),
    "exponential_": (),
    "geometric_": (0.3,),
    "log_normal_": (),
    "normal_": (),
    "random_": (0, 1000),
    "uniform_": (),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_of_a_generator(device: str, name: str) -> None:
    """The numbers follow from the generator alone, and leave the program's own numbers where they are."""
    ends = []
    for seed, before in ((3, 0), (3, 1), (4, 0)):
        alpha.manual_seed(before)
        generator = alpha.Generator().manual_seed(seed)
        x = alpha.zeros(40, device=device)
        assert getattr(x, name)(*DRAWS[name], generator=generator) is x
        ends.append(x.numpy())
        alpha_own = alpha.rand(3).numpy()
        alpha.manual_seed(before)
        np.testing.assert_array_equal(alpha.rand(3).numpy(), alpha_own)
    np.testing.assert_array_equal(ends[0], ends[1])
    assert (ends[0] != ends[2]).any()
    with pytest.raises(TypeError, match="generator is a int"):
        getattr(alpha.zeros(3), name)(*DRAWS[name], generator=3)
