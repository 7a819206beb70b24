"""Weights of another training, with which a network begins."""

from __future__ import annotations

from pathlib import Path

import alpha
from alpha.data.images.image_files import shown
from alpha.errors import CheckpointError, first_few, type_name
from alpha.models import saved
from alpha.models.saved import Description
from alpha.module.module import Module
from alpha.module.state_dict import StateDict
from alpha.train import load_metadata, load_weights


def start_of(weights: Path) -> Description | None:
    """Read what a run or a weights file says of its network; None for a file of another program, which says nothing.

    Raises:
        CheckpointError: there is no such file, or it cannot be read.
    """
    file = weights_file(weights)
    if not file.exists():
        raise CheckpointError(f"{shown(file)}: there is no such run or file of weights")
    if file.suffix != ".safetensors" or saved.KEY not in load_metadata(file):
        return None
    return saved.described(file)


def weights_file(weights: Path) -> Path:
    """The weights of a run's folder, or the file itself."""
    return weights / saved.WEIGHTS if weights.is_dir() else weights


def weights_of(file: Path) -> StateDict:
    """The state dict in a file of `save_weights`, `torch.save` or another program's safetensors.

    Raises:
        CheckpointError: there is no such file, it is damaged, or it has no state dict.
    """
    if file.suffix == ".safetensors":
        return load_weights(file)
    found = alpha.load(file, map_location="cpu")
    if not isinstance(found, StateDict):
        has = f"a dict with {first_few(map(repr, found), 4)}" if isinstance(found, dict) else type_name(found)
        raise CheckpointError(f"{shown(file)}: holds {has}, and no weights by name; save model.state_dict() alone")
    return found


def take_weights(model: Module, file: Path, name: str, classes: tuple[str, ...]) -> str:
    """Load weights of another training but for the last layer, unless the classes are the same; return what was done.

    Raises:
        CheckpointError: the file has weights of another network.
    """
    file, start = weights_file(file), start_of(file)
    weights, own = weights_of(file), model.state_dict()
    same_classes = start is not None and tuple(start.classes) == classes
    last = [key for key in own if own[key].ndim > 0][-2:]  # weight and bias of the last linear layer
    left = set() if same_classes else {key for key in last if key in weights}
    left |= {key for key in last if key in weights and sorted(weights[key].shape) != sorted(own[key].shape)}
    foreign = "." in name and weights.layout is None  # a file of torchvision's weights that does not say its layout
    kept = StateDict(weights, "NCHW" if foreign else weights.layout)
    kept.update({key: own[key] for key in left})
    try:
        model.load_state_dict(kept)
    except CheckpointError as error:
        if start is not None and start.model != name:
            raise CheckpointError(f"{shown(file)}: has the weights of {start.model}, not of {name}") from error
        count, first, *others = str(error).split("\n  ")
        advice = f"; {others[-1]}" if others and "use alpha.models" in others[-1] else ""
        raise CheckpointError(
            f"{shown(file)}: {count} {' '.join(first.split())}{' ..' * bool(others)}{advice}"
        ) from error
    what = "all layers" if not left else f"all layers but the last, {', '.join(sorted(left))}, which begins anew"
    return f"weights of {shown(file)}: {what}"
