"""Kinds of tensors in a program, as far as its text tells them, and what layers and functions make of them.

"map" is a batch of images (N, C, H, W), "picture" one of them (C, H, W), "columns" a map with its pixels in one axis
(N, C, H W), "flat" a flattened map (N, F), "other" anything of which is known that no axis is channels in PyTorch's
second place, and None what is not known. "map?", "picture?" and "filter?" are guesses, by names of variables.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

__all__ = ["Kind", "Layer", "layer_of", "named_kind"]

Kind = str | None

# layers of images, whose input and output are maps
MAPS = re.compile(
    r"(Lazy)?Conv(Transpose)?2d|(Lazy)?BatchNorm2d|SyncBatchNorm|(Lazy)?InstanceNorm2d|Dropout2d|FeatureAlphaDropout"
    r"|(Adaptive)?(Max|Avg)Pool2d|FractionalMaxPool2d|LPPool2d|MaxUnpool2d|\w*Pad2d|Upsample|Upsampling\w+2d"
    r"|Pixel(Uns|S)huffle|Softmax2d|LocalResponseNorm|ChannelShuffle|Fold"
)
KEEPING = re.compile(r"\w*(ReLU6?|ELU|Tanh|Sigmoid|GELU|SiLU|Mish|Hardswish|Softplus|Identity|Dropout|GroupNorm)\w*")
FEATURES = re.compile(
    r"(Lazy)?Linear|Bilinear|(Lazy)?BatchNorm1d|LayerNorm|Embedding|\w*RNN|LSTM|GRU|Multihead\w+|Transformer\w*"
)
FUNCTIONS = re.compile(
    r"conv(_transpose)?2d|(adaptive_)?(max|avg)_pool2d|interpolate|upsample\w*|pixel_(un)?shuffle|grid_sample|dropout2d"
    r"|instance_norm|local_response_norm"
)
PICTURES = re.compile(
    r"(\w+_)?(imgs?|images?|masks?|photos?|pictures?|frames?|feature_?maps?|fmaps?)(_?(batch|pred|true|tensor|\d+))?"
)
OTHERS = re.compile(
    "attn|attention|causal|padding|key|token|src|tgt|train|test|val|node"
)  # of masks that are no pictures
FILTERS = re.compile(r"(\w+_)?(weights?|kernels?|filters?)(_\w+)?")
CHANNELS = re.compile(
    r"(n_?)?c|ch|chs|(\w+_)?(n_?)?(channels?|chans?|planes)|C|nc|dim|ngf|ndf|nz|latent_dim|z_dim|hidden_dims?"
)
HEIGHT = re.compile(r"(\w+_)?(h|H|height|rows?|hh|ht)\d?")
WIDTH = re.compile(r"(\w+_)?(w|W|width|cols?|ww|wd)\d?")
SIDE = re.compile(r"(\w+_)?(size|side|sz|image_size|img_size|spatial|res|resolution|fmap_size)(_\w+)?")


class Layer(NamedTuple):
    """A layer: whether it makes a "map", makes "flat" features, takes "features", "keep"s kinds, or is a "class".

    Attributes:
        effect: one of these words, or "sequence".
        name: of a class of the program.
        parts: of a sequence.
    """

    effect: str
    name: str = ""
    parts: tuple[Layer | None, ...] = ()


def layer_of(name: str) -> Layer | None:
    """The effect of one of PyTorch's layers, by the last part of its name; None if it is not known."""
    if MAPS.fullmatch(name):
        return Layer("map")
    if name == "Flatten":
        return Layer("flat")
    if FEATURES.fullmatch(name):
        return Layer("features")
    return Layer("keep") if KEEPING.fullmatch(name) else None


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
