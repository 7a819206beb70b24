"""The parts of the networks may be replaced by others of the same interface, which are called then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import small_nets
from test_other_models import SMALL
from trials import trials

import alpha
from alpha import nn
from alpha.models import torchvision
from alpha.models.senet import SEBasicBlock

IMAGES = (2, 32, 32, 3)
ONE_EACH = 1, 1, 1, 1
LARGE = "googlenet", "resnet18", "se_resnet"  # of which smaller ones or other modes are tried
NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    **{name: (make, given) for name, (make, given, _) in SMALL.items() if name not in LARGE},
    **{f"the paper's {name}": (make, IMAGES) for name, make in small_nets.MAKE.items()},
    "small resnet": (lambda: torchvision.ResNet(torchvision.BasicBlock, ONE_EACH, 5), IMAGES),
    "small se_resnet": (lambda: torchvision.ResNet(SEBasicBlock, ONE_EACH, 5), IMAGES),
    "googlenet in training": (lambda: torchvision.googlenet(5), IMAGES),
    "memory-efficient densenet": (lambda: torchvision.DenseNet(4, (2, 3), 8, 2, 0.1, 5, True), IMAGES),
}
HOLDERS = nn.ModuleList, nn.ModuleDict  # which nobody calls


class Counting(nn.Module):
    """A part that a model does not know, and that says how often it was called."""

    def __init__(self, part: nn.Module) -> None:
        self.part, self.calls = part, 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.part(*args, **kwargs)


def places(model: nn.Module) -> list[tuple[nn.Module, str, nn.Module]]:
    """(owner, name, part) of all parts that are called."""
    return [
        (owner, name, part)
        for owner in list(model.modules())
        for name, part in list(owner.named_children())
        if not isinstance(part, HOLDERS)
    ]


def outputs(model: nn.Module, given: tuple[int, ...]) -> list[np.ndarray]:
    """The results of a step of training and of an evaluation behind it, and the gradients of the step."""
    alpha.manual_seed(7)
    x = alpha.tensor(alpha.core.rng.normal(given))
    trained = model.train()(x)
    parts = list(trained) if isinstance(trained, tuple) else [trained]
    sum((part * part).sum() for part in parts).backward()
    grads = [p.grad for p in model.parameters()]
    with alpha.no_grad():
        parts.append(model.eval()(x))
    return [part.numpy() for part in (*parts, *(grad for grad in grads if grad is not None))]


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_every_part_that_is_replaced_is_called(name: str) -> None:
    """Parts of one class at a time, and all together: none may be passed by or be asked for more than a call."""
    make, given = NETS[name]

    def made() -> nn.Module:
        alpha.manual_seed(0)
        return make()

    expected = outputs(made(), given)
    kinds = {type(part) for _, _, part in places(made())}
    with trials() as trial:
        for kind in (nn.Module, *sorted(kinds, key=lambda kind: kind.__name__)):
            model, counters = made(), []
            for owner, place, part in places(model):
                if isinstance(part, kind):
                    counters.append(Counting(part))
                    setattr(owner, place, counters[-1])
            with trial(kind.__name__):
                for found, wanted in zip(outputs(model, given), expected, strict=True):
                    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-4 * np.abs(wanted).max())
                assert not [counter for counter in counters if not counter.calls]


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "GroupNorm": lambda channels: nn.GroupNorm(2, channels),
    "LayerNorm": nn.LayerNorm,
    "InstanceNorm2d": lambda channels: nn.InstanceNorm2d(channels, affine=True),
    "Identity": nn.Identity,
    "SqBatchNorm": nn.SqBatchNorm,
    "Sequential": lambda channels: nn.Sequential(nn.BatchNorm2d(channels)),
}


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
def test_a_network_with_another_norm(norm: str, device: str) -> None:
    """The other norm takes the places of all batch normalisations, and GELU those of the activations."""
    alpha.manual_seed(0)
    with trials() as trial:
        for name in ("the paper's resnet18", "densenet")[: 2 if device == "cpu" else 1]:
            model = NETS[name][0]()
            for owner, place, part in places(model):
                if isinstance(part, nn.BatchNorm2d):
                    setattr(owner, place, NORMS[norm](part.num_features))
                elif isinstance(part, (nn.ReLU, nn.LeakyReLU)):
                    setattr(owner, place, nn.GELU())
            x = alpha.tensor(alpha.core.rng.normal((2, 32, 32, 3)), device=device)
            with trial(name):
                y = model.to(device)(x)
                (y * y).sum().backward()
                assert all(p.grad is not None and np.isfinite(p.grad.numpy()).all() for p in model.parameters())


BATCH_NORM = nn.BatchNorm2d.forward


class Own(nn.BatchNorm2d):
    """A norm with a forward of its own, which knows one argument."""

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:  # type: ignore[override]
        return BATCH_NORM(self, x) + 3


class OwnConv(nn.Conv2d):
    def forward(self, x: alpha.Tensor) -> alpha.Tensor:  # type: ignore[override]
        return nn.functional.conv2d(x, self.weight * 2)


@pytest.mark.slow
@pytest.mark.parametrize("training", [True, False])
def test_layers_with_a_forward_of_their_own_and_layers_of_other_kinds(device: str, training: bool) -> None:
    """`conv_batch_norm` is what the layers are one after the other, whatever they are."""
    alpha.manual_seed(0)
    x = alpha.tensor(alpha.core.rng.normal((2, 6, 6, 3)), device=device)
    convs = nn.Conv2d(3, 4, 3), OwnConv(3, 4, 3), nn.Sequential(nn.Conv2d(3, 4, 3)), nn.Linear(3, 4)
    norms = nn.BatchNorm2d(4), Own(4), nn.GroupNorm(2, 4), nn.Identity(), nn.GlobalBatchNorm(4)
    acts = nn.LeakyReLU(), nn.GELU(), nn.Sequential(nn.ReLU())
    with trials() as trial:
        for conv, norm, act in [(c, n, a) for c in convs for n in norms for a in acts]:
            for part in (conv, norm, act):
                part.to(device).train(training)
            with alpha.no_grad(), trial(type(conv).__name__, type(norm).__name__, type(act).__name__):
                expected = act(norm(conv(x)) + 1.0)
                found = nn.conv_batch_norm(conv, norm, x, act, alpha.ones_like(expected))
                np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-3, atol=1e-4)
                plain = nn.batch_norm_activation(norm, conv(x), act, alpha.ones_like(expected))
                np.testing.assert_allclose(plain.numpy(), expected.numpy(), rtol=1e-3, atol=1e-4)
