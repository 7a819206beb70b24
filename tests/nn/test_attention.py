"""Attention: masks, shared heads, and a transformer in a captured step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import ShapeError, Tensor, nn

_rng = np.random.default_rng(0)
L, S = 4, 6
QUERY, KEY, VALUE = (_rng.standard_normal((2, 4, n, d)) for n, d in ((L, 3), (S, 3), (S, 5)))
SEEN = _rng.random((2, 1, L, S)) > 0.4
SEEN[0, :, 1] = False  # a query that sees nothing


@pytest.mark.torch
@pytest.mark.parametrize("mask", [SEEN, SEEN[0, 0], np.where(SEEN, 0.5, -np.inf), _rng.standard_normal((L, S))])
def test_masks_are_pytorchs(mask: np.ndarray) -> None:
    torch = pytest.importorskip("torch")
    ours = [alpha.tensor(x, requires_grad=True) for x in (QUERY, KEY, VALUE)]
    twins = [torch.tensor(x, requires_grad=True) for x in (QUERY, KEY, VALUE)]
    trained = mask.dtype != bool and bool(np.isfinite(mask).all())
    given, twin = alpha.tensor(mask, requires_grad=trained), torch.tensor(mask, requires_grad=trained)
    y = F.scaled_dot_product_attention(*ours, given, scale=0.7)
    expected = torch.nn.functional.scaled_dot_product_attention(*twins, twin, scale=0.7)
    np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=1e-10, atol=1e-12)
    (y * y).sum().backward()
    (expected * expected).sum().backward()
    for x, other in zip((*ours, given)[: 3 + trained], (*twins, twin), strict=False):
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=1e-9, atol=1e-11)


def test_keys_that_several_queries_share() -> None:
    few = [alpha.tensor(x[:, :2], requires_grad=True) for x in (KEY, VALUE)]
    y = F.scaled_dot_product_attention(alpha.tensor(QUERY), *few, is_causal=True, enable_gqa=True)
    repeated = [alpha.tensor(x[:, [0, 0, 1, 1]]) for x in (KEY, VALUE)]
    seen = alpha.tensor(np.tril(np.ones((L, S), bool)))
    expected = F.scaled_dot_product_attention(alpha.tensor(QUERY), *repeated, seen)
    np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=1e-12)
    y.sum().backward()
    assert all(x.grad is not None and x.grad.shape == (2, 2, S, x.shape[-1]) for x in few)


@pytest.mark.parametrize("batch_first", [True, False])
def test_one_sequence_is_a_batch_of_one(batch_first: bool) -> None:
    layer, x = nn.MultiheadAttention(4, 2, batch_first=batch_first), alpha.tensor(KEY[0, :, 0, [0, 1, 2, 0]].T)
    layer.astype("float64")
    batch = x.unsqueeze(0 if batch_first else 1)
    for one, whole in zip(layer(x, x, x), layer(batch, batch, batch), strict=True):
        np.testing.assert_allclose(one.numpy(), whole.numpy().reshape(one.shape), rtol=1e-12)


def test_a_mask_of_each_image_and_head() -> None:
    layer = nn.MultiheadAttention(4, 2, batch_first=True).astype("float64")
    x, mask = alpha.tensor(_rng.standard_normal((3, L, 4))), alpha.tensor(_rng.standard_normal((6, L, L)))
    whole, _ = layer(x, x, x, attn_mask=mask)
    for i in range(3):
        alone, _ = layer(*[x[i : i + 1]] * 3, attn_mask=mask[2 * i : 2 * i + 2])
        np.testing.assert_allclose(whole[i].numpy(), alone[0].numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda q: F.scaled_dot_product_attention(q, q, q[..., :2, :]),
            r"query \(.., L, E\), key \(.., S, E\) and value",
        ),
        (
            lambda q: F.scaled_dot_product_attention(q, q[:, :3], q, enable_gqa=True),
            "must be a multiple of that of keys",
        ),
        (lambda q: F.scaled_dot_product_attention(q, q, q, q, is_causal=True), "attn_mask and is_causal=True exclude"),
        (lambda q: nn.MultiheadAttention(5, 2), "embed_dim=5 is no multiple of num_heads=2"),
        (
            lambda q: nn.MultiheadAttention(3, 1)(q[0], q[0], q[0, :, :2]),
            "MultiheadAttention: lengths or batches differ",
        ),
        (lambda q: nn.MultiheadAttention(2, 1)(q[0], q[0], q[0]), "MultiheadAttention: 2, 2 and 2 features are needed"),
        (lambda q: nn.MultiheadAttention(3, 1)(q[0], q[0], q[0], attn_mask=q[0, 0]), r"attn_mask \(4, 3\) is neither"),
        (lambda q: nn.MultiheadAttention(3, 1)(q[0], q[0], q[0], q[0]), r"key_padding_mask \(4, 4, 3\) does not fit"),
        (lambda q: nn.MultiheadAttention(3, 1)(q[0], q[0], q[0], is_causal=True), "give attn_mask"),
        (
            lambda q: nn.TransformerDecoder(nn.TransformerDecoderLayer(3, 1), 1)(q[0], q[0], memory_is_causal=True),
            "give attn_mask",
        ),
        (lambda q: nn.TransformerEncoderLayer(4, 2, activation="tanh"), "activation='tanh' is neither 'relu'"),
    ],
)
def test_what_is_refused(call: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises((ShapeError, ValueError), match=message):
        call(alpha.tensor(QUERY.astype(np.float32)))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_array_is_no_query_key_or_value(place: int) -> None:
    given: list[Any] = [alpha.ones(2, 3)] * 3
    given[place] = np.ones((2, 3), np.float32)
    name = ("query", "key", "value")[place]
    with pytest.raises(TypeError, match=f"MultiheadAttention: {name} is a ndarray, a Tensor is needed"):
        nn.MultiheadAttention(3, 1)(*given)


class Words(nn.Module):
    """Words, of which each sees those before it, to the class of the next one."""

    def __init__(self) -> None:
        self.table = nn.Embedding(7, 8, padding_idx=0)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True), 1)
        self.memory = nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, 7)
        self.mask = nn.Buffer(nn.Transformer.generate_square_subsequent_mask(5).numpy())

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.memory(self.encoder(self.table(words), self.mask))[0])  # type: ignore[no-any-return]


def test_a_step_of_a_transformer_waits_for_nothing() -> None:
    """The step can be captured: its launches, with an embedding and a GRU, are known without arrays."""
    net = Words()
    optimizer = alpha.optim.AdamW(net.parameters(), lr=0.01)

    def step(words: Tensor) -> Tensor:
        loss = F.cross_entropy(net(words[:, :5]).reshape(-1, 7), words[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    run = alpha.dry_run(step, alpha.tensor(np.ones((3, 6), np.int64)), gpu="sm_90a")
    for kernel in ("indexing/scatter", "softmax/rows", "norm/rows", "dropout/dropout", "recurrent/cells"):
        assert f"{kernel}.cu" in run.describe()
