"""Transforms in a row, one of several, and one of a function; and which transforms take labels, too."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from alpha.core.nested import tensors_in
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError, type_name
from alpha.module.module import Module
from alpha.nn.containers import ModuleList, Sequential
from alpha.ops.kernel.options import real
from alpha.transforms.images import FixedTransform, Transform, check_images, drawn, numbers_as_text
from alpha.transforms.mixing import Mixing

__all__ = ["Compose", "Lambda", "RandomChoice", "takes_targets"]


class Compose(Sequential):
    """Transforms called one after the other: `Sequential` of a list, as torchvision writes it   (N, H, W, C) -> same

    `compose(images, targets)` returns both: targets go through the transforms that take them, such as MixUp. Targets of
    each pixel, (N, H, W) or (N, H, W, ..), beside a transform that moves pixels are a ValueError.

    Examples:
        >>> import alpha
        >>> from alpha import transforms
        >>> augment = transforms.Compose([transforms.RandomCrop(28), transforms.RandomHorizontalFlip()])
        >>> augment(alpha.rand(8, 32, 32, 3)).shape
        (8, 28, 28, 3)
    """

    def __init__(self, transforms: Sequence[Module]) -> None:
        super().__init__(*transforms)

    def forward(self, x: Any, targets: Any = None) -> Any:
        if targets is None:
            return super().forward(x)
        given = x
        for transform in self:
            if not takes_targets(transform):
                check_targets_stay(transform, given, targets)  # x may have another size since, by a Resize
            x, targets = called(transform, x, targets)
        return x, targets


class RandomChoice(ModuleList):
    """One of some transforms for each image   (N, H, W, C) -> what they make, all of one size

    Unlike torchvision's, which draws once for a batch, each image has its own. All transforms are computed, and the
    drawn one is taken, so that a captured step is always the same. `choice(images, targets)` returns both, for
    transforms such as MixUp. In evaluation mode images and targets stay as they are, unless the first transform makes
    images of another size then, which are taken.

    Args:
        transforms: modules of images.
        p: how often each of them is taken, in any unit; None: equally often.

    Raises:
        ShapeError: (in a call) the transforms make images or targets of different shapes.
        ValueError: there are no transforms, or p has another length, a number below 0 or only zeros.
    """

    def __init__(self, transforms: Sequence[Module], p: Sequence[float] | None = None) -> None:
        super().__init__(transforms)
        if not len(self):
            raise ValueError("RandomChoice: at least one transform is needed")
        weights = [1.0] * len(self) if p is None else [real("RandomChoice", "p", each) for each in p]
        if len(weights) != len(self) or min(weights) < 0 or not sum(weights):
            raise ValueError(f"RandomChoice: p={p!r} must be {len(self)} numbers from 0 up, and not all of them 0")
        *_, total = below = list(itertools.accumulate(weights))
        self.p = tuple([weight / total for weight in weights])
        self._below = tuple([limit / total for limit in below])  # of the draws that take this one or one before it

    def forward(self, x: Tensor, targets: Any = None) -> Any:
        check_images("RandomChoice", x)
        transforms = list(self)
        if not self.training:
            still = called(transforms[0], x, targets)[0]
            x = still if still.shape != x.shape else x
            return x if targets is None else (x, targets)
        results = [called(transform, x, targets) for transform in transforms]
        draw = drawn(x, 0.0, 1.0)
        y, made = results[0]
        for (image, target), limit in zip(results[1:], self._below[:-1], strict=True):
            y = _selected(draw >= limit, image, y)
            made = target if target is made else _selected(draw >= limit, target, made)
        return y if targets is None else (y, made)

    def extra_repr(self) -> str:
        return f"p={numbers_as_text(self.p)}"


def _selected(chosen: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """a where an image is chosen (N, 1, 1, 1), else b."""
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ShapeError(
            f"RandomChoice: the transforms must make the same shapes and dtypes  "
            f"({b.shape} of {b.dtype.name}, {a.shape} of {a.dtype.name})"
        )
    return a.where(chosen.reshape(chosen.shape[0], *(1,) * (a.ndim - 1)), b)


def called(transform: Module, x: Any, targets: Any) -> tuple[Any, Any]:
    """Images and targets behind a transform of both, or of images alone; targets may be None."""
    if targets is None or not takes_targets(transform):
        check_targets_stay(transform, x, targets)
        return transform(x), targets
    x, targets = transform(x, targets)
    return x, targets


def check_targets_stay(augment: Any, x: Any, targets: Any) -> None:
    """`ValueError` if an augmentation of images alone moves their pixels, and targets have one of each pixel."""
    if not isinstance(augment, Module) or not isinstance(x, Tensor):
        return
    of_pixels = [target.shape for target in tensors_in(targets) if target.ndim >= 3 and target.shape[:3] == x.shape[:3]]
    if not of_pixels:
        return
    for transform in augment.modules():
        if isinstance(transform, Transform) and transform.moves and transform.training:
            raise ValueError(
                f"{type(transform).__name__}: it would move the pixels of the images {x.shape}, and those of the "
                f"targets {of_pixels[0]} would stay; take a function of images and targets that moves both, as one "
                "tensor: both = augment(alpha.cat([images, masks[..., None].float()], -1)), then both[..., :-1] and "
                "both[..., -1].long(), without colours, and interpolation='nearest' where there is one"
            )


def takes_targets(augment: Any) -> bool:
    """True if an augmentation is called with (images, targets) and returns both, and False if with images alone

    That is so for MixUp and CutMix, for a Compose or RandomChoice that holds one of them, and for a function, or a
    module of your own, with two required arguments by position.
    """
    if isinstance(augment, Mixing):
        return True
    if isinstance(augment, (Compose, RandomChoice)):
        return any(takes_targets(transform) for transform in augment.children())
    function = augment.forward if isinstance(augment, Module) else augment
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function in C may have none
        return False
    required = [
        p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return len(required) == 2


class Lambda(FixedTransform):
    """A function of the images as a transform, in both modes   (N, H, W, C) -> what it returns

    Raises:
        TypeError: `lambd` cannot be called.
    """

    def __init__(self, lambd: Callable[[Tensor], Tensor]) -> None:
        if not callable(lambd):
            raise TypeError(f"Lambda: a function is needed, not a {type_name(lambd)}")
        self.lambd = lambd

    def apply_to(self, x: Tensor) -> Tensor:
        return self.lambd(x)
