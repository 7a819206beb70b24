"""States of `torch.optim` go on in Alpha, and those of Alpha in PyTorch, as if nobody had changed the program."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import CheckpointError, nn, optim
from alpha.models import torchvision

pytestmark = pytest.mark.torch

CASES: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "maximize": True}),
    ("AdamW", {"lr": 0.01}),
    ("NAdam", {"lr": 0.01}),
    ("RAdam", {"lr": 0.01, "decoupled_weight_decay": True}),
    ("Adamax", {"lr": 0.01}),
    ("Adadelta", {}),
    ("Adagrad", {"lr": 0.01, "lr_decay": 0.1}),
    ("ASGD", {"t0": 2}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.5, "centered": True}),
    ("Rprop", {}),
    ("LBFGS", {"lr": 0.1, "max_iter": 3}),
]
KINDS = [
    kind for kind in map(vars(optim).get, optim.__all__) if isinstance(kind, type) and issubclass(kind, optim.Optimizer)
]
DRAW = np.random.default_rng(0)
IMAGES, WANTED = DRAW.normal(size=(9, 4, 3, 6, 6)), DRAW.normal(size=(9, 4, 2))


def network(lib: Any) -> Any:
    """A network with filters, one of which fits both layouts, and with a layer that takes a flattened map."""
    parts = [lib.Conv2d(3, 3, 3), lib.Tanh(), lib.ConvTranspose2d(3, 4, 2), lib.Flatten(), lib.Linear(4 * 25, 6)]
    return lib.Sequential(*parts, lib.Tanh(), lib.Linear(6, 2)).double()


def steps(net: Any, optimizer: Any, numbers: range) -> list[float]:
    """The losses of some steps, of PyTorch or of Alpha."""
    ours = isinstance(net, nn.Module)
    lib: Any = alpha if ours else pytest.importorskip("torch")
    losses = []
    for number in numbers:
        x = lib.tensor(np.ascontiguousarray(np.moveaxis(IMAGES[number], 1, -1)) if ours else IMAGES[number])
        y = lib.tensor(WANTED[number])

        def closure(x: Any = x, y: Any = y) -> Any:
            optimizer.zero_grad()
            loss = ((net(x) - y) ** 2).mean()
            loss.backward()
            return loss

        losses.append(float(optimizer.step(closure).detach()))
    return losses


def assert_same(ours: Any, theirs: Any) -> None:
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_three_steps_in_each_are_nine_steps_of_pytorch(name: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    theirs = network(torch.nn)
    make, kind = getattr(optim, name), getattr(torch.optim, name)
    optimizer = kind(theirs.parameters(), **options)
    steps(theirs, optimizer, range(3))
    ours = network(nn)
    ours.load_state_dict(theirs.state_dict(), layout="NCHW")
    other = make(ours.parameters())
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()), model=ours)
    expected = steps(theirs, optimizer, range(3, 9))
    found = steps(ours, other, range(3, 6))
    last = network(torch.nn)
    last.load_state_dict(ours.state_dict(layout="NCHW").torch())
    third = kind(last.parameters())
    state = other.state_dict(layout="NCHW", model=ours)
    assert state["param_groups"][0].keys() == optimizer.state_dict()["param_groups"][0].keys()
    third.load_state_dict(state)
    np.testing.assert_allclose([*found, *steps(last, third, range(6, 9))], expected, rtol=1e-9)
    assert_same(last, theirs)


@pytest.mark.parametrize(("expansion", "layers"), [(1, (1, 2, 1, 1)), (4, (1, 1, 1, 2))])
def test_parameters_of_a_residual_network_have_the_order_of_torchvision(expansion: int, layers: Any) -> None:
    """States of optimizers number parameters, so their order counts as their names do."""
    torch = pytest.importorskip("torch")
    from torch_resnet import TorchResNet

    with torch.device("meta"):
        theirs = TorchResNet(expansion, layers, 5)
    block = torchvision.Bottleneck if expansion > 1 else torchvision.BasicBlock
    ours = torchvision.ResNet(block, layers, 5)  # type: ignore[type-abstract]
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]


@pytest.mark.slow
def test_a_residual_network_goes_to_alpha_and_back(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch_resnet import TorchResNet

    torch.manual_seed(0)
    expansion, layers = 4, (1, 1, 1, 1)
    theirs = TorchResNet(expansion, layers, 5).double()
    optimizer = torch.optim.Adam(theirs.parameters(), lr=1e-4)
    labels = torch.arange(4) % 5

    def train(net: Any, optimizer: Any, numbers: range) -> list[float]:
        losses = []
        for number in numbers:
            images = np.random.default_rng(number).normal(size=(4, 3, 32, 32))
            optimizer.zero_grad()
            if isinstance(net, nn.Module):
                x = alpha.tensor(np.ascontiguousarray(np.moveaxis(images, 1, -1)))
                loss: Any = nn.functional.cross_entropy(net(x), alpha.tensor(labels.numpy()))
            else:
                loss = torch.nn.functional.cross_entropy(net(torch.from_numpy(images)), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    train(theirs, optimizer, range(1))
    torch.save({"model": theirs.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "run.pt")
    ours = torchvision.ResNet(torchvision.Bottleneck, layers, 5).double()  # type: ignore[type-abstract]
    other = optim.Adam(ours.parameters())
    checkpoint = alpha.load(tmp_path / "run.pt")
    ours.load_state_dict(checkpoint)
    other.load_state_dict(checkpoint["optimizer"], model=ours)
    expected = train(theirs, optimizer, range(2, 4))
    found = train(ours, other, range(2, 3))
    last = TorchResNet(expansion, layers, 5).double()
    assert not last.load_state_dict(ours.state_dict(layout="NCHW").torch(), strict=False).unexpected_keys
    third = torch.optim.Adam(last.parameters())
    third.load_state_dict(other.state_dict(layout="NCHW", model=ours))
    np.testing.assert_allclose([*found, *train(last, third, range(3, 4))], expected, rtol=1e-6)


def test_parameters_are_told_by_their_names_if_the_state_has_them() -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)).double()
    named = list(theirs.named_parameters())[::-1]
    try:
        optimizer = torch.optim.Adam(named, lr=0.1)
    except TypeError:
        pytest.skip("this PyTorch takes no named parameters")
    theirs(torch.ones(2, 3).double()).sum().backward()
    optimizer.step()
    ours = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).double()
    other = optim.Adam(ours.parameters())
    other.load_state_dict(optimizer.state_dict(), model=ours)
    for (name, mine), value in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        wanted = optimizer.state[value]["exp_avg"].numpy()
        np.testing.assert_array_equal(other.state[mine]["first"], wanted, err_msg=name)
    state = optimizer.state_dict()
    state["param_groups"][0]["param_names"][0] = "fc.bias"
    with pytest.raises(CheckpointError, match=r"names a parameter 'fc\.bias', which the model does not have"):
        other.load_state_dict(state, model=ours)


def same(a: Any, b: Any) -> bool:
    """True if two parts of a state are of one type and have the same values."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "dtype"):
        return bool(a.dtype == b.dtype and a.shape == b.shape and (a == b).all())
    return type(a) is type(b) and a == b


def after_two_steps(kind: type[optim.Optimizer], settings: dict[str, Any]) -> tuple[optim.Optimizer, nn.Module]:
    """An optimizer of a matrix, and the matrix."""
    alpha.manual_seed(0)
    net = nn.Linear(3, 4, bias=False)
    optimizer: Any = kind(net.parameters(), **settings)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = net(alpha.tensor(np.eye(3, dtype=np.float32))).square().mean()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
    return optimizer, net


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not optim.Optimizer])
def test_a_subclass_has_the_state_of_its_class(kind: type[optim.Optimizer]) -> None:
    """A program may give an optimizer another name, and what PyTorch has of it is the same."""
    pytest.importorskip("torch")
    own = type("Own", (kind,), {})
    made = [after_two_steps(one, {"momentum": 0.9} if kind is optim.SGD else {}) for one in (kind, own)]
    if kind.in_pytorch is None:
        for optimizer, net in made:
            with pytest.raises(CheckpointError, match=f"{type(optimizer).__name__}: PyTorch has no such optimizer"):
                optimizer.state_dict(layout="NCHW", model=net)
        return
    wanted, found = (optimizer.state_dict(layout="NCHW", model=net) for optimizer, net in made)
    assert wanted["state"]
    assert same(found, wanted)
    for one in (kind, own):
        net = nn.Linear(3, 4, bias=False)
        other: Any = one(net.parameters())
        other.load_state_dict(copy.deepcopy(found), model=net)
        assert same(other.state_dict(layout="NCHW", model=net), wanted)


def states() -> tuple[Any, nn.Module]:
    torch = pytest.importorskip("torch")
    theirs = network(torch.nn)
    optimizer = torch.optim.Adam(theirs.parameters())
    steps(theirs, optimizer, range(1))
    return optimizer.state_dict(), network(nn)


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    state, ours = states()
    adam = optim.Adam(ours.parameters())
    wrong = copy.deepcopy(state)
    wrong["state"][0]["exp_avg"] = wrong["state"][0]["exp_avg"].permute(0, 2, 3, 1)[:, :, :2]
    nchw = copy.deepcopy(state)
    nchw["state"][2]["exp_avg"] = nchw["state"][2]["exp_avg"].permute(0, 2, 3, 1)
    lost = copy.deepcopy(state)
    del lost["state"][1]["exp_avg_sq"]
    for optimizer, given, options, message in (
        (adam, state, {}, r"load_state_dict\(state, model=model\) is needed for a state of torch.optim"),
        (adam, state, {"model": nn.Linear(2, 2)}, r"8 of its parameters are not in the model, a Linear"),
        (optim.SGD(ours.parameters()), state, {"model": ours}, "has exp_avg, exp_avg_sq, which torch.optim.SGD"),
        (optim.Lion(ours.parameters()), state, {"model": ours}, "PyTorch has no such optimizer"),
        (optim.Adam([*ours.parameters()][1:]), state, {"model": ours}, r"groups of \[8\] parameters, here \[7\]"),
        (adam, wrong, {"model": ours}, r"exp_avg of '0.weight' has shape \(3, 3, 2, 3\), the parameter \(3, 3, 3, 3\)"),
        (adam, nchw, {"model": ours}, r"exp_avg of '2.weight' has shape \(3, 2, 2, 4\), the parameter \(3, 4, 2, 2\)"),
        (adam, lost, {"model": ours}, "parameter 1: second is missing"),
    ):
        with pytest.raises(CheckpointError, match=message):
            optimizer.load_state_dict(given, **options)
        assert not optimizer.state
    adam.load_state_dict(state, model=ours)
    adam.load_state_dict(adam.state_dict(), model=ours)


def test_what_pytorch_has_not_does_not_go_out() -> None:
    _, ours = states()
    for optimizer, message in (
        (optim.Momentum(ours.parameters()), "PyTorch has no such optimizer"),
        (optim.Adam(ours.parameters(), l1_decay=0.1), "has {'l1_decay': 0.1}, which PyTorch's optimizer has not"),
    ):
        with pytest.raises(CheckpointError, match=message):
            optimizer.state_dict(layout="NCHW", model=ours)
    with pytest.raises(ValueError, match="layout='CHW' is not one of"):
        optim.Adam(ours.parameters()).state_dict(layout="CHW")


def test_factors_of_filters_are_none_of_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    theirs, ours = torch.nn.Linear(3, 4).double(), nn.Linear(3, 4).double()
    optimizer, other = torch.optim.Adafactor(theirs.parameters()), optim.Adafactor(ours.parameters())
    theirs(torch.ones(2, 3).double()).sum().backward()
    optimizer.step()
    other.load_state_dict(optimizer.state_dict(), model=ours)
    back = other.state_dict(layout="NCHW", model=ours)["state"]
    for index, slots in optimizer.state_dict()["state"].items():
        assert all(torch.equal(value, back[index][name]) for name, value in slots.items())
    net = network(nn)
    factors = optim.Adafactor(net.parameters())
    steps(net, factors, range(1))
    with pytest.raises(CheckpointError, match=r"'0.weight' is a filter, of which it keeps means"):
        factors.state_dict(layout="NCHW", model=net)
