"""Beginning of a Trainer's training: its checks, the layers that stay in evaluation mode, and the mean of the weights.

A mistake of these would not raise an error, but give another result than the one that is meant.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from alpha import transforms
from alpha.data import DataLoader
from alpha.data.collate import leaves
from alpha.data.dataset import classes_of
from alpha.errors import DataError, first_few
from alpha.module.module import Module
from alpha.module.parameter import Uninitialized
from alpha.nn import ModuleList, Sequential
from alpha.optim import Optimizer
from alpha.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from alpha.train.batches.device import is_image
from alpha.train.batches.host import CLASSES, as_arrays
from alpha.transforms import Normalize

PIXELS = (-1.0, 1.0)  # to which a Trainer brings images of uint8
SHOWN = 5  # names in a message


class Modes:
    """The layers of a model that stay in evaluation mode while it is trained, such as frozen batch normalisations.

    They are those that are in evaluation mode when an epoch begins, while the model itself is in training mode. After
    an evaluation, in which all layers are, they are those of before, without those of which `train()` was called since;
    the layers know that, whichever trainer has the model.
    """

    def __init__(self) -> None:
        self._said: list[str] = []

    def train(self, model: Module) -> None:
        """Set the model to training mode, without the layers that stay in evaluation mode."""
        frozen = self._found(model)
        model.train()
        for module in model.modules():
            vars(module).pop("_stays_evaluated", None)
        for module in frozen:
            module.training, module._stays_evaluated = False, True

    def news(self, model: Module) -> str:
        """Text that tells which layers will stay in evaluation mode; empty if nothing has changed since the last."""
        found = set(map(id, self._found(model)))
        names = [name for name, module in model.named_modules() if id(module) in found]
        if names == self._said:
            return ""
        self._said = names
        if not names:
            return "all layers are in training mode again"
        layers = "1 layer stays" if len(names) == 1 else f"{len(names)} layers stay"
        return f"{layers} in evaluation mode: {first_few(names, SHOWN)}"

    def _found(self, model: Module) -> list[Module]:
        below = [module for module in model.modules() if module is not model and not module.training]
        return below if model.training else [module for module in below if module._stays_evaluated]


def warn_of_untrained(model: Module, optimizers: Sequence[Optimizer]) -> None:
    """Warn of parameters that require a gradient and belong to no optimizer, as those of a layer that was replaced."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    held = {id(parameter) for group in groups for parameter in group["params"]}
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    names = [name for name, parameter in trained if id(parameter) not in held]
    if names:
        warnings.warn(
            "Trainer: no optimizer has these parameters of the model, so they stay as they are: "
            f"{first_few(names, SHOWN)}. Make the optimizer after the last change of the model, or freeze them by "
            "requires_grad = False",
            UserWarning,
            stacklevel=2,
        )


def average_of(model: Module, ema: float | None, held: AveragedModel | None) -> AveragedModel | None:
    """The mean of the weights by `ema`, which begins with the weights of now; or the one that is held, or None."""
    if ema is None or held is not None:
        return held
    lazy = [name for name, value in model.named_tensors() if isinstance(value, Uninitialized)]
    if lazy:
        raise ValueError(
            f"Trainer: ema needs weights, but {lazy[0]} has no shape yet; call the model once on a batch before"
        )
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(ema), use_buffers=True)


def check_bounds(augment: Any, loader: DataLoader) -> None:
    """Raise ValueError if an augmentation clips colours to other bounds than those of a Trainer's images of uint8.

    What stands behind a transform that may bring images into another range is not looked at.
    """
    for module in augment.modules() if isinstance(augment, Module) else ():
        name = type(module).__name__
        if isinstance(module, Normalize) or not _is_known(module):
            return
        bounds = getattr(module, "bounds", PIXELS)
        if (bounds[0] > PIXELS[0] or bounds[1] < PIXELS[1]) and _gives_images(loader):
            raise ValueError(
                f"Trainer: augment has {name} with bounds={tuple(bounds)}, but images of uint8 become pixels from -1 "
                "to 1, of which it would cut off a part; give it bounds=(-1, 1)"
            )


def _is_known(module: Module) -> bool:
    """True for a transform of Alpha's, and for a container."""
    kind = type(module)
    return kind in (Sequential, ModuleList) or getattr(transforms, kind.__name__, None) is kind


def _gives_images(loader: DataLoader) -> bool:
    """True if the inputs of a loader's batches have images (N, H, W, C) of uint8."""
    if not len(loader.dataset):
        return False
    batch = as_arrays(loader.batch(np.arange(1)))
    inputs = batch[0] if isinstance(batch, tuple) and len(batch) == 2 else ()
    return any(map(is_image, leaves(inputs)))


def check_classes(dataset: Any, before: Mapping[str, Any] | None, what: str = "the training") -> None:
    """Raise DataError if a data set names other classes than those of `what`, or the same in another order.

    Args:
        before: what `DataLoader.describe` says of the loader of `what`. If one of the two names no classes, they are
            not compared.
    """
    found, wanted = classes_of(dataset), tuple((before or {}).get(CLASSES) or ())
    if not found or not wanted or found == wanted:
        return
    place = next((i for i, pair in enumerate(zip(found, wanted, strict=False)) if pair[0] != pair[1]), None)
    differ = "" if place is None else f"; class {place} is {found[place]!r} here, and {wanted[place]!r} there"
    raise DataError(
        f"Trainer: the data set has the classes {first_few(found, SHOWN)} ({len(found)}), {what} has "
        f"{first_few(wanted, SHOWN)} ({len(wanted)}){differ}. Labels are the numbers of classes, so both need the "
        "same ones in the same order; if only the names differ, give both data sets the same `classes`"
    )
