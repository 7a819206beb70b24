"""The layers that are neither activations nor losses."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
from argument_table import Row, changes, refused, silent

from alpha import nn
from rows.arrays import IMAGE, LABELS, MATRIX, SEQUENCE, VOLUME
from rows.kinds import LayerRow, Shapes


def layer(
    kind: type[nn.Module], inputs: Sequence[np.ndarray], usual: dict[str, Any], shapes: Shapes, /, **arguments: Row
) -> LayerRow:
    return LayerRow(kind, inputs, usual, arguments, shapes)


IN_PLACE = changes(True, "memory")
PAIRED = IMAGE[..., :2].copy()  # an even number of channels
CONV = {"in_channels": 3, "out_channels": 4, "kernel_size": 3}
FLAT = {**CONV, "kernel_size": (3, 2, 2)}  # of a small volume


def convolution(
    kind: type[nn.Module], inputs: np.ndarray, usual: dict[str, Any], shapes: Shapes, **own: Row
) -> LayerRow:
    """The row of a convolution of as many axes as `inputs` has between images and channels."""
    rank = inputs.ndim - 2
    rows = {
        "in_channels": changes(2, "error"),
        "out_channels": changes(5),
        "kernel_size": changes((2, 3, 1)[:rank]),
        "stride": changes((2, 1, 1)[:rank]),
        "padding": changes((1, 0, 0)[:rank]),
        "dilation": changes((2, 1, 1)[:rank]),
        "groups": changes(3, out_channels=6),
        "bias": changes(False),
        "negative_slope": changes(0.25),
    }
    rows |= own
    order = list(inspect.signature(kind).parameters)
    return layer(kind, [inputs], usual, shapes, **{name: rows[name] for name in sorted(rows, key=order.index)})


TRANSFORMER = {
    "d_model": changes(4, "error"),
    "nhead": changes(3),
    "num_encoder_layers": changes(2),
    "num_decoder_layers": changes(2),
    "dim_feedforward": changes(4),
    "dropout": changes(0.25),
    "activation": changes("gelu"),
    "custom_encoder": changes(nn.TransformerEncoder(nn.TransformerEncoderLayer(3, 1, 4), 1)),
    "custom_decoder": changes(nn.TransformerDecoder(nn.TransformerDecoderLayer(3, 1, 4), 1)),
    "layer_norm_eps": changes(0.5),
    "batch_first": changes(True),
    "norm_first": changes(True),
    "bias": changes(False),
}
TWICE = {"input_size": 3, "hidden_size": 4, "num_layers": 2, "bidirectional": True}
RECURRENT = {
    "input_size": changes(2, "error"),
    "hidden_size": changes(5),
    "num_layers": changes(2),
    "nonlinearity": changes("relu"),
    "bias": changes(False),
    "batch_first": changes(True),
    "dropout": changes(0.25, num_layers=2),
    "bidirectional": changes(True),
    "proj_size": changes(2),
}
LAYERS = [
    convolution(
        nn.Conv1d,
        SEQUENCE,
        CONV,
        [(CONV, (2, 7, 4)), ({**CONV, "padding": "same", "dilation": 3}, (2, 9, 4))],
        padding_mode=changes("reflect", padding=1),
    ),
    convolution(
        nn.Conv2d,
        IMAGE,
        CONV,
        [
            (CONV, (2, 5, 3, 4)),
            ({**CONV, "kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0), "bias": False}, (2, 4, 4, 4)),
            ({**CONV, "kernel_size": (4, 2), "padding": "same", "dilation": (1, 3)}, (2, 7, 5, 4)),
            ({**CONV, "out_channels": 6, "groups": 3, "padding": "valid"}, (2, 5, 3, 6)),
            ({**CONV, "padding": (2, 1), "padding_mode": "circular"}, (2, 9, 5, 4)),
            ({**CONV, "kernel_size": (4, 2), "padding": "same", "padding_mode": "replicate"}, (2, 7, 5, 4)),
        ],
        padding_mode=changes("reflect", padding=1),
    ),
    convolution(
        nn.Conv3d,
        VOLUME,
        FLAT,
        [
            (FLAT, (2, 3, 3, 2, 4)),
            ({**FLAT, "stride": (2, 1, 1), "padding": 1, "dilation": (2, 1, 1)}, (2, 2, 5, 4, 4)),
            ({**FLAT, "padding": (2, 1, 0), "padding_mode": "replicate"}, (2, 7, 5, 2, 4)),
        ],
        padding_mode=changes("circular", padding=1),
    ),
    convolution(
        nn.ConvTranspose1d,
        SEQUENCE,
        CONV,
        [({**CONV, "stride": 2, "padding": 1, "output_padding": 1}, (2, 18, 4))],
        output_padding=changes(1, stride=2),
        padding_mode=refused("circular"),
    ),
    convolution(
        nn.ConvTranspose2d,
        IMAGE,
        CONV,
        [
            ({**CONV, "kernel_size": 4, "stride": 2, "padding": 1}, (2, 14, 10, 4)),
            ({**CONV, "stride": 2, "padding": 1, "output_padding": 1}, (2, 14, 10, 4)),
            ({**CONV, "out_channels": 6, "groups": 3, "dilation": (2, 1), "output_padding": (1, 0)}, (2, 12, 7, 6)),
        ],
        output_padding=changes((0, 1), stride=2),
        padding_mode=refused("circular"),
    ),
    convolution(
        nn.ConvTranspose3d,
        VOLUME,
        FLAT,
        [({**FLAT, "stride": (2, 1, 2), "output_padding": (1, 0, 1)}, (2, 12, 5, 7, 4))],
        output_padding=changes((0, 0, 1), stride=2),
        padding_mode=refused("circular"),
    ),
    layer(
        nn.Linear,
        [IMAGE],
        {"in_features": 3, "out_features": 4},
        [({"in_features": 3, "out_features": 4}, (2, 7, 5, 4))],
        in_features=changes(2, "error"),
        out_features=changes(5),
        bias=changes(False),
    ),
    layer(
        nn.Bilinear,
        [IMAGE, IMAGE[..., :2].copy()],
        {"in1_features": 3, "in2_features": 2, "out_features": 4},
        [({"in1_features": 3, "in2_features": 2, "out_features": 5}, (2, 7, 5, 5))],
        in1_features=changes(2, "error"),
        in2_features=changes(3, "error"),
        out_features=changes(5),
        bias=changes(False),
    ),
    layer(
        nn.MultiheadAttention,
        [SEQUENCE, SEQUENCE + 1, SEQUENCE],
        {"embed_dim": 3, "num_heads": 1},
        [
            ({"embed_dim": 3, "num_heads": 3}, (2 * 9 * 3 + 9 * 2 * 2,)),
            ({"embed_dim": 3, "num_heads": 1, "batch_first": True}, (2 * 9 * 3 + 2 * 9 * 9,)),
        ],
        embed_dim=changes(4, "error"),
        num_heads=changes(3),
        dropout=changes(0.25),
        bias=changes(False),
        add_bias_kv=changes(True),
        add_zero_attn=changes(True),
        kdim=changes(2, "error"),
        vdim=changes(2, "error"),
        batch_first=changes(True),
    ),
    *(
        layer(
            kind,
            [SEQUENCE + i for i in range(inputs)],
            {"d_model": 3, "nhead": 1, "dim_feedforward": 5, **depth},
            [({"d_model": 3, "nhead": 3, "dim_feedforward": 5, **depth}, SEQUENCE.shape)],
            **{name: TRANSFORMER[name] for name in inspect.signature(kind).parameters},
        )
        for kind, inputs, depth in (
            (nn.TransformerEncoderLayer, 1, {}),
            (nn.TransformerDecoderLayer, 2, {}),
            (nn.Transformer, 2, {"num_encoder_layers": 1, "num_decoder_layers": 1}),
        )
    ),
    layer(
        nn.TransformerEncoder,
        [SEQUENCE],
        {"encoder_layer": nn.TransformerEncoderLayer(3, 1, 5), "num_layers": 1},
        [({"encoder_layer": nn.TransformerEncoderLayer(3, 3, 4), "num_layers": 2}, SEQUENCE.shape)],
        encoder_layer=changes(nn.TransformerEncoderLayer(3, 1, 4)),
        num_layers=changes(2),
        norm=changes(nn.LayerNorm(3)),
        enable_nested_tensor=silent(False),
        mask_check=silent(False),
    ),
    layer(
        nn.TransformerDecoder,
        [SEQUENCE, SEQUENCE + 1],
        {"decoder_layer": nn.TransformerDecoderLayer(3, 1, 5), "num_layers": 1},
        [({"decoder_layer": nn.TransformerDecoderLayer(3, 3, 4), "num_layers": 2}, SEQUENCE.shape)],
        decoder_layer=changes(nn.TransformerDecoderLayer(3, 1, 4)),
        num_layers=changes(2),
        norm=changes(nn.LayerNorm(3)),
    ),
    *(
        layer(
            kind,
            [SEQUENCE],
            {"input_size": 3, "hidden_size": 4},
            [(TWICE, (18 * 8 + states * 4 * 9 * 4,))],
            **{name: RECURRENT[name] for name in inspect.signature(kind).parameters},
        )
        for kind, states in ((nn.RNN, 1), (nn.GRU, 1), (nn.LSTM, 2))
    ),
    *(
        layer(
            kind,
            [SEQUENCE[0]],
            {"input_size": 3, "hidden_size": 4},
            [({"input_size": 3, "hidden_size": 2}, shape)],
            **{name: RECURRENT[name] for name in inspect.signature(kind).parameters},
        )
        for kind, shape in ((nn.RNNCell, (9, 2)), (nn.GRUCell, (9, 2)), (nn.LSTMCell, (36,)))
    ),
    layer(
        nn.Embedding,
        [LABELS],
        {"num_embeddings": 5, "embedding_dim": 3},
        [({"num_embeddings": 5, "embedding_dim": 4}, (6, 4))],
        num_embeddings=changes(6),
        embedding_dim=changes(4),
        padding_idx=changes(0),
        max_norm=changes(np.float32(0.5)),  # None is no wrong number
        norm_type=changes(1.0, max_norm=0.5),
        scale_grad_by_freq=refused(True),
        sparse=refused(True),
        _weight=refused(np.zeros((5, 4), np.float32)),
        _freeze=refused(True),
    ),
    *(
        layer(
            kind,
            [x],
            {"num_features": 3},
            [({"num_features": 3}, x.shape), ({"num_features": 3, "momentum": None}, x.shape)],
            num_features=changes(4, "error"),
            eps=changes(0.5),
            momentum=changes(0.3),
            affine=changes(False),
            track_running_stats=changes(False),
            bias=changes(False),
            bias_correction=changes(True),
        )
        for kind, x in ((nn.BatchNorm1d, SEQUENCE), (nn.BatchNorm2d, IMAGE), (nn.BatchNorm3d, VOLUME))
    ),
    *(
        LayerRow(
            kind,
            [IMAGE],
            {"num_features": 3},
            {"num_features": changes(4, "error"), "eps": changes(0.5), **momentum, "affine": changes(False)},
            [({"num_features": 3}, IMAGE.shape)],
            own="of Dragon-Alpha",
        )
        for kind, momentum in (
            (nn.GlobalBatchNorm, {}),
            (nn.GlobalSqBatchNorm, {}),
            (nn.SqBatchNorm, {"momentum": changes(0.3)}),
        )
    ),
    LayerRow(
        nn.Affine,
        [IMAGE],
        {"normalized_shape": 3},
        {"normalized_shape": changes((5, 3)), "bias": changes(False)},
        [({"normalized_shape": (5, 3)}, IMAGE.shape)],
        own="of Dragon-Alpha",
    ),
    layer(
        nn.LayerNorm,
        [IMAGE],
        {"normalized_shape": 3},
        [({"normalized_shape": (5, 3)}, IMAGE.shape)],
        normalized_shape=changes((5, 3)),
        eps=changes(0.5),
        elementwise_affine=changes(False),
        bias=changes(False),
    ),
    layer(
        nn.RMSNorm,
        [IMAGE],
        {"normalized_shape": 3},
        [({"normalized_shape": (5, 3)}, IMAGE.shape)],
        normalized_shape=changes((5, 3)),
        eps=changes(0.5),
        elementwise_affine=changes(False),
    ),
    layer(
        nn.GroupNorm,
        [IMAGE],
        {"num_groups": 1, "num_channels": 3},
        [({"num_groups": 3, "num_channels": 3}, IMAGE.shape)],
        num_groups=changes(3),
        num_channels=changes(4, "error"),
        eps=changes(0.5),
        affine=changes(False),
        bias=changes(False),
    ),
    layer(
        nn.Threshold,
        [IMAGE],
        {"threshold": 0.1, "value": 0.05},
        [({"threshold": 0.1, "value": 2.0}, IMAGE.shape)],
        threshold=changes(0.5),
        value=changes(-1.0),
        inplace=IN_PLACE,
    ),
    layer(nn.PReLU, [IMAGE], {}, [({}, IMAGE.shape)], num_parameters=changes(3), init=changes(0.5)),
    layer(nn.RReLU, [IMAGE], {}, [({}, IMAGE.shape)], lower=changes(0.2), upper=changes(0.6), inplace=IN_PLACE),
    *(
        layer(kind, [IMAGE], {"dim": 1}, [({"dim": -1}, IMAGE.shape)], dim=changes(-1))
        for kind in (nn.Softmax, nn.LogSoftmax, nn.Softmin)
    ),
    LayerRow(
        nn.AdaptiveLogSoftmaxWithLoss,
        [MATRIX, LABELS],
        {"in_features": 5, "n_classes": 6, "cutoffs": [2, 4], "div_value": 2.0},
        {
            "in_features": changes(4, "error"),
            "n_classes": changes(7),
            "cutoffs": changes([1, 4]),
            "div_value": changes(1.5),
            "head_bias": changes(True),
        },
        [({"in_features": 5, "n_classes": 6, "cutoffs": [1, 3], "div_value": 2.0, "head_bias": True}, (7,))],
        constants=(1,),
    ),
    layer(nn.Identity, [IMAGE], {}, [({}, IMAGE.shape)], args=silent(("64",)), kwargs=silent({"bias": "no"})),
    layer(nn.Softmax2d, [IMAGE], {}, [({}, IMAGE.shape)]),
    layer(nn.GLU, [PAIRED], {}, [({}, (2, 7, 5, 1))], dim=changes(0)),
    layer(nn.Dropout, [IMAGE], {}, [({}, IMAGE.shape)], p=changes(0.25), inplace=IN_PLACE),
    layer(nn.Flatten, [IMAGE], {}, [({}, (2, 105))], start_dim=changes(2), end_dim=changes(2)),
]
