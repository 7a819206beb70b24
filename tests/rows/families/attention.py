"""The function of attention between linear layers, whose weights are arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
from argument_table import Row, changes, refused

import alpha.nn.functional as F
from rows.kinds import FunctionRow

_generator = np.random.default_rng(4)


def normal(*shape: int) -> np.ndarray:
    return _generator.standard_normal(shape).astype(np.float32)


QUERY, KEY, VALUE = normal(3, 2, 4), normal(5, 2, 4), normal(5, 2, 4)
PADDING = np.zeros((2, 5), bool)
PADDING[0, 3:] = True
HIDDEN = np.triu(np.ones((3, 5), bool), 1)
SEPARATE = {f"{name}_proj_weight": normal(4, 4) for name in "qkv"}
MORE = {"bias_k": normal(1, 1, 4), "bias_v": normal(1, 1, 4)}
USUAL: dict[str, Any] = {
    "query": QUERY,
    "key": KEY,
    "value": VALUE,
    "embed_dim_to_check": 4,
    "num_heads": 2,
    "in_proj_weight": normal(12, 4),
    "in_proj_bias": normal(12),
    "bias_k": None,
    "bias_v": None,
    "add_zero_attn": False,
    "dropout_p": 0.0,
    "out_proj_weight": normal(3, 4),
    "out_proj_bias": normal(3),
}
ROWS: dict[str, Row] = {
    "query": changes(QUERY + 1),
    "key": changes(KEY * 2),
    "value": changes(VALUE + 1),
    "embed_dim_to_check": changes(2, "error"),
    "num_heads": changes(1),
    "in_proj_weight": changes(normal(12, 4)),
    "in_proj_bias": changes(normal(12)),
    "bias_k": changes(normal(1, 1, 4), **MORE),
    "bias_v": changes(normal(1, 1, 4), **MORE),
    "add_zero_attn": changes(True),
    "dropout_p": changes(0.5),
    "out_proj_weight": changes(normal(3, 4)),
    "out_proj_bias": changes(normal(3)),
    "training": changes(False, dropout_p=0.5),
    "key_padding_mask": changes(PADDING),
    "need_weights": changes(False),
    "attn_mask": changes(HIDDEN),
    "use_separate_proj_weight": changes(True, **SEPARATE),
    **{name: changes(value + 1, use_separate_proj_weight=True, **SEPARATE) for name, value in SEPARATE.items()},
    "static_k": refused(KEY),
    "static_v": refused(VALUE),
    "average_attn_weights": changes(False),
    "is_causal": Row(True, given={"attn_mask": HIDDEN}, silent=True),
}
FUNCTIONS = [FunctionRow(F.multi_head_attention_forward, USUAL, ROWS)]
