"""SyncBatchNorm on parts of a batch beside BatchNorm on the whole batch: how far apart they are, by case."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from ranks import joined, tell

import alpha
from alpha import distributed as dist
from alpha import nn
from alpha.models import resnet18

PLAIN = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}  # by the number of axes
AXES: dict[int, tuple[int, ...]] = {2: (), 3: (3,), 4: (2, 3), 5: (2, 1, 2)}
STEPS = 3

device = joined()
rank, world = dist.rank(), dist.world_size()
found: dict[str, float] = {}


def far(ours: Any, wanted: Any) -> float:
    """The largest difference, as a part of the largest number or of 1; inf if one has what the other has not."""
    if ours is None or wanted is None:
        return 0.0 if ours is wanted else float("inf")
    a, b = (np.asarray(value.astype("float64").numpy()) for value in (ours, wanted))
    if a.shape != b.shape or not np.isfinite(a).all():
        return float("inf")
    return float(np.abs(a - b).max(initial=0.0) / max(1.0, np.abs(b).max(initial=0.0)))


def total(tensor: Any) -> Any:
    """The sum over all ranks of a gradient."""
    return None if tensor is None else dist.all_reduce(tensor.clone())


def compare(name: str, **pairs: tuple[Any, Any]) -> None:
    for part, (ours, wanted) in pairs.items():
        found[f"{name}: {part}"] = max(found.get(f"{name}: {part}", 0.0), far(ours, wanted))


def same(model: Any, whole: Any, dtype: str) -> None:
    """Give both the same random weights, biases and running variances."""
    draw = np.random.default_rng(9)
    values = {key: value for key, value in whole.state_dict().items() if value.dtype.kind == "f"}
    for value in values.values():
        value[...] = draw.uniform(0.5, 2.0, value.shape)
    for each in (model, whole):
        each.to(dtype)
        each.load_state_dict({**each.state_dict(), **values})


def case(
    name: str,
    shape: tuple[int, ...],
    rows: list[int],
    dtype: str,
    change: Callable[[Any], object] = lambda norm: None,
    checkpointed: bool = False,
    needs: bool = True,
    **options: Any,
) -> None:
    """Compare some training steps, and an evaluation behind each.

    Args:
        shape: of a row, without the channels before.
        rows: of each rank.
        change: is done to both layers when they are made.
        needs: x wants a gradient.
    """
    channels, (*axes,) = 5, shape
    norm, whole = nn_sync(channels, **options), PLAIN[len(axes) + 2](channels, **options)
    same(norm, whole, "float32" if dtype == "bfloat16" else dtype)
    for layer in (norm, whole):
        layer.to(device)
        change(layer)
    first, behind = sum(rows[:rank]), sum(rows[: rank + 1])
    draw = np.random.default_rng(len(name))
    for _ in range(STEPS):
        size = (sum(rows), *axes, channels)
        places = np.repeat(np.arange(world), rows).reshape(-1, *[1] * (len(axes) + 1))  # means lie far apart
        x_all, g_all = draw.standard_normal(size) * 2 + 3 * places, draw.standard_normal(size)
        x_whole, g_whole = (alpha.tensor(v, dtype="float64", device=device).astype(dtype) for v in (x_all, g_all))
        x, g = (alpha.tensor(v[first:behind], dtype="float64", device=device).astype(dtype) for v in (x_all, g_all))
        if needs:
            x.requires_grad = x_whole.requires_grad = True
        for layer in (norm, whole):
            layer.train()
            layer.zero_grad()
        y = alpha.checkpoint(norm, x) if checkpointed else norm(x)
        y_whole = whole(x_whole)
        compare(name, forward=(y, y_whole[first:behind]))
        if y.requires_grad:
            (y * g).sum().backward()
            (y_whole * g_whole).sum().backward()
        elif y_whole.requires_grad:
            found[f"{name}: no gradient"] = float("inf")
        if needs:
            assert x_whole.grad is not None
            compare(name, dx=(x.grad, x_whole.grad[first:behind]))
        for part in ("weight", "bias"):
            ours, wanted = getattr(norm, part), getattr(whole, part)
            assert (ours is None) == (wanted is None)
            if ours is not None:
                compare(name, **{f"d{part}": (total(ours.grad), wanted.grad)})
        for part in ("running_mean", "running_var", "num_batches_tracked"):
            compare(name, **{part: (getattr(norm, part), getattr(whole, part))})
        norm.eval()
        whole.eval()
        if norm.running_mean is not None:
            compare(name, evaluation=(norm(x.detach()), whole(x_whole.detach())[first:behind]))
        elif min(rows) > 1:  # by the rank's own batch: ranks evaluate different numbers of them
            compare(name, evaluation=(norm(x.detach()), whole(x.detach())))


def nn_sync(channels: int, **options: Any) -> Any:
    return dist.SyncBatchNorm(channels, **options)


def set_momentum(norm: Any) -> None:
    """Let the running statistics be new ones, whose batches are counted from now on."""
    norm.reset_running_stats()
    norm.momentum = None


def all_cases(dtype: str) -> None:
    some = [2 + 3 * ((r + 1) % world) for r in range(world)]  # of each rank another number
    for count, axes in AXES.items():
        case(f"{count} axes", axes, [3] * world, dtype)
        case(f"{count} axes, uneven", axes, some, dtype)
    case("a row each", (), [1] * world, dtype)
    options: dict[str, dict[str, Any]] = {
        "no affine": {"affine": False},
        "no bias": {"bias": False},
        "no running": {"track_running_stats": False},
        "neither": {"affine": False, "track_running_stats": False},
        "mean": {"momentum": None},
        "slow": {"momentum": 0.01, "eps": 1e-2},
        "corrected": {"bias_correction": True},
    }
    changes: dict[str, Callable[[Any], object]] = {
        "momentum later": set_momentum,
        "no running later": lambda norm: setattr(norm, "track_running_stats", False),
        "counted, momentum later": lambda norm: setattr(norm, "momentum", 0.3),
        "frozen weight": lambda norm: setattr(norm.weight, "requires_grad", False),
    }
    for name, given in options.items():
        for checkpointed in (False, True):
            case(f"{name}{', checkpoint' * checkpointed}", (2, 2), some, dtype, checkpointed=checkpointed, **given)
        case(f"{name}, x needs none", (2, 2), some, dtype, needs=False, **given)
    for name, change in changes.items():
        given = {"momentum": None} if name.startswith("counted") else {}
        case(name, (2, 2), some, dtype, change, **given)
    draw = np.random.default_rng(4)  # any numbers of rows, with any options
    for number in range(12):
        rows = [int(n) for n in draw.integers(1, 6, world)]
        axes = AXES[int(draw.integers(2, 6))]
        given = options[list(options)[int(draw.integers(len(options)))]]
        case(f"random {number} {rows} {axes} {given}", axes, rows, dtype, checkpointed=number % 3 == 0, **given)


def network() -> None:
    """A ResNet18 whose layers are converted, on parts of a batch, beside itself on the whole batch."""
    made = []
    for _ in range(2):
        alpha.manual_seed(1)
        model = resnet18().to("float64")
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        made.append(model)
    model, whole = dist.convert_sync_batchnorm(made[0]), made[1]
    assert not [m for m in model.modules() if type(m) is nn.BatchNorm2d]
    images = np.random.default_rng(0).standard_normal((2 * world, 32, 32, 3))
    own = slice(2 * rank, 2 * rank + 2)
    for step in range(2):
        y, y_whole = model(alpha.tensor(images[own])), whole(alpha.tensor(images))
        compare("resnet18", forward=(y, y_whole[own]))
        for out in (y, y_whole):
            (out * out).sum().backward()
        for (name, parameter), wanted in zip(model.named_parameters(), whole.parameters(), strict=True):
            grad = total(parameter.grad)
            compare("resnet18", **{f"gradient of {name}": (grad, wanted.grad)})
            for each in (parameter, wanted):
                each.data.add_(wanted.grad * (-1e-3 / (1 + step)))
                each.grad = None
    for (name, buffer), wanted in zip(model.named_buffers(), whole.buffers(), strict=True):
        compare("resnet18", **{name: (buffer, wanted)})
    x = alpha.tensor(images)
    compare("resnet18", evaluation=(model.eval()(x), whole.eval()(x)))


def errors() -> dict[str, str]:
    """Messages for batches that cannot be, on the last rank alone, without any of the others."""
    texts = {}
    norm = nn_sync(4)
    for name, x in {
        "no rows": alpha.zeros(0, 3, 3, 4),
        "no places": alpha.zeros(2, 0, 3, 4),
        "channels": alpha.zeros(2, 3, 3, 5),
        "axes": alpha.zeros(4),
        "no tensor": [[1.0, 2.0, 3.0, 4.0]],
        "integers": alpha.zeros(2, 4, dtype="int64"),
    }.items():
        if rank == world - 1:
            try:
                norm(x)
                texts[name] = "nothing"
            except Exception as error:
                texts[name] = f"{type(error).__name__}: {error}"
    norm(alpha.randn(3, 4))  # the ranks are together as before
    return texts


what = sys.argv[1]
texts: dict[str, str] = {}
if what == "layers":
    all_cases("float64")
    texts = errors()
elif what == "bfloat16":
    case("bfloat16", (2, 2), [3, 4, 2][:world], "bfloat16")
    case("float32", (2, 2), [3, 4, 2][:world], "float32")
elif what == "network":
    network()
else:
    case("gpu", (2, 2), [3, 2][:world], "float32")
    case("gpu, checkpoint", (2, 2), [3, 2][:world], "float32", checkpointed=True, momentum=None)
tell([found, texts])
