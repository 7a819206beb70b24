"""Parts of tensors that are copies of memory: written through to it, and read anew after it was written."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import re
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows.every import FUNCTIONS

import alpha
from alpha import GradientError, Tensor, nn
from alpha.nn import functional as F
from alpha.ops.array import conversion
from alpha.ops.array.parts.apart import UNNAMED
from alpha.ops.array.parts.copied_parts import PartVersion

X = (np.arange(1.0, 25.0, dtype=np.float32).reshape(4, 6) - 9.3) / 25

# of a matrix (4, 6); each is a view in PyTorch, too
PARTS: dict[str, Callable[[Any], Any]] = {
    "a column": lambda q: q[:, 0],
    "steps": lambda q: q[::2, 1::3],
    "an ellipsis": lambda q: q[..., -1],
    "None": lambda q: q[:, None, 1:3],
    "chunk": lambda q: q.chunk(3, 1)[1],
    "split": lambda q: q.split([1, 2, 3], 1)[2],
    "tensor_split": lambda q: q.tensor_split(2, 1)[0],
    "hsplit": lambda q: q.hsplit(3)[2],
    "unbind": lambda q: q.unbind(1)[4],
    "narrow": lambda q: q.narrow(1, 1, 4),
    "select": lambda q: q.select(1, -1),
    "permute": lambda q: q.permute(1, 0),
    "movedim": lambda q: q.movedim(1, 0),
    "swapaxes": lambda q: q.swapaxes(0, 1),
    "T": lambda q: q.T,
    "mT": lambda q: q.mT,
    "t": lambda q: q.t(),
    "diagonal": lambda q: q.diagonal(1),
    "windows": lambda q: q.unfold(1, 2, 3),
    "a part of a part": lambda q: q.T[1:5][:, ::2],
    "a row of a part": lambda q: q[:, 1:3][2],
    "three parts": lambda q: q.T[::2].T[1:3, 1],
    "a shape of a part": lambda q: q[:, :2].unsqueeze(0),
    "a part of a shape": lambda q: q.view(2, 2, 6)[:, 1],
    "a reshaped part": lambda q: q.T.reshape(3, 2, 4),
    "data": lambda q: q[:, 3].data,
    "a part of data": lambda q: q.data[:, 3],
    "detached twice": lambda q: q.detach()[:, 3].detach(),
    "a row by iteration": lambda q: list(q.T)[2],
    "squeeze": lambda q: q[:, 2:3].squeeze(1),
    "expanded by nothing": lambda q: q[:, 2:3].expand(4, 1),
    "a view": lambda q: q[1:3],
}
GIVEN: dict[str, Callable[[Tensor], tuple[Any, ...]]] = {  # arguments of the methods in place that need some
    **{name: lambda p: (0.25,) for name in ("add_", "sub_", "subtract_", "mul_", "multiply_", "div_", "divide_")},
    **{name: lambda p: (0.25,) for name in ("true_divide_", "pow_", "fill_", "fmod_", "remainder_", "clamp_", "clip_")},
    **{name: lambda p: (0.25,) for name in ("clamp_max_", "clamp_min_", "floor_divide_", "cumsum_zero_")},
    **{name: lambda p: (alpha.full_like(p, 0.5),) for name in ("copy_", "copysign_", "hypot_", "atan2_", "arctan2_")},
    **{name: lambda p: (alpha.full_like(p, 0.5),) for name in ("heaviside_", "xlogy_", "ldexp_")},
    **{name: lambda p: (alpha.full_like(p, 0.5),) for name in ("eq_", "ne_", "lt_", "le_", "gt_", "ge_", "less_")},
    **{name: lambda p: (alpha.full_like(p, 0.5),) for name in ("greater_", "greater_equal_", "less_equal_")},
    **{name: lambda p: (alpha.full_like(p, 0.5),) for name in ("not_equal_", "logical_and_", "logical_or_")},
    **{name: lambda p: (0,) for name in ("cumsum_", "cumprod_")},
    "logical_xor_": lambda p: (alpha.full_like(p, 0.5),),
    "lerp_": lambda p: (alpha.full_like(p, 0.5), 0.5),
    "addcmul_": lambda p: (alpha.full_like(p, 0.5), alpha.full_like(p, 0.5)),
    "addcdiv_": lambda p: (alpha.full_like(p, 0.5), alpha.full_like(p, 0.5)),
    "masked_fill_": lambda p: (p > 0.4, 0.0),
    "masked_scatter_": lambda p: (p > 0.4, alpha.full_like(p, 0.5)),
    "logit_": lambda p: (1e-3,),
    "geometric_": lambda p: (0.5,),
    "renorm_": lambda p: (2, 0, 0.5),
    "index_fill_": lambda p: (0, alpha.tensor([0], device=p.device), 0.5),
    "index_add_": lambda p: (0, alpha.tensor([1], device=p.device), p[:1].clone()),
    "index_copy_": lambda p: (0, alpha.tensor([1], device=p.device), p[:1].clone()),
    "index_put_": lambda p: ((alpha.tensor([0, 1], device=p.device),), alpha.tensor(0.5, device=p.device)),
}
RANDOM = (
    "bernoulli_",
    "cauchy_",
    "exponential_",
    "geometric_",
    "log_normal_",
    "normal_",
    "random_",
    "uniform_",
    "dropout_",
)
SHAPES = ("squeeze_", "unsqueeze_", "detach_", "requires_grad_")  # change the tensor, and not its memory
OF_MATRICES = ("addmm_", "addmv_", "addr_", "addbmm_", "baddbmm_", "fill_diagonal_", "tril_", "triu_")
INTEGERS = ("gcd_", "lcm_", "bitwise_", "arctanh_", "scatter_")


def methods() -> list[str]:
    names = [name for name in dir(Tensor) if re.fullmatch(r"[a-z].*[a-z0-9]_", name)]
    return [name for name in names if name not in (*SHAPES, *OF_MATRICES) and not name.startswith(INTEGERS)]


def others(q: Tensor, part: Callable[[Any], Any]) -> np.ndarray:
    """Mask of the elements of q that are not in the part."""
    numbers = alpha.arange(q.size).reshape(*q.shape)
    return ~np.isin(numbers.numpy(), part(numbers).numpy())


def check(device: str, part: Callable[[Any], Any], write: Callable[[Tensor], Any], draws: bool = False) -> None:
    q = alpha.tensor(X, device=device)
    named, alone = part(q), part(q).clone()
    outside = others(q, part)
    write(named)
    np.testing.assert_array_equal(part(q).numpy(), named.numpy())
    np.testing.assert_array_equal(q.numpy()[outside], X[outside])
    if not draws:
        write(alone)
        np.testing.assert_array_equal(named.numpy(), alone.numpy())
    q.fill_(7)
    assert (named.numpy() == 7).all()
    q.mul_(2)
    assert (named * 1).numpy().reshape(-1)[0] == 14


@pytest.mark.parametrize("name", PARTS)
def test_every_part_is_written_through_and_read_anew(device: str, name: str) -> None:
    for write in (
        lambda p: p.add_(1.5),
        lambda p: p.__imul__(3),
        lambda p: p.__setitem__(..., 0.5),
        lambda p: p.__setitem__(0, 0.5),
        lambda p: p.copy_(alpha.full_like(p, 0.5)),
        lambda p: p.masked_fill_(p > 0.1, -1.0),
        lambda p: nn.init.constant_(p, 2.0),
        lambda p: F.threshold_(p, 10.0, 2.0),
        lambda p: p.reshape(p.shape).zero_(),
    ):
        check(device, PARTS[name], write)


@pytest.mark.parametrize("name", methods())
def test_every_method_in_place_writes_through(name: str) -> None:
    arguments = GIVEN.get(name, lambda p: ())
    check("cpu", lambda q: q[:, 1:3], lambda p: getattr(p, name)(*arguments(p)), draws=name in RANDOM)


@pytest.mark.parametrize("room", [F, nn.init], ids=lambda room: room.__name__)
def test_functions_in_place_write_through(room: Any) -> None:
    given = {"threshold_": (0.5, 0.1), "constant_": (3.0,), "sparse_": (0.5,), "eye_": (), "dirac_": None}
    for name in [name for name in dir(room) if re.fullmatch(r"[a-z].*[a-z0-9]_", name)]:
        arguments = given.get(name, ())
        if arguments is not None:
            q = alpha.tensor(X) - 0.5
            part = q[:, 1:4]
            getattr(room, name)(part, *arguments)
            np.testing.assert_array_equal(q[:, 1:4].numpy(), part.numpy())


# -- programs, compared with PyTorch --------------------------------------------------------------------


def gates(q: Any, y: Any) -> Any:
    for number, gate in enumerate(q.chunk(3, 1)):
        gate.fill_(number)
    return q


def overlapping(q: Any, y: Any) -> Any:
    a, b = q[:, 0], q[:, :2]
    a += 1
    b *= 3
    a -= 0.5
    return q * 1 + b.sum() + a.sum()


def unpacked(q: Any, y: Any) -> Any:
    a, b, c, d, *_ = q.T
    a.copy_(b)
    c.add_(d * 2)
    return q * 1 + a.sum() * c.sum()


def written_base(q: Any, y: Any) -> Any:
    column, rows = q[:, 1], q[::2]
    q[:, 1] = 3
    q[0] *= 2
    return column.sum() + (rows * rows).sum()


def nested(q: Any, y: Any) -> Any:
    part = q.T[1:5]
    inner = part[:, ::2]
    part.mul_(2)
    inner.add_(1)
    q.sub_(0.25)
    return (inner * 1).sum() + (part * part).sum() + q.sum()


def copies(q: Any, y: Any) -> Any:
    q.T.contiguous().add_(1)
    named = q.T
    named.contiguous().add_(1)
    named.reshape(-1).add_(1)
    q.T.reshape(-1).add_(1)
    q.T.flatten().add_(1)
    named.clone().add_(1)
    q[[0, 1]].add_(1)
    q.repeat(1, 1).add_(1)
    q.flip(0).add_(1)
    named.add_(2)
    return q * 1 + named.T


def recorded(q: Any, y: Any) -> Any:
    h = q * 1
    other, column = h[:, :2], h[:, 1]
    column *= y[:, 0]
    column += 1
    h.T[2].mul_(y[:, 1])
    return h * y + h[:, 1].sum() + (other * column[:, None]).sum()


def recorded_into_constants(q: Any, y: Any) -> Any:
    h = q.detach() * 1
    h[:, ::2].copy_(y[:, :3] * 2)
    part = h[:, 1:3]
    part.mul_(y[:, 2:4])
    return h * h + part.sum()


def an_activation_in_place(q: Any, y: Any) -> Any:
    h = (q - 0.5).T
    h = h.relu_()
    return h * y.T


def a_part_after_a_recorded_write(q: Any, y: Any) -> Any:
    h = q * 1
    h[:, 0] = y[:, 1]
    a = h[:, :2]
    return a * a


CONSTANT = (gates, overlapping, unpacked, written_base, nested, copies)
RECORDED = (recorded, recorded_into_constants, an_activation_in_place, a_part_after_a_recorded_write)


@pytest.mark.torch
@pytest.mark.parametrize("program", [*CONSTANT, *RECORDED], ids=lambda program: program.__name__)
def test_programs_have_pytorchs_results_and_gradients(device: str, program: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib, where in ((alpha, {"device": device}), (torch, {})):
        trained = program in RECORDED
        q, y = (lib.tensor(v, requires_grad=trained, **where) for v in (X, X[::-1].copy() + 0.5))
        z = program(q, y)
        values = [z.detach(), q.detach()]
        if trained:
            (z * z).sum().backward()
            values += [lib.zeros(1) if v.grad is None else v.grad for v in (q, y)]
        found.append([np.asarray(v.cpu().numpy()) for v in values])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=1e-5)


# -- what is refused --------------------------------------------------------------------------------------


def test_parts_with_an_element_more_than_once_are_not_written(device: str) -> None:
    q = alpha.tensor(X, device=device)
    repeated = q.T.unsqueeze(0).expand(2, 6, 4)
    for part in (q[:, :1].expand(4, 3), q.unfold(1, 3, 1), alpha.broadcast_to(q, (2, 4, 6)), repeated):
        for write in (lambda p: p.add_(1), nn.init.zeros_, lambda p: p.__setitem__(0, 1)):
            with pytest.raises(GradientError, match=r"several elements of this part are one element of the tensor"):
                write(part)
    np.testing.assert_array_equal(q.numpy(), X)
    q[:, :1].expand(4, 3).clone().add_(1)
    q.fill_(2)
    assert repeated.sum().item() == 96


def test_a_part_of_a_leaf_that_requires_a_gradient_is_refused() -> None:
    w = alpha.tensor(X, requires_grad=True)
    part = w[:, 0]
    with pytest.raises(GradientError, match="a leaf tensor that requires a gradient cannot be written in place"):
        part.add_(1)
    with alpha.no_grad():
        part.add_(1)
        nn.init.zeros_(w.chunk(3, 1)[1])
    assert w[:, 0].tolist() == (X[:, 0] + 1).tolist()
    assert (w[:, 2:4] == 0).all()


def test_a_part_whose_history_is_not_known_is_refused(device: str) -> None:
    """The part is a view of memory that was written by a recorded operator since."""
    h = alpha.tensor(X, device=device, requires_grad=True) * 1
    part = h[:, 1].view(2, 2)
    h[:, 1] = h[:, 2]
    for read in (lambda: part.sum(), lambda: part.add_(1)):
        with pytest.raises(GradientError, match=r"wrote the base of a view|wrote the memory"):
            read()
    h[:, 1].sum().backward()


def test_what_was_saved_is_guarded(device: str) -> None:
    x = alpha.tensor(X, device=device, requires_grad=True)
    h = alpha.tensor(X, device=device)
    part = h[:, 1]
    loss = (part * x[:, 0]).sum()
    h.zero_()
    assert part.sum().item() == 0
    with pytest.raises(GradientError, match="written in place"):
        loss.backward()


# -- what a part does not do ------------------------------------------------------------------------------

VIEWS_OF_PYTORCH = {
    *("adjoint", "broadcast_to", "broadcast_tensors", "chunk", "diagonal", "dsplit", "expand_as", "hsplit", "moveaxis"),
    *("movedim", "narrow", "permute", "select", "split", "swapaxes", "swapdims", "t", "tensor_split", "transpose"),
    *("unbind", "unflatten", "vsplit", "meshgrid"),
}


def test_only_what_pytorch_gives_as_a_view_is_a_part() -> None:
    """A function that builds its result of views must not let a write to it reach its arguments."""
    for row in FUNCTIONS:
        given = {name: _tensors(value) for name, value in row.usual.items()}
        result = row.function(**given)
        for part in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(part, Tensor) and isinstance(part._version, PartVersion) and part._version.is_linked():
                assert row.function.__name__ in VIEWS_OF_PYTORCH, row.function.__name__


def _tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return alpha.tensor(value)
    return type(value)(map(_tensors, value)) if type(value) in (list, tuple) else value


def test_a_part_keeps_no_memory_of_its_tensor() -> None:
    gc.disable()
    try:
        for make in (lambda q: q.T, lambda q: q.T[1:3], lambda q: q.view(2, 12)[:, ::2][:, 1:]):
            q = alpha.tensor(X)
            memory, part = weakref.ref(q.array), make(q)
            del q
            assert memory() is None
            part.add_(1)
            assert part.contiguous() is part
        q = alpha.tensor(X)
        part = weakref.ref(q.T)
        assert part() is None
    finally:
        gc.enable()


@pytest.mark.skipif(not UNNAMED, reason="this Python does not tell whether a tensor has a name")
def test_an_unnamed_part_is_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`x.transpose(1, 2).reshape(..)` of every attention."""
    q = alpha.tensor(X)
    part = q.T
    assert np.shares_memory(part.reshape(3, 2, 4).array, part.array)  # a view of PyTorch's, too
    assert not np.shares_memory(part.reshape(-1).array, part.array)
    assert not np.shares_memory(part.contiguous().array, part.array)
    assert part.contiguous() is not part
    with monkeypatch.context() as patched:
        patched.setattr(conversion, "clone", None)
        made = q.T.reshape(-1)
        other = q.T.contiguous()  # an assertion would keep a reference
    for tensor in (made, other):
        assert tensor._version.base() is None
    np.testing.assert_array_equal(made.numpy(), X.T.reshape(-1))


def test_copies_of_a_part_are_tensors_of_their_own() -> None:
    q = alpha.tensor(X)
    loaded = pickle.loads(pickle.dumps(q.T))
    for part in (copy.deepcopy(q.T), loaded, q.T.clone(), alpha.tensor(q.T), nn.Parameter(q.T)):
        with alpha.no_grad():
            part.zero_()
    np.testing.assert_array_equal(q.numpy(), X)


def test_a_parameter_is_written_through_its_parts_after_it_was_loaded_and_not_after_it_moved() -> None:
    layer = nn.Linear(3, 2)
    part = layer.weight.detach()[:, 0]
    layer.load_state_dict({"weight": np.ones((2, 3)), "bias": np.zeros(2)})
    assert part.tolist() == [1, 1]
    layer.double()
    part.zero_()
    assert layer.weight.sum().item() == 6


def test_an_optimizer_of_a_part() -> None:
    w = alpha.tensor(X)
    part = w[:, 0].requires_grad_()
    optimizer = alpha.optim.SGD([part], lr=0.5)
    part.sum().backward()
    optimizer.step()
    np.testing.assert_allclose(w.numpy()[:, 0], X[:, 0] - 0.5)


def test_an_optimizer_reads_parts_anew(device: str) -> None:
    """Parameters and gradients are parts that no forward has read since the other memory was written."""
    w, g = alpha.tensor(X, device=device), alpha.tensor(X, device=device)
    part = w[:, 0].requires_grad_()
    part.grad = g[:, 1]
    optimizer = alpha.optim.SGD([part], lr=0.5)
    w.fill_(3.0)
    g.fill_(2.0)
    optimizer.step()
    np.testing.assert_array_equal(w.numpy()[:, 0], np.full(4, 2.0))
    assert (w.numpy()[:, 1:] == 3).all()


def _parts(value: Any, memories: list[Tensor]) -> Any:
    """Tensors in the place of arrays: columns of memories that hold other values until `now`."""
    if isinstance(value, np.ndarray):
        memories.append(
            alpha.tensor(np.stack([np.zeros_like(value) if value.dtype.kind != "f" else value * 0.5] * 2, -1))
        )
        return memories[-1][..., 0]
    return type(value)(_parts(item, memories) for item in value) if type(value) in (list, tuple) else value


def _leaves(value: Any) -> list[Any]:
    if type(value) in (list, tuple):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value.numpy() if isinstance(value, Tensor) else value]


def test_every_function_reads_parts_as_they_are_now() -> None:
    """All of its tensors, those that it reads without an operator among them, as indices and labels."""
    stale = []
    for row in FUNCTIONS:
        alpha.manual_seed(1)
        expected = _leaves(row.function(**{name: _tensors(value) for name, value in row.usual.items()}))
        memories: list[Tensor] = []
        given = {name: _parts(value, memories) for name, value in row.usual.items()}
        arrays = [leaf for value in row.usual.values() for leaf in _leaves(value) if isinstance(leaf, np.ndarray)]
        for memory, array in zip(memories, arrays, strict=True):
            memory.copy_(alpha.tensor(np.stack([array, array], -1)))
        alpha.manual_seed(1)
        found = _leaves(row.function(**given))
        if not all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True)):
            stale.append(row.name)
    assert not stale


def _averaged(q: Tensor) -> Any:
    model = nn.Module()
    model.w = nn.Parameter(q.detach())
    average = alpha.optim.swa_utils.AveragedModel(model)
    model.w.data = q.detach()
    average.update_parameters(model)
    return average.module.w.detach()


def _after(q: Tensor, write: Callable[[Tensor], object]) -> Any:
    write(q)
    return q.grad


# of a leaf q whose memory and gradient are columns of other memory
READERS: dict[str, Callable[[Tensor], Any]] = {
    "deepcopy": lambda q: copy.deepcopy(q).detach(),
    "pickle": lambda q: pickle.loads(pickle.dumps(q)).detach(),
    "tolist": lambda q: alpha.tensor(q.tolist()),
    "Parameter": lambda q: nn.Parameter(q).detach(),
    "data": lambda q: nn.Parameter(alpha.ones_like(q)).data.copy_(q.data),
    "TensorDataset": lambda q: alpha.data.TensorDataset(q.detach().cpu()).batch(np.arange(4))[0],
    "AveragedModel": _averaged,
    "clip_grad_norm_": lambda q: nn.utils.clip_grad_norm_([q], 100.0),
    "clip_grad_value_": lambda q: _after(q, lambda q: nn.utils.clip_grad_value_([q], 2.0)),
    "accumulated": lambda q: _after(q, lambda q: q.sum().backward()),
    "backward": lambda q: _after(q, lambda q: (q * 1).backward(q.grad)),
}


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_operator_reads_parts_as_they_are_now(device: str, name: str) -> None:
    found = []
    for memory in (lambda: alpha.ones(4, device=device), lambda: alpha.ones(4, 2, device=device)):
        w, g = memory(), memory()
        q = (w[:, 0] if w.ndim == 2 else w).requires_grad_()
        q.grad = g[:, 1] if g.ndim == 2 else g
        with alpha.no_grad():
            w.fill_(3.0)
            g.fill_(4.0)
        found.append(READERS[name](q).tolist())
        if name in ("clip_grad_value_", "accumulated", "backward"):
            assert (g[:, 1] if g.ndim == 2 else g).tolist() == found[-1]
    assert found[0] == found[1]


STEPS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Any]] = {  # of memory, a column of it, and an argument
    "reads": lambda w, p, x, y: (x * p).sum(),
    "is given a part": lambda w, p, x, y: (y * 2).sum(),
    "reads both": lambda w, p, x, y: (x * p).sum() + w.sum(),
    "writes the part": lambda w, p, x, y: p.add_(x).sum(),
    "writes the memory": lambda w, p, x, y: w.add_(x).sum() + p.sum(),
    "writes what it is given": lambda w, p, x, y: (w.add_(1), y * 1)[1].sum(),
    "returns a part": lambda w, p, x, y: (w.add_(1), w[:, 1])[1],
    "returns a part of its result": lambda w, p, x, y: (lambda h: (h, h[:, 0]))(w * x),
    "returns a part that it is given": lambda w, p, x, y: y.view(2, 2).T,
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.filterwarnings("ignore:.*(returns a part|writes an argument):alpha.errors.CaptureWarning")
def test_replays_do_with_parts_what_the_function_does(name: str) -> None:
    found: list[list[Any]] = []
    for wrap in (lambda function: function, alpha.capture):
        w = alpha.zeros(4, 4, device="cuda")
        p, other, x = w[:, 0], w[:, :2], alpha.ones(4, device="cuda")
        step, seen, kept = wrap(functools.partial(STEPS[name], w, p)), [], []
        for turn in range(12):
            kept.append(step(x, p if turn > 1 else x))
            seen += [(other * 1).tolist(), p.tolist(), w.tolist()]
            if turn in (6, 7, 9):
                w.fill_(turn)
            if turn == 10 and isinstance(kept[-1], tuple):
                kept[-1][0].fill_(5)
        results = [list(result) if isinstance(result, tuple) else [result] for result in kept]
        found.append(seen + [[tensor.tolist() for tensor in result] for result in results])
    assert found[0] == found[1]


def test_replays_read_and_write_parts() -> None:
    state, seen = alpha.zeros(4, 3), []
    column = state[:, 1]

    @alpha.capture
    def step(x: Tensor) -> Tensor:
        column.add_(x)
        return state.sum()

    for _ in range(6):
        seen.append(step(alpha.ones(4)).item())
    assert seen == [4, 8, 12, 16, 20, 24]
    assert column.tolist() == [6] * 4
