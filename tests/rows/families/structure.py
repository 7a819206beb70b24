"""Operators of structure, products, indices and random choices."""

from __future__ import annotations

import numpy as np
from argument_table import changes, instead, refused, silent

import alpha
import alpha.nn.functional as F
from alpha import nn
from rows.arrays import IMAGE, LABELS, MATRIX, drawn
from rows.kinds import FunctionRow, LayerRow

VECTOR, OTHER = drawn(5), drawn(5)
BATCH = drawn(2, 3, 4)
RIGHT = drawn(2, 4, 5)
TRIPLES = drawn(3, 3)
DRAWN_APART = changes(alpha.Generator().manual_seed(7))
TIES = np.round(MATRIX * 2) / 2
MORE = changes(MATRIX + 1)
MASK = MATRIX > 0
PLACES = np.array([3, 1, 0, 3, 2])
INDEX = np.array([[3, 1, 0, 3, 2], [0, 0, 4, 3, 3]])
SHARES = 1 / (1 + np.exp(-MATRIX))
COUNTS = np.array([2, 0, 3, 1, 1])
SORTED = np.sort(VECTOR)
FACTORS = {"beta": changes(2.0), "alpha": changes(3.0)}
OFFSETS = np.array([0, 2, 4])
BAGS = {"x": PLACES, "weight": drawn(6, 3), "offsets": OFFSETS, "mode": "sum", "per_sample_weights": VECTOR}
UPSAMPLED = {"size": changes((3, 5)), "scale_factor": instead([2.0, 1.5], of="size")}


def lists(*functions: object) -> list[FunctionRow]:
    return [
        FunctionRow(f, {"tensors": [MATRIX, MATRIX]}, {"tensors": changes([MATRIX, MATRIX + 1])})  # type: ignore[arg-type]
        for f in functions
    ]


FUNCTIONS = [
    # products
    FunctionRow(F.outer, {"x": VECTOR, "vec2": OTHER}, {"x": changes(OTHER), "vec2": changes(VECTOR)}),
    FunctionRow(F.mm, {"x": MATRIX, "mat2": MATRIX.T.copy()}, {"x": MORE, "mat2": changes(MATRIX.T + 1)}),
    FunctionRow(F.mv, {"x": MATRIX, "vec": VECTOR}, {"x": MORE, "vec": changes(OTHER)}),
    FunctionRow(F.dot, {"x": VECTOR, "tensor": OTHER}, {"x": changes(OTHER), "tensor": changes(VECTOR)}),
    FunctionRow(F.inner, {"x": MATRIX, "other": VECTOR}, {"x": MORE, "other": changes(OTHER)}),
    FunctionRow(
        F.addmm,
        {"x": drawn(6), "mat1": MATRIX, "mat2": MATRIX.T.copy()},
        {"x": changes(drawn(6)), "mat1": MORE, "mat2": changes(MATRIX.T + 1), **FACTORS},
    ),
    FunctionRow(
        F.addmv,
        {"x": drawn(6), "mat": MATRIX, "vec": VECTOR},
        {"x": changes(drawn(6)), "mat": MORE, "vec": changes(OTHER), **FACTORS},
    ),
    FunctionRow(
        F.baddbmm,
        {"x": VECTOR, "batch1": BATCH, "batch2": RIGHT},
        {"x": changes(OTHER), "batch1": changes(BATCH + 1), "batch2": changes(RIGHT + 1), **FACTORS},
    ),
    FunctionRow(
        F.tensordot,
        {"a": drawn(4, 4), "b": drawn(4, 4)},
        {"a": changes(drawn(4, 4)), "b": changes(drawn(4, 4)), "dims": changes(1)},
    ),
    FunctionRow(F.kron, {"x": TRIPLES, "other": VECTOR}, {"x": changes(TRIPLES + 1), "other": changes(OTHER)}),
    FunctionRow(
        F.cross,
        {"x": TRIPLES, "other": drawn(3, 3)},
        {"x": changes(TRIPLES + 1), "other": changes(drawn(3, 3)), "dim": changes(1)},
    ),
    FunctionRow(
        F.cdist,
        {"x1": MATRIX, "x2": drawn(4, 5)},
        {"x1": MORE, "x2": changes(drawn(4, 5)), "p": changes(1.0), "compute_mode": changes("use_mm_for_euclid_dist")},
        any_number=True,
    ),
    FunctionRow(F.pdist, {"x": MATRIX}, {"x": changes(MATRIX * 2), "p": changes(1.0)}, any_number=True),
    # diagonals
    FunctionRow(F.t, {"x": MATRIX}, {"x": MORE}),
    FunctionRow(F.trace, {"x": MATRIX}, {"x": MORE}),
    FunctionRow(F.diag, {"x": MATRIX}, {"x": MORE, "diagonal": changes(1)}),
    FunctionRow(
        F.diagonal,
        {"x": BATCH},
        {"x": changes(BATCH + 1), "offset": changes(1), "dim1": changes(2), "dim2": changes(2)},
    ),
    FunctionRow(F.diag_embed, {"x": MATRIX}, {"x": MORE, "offset": changes(1), "dim1": changes(0), "dim2": changes(0)}),
    # shapes
    FunctionRow(F.broadcast_to, {"x": VECTOR, "shape": (2, 5)}, {"x": changes(OTHER), "shape": changes((3, 5))}),
    *(FunctionRow(f, {"x": MATRIX}, {"x": MORE}) for f in (F.fliplr, F.flipud)),
    FunctionRow(
        F.moveaxis,
        {"x": IMAGE, "source": 1, "destination": 3},
        {"x": changes(IMAGE + 1), "source": changes(0), "destination": changes(2)},
    ),
    FunctionRow(F.swapdims, {"x": MATRIX, "dim0": 0, "dim1": 0}, {"x": MORE, "dim0": changes(1), "dim1": changes(1)}),
    FunctionRow(
        F.tensor_split,
        {"x": MATRIX, "indices_or_sections": 4},
        {"x": MORE, "indices_or_sections": changes((1, 4)), "dim": changes(1)},
    ),
    FunctionRow(
        F.repeat_interleave,
        {"x": MATRIX, "repeats": 2},
        {"x": MORE, "repeats": changes(3), "dim": changes(1), "output_size": silent(60)},
    ),
    *lists(F.hstack, F.vstack, F.dstack, F.column_stack),
    FunctionRow(F.concat, {"tensors": [MATRIX, MATRIX]}, {"tensors": changes([MATRIX, MATRIX + 1]), "dim": changes(1)}),
    FunctionRow(
        F.concatenate,
        {"tensors": [MATRIX, MATRIX]},
        {"tensors": changes([MATRIX, MATRIX + 1]), "axis": changes(1), "dim": changes(1)},
    ),
    # indices
    FunctionRow(
        F.index_fill,
        {"x": MATRIX, "dim": 0, "index": PLACES, "value": 1.0},
        {"x": MORE, "dim": changes(1), "index": changes(PLACES[:2].copy()), "value": changes(3.0)},
        any_number=True,
    ),
    FunctionRow(
        F.index_copy,
        {"x": drawn(5, 5), "dim": 0, "index": PLACES, "source": drawn(5, 5)},
        {
            "x": changes(drawn(5, 5)),
            "dim": changes(1),
            "index": changes(PLACES[::-1].copy()),
            "source": changes(drawn(5, 5)),
        },
    ),
    FunctionRow(
        F.index_put,
        {"x": MATRIX, "indices": (PLACES,), "values": VECTOR},
        {"x": MORE, "indices": changes((PLACES, PLACES)), "values": changes(OTHER), "accumulate": changes(True)},
    ),
    FunctionRow(F.masked_select, {"x": MATRIX, "mask": MASK}, {"x": MORE, "mask": changes(MATRIX > 1)}),
    FunctionRow(
        F.masked_scatter,
        {"x": MATRIX, "mask": MASK, "source": drawn(6, 5)},
        {"x": MORE, "mask": changes(MATRIX > 1), "source": changes(drawn(6, 5))},
    ),
    FunctionRow(F.take, {"x": MATRIX, "index": INDEX}, {"x": MORE, "index": changes(INDEX + 1)}),
    FunctionRow(
        F.narrow,
        {"x": MATRIX, "dim": 0, "start": 1, "length": 2},
        {"x": MORE, "dim": changes(1), "start": changes(2), "length": changes(3)},
    ),
    FunctionRow(F.select, {"x": MATRIX, "dim": 0, "index": 1}, {"x": MORE, "dim": changes(1), "index": changes(2)}),
    FunctionRow(F.argwhere, {"x": TIES}, {"x": changes(TIES * 0 + 1)}),
    FunctionRow(
        F.scatter_reduce,
        {"x": MATRIX, "dim": 0, "index": INDEX, "src": drawn(6, 5), "reduce": "prod"},
        {
            "x": MORE,
            "dim": changes(1),
            "index": changes(INDEX[:, ::-1].copy()),
            "src": changes(drawn(6, 5)),
            "reduce": changes("amax"),
            "include_self": changes(False),
        },
    ),
    # counts and places
    FunctionRow(F.one_hot, {"x": LABELS}, {"x": changes(LABELS[::-1].copy()), "num_classes": changes(7)}),
    FunctionRow(
        F.bincount,
        {"x": LABELS},
        {"x": changes(LABELS[:-1].copy()), "weights": changes(drawn(6)), "minlength": changes(9)},
        constants=("weights",),
    ),
    FunctionRow(
        F.histc,
        {"x": MATRIX, "bins": 5, "min": -1.0, "max": 1.0},
        {"x": MORE, "bins": changes(7), "min": changes(-2.0), "max": changes(2.0)},
    ),
    FunctionRow(
        F.searchsorted,
        {"sorted_sequence": SORTED, "values": np.append(SORTED, OTHER).astype(np.float32)},
        {
            "sorted_sequence": changes(SORTED + 1),
            "values": changes(OTHER),
            "out_int32": changes(True),
            "right": changes(True),
            "side": changes("right"),
            "sorter": changes(np.array([0, 0, 1, 1, 2])),
        },
    ),
    FunctionRow(
        F.bucketize,
        {"x": np.append(SORTED, OTHER).astype(np.float32), "boundaries": SORTED},
        {"x": changes(OTHER), "boundaries": changes(SORTED + 1), "out_int32": changes(True), "right": changes(True)},
    ),
    FunctionRow(
        F.unique,
        {"x": TIES},
        {
            "x": changes(MATRIX),
            "sorted": silent(False),
            "return_inverse": changes(True),
            "return_counts": changes(True),
            "dim": changes(1),
        },
    ),
    FunctionRow(
        F.unique_consecutive,
        {"x": TIES},
        {"x": changes(MATRIX), "return_inverse": changes(True), "return_counts": changes(True), "dim": changes(1)},
    ),
    # random choices
    FunctionRow(
        F.bernoulli,
        {"x": SHARES, "p": 0.5},
        {"x": changes(SHARES[:2].copy()), "p": changes(np.float32(0.1)), "generator": DRAWN_APART},
    ),
    FunctionRow(
        F.multinomial,
        {"x": SHARES, "num_samples": 4},
        {
            "x": changes(SHARES[:, ::-1].copy()),
            "num_samples": changes(3),
            "replacement": changes(True),
            "generator": DRAWN_APART,
        },
    ),
    FunctionRow(
        F.gumbel_softmax,
        {"logits": MATRIX},
        {"logits": changes(-MATRIX), "tau": changes(2.0), "hard": changes(True), "eps": silent(0.5), "dim": changes(0)},
    ),
    # images and tables
    FunctionRow(
        F.native_channel_shuffle,
        {"x": drawn(2, 3, 3, 4), "groups": 1},
        {"x": changes(drawn(2, 3, 3, 4)), "groups": changes(2)},
    ),
    FunctionRow(
        F.upsample,
        {"x": IMAGE, "size": (3, 4)},
        {
            "x": changes(IMAGE + 1),
            **UPSAMPLED,
            "mode": changes("bicubic"),
            "align_corners": changes(True, mode="bilinear"),
        },
    ),
    *(
        FunctionRow(f, {"x": IMAGE, "size": (3, 4)}, {"x": changes(IMAGE + 1), **UPSAMPLED})
        for f in (F.upsample_nearest, F.upsample_bilinear)
    ),
    FunctionRow(
        F.embedding_bag,
        BAGS,
        {
            "x": changes(PLACES[::-1].copy()),
            "weight": changes(drawn(6, 3)),
            "offsets": changes(np.array([0, 1, 4])),
            "max_norm": changes(np.float32(0.5)),  # None is no wrong number
            "norm_type": changes(1.0, max_norm=0.5),
            "scale_grad_by_freq": refused(True),
            "mode": changes("max", per_sample_weights=None),
            "sparse": refused(True),
            "per_sample_weights": changes(OTHER),
            "include_last_offset": changes(True),
            "padding_idx": changes(3),
        },
    ),
]
LAYERS = [
    LayerRow(
        nn.EmbeddingBag,
        [PLACES, OFFSETS],
        {"num_embeddings": 5, "embedding_dim": 3},
        {
            "num_embeddings": changes(6),
            "embedding_dim": changes(4),
            "max_norm": changes(np.float32(0.5)),
            "norm_type": changes(1.0, max_norm=0.5),
            "scale_grad_by_freq": refused(True),
            "mode": changes("max"),
            "sparse": refused(True),
            "_weight": refused(np.zeros((5, 3), np.float32)),
            "include_last_offset": changes(True),
            "padding_idx": changes(0),
        },
        [({"num_embeddings": 5, "embedding_dim": 4}, (3, 4))],
    )
]
