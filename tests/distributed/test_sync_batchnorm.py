"""SyncBatchNorm: parts of a batch on several ranks give what BatchNorm gives for the whole batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ranks import run_ranks
from trials import trials

import alpha
from alpha import nn
from alpha.distributed import SyncBatchNorm, convert_sync_batchnorm
from alpha.errors import AlphaError
from alpha.models import resnet18

PARTS = ("forward", "dx", "dweight", "dbias", "running_mean", "running_var", "num_batches_tracked", "evaluation")


def check(told: list[Any], most: float) -> set[str]:
    """Look at the differences of all ranks; returns the names of the cases."""
    with trials() as trial:
        for rank, (found, _) in enumerate(told):
            for name, difference in found.items():
                with trial(f"rank {rank}", name):
                    assert difference <= most
    return set.union(*(set(found) for found, _ in told))


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_parts_of_a_batch_are_normalised_as_the_whole(count: int) -> None:
    told = run_ranks(count, "sync_batchnorm.py", "layers")
    cases = check(told, 1e-12)
    assert {name.partition(": ")[2] for name in cases} >= set(PARTS)
    fixed = {name for name in cases if not name.startswith("random")}  # one row of a rank alone is not evaluated
    assert all(set(found) >= fixed for found, _ in told)
    *others, (_, texts) = told
    assert [messages for _, messages in others] == [{}] * (count - 1)
    with trials() as trial:
        for name, wanted in {
            "no rows": "ShapeError: SyncBatchNorm: x (0, 3, 3, 4) must have 4 channels and at least one row",
            "no places": "ShapeError: SyncBatchNorm: x (2, 0, 3, 4) must have 4 channels and at least one row",
            "channels": "ShapeError: SyncBatchNorm: x (2, 3, 3, 5) must have 4 channels and at least one row",
            "axes": "ShapeError: SyncBatchNorm: x (N, C) or (N, L, C) or (N, H, W, C) or (N, D, H, W, C) is needed",
            "no tensor": "TypeError: ",
            "integers": "TypeError: ",
        }.items():
            with trial(name):
                assert texts[name].startswith(wanted), texts[name]


@pytest.mark.slow
def test_bfloat16_is_as_exact_as_one_layer() -> None:
    told = run_ranks(2, "sync_batchnorm.py", "bfloat16")
    for found, _ in told:
        assert {part: d for part, d in found.items() if d > (2e-2 if part.startswith("bf") else 1e-5)} == {}


@pytest.mark.slow
def test_a_network_is_converted() -> None:
    check(run_ranks(2, "sync_batchnorm.py", "network"), 1e-9)


@pytest.mark.slow
def test_on_emulated_gpus() -> None:
    check(run_ranks(2, "sync_batchnorm.py", "gpu", emulated=True), 1e-5)


# -- in one process --------------------------------------------------------------------------------


@pytest.fixture(params=["no group", "a group of one"])
def alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "no group":
        yield
        return
    for name in ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    alpha.distributed.init("cpu")
    yield
    alpha.distributed.shutdown()


@pytest.mark.parametrize("shape", [(6, 4), (3, 5, 4), (2, 3, 3, 4), (2, 2, 2, 3, 4)])
@pytest.mark.parametrize("options", [{}, {"momentum": None}, {"affine": False, "track_running_stats": False}])
def test_alone_it_is_a_batchnorm(alone: None, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    plain = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)]
    one, other = SyncBatchNorm(4, **options), plain(4, **options)
    results: list[list[Any]] = []
    for layer in (one, other):
        draw, found = np.random.default_rng(2), []
        for mode in (True, True, False):
            x = alpha.tensor(draw.standard_normal(shape), dtype="float32", requires_grad=True)
            layer.train(mode)
            y = layer(x)
            (y * y * y).sum().backward()
            assert x.grad is not None
            found += [y.numpy().tolist(), x.grad.numpy().tolist()]
        found += [p.grad.numpy().tolist() for p in layer.parameters()]
        results.append([*found, {name: value.tolist() for name, value in layer.state_dict().items()}])
    assert results[0] == results[1]
    with pytest.raises(AlphaError, match="is needed, the channels last"):
        one(alpha.zeros(3))
    assert repr(one) == repr(nn.BatchNorm2d(4, **options)).replace("BatchNorm2d", "SyncBatchNorm")


class Shared(nn.Module):
    """A model with layers in all places where layers can be, and one of them in two."""

    def __init__(self) -> None:
        self.norm = nn.BatchNorm2d(3)
        self.again = self.norm
        self.row = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU())
        self.many = nn.ModuleList([nn.BatchNorm1d(3), nn.Sequential(nn.BatchNorm3d(3, affine=False))])
        self.named = nn.ModuleDict({"a": nn.BatchNorm1d(3, momentum=None), "b": nn.GroupNorm(1, 3)})

    def forward(self, x: Any) -> Any:
        return self.named["a"](self.many[0](self.again(self.row(self.norm(x))).mean((1, 2))))


def test_conversion_changes_nothing_but_the_class() -> None:
    for make in (Shared, resnet18, lambda: nn.Sequential(nn.BatchNorm2d(3))):
        model = make()
        model.eval()
        for place, parameter in enumerate(model.parameters()):
            parameter.requires_grad = place % 3 > 0
        before, kinds = dict(model.named_tensors()), {name: type(m) for name, m in model.named_modules()}
        every = [name for name, _ in model.named_modules(remove_duplicate=False)]
        converted = convert_sync_batchnorm(model)
        assert converted is model
        after = dict(model.named_tensors())
        assert list(before) == list(after)
        assert all(before[name] is after[name] for name in before)
        norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
        assert [name for name, _ in model.named_modules(remove_duplicate=False)] == every
        for name, module in model.named_modules():
            assert not module.training
            if name in kinds:
                assert type(module) is (SyncBatchNorm if kinds[name] in norms else kinds[name])
        assert not [m for _, m in model.named_modules(remove_duplicate=False) if type(m) in norms]
        again = [module for _, module in model.named_modules()]
        assert [module for _, module in convert_sync_batchnorm(model).named_modules()] == again
    model = Shared()
    model.norm.register_forward_hook(lambda module, args, y: y * 0.0)
    assert SyncBatchNorm.convert_sync_batchnorm(model).norm is model.again  # one layer stays one
    assert float(abs(model.norm(alpha.ones(2, 1, 1, 3))).sum().item()) == 0.0


def test_a_layer_itself_is_converted_anew() -> None:
    for kind, shape in ((nn.BatchNorm1d, (4, 3)), (nn.BatchNorm2d, (2, 2, 2, 3)), (nn.BatchNorm3d, (2, 2, 2, 2, 3))):
        layer = kind(3, eps=1e-3, momentum=0.3)
        made = convert_sync_batchnorm(layer)
        assert type(made) is SyncBatchNorm
        assert type(layer) is kind
        assert made.weight is layer.weight
        x = alpha.tensor(np.random.default_rng(0).standard_normal(shape), dtype="float32")
        assert made(x).numpy().tolist() == kind(3, eps=1e-3, momentum=0.3)(x).numpy().tolist()
        assert convert_sync_batchnorm(made) is made


def test_a_layer_that_does_not_know_its_channels_is_refused() -> None:
    """Such a layer would become a BatchNorm2d of each rank alone."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.LazyBatchNorm2d())
    with pytest.raises(AlphaError, match=r"convert_sync_batchnorm: LazyBatchNorm2d .* call the model once"):
        convert_sync_batchnorm(model)
    model(alpha.randn(2, 2, 2, 3))
    assert type(convert_sync_batchnorm(model)[1]) is SyncBatchNorm


def test_a_shared_norm_is_converted_under_each_name() -> None:
    norm = nn.BatchNorm2d(2)
    made = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(2, 2, 1), norm, nn.Conv2d(2, 2, 1), norm))
    assert type(made[1]) is nn.SyncBatchNorm
    assert made[3] is made[1]
