"""A network that a command names: the type of its option, and the network for some classes and a size of images."""

from __future__ import annotations

import argparse
import difflib
import inspect
from typing import Any

import alpha
from alpha.errors import AlphaError, ConfigError
from alpha.models import saved
from alpha.module.module import Module


def network(text: str) -> str:
    """The name of a network."""
    names = list(saved.NETWORKS)
    if text not in names:
        close = [name for name in names if text in name] or difflib.get_close_matches(text, names)
        hint = f"; is it {' or '.join(close[:3])}?" if close else ""
        raise argparse.ArgumentTypeError(f"there is no network {text!r}{hint}")
    return text


def networks(text: str) -> list[str]:
    """The names of networks, with commas between."""
    return list(dict.fromkeys(network(name) for name in text.split(",")))


def names_as_help() -> str:
    own = [name for name in list(saved.NETWORKS) if "." not in name and name != "resnet18"]
    return f"{', '.join(own)}, or torchvision.NAME, as torchvision.resnet50; --list-models prints all"


def arguments_of(model: str, classes: int, image_size: int) -> dict[str, Any]:
    """The arguments of a network for so many classes, and images of this size if it has a form for each."""
    taken = inspect.signature(saved.NETWORKS[model]).parameters
    return {"num_classes": classes, **({"image_size": image_size} if "image_size" in taken else {})}


def built(name: str, arguments: dict[str, Any], image_size: int) -> Module:
    """The network of a name. Raises ConfigError if it cannot take images of this size."""
    try:
        model = saved.build(name, arguments)
        with alpha.no_grad():
            outputs = model.eval()(alpha.zeros(1, image_size, image_size, 3))
    except (ValueError, AlphaError) as error:
        raise ConfigError(f"{name} cannot be trained on images of {image_size}x{image_size}: {error}") from error
    if outputs.shape != (1, arguments["num_classes"]):
        raise ConfigError(f"{name} gives {outputs.shape} for an image, not a number for each class")
    return model.train()
