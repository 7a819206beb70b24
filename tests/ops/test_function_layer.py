"""Layers whose methods follow from their fields are as those that are written by hand."""

from __future__ import annotations

import copy
import inspect
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import Tensor, nn


class Steeper(nn.LeakyReLU):
    """A layer of a user, with an annotation that is no argument and an `__init__` that keeps nothing of Alpha's."""

    steps: int

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        self.negative_slope, self.inplace = 1.0 * self.steps, False
        return super().forward(x) + 1


def test_a_subclass_decides_by_itself() -> None:
    layer = Steeper(2)
    assert list(inspect.signature(Steeper).parameters) == ["steps"]
    assert repr(layer) == "Steeper()"
    assert layer(alpha.tensor([-1.0, 2.0])).numpy().tolist() == [-1.0, 3.0]
    for same in (copy.copy(layer), copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert vars(same) == {"steps": 2, "negative_slope": 2.0, "inplace": False}


def test_a_subclass_without_an_init_has_the_arguments_of_its_base() -> None:
    class Same(nn.LeakyReLU):
        steps: int = 3

    assert inspect.signature(Same) == inspect.signature(nn.LeakyReLU)
    assert repr(Same(0.5, inplace=True)) == "Same(negative_slope=0.5, inplace=True)"
    assert Same.steps == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.ReLU(False, True, None, 1), r"ReLU.__init__\(\) takes from 1 to 2 positional arguments but 5"),
        (lambda: nn.LeakyReLU(slope=1), r"LeakyReLU.__init__\(\) got an unexpected keyword argument 'slope'"),
        (lambda: nn.PixelShuffle(), r"PixelShuffle.__init__\(\) missing 1 required positional argument"),
        (lambda: nn.GaussianNLLLoss(True, 1e-6, "sum", 1), r"GaussianNLLLoss.__init__\(\) takes 1 positional argument"),
        (lambda: nn.MSELoss()(alpha.zeros(2)), r"MSELoss.forward\(\) missing 1 required positional argument: 'target'"),
        (lambda: nn.L1Loss()(alpha.zeros(2), alpha.zeros(2), weight=None), "unexpected keyword argument 'weight'"),
    ],
)
def test_a_wrong_call_is_refused_by_the_layer(make: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()


def test_a_default_is_no_attribute_of_the_class() -> None:
    assert not hasattr(nn.LeakyReLU, "negative_slope")
    assert not hasattr(nn.MSELoss(), "size_average")


def test_a_weight_that_was_none_becomes_a_buffer() -> None:
    loss = nn.NLLLoss()
    loss.weight = alpha.tensor([1.0, 2.0])
    assert isinstance(loss.weight, nn.Buffer)
    assert list(loss.state_dict()) == ["weight"]


def test_the_forward_is_told_the_mode() -> None:
    layer, x = nn.Dropout2d(1.0), alpha.tensor(np.ones((1, 2, 2, 3), np.float32))
    assert layer(x).sum().item() == 0
    assert layer.eval()(x).sum().item() == 12


def test_a_warning_names_the_line_of_the_program() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        nn.MSELoss()(alpha.zeros(3, 1), alpha.zeros(3))
    assert [warning.filename for warning in found] == [__file__]
