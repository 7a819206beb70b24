"""F.multi_head_attention_forward against PyTorch's, with all of its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows.families.attention import HIDDEN, MORE, PADDING, SEPARATE, USUAL
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha import ShapeError

WIDE = {**SEPARATE, "k_proj_weight": np.float32([[1, 2, 3]] * 4), "v_proj_weight": np.float32([[0.5, -1]] * 4)}
SETTINGS: dict[str, dict[str, Any]] = {
    "usual": {},
    "one head, no bias": {"num_heads": 1, "in_proj_bias": None, "out_proj_bias": None},
    "more keys": {**MORE, "add_zero_attn": True},
    "masks": {"key_padding_mask": PADDING, "attn_mask": HIDDEN, "average_attn_weights": False, **MORE},
    "padding": {"key_padding_mask": PADDING, "average_attn_weights": False},
    "padding beside numbers": {"key_padding_mask": PADDING, "attn_mask": np.linspace(-1, 1, 60).reshape(4, 3, 5)},
    "numbers as masks": {"attn_mask": np.linspace(-1, 1, 15).reshape(3, 5), "need_weights": False},
    "a mask of each head": {"attn_mask": np.linspace(-1, 1, 60).reshape(4, 3, 5)},
    "separate": {"in_proj_weight": None, "use_separate_proj_weight": True, **SEPARATE},
    "separate, beside the other": {"use_separate_proj_weight": True, **SEPARATE},
    "unused": {**SEPARATE},
    "other features": {
        **{"key": USUAL["key"][..., :3], "value": USUAL["value"][..., :2]},
        **{"in_proj_weight": None, "use_separate_proj_weight": True, **WIDE},
    },
    "self": {"key": None, "value": None},
    "no batch": {"query": USUAL["query"][:, 0], "key": USUAL["key"][:, 0], "value": USUAL["value"][:, 0]},
    "evaluation": {"dropout_p": 0.5, "training": False},
    "causal": {"attn_mask": HIDDEN, "is_causal": True},
}


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:Support for mismatched")
@pytest.mark.parametrize("name", SETTINGS)
def test_results_and_gradients_are_pytorchs(device: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    dtype, near = ("float64", 1e-10) if device == "cpu" else ("float32", 1e-4)
    ours, theirs = {}, {}
    for key, value in {**USUAL, **SETTINGS[name]}.items():
        ours[key] = theirs[key] = value
        if isinstance(value, np.ndarray):
            real = value.dtype.kind == "f"
            trained = real and "mask" not in key
            array = value.astype(dtype) if real else value
            ours[key] = alpha.tensor(array, device=device, requires_grad=trained)
            theirs[key] = torch.tensor(array, requires_grad=trained)
    for given in (ours, theirs):
        for key in ("key", "value"):
            given[key] = given["query"] if given[key] is None else given[key]
    found, wanted = F.multi_head_attention_forward(**ours), torch.nn.functional.multi_head_attention_forward(**theirs)
    assert (found[1] is None) == (wanted[1] is None)
    pairs = [(a, b) for a, b in zip(found, wanted, strict=True) if a is not None]
    for a, b in pairs:
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=near, atol=near)
    sum((a**3).sum() for a, _ in pairs).backward()
    sum((b**3).sum() for _, b in pairs).backward()
    with trials() as trial:
        for key, b in theirs.items():
            if isinstance(b, torch.Tensor) and b.grad is not None:
                with trial(key):
                    np.testing.assert_allclose(ours[key].grad.numpy(), b.grad.numpy(), rtol=near, atol=10 * near)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 3}, "embed_dim_to_check=4 is no multiple of num_heads=3"),
        ({"in_proj_weight": None}, "in_proj_weight is needed with use_separate_proj_weight=False"),
        ({"use_separate_proj_weight": True}, "q_, k_ and v_proj_weight are needed with use_separate_proj_weight=True"),
        ({"bias_k": MORE["bias_k"]}, "bias_k and bias_v are needed together"),
        ({"is_causal": True}, "is_causal=True says what attn_mask is; give attn_mask"),
        ({"dropout_p": 2.0}, "dropout_p=2.0"),
        ({"query": USUAL["query"][..., :3]}, r"4, 4 and 4 features are needed  \(query \(3, 2, 3\)"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], message: str) -> None:
    given = {k: alpha.tensor(v) if isinstance(v, np.ndarray) else v for k, v in {**USUAL, **arguments}.items()}
    with pytest.raises((ShapeError, ValueError), match=f"multi_head_attention_forward: .*{message}"):
        F.multi_head_attention_forward(**given)
