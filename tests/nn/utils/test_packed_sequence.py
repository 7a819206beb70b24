"""Packed sequences and the recurrent layers that take them, against PyTorch's, on both devices."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import ShapeError, nn
from alpha.errors import DeviceError
from alpha.nn.utils.rnn import (
    PackedSequence,
    invert_permutation,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    unpack_sequence,
)

_rng = np.random.default_rng(0)
LENGTHS = [2, 5, 1, 4, 4, 2]
FALLING = sorted(LENGTHS, reverse=True)
X = _rng.standard_normal((6, 6, 4))  # a step more than the longest sequence has
LAYERS: dict[str, tuple[str, dict[str, Any], bool]] = {  # class, arguments, whether the first states are given
    "RNN": ("RNN", {"num_layers": 2, "nonlinearity": "relu", "bidirectional": True}, True),
    "RNN, plain": ("RNN", {}, False),
    "GRU": ("GRU", {"num_layers": 2, "bidirectional": True, "batch_first": True}, True),
    "GRU, plain": ("GRU", {"bias": False}, True),
    "LSTM": ("LSTM", {"num_layers": 2, "bidirectional": True}, True),
    "LSTM, plain": ("LSTM", {}, False),
    "LSTM, projected": ("LSTM", {"num_layers": 2, "proj_size": 2, "bidirectional": True}, True),
}


def flat(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in flat(part)] if type(value) is tuple else [value]


def near(a: Any, b: Any, tolerance: float) -> None:
    np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("lengths", [LENGTHS, FALLING, [3] * 6], ids=["unsorted", "sorted", "equal"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_pytorchs(device: str, name: str, lengths: list[int]) -> None:
    """Results, last states and all gradients, of a batch that is packed, goes through the layer and is padded again."""
    torch = pytest.importorskip("torch")
    kind, arguments, with_states = LAYERS[name]
    dtype, tolerance = ("float64", 1e-9) if device == "cpu" else ("float32", 2e-4)
    twin = getattr(torch.nn, kind)(4, 3, **arguments).to(getattr(torch, dtype))
    layer = getattr(nn, kind)(4, 3, **arguments).astype(dtype).to(device)
    layer.load_state_dict({name: value.detach().numpy() for name, value in twin.state_dict().items()})
    count = arguments.get("num_layers", 1) * (2 if arguments.get("bidirectional") else 1)
    R = arguments.get("proj_size", 3)
    shapes = [(count, 6, R), (count, 6, 3)][: 1 + (kind == "LSTM")] if with_states else []
    values = [X, *(_rng.standard_normal(shape) for shape in shapes)]
    ours = [alpha.tensor(v.astype(dtype), device=device, requires_grad=True) for v in values]
    theirs = [torch.tensor(v.astype(dtype), requires_grad=True) for v in values]
    rule = {"enforce_sorted": lengths != LENGTHS, "batch_first": True}

    def called(utils: Any, module: Any, x: Any, *states: Any) -> list[Any]:
        packed = utils.pack_padded_sequence(x, lengths, **rule)
        y, end = module(packed, *([tuple(states)] if len(states) > 1 else states))
        padded, counts = utils.pad_packed_sequence(y, batch_first=True)
        assert counts.tolist() == lengths
        return [padded, *flat(end)]

    results = called(nn.utils.rnn, layer, *ours)
    expected = called(torch.nn.utils.rnn, twin, *theirs)
    weights = [_rng.standard_normal(y.shape).astype(dtype) for y in results]
    for y, wanted in zip(results, expected, strict=True):
        near(y, wanted, tolerance)
    sum((y * alpha.tensor(w, device=device)).sum() for y, w in zip(results, weights, strict=True)).backward()
    sum((y * torch.tensor(w)).sum() for y, w in zip(expected, weights, strict=True)).backward()
    pairs = [*zip(ours, theirs, strict=True)]
    pairs += [(dict(layer.named_parameters())[name], value) for name, value in twin.named_parameters()]
    for mine, other in pairs:
        near(mine.grad, other.grad, tolerance)
    assert not ours[0].grad.numpy()[np.arange(6) >= np.array(lengths)[:, None]].any()


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_each_sequence_is_as_if_it_were_alone(device: str, kind: str) -> None:
    layer = getattr(nn, kind)(4, 3, bidirectional=True).to(device)
    x = alpha.tensor(X.astype(np.float32), device=device)
    y, end = layer(pack_padded_sequence(x, LENGTHS, enforce_sorted=False))
    for i, (found, length) in enumerate(zip(unpack_sequence(y), LENGTHS, strict=True)):
        alone, last = layer(x[:length, i])
        np.testing.assert_allclose(found.numpy(), alone.numpy(), rtol=1e-5, atol=1e-6)
        for states, state in zip(flat(end), flat(last), strict=True):
            np.testing.assert_allclose(states[:, i].numpy(), state.numpy(), rtol=1e-5, atol=1e-6)


def test_dropout_between_layers_takes_packed_rows(device: str) -> None:
    layer = nn.GRU(4, 3, num_layers=2, dropout=1.0).to(device)
    x = pack_padded_sequence(alpha.tensor(X.astype(np.float32), device=device), LENGTHS, enforce_sorted=False)
    dropped, alone = layer(x)[0].data, layer.eval()(x)[0].data
    assert abs(dropped - alone).max().item() > 1e-3
    zero = nn.GRU(3, 3).to(device)
    zero.load_state_dict(
        {name.replace("_l1", "_l0"): v for name, v in layer.state_dict().numpy().items() if "_l1" in name}
    )
    wanted = zero(x.with_data(alpha.zeros(len(dropped), 3, device=device)))[0].data
    np.testing.assert_allclose(dropped.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)


def test_bfloat16_rows(device: str) -> None:
    layer = nn.LSTM(4, 3).to(device)
    x = pack_padded_sequence(alpha.tensor(X.astype(np.float32), device=device), LENGTHS, enforce_sorted=False)
    with alpha.precision("bf16"):
        y, _ = layer(x.bfloat16())
    assert y.data.dtype == np.float32
    np.testing.assert_allclose(y.data.numpy(), layer(x)[0].data.numpy(), atol=0.05)


@pytest.mark.torch
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int64", "float64"])
@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_packing_and_padding_are_pytorchs(device: str, dtype: str, batch_first: bool, shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    for sorted_first, lengths in ((False, LENGTHS), (True, FALLING), (False, FALLING)):
        values = (9 * _rng.standard_normal((6, 5, *shape) if batch_first else (5, 6, *shape))).astype(dtype)
        graph = dtype != "int64"
        ours = alpha.tensor(values, device=device, requires_grad=graph)
        theirs = torch.tensor(values, requires_grad=graph)
        options = {"batch_first": batch_first, "enforce_sorted": sorted_first}
        packed = pack_padded_sequence(ours, alpha.tensor(lengths), **options)
        wanted = torch.nn.utils.rnn.pack_padded_sequence(theirs, torch.tensor(lengths), **options)
        np.testing.assert_array_equal(packed.data.numpy(), wanted.data.detach().numpy())
        for mine, other in zip(packed[1:], wanted[1:], strict=True):
            assert (mine is None) == (other is None)
            assert mine is None or mine.tolist() == other.tolist()
        assert packed.batch_sizes.device.name == "cpu"
        assert packed.sorted_indices is None or packed.sorted_indices.device.name == device
        for how in ({}, {"batch_first": True}, {"padding_value": -2.0}, {"total_length": 8}):
            y, counts = pad_packed_sequence(packed, **how)
            padded, known = torch.nn.utils.rnn.pad_packed_sequence(wanted, **how)
            np.testing.assert_array_equal(y.numpy(), padded.detach().numpy())
            assert counts.tolist() == known.tolist()
            assert y.dtype == packed.data.dtype
            if graph:
                ours.grad = theirs.grad = None
                (y * y).sum().backward(retain_graph=True)
                (padded * padded).sum().backward(retain_graph=True)
                np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("lengths", [LENGTHS, FALLING])
def test_a_list_of_sequences(device: str, lengths: list[int]) -> None:
    torch = pytest.importorskip("torch")
    values = [_rng.standard_normal((length, 2)).astype(np.float32) for length in lengths]
    ours = [alpha.tensor(value, device=device, requires_grad=True) for value in values]
    theirs = [torch.tensor(value, requires_grad=True) for value in values]
    packed = pack_sequence(ours, enforce_sorted=lengths == FALLING)
    wanted = torch.nn.utils.rnn.pack_sequence(theirs, enforce_sorted=lengths == FALLING)
    np.testing.assert_array_equal(packed.data.numpy(), wanted.data.detach().numpy())
    assert packed.batch_sizes.tolist() == wanted.batch_sizes.tolist()
    for found, value in zip(unpack_sequence(packed), values, strict=True):
        np.testing.assert_array_equal(found.numpy(), value)
    (packed.data**3).sum().backward()
    (wanted.data**3).sum().backward()
    for mine, other in zip(ours, theirs, strict=True):
        near(mine.grad, other.grad, 1e-5)


def test_a_packed_sequence_is_a_tuple_that_moves(device: str) -> None:
    packed = pack_padded_sequence(alpha.tensor(X.astype(np.float32)), LENGTHS, enforce_sorted=False)
    data, sizes, first, second = packed
    assert packed.sizes == (6, 5, 3, 3, 1)
    assert packed.order == tuple(first.tolist()) == (1, 3, 4, 0, 5, 2)
    assert second.tolist() == invert_permutation(first).tolist()
    moved = packed.to(device)
    assert [part.device.name for part in moved] == [device, "cpu", device, device]
    assert moved.to(device) is moved
    assert moved.is_cuda == (device == "cuda")
    assert moved.cpu().data.device.name == "cpu"
    assert moved.long().data.dtype == np.int64
    assert moved.int().data.dtype == np.int32
    assert packed.double().data.dtype == np.float64
    assert moved.float() is moved
    for other in (copy.deepcopy(packed), pickle.loads(pickle.dumps(packed))):
        assert isinstance(other, PackedSequence)
        np.testing.assert_array_equal(other.data.numpy(), data.numpy())
        assert pad_packed_sequence(other)[1].tolist() == LENGTHS
    made = PackedSequence(moved.data, sizes, moved.sorted_indices)  # what makes its order known is only on the device
    assert made.unsorted_indices.tolist() == second.tolist()
    y, lengths = pad_packed_sequence(made)
    assert lengths.tolist() == LENGTHS
    np.testing.assert_array_equal(y.numpy(), pad_packed_sequence(packed)[0].numpy())
    y, lengths = pad_packed_sequence(PackedSequence(data, sizes))
    assert lengths.tolist() == FALLING
    np.testing.assert_array_equal(y[:, 0].numpy(), X[:5, 1].astype(np.float32))


def test_lengths_on_a_device_are_waited_for(device: str) -> None:
    x = alpha.tensor(X.astype(np.float32), device=device)
    packed = pack_padded_sequence(x, alpha.tensor(LENGTHS, device=device), enforce_sorted=False)
    assert packed.sizes == (6, 5, 3, 3, 1)


def _packed(data: Any, sizes: list[int]) -> Any:
    return PackedSequence(data, alpha.tensor(sizes))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: pack_padded_sequence(x, LENGTHS), r"lengths \[2, 5, 1, 4, 4, 2\] do not fall; enforce_sorted=False"),
        (lambda x: pack_sequence([x[:2, 0], x[:3, 0]]), r"pack_sequence: lengths \[2, 3\] do not fall"),
        (lambda x: pack_padded_sequence(x, [7] * 6), r"lengths from 7 to 7 must be from 1 to 6  \(input \(6, 6, 4\)\)"),
        (lambda x: pack_padded_sequence(x, [3, 2, 2, 1, 1, 0]), "lengths from 0 to 3 must be from 1 to 6"),
        (lambda x: pack_padded_sequence(x, [3, 2]), r"2 lengths for 6 sequences  \(input \(6, 6, 4\)\)"),
        (lambda x: pack_padded_sequence(x[:, :0], []), "0 lengths for 0 sequences"),
        (lambda x: pack_padded_sequence(x[0, 0], [1]), r"input \(T, N, ...\) is needed"),
        (lambda x: pack_padded_sequence(x, [1.5] * 6), "lengths are no list and no tensor"),
        (lambda x: pack_padded_sequence(x.numpy(), LENGTHS), "input is a ndarray, a Tensor is needed"),
        (lambda x: pack_sequence([x[:2, 0], x[:0, 0]]), r"pack_sequence: sequence 1 has no step  \(lengths \[2, 0\]\)"),
        (lambda x: pack_sequence([]), "pack_sequence: sequences is no list of tensors"),
        (lambda x: pack_sequence([x[0], x[0, :, :2]]), "pack_sequence: only the first axis may differ"),
        (lambda x: pad_packed_sequence(x), "a Tensor is no PackedSequence"),
        (lambda x: pad_packed_sequence(_packed(x[0], [3, 3]), total_length=1), "total_length=1 is less than the .* 2"),
        (lambda x: pad_packed_sequence(_packed(x[0], [3, 2])), r"batch_sizes \[3, 2\] must fall .* \(data \(6, 4\)\)"),
        (lambda x: pad_packed_sequence(_packed(x[0], [2, 4])), r"batch_sizes \[2, 4\] must fall to at least 1"),
        (lambda x: _packed(x.numpy(), [3]), "PackedSequence: data is a ndarray, a Tensor is needed"),
        (lambda x: PackedSequence(x[0], [6]), "PackedSequence: batch_sizes is no tensor"),
        (lambda x: nn.GRU(5, 3)(_packed(x[0], [6])), r"GRU: packed data \(rows, 5\) are needed  \(x \(6, 4\)\)"),
        (lambda x: nn.GRU(4, 3)(_packed(x[0], [5])), "PackedSequence: batch_sizes"),
        (
            lambda x: nn.GRU(4, 3)(pack_padded_sequence(x, LENGTHS, enforce_sorted=False), x[:1, :, :3][:, :5]),
            r"GRU: the state has shape \(1, 5, 3\); \(1, 6, 3\) is needed",
        ),
    ],
)
def test_what_is_refused(call: Any, message: str) -> None:
    with pytest.raises((ShapeError, TypeError, ValueError), match=message):
        call(alpha.tensor(X.astype(np.float32)))


def test_sizes_are_on_cpu() -> None:
    with pytest.raises(DeviceError, match="batch_sizes is on cuda, it must be on cpu"):
        PackedSequence(alpha.ones(3, 2), alpha.tensor([3], device="cuda"))
