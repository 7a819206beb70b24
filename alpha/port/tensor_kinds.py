"""Kinds of tensors in a program, as far as its text tells them, and what layers and functions make of them.

"map" is a batch of images (N, C, H, W), "signal" one of sequences (N, C, L), "volume" one of volumes (N, C, D, H, W),
"picture" is one image (C, H, W), "columns" a map with its pixels in one axis (N, C, H W), "grouped" one with groups of
channels (N, G, C, H, W), "flat" a flattened map (N, F), "other" what is known to have no channels in its second
axis, and None what is not known. "map?", "picture?" and "filter?" are guesses, by names of variables.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

__all__ = ["Kind", "Layer", "axis_here", "axis_meaning", "layer_of", "made_by", "named_kind"]

Kind = str | None

RANKS = {"map": 4, "map?": 4, "signal": 3, "volume": 5}  # kinds with an axis of channels, and how many axes they have
FORMS = {3: "(N, C, L)", 4: "(N, C, H, W)", 5: "(N, C, D, H, W)"}
_AXES = {3: ("positions",), 4: ("rows", "columns"), 5: ("slices", "rows", "columns")}  # behind the channels

# layers of images, whose input and output are maps; those of sequences and of volumes
MAPS = re.compile(
    r"(Lazy)?Conv(Transpose)?2d|(Lazy)?BatchNorm2d|SyncBatchNorm|(Lazy)?InstanceNorm2d|Dropout2d|FeatureAlphaDropout"
    r"|(Adaptive)?(Max|Avg)Pool2d|FractionalMaxPool2d|LPPool2d|MaxUnpool2d|\w*Pad2d|Upsample|Upsampling\w+2d"
    r"|Pixel(Uns|S)huffle|Softmax2d|LocalResponseNorm|ChannelShuffle|Fold"
)
SIGNALS = re.compile(
    r"(Lazy)?Conv(Transpose)?1d|(Lazy)?InstanceNorm1d|Dropout1d|(Adaptive)?(Max|Avg)Pool1d|LPPool1d|MaxUnpool1d|\w*Pad1d"
)
VOLUMES = re.compile(
    r"(Lazy)?Conv(Transpose)?3d|(Lazy)?(Batch|Instance)Norm3d|Dropout3d|(Adaptive|Fractional)?(Max|Avg)Pool3d|LPPool3d"
    r"|MaxUnpool3d|\w*Pad3d"
)
KEEPING = re.compile(r"\w*(ReLU6?|ELU|Tanh|Sigmoid|GELU|SiLU|Mish|Hardswish|Softplus|Identity|Dropout|GroupNorm)\w*")
FEATURES = re.compile(r"(Lazy)?Linear|Bilinear|LayerNorm|Embedding|\w*RNN|LSTM|GRU|Multihead\w+|Transformer\w*")
FUNCTIONS = re.compile(
    r"conv(_transpose)?2d|(adaptive_)?(max|avg)_pool2d|interpolate|upsample\w*|pixel_(un)?shuffle|grid_sample|dropout2d"
    r"|instance_norm|local_response_norm"
)
FUNCTIONS_1D = re.compile(r"conv(_transpose)?1d|(adaptive_)?(max|avg)_pool1d|lp_pool1d|dropout1d")
FUNCTIONS_3D = re.compile(r"conv(_transpose)?3d|(adaptive_)?(max|avg)_pool3d|lp_pool3d|dropout3d")
PICTURES = re.compile(
    r"(\w+_)?(imgs?|images?|masks?|photos?|pictures?|frames?|feature_?maps?|fmaps?)(_?(batch|pred|true|tensor|\d+))?"
)
OTHERS = re.compile(
    "attn|attention|logits|causal|padding|key|token|src|tgt|train|test|val|node"
)  # of masks that are no pictures
FILTERS = re.compile(r"(\w+_)?(weights?|kernels?|filters?)(_\w+)?")
CHANNELS = re.compile(
    r"(n_?)?c|ch|chs|(\w+_)?(n_?)?(channels?|chans?|planes)|C|nc|dim|ngf|ndf|nz|latent_dim|z_dim|hidden_dims?"
)
HEIGHT = re.compile(r"(\w+_)?(h|H|height|rows?|hh|ht)\d?")
WIDTH = re.compile(r"(\w+_)?(w|W|width|cols?|ww|wd)\d?")
LENGTH = re.compile(r"(\w+_)?(l|L|t|T|len|length|steps|timesteps|frames|samples)\d?|seq_?len\w*")
SIDE = re.compile(r"(\w+_)?(size|side|sz|image_size|img_size|spatial|res|resolution|fmap_size)(_\w+)?")


class Layer(NamedTuple):
    """A layer, described by what it does to the kind of a tensor.

    Attributes:
        effect: "map", "signal" or "volume", "flat", "features", "norm" of features or signals, "keep" for any kind,
            "sequence" of parts, "class" of the program, "axis" of one that works along an axis,
            or "unknown", as of einops.
        name: of a class of the program, or of a layer that works along an axis.
        parts: of a sequence.
        made: where a layer that works along an axis is made, effect "axis".
    """

    effect: str
    name: str = ""
    parts: tuple[Layer | None, ...] = ()
    made: ast.Call | None = None


def layer_of(name: str, made: ast.Call | None = None) -> Layer | None:
    """The effect of one of PyTorch's layers, by the last part of its name; None if it is not known."""
    if name in ("Softmax", "LogSoftmax", "Softmin", "GLU"):
        return Layer("axis", {"LogSoftmax": "log_softmax"}.get(name, name.lower()), made=made)
    if MAPS.fullmatch(name):
        return Layer("map")
    if SIGNALS.fullmatch(name):
        return Layer("signal")
    if VOLUMES.fullmatch(name):
        return Layer("volume")
    if name == "Flatten":
        return Layer("flat")
    if name in ("BatchNorm1d", "LazyBatchNorm1d"):
        return Layer("norm")
    if FEATURES.fullmatch(name):
        return Layer("features")
    return Layer("keep") if KEEPING.fullmatch(name) else None


def made_by(function: str) -> Kind:
    """The kind that a function of `torch.nn.functional` always gives; None if it depends on the input."""
    of_images = "map" if FUNCTIONS.fullmatch(function) else None
    return of_images or (
        "signal" if FUNCTIONS_1D.fullmatch(function) else "volume" if FUNCTIONS_3D.fullmatch(function) else None
    )


def axis_here(axis: int | None, kind: Kind) -> str | None:
    """The number in Alpha of an axis of PyTorch; None if it is the same, or not known."""
    rank = RANKS.get(kind or "map", 4)
    place = axis if axis is None or axis >= 0 else axis + rank
    if place is None or not 0 < place < rank:
        return None
    return "-1" if place == 1 else str(place - 1)


def axis_meaning(axis: int, kind: Kind) -> str:
    """The word for an axis of PyTorch, as "the rows"."""
    rank = RANKS.get(kind or "map", 4)
    place = axis if axis >= 0 else axis + rank
    return f"the {'channels' if place == 1 else _AXES[rank][place - 2]}"


def named_kind(name: str) -> Kind:
    """A guess by the name of a variable: "map?" or "filter?", or None."""
    if FILTERS.fullmatch(name):
        return "filter?"
    return "map?" if PICTURES.fullmatch(name) and not OTHERS.search(name) else None


def last_name(node: ast.AST | None) -> str:
    """The last identifier of an expression, as "height" of `self.size.height // 2`; empty if it has none."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.BinOp):
        return last_name(node.left) or last_name(node.right)
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return ""


def is_spatial(node: ast.AST | None) -> bool:
    """True if an expression of a size looks like a height or a width."""
    name = last_name(node)
    return bool(HEIGHT.fullmatch(name) or WIDTH.fullmatch(name) or SIDE.fullmatch(name))


def is_length(node: ast.AST | None) -> bool:
    """True if an expression of a size looks like the length of a sequence."""
    return bool(LENGTH.fullmatch(last_name(node)))


def is_channels(node: ast.AST | None) -> bool:
    """True if an expression of a size looks like a count of channels."""
    return bool(CHANNELS.fullmatch(last_name(node)))


def integer(node: ast.AST | None) -> int | None:
    """The value of a whole number in a program, also a negative one; None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = integer(node.operand)
        return None if inner is None else -inner
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def integers(node: ast.AST | None) -> list[int] | None:
    """The whole numbers of a tuple or a list, or of one number; None for anything else."""
    if isinstance(node, (ast.Tuple, ast.List)):
        found = [integer(part) for part in node.elts]
        return None if None in found else [n for n in found if n is not None]
    one = integer(node)
    return None if one is None else [one]
