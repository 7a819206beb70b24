"""`alpha.compare` names the layer at which two networks part, and carries the weights over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import CheckpointError, nn

pytestmark = pytest.mark.torch


def network(lib: Any, stride: int = 2, axis: int = 1, slope: float = 0.01) -> Any:
    """A network in which one argument is another one, or the forward takes another axis."""

    class Net(lib.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.body = lib.Sequential(lib.Conv2d(3, 8, 3, padding=1), lib.BatchNorm2d(8), lib.LeakyReLU(slope, True))
            self.down = lib.Conv2d(8, 4, 3, stride, 1)
            self.drop = lib.Dropout(0.5)
            self.fc = lib.Linear(4 * 16, 6)
            self.head = lib.Linear(6, 2)

        def forward(self, x: Any) -> Any:
            y = self.down(self.body(x)).softmax(axis)
            y = y[:, : y.shape[1] // (3 - stride), : y.shape[2] // (3 - stride)] if stride == 1 else y
            return self.head(self.drop(self.fc(y.reshape(len(y), -1))).relu())

    return Net()


def both(**options: Any) -> tuple[Any, nn.Module, Any]:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    return network(torch.nn), network(nn, **{"axis": -1, **options}), torch.randn(2, 3, 8, 8)


@pytest.mark.parametrize("train", [False, True])
def test_equal_networks_are_equal_forward_and_backward(train: bool) -> None:
    theirs, ours, x = both()
    before = {name: value.clone() for name, value in theirs.state_dict().items()}
    found = alpha.compare(theirs, ours, x, train=train)
    assert found.equal, str(found)
    names = {row.name for row in found.gradients}
    assert {f"{name}.grad" for name, _ in ours.named_parameters()} | {"body.0", "head"} <= names
    assert {row.name for row in found.outputs} == {name for name, _ in ours.named_modules()}
    assert "every output is equal" in str(found)
    assert all((value == before[name]).all() for name, value in theirs.state_dict().items())  # copies ran
    assert all(parameter.grad is None for parameter in ours.parameters())
    assert ours.training
    y = ours.eval()(alpha.tensor(x.permute(0, 2, 3, 1).contiguous().numpy())).numpy()  # which has the weights now
    np.testing.assert_allclose(y, theirs.eval()(x).detach().numpy(), atol=1e-5)


def test_the_first_layer_that_differs_is_named_with_numbers() -> None:
    theirs, ours, x = both(slope=0.2)
    found = alpha.compare(theirs, ours, x)
    assert found.first_output is not None
    assert found.first_output.name == "body.2"
    assert found.first_output.at_input is not None
    assert found.first_output.at_input < 1e-12
    assert "the cause is in this layer" in str(found)
    assert f"{found.first_output.largest:.3g} apart" in str(found)


def test_what_the_forward_does_between_layers_is_told_from_a_layer() -> None:
    theirs, ours, x = both(axis=1)
    found = alpha.compare(theirs, ours, x)
    assert found.first_output is not None
    assert found.first_output.name == "fc"
    assert "the cause stands in the forward before it" in str(found)


def test_other_shapes_are_differences() -> None:
    theirs, ours, x = both(stride=1)
    found = alpha.compare(theirs, ours, x)
    assert found.first_output is not None
    assert found.first_output.name == "down"
    assert "shapes (2, 4, 4, 4) of PyTorch and (2, 8, 8, 4) of Alpha" in str(found)


def test_a_gradient_that_differs_while_outputs_do_not() -> None:
    class Stopped(nn.Module):
        def forward(self, x: alpha.Tensor) -> alpha.Tensor:
            return x.detach() * 0.5 + x * 0.5

    theirs, ours, x = both()
    ours.drop = Stopped()
    found = alpha.compare(theirs, ours, x)
    assert found.first_output is None
    assert found.first_gradient is not None
    assert found.first_gradient.name == "fc"  # behind which it stands
    assert not found.equal


def test_layers_of_one_program_alone_and_other_inputs() -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Sequential(torch.nn.Conv1d(3, 4, 2), torch.nn.ReLU())
    ours = nn.Sequential(nn.Conv1d(3, 4, 2))
    x = torch.rand(2, 3, 5)
    found = alpha.compare(theirs, ours, x, alpha_x=alpha.tensor(x.permute(0, 2, 1).contiguous().numpy()))
    assert found.only_in == (["1"], [])
    assert "called in PyTorch only: 1" in str(found)
    assert found.outputs[0].relative < 1e-12
    embed = torch.nn.Embedding(5, 3)
    assert alpha.compare(embed, nn.Embedding(5, 3), torch.tensor([[0, 4]])).equal


def test_what_cannot_be_compared_is_refused() -> None:
    theirs, ours, x = both()
    with pytest.raises(TypeError, match="a module of PyTorch and one of Alpha are needed, in this order"):
        alpha.compare(ours, theirs, x)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="missing"):
        alpha.compare(theirs[0] if isinstance(theirs, list) else theirs.fc, ours, x)
