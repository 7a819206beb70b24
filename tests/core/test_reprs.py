"""An object of a public class says what it is, where a notebook or a debugger shows it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

import numpy as np

import alpha
from alpha.data import ArrayDataset, RandomSampler, TensorDataset, random_split
from alpha.optim import SGD
from alpha.optim.lr_scheduler import CosineAnnealingLR
from alpha.train import EarlyStopping, LearningRates, TopKAccuracy

PLACES = (
    "alpha",
    "alpha.data",
    "alpha.train",
    "alpha.optim",
    "alpha.optim.lr_scheduler",
    "alpha.nn",
    "alpha.transforms",
)
NEVER_MADE = {"Function"}  # a class whose methods are called without an object


def public_classes() -> Iterator[type]:
    for place in PLACES:
        room = importlib.import_module(place)
        for name in room.__all__:
            if inspect.isclass(found := getattr(room, name)):
                yield found


def test_no_public_class_has_the_repr_of_every_object() -> None:
    """Context managers are in a with statement and need none."""
    silent = {c.__name__ for c in public_classes() if c.__repr__ is object.__repr__ and not hasattr(c, "__enter__")}
    assert silent - NEVER_MADE == set()
    assert silent >= NEVER_MADE


class Rows(alpha.data.Dataset[int]):
    """A user's dataset."""

    def __len__(self) -> int:
        return 1234

    def __getitem__(self, index: int) -> int:
        return index


class Stream(alpha.data.IterableDataset[int]):
    """A dataset without a length."""

    def __iter__(self) -> Iterator[int]:
        yield 1


class Odd(Rows):
    """A dataset whose length fails, and whose classes are no list."""

    def __init__(self, classes: object) -> None:
        self.classes = classes

    def __len__(self) -> int:
        raise NotImplementedError


def test_a_dataset_is_shown_whatever_its_program_does() -> None:
    assert [repr(Odd(classes)) for classes in (10, None, np.array(["a", "b"]), {}, ("a",))] == [
        "Odd()", "Odd()", "Odd(2 classes)", "Odd()", "Odd(1 classes)",
    ]  # fmt: skip


def test_reprs() -> None:
    images = ArrayDataset(np.zeros((6, 2, 2, 3), np.uint8), np.arange(6) % 2, ("cat", "dog"))
    part = random_split(Rows(), [1000, 234])[0]
    optimizer = SGD([alpha.zeros(2, requires_grad=True)], lr=0.1)
    schedule = CosineAnnealingLR(optimizer, 10)
    accuracy = TopKAccuracy(1)
    assert [repr(x) for x in (images, part, Rows(), Stream(), TensorDataset(alpha.zeros(3)))] == [
        "ArrayDataset(6 items, 2 classes)",
        "Subset(1,000 items)",
        "Rows(1,234 items)",
        "Stream()",
        "TensorDataset(3 items)",
    ]
    assert repr(RandomSampler(images)) == "RandomSampler(6)"
    assert repr(schedule) == "CosineAnnealingLR(after 0 steps, lr 0.1)"
    assert repr(accuracy) == "TopKAccuracy(no batch yet)"
    accuracy.update(alpha.tensor([[1.0, 0.0], [1.0, 0.0]]), alpha.tensor([0, 1]))
    assert repr(accuracy) == "TopKAccuracy(0.5)"
    assert repr(EarlyStopping(3)) == "EarlyStopping(patience=3, min_delta=0.0)"
    found = LearningRates(tuple(10.0**k for k in range(-9, 0)), tuple(9.0 - k for k in range(9)))
    assert repr(found) == "LearningRates(9 from 1e-09 to 0.1, suggestion 0.0001)"
    assert repr(alpha.Generator().manual_seed(3)) == "Generator(seed 3, 0 draws done, device='cpu')"
