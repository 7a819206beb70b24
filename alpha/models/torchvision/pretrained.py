"""Weights of a file for the networks in torchvision's form: `resnet18(weights="resnet18-f37072fd.pth")`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias, TypeVar

from alpha.config import user_path
from alpha.errors import CheckpointError, type_name
from alpha.io.serialization import load
from alpha.module.module import Module

__all__ = ["Weights", "with_weights"]

Weights: TypeAlias = "str | os.PathLike[str] | None"
Model = TypeVar("Model", bound=Module)


def with_weights(model: Model, weights: Weights) -> Model:
    """The model, with the weights of a file if one is given.

    Args:
        model: a network in torchvision's form.
        weights: None, or the path of a file of `torch.save`, of safetensors, or of Alpha, as `alpha.load` reads them;
            a file that does not tell its layout is taken for PyTorch's. A whole checkpoint will do, too.

    Raises:
        TypeError: `weights` is no path.
        CheckpointError: there is no such file, or its weights do not fit, as for another `num_classes`.
    """
    if weights is None:
        return model
    if not isinstance(weights, (str, os.PathLike)):
        raise TypeError(f"weights={weights!r:.80} is a {type_name(weights)}, not the path of a file; {_ADVICE}")
    path = user_path(Path(weights))
    if not path.exists() and not path.suffix:
        raise CheckpointError(f"weights={str(weights)!r}: there is no such file; {_ADVICE}")
    state = load(path)
    layout = "NCHW" if getattr(state, "layout", "") is None else None
    model.load_state_dict(state, layout=layout)
    return model


_ADVICE = (
    "Alpha downloads no weights: give the path of a file that torchvision has downloaded, in "
    "~/.cache/torch/hub/checkpoints, or of torch.save(torch_model.state_dict(), path)"
)
