"""Some steps of both sides from the same weights on the same batches without dropout, their losses side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import alpha
from alpha import distributed, nn
from alpha.data.dataset import classes_of
from compare.networks import twin
from compare.ranks import data_parallel, gather_alpha
from compare.sides import initial_model
from compare.spec import Dataset, Spec
from compare.twins import copy_weights

Step = Callable[[np.ndarray, np.ndarray], float]  # pixels (N, H, W, 3) in [-1, 1] and labels -> loss


def without_dropout(model: Any) -> Any:
    """The model with the probability of each dropout (p) and of each stochastic depth (drop_prob) set to zero."""
    for layer in model.modules():
        for name in ("p", "drop_prob"):
            if hasattr(layer, name):
                setattr(layer, name, 0.0)
    return model


def alpha_step(spec: Spec, classes: int, dtype: str) -> Step:
    """A step of Alpha's."""
    model = without_dropout(initial_model(spec, classes)).astype(dtype).to(spec.device)
    run = alpha.DataParallel(model) if spec.ranks > 1 else model
    optimizer = alpha.optim.Adam(model.parameters(), lr=spec.lr)

    def step(pixels: np.ndarray, labels: np.ndarray) -> float:
        x = alpha.tensor(pixels.astype(dtype), device=spec.device)
        with alpha.precision(spec.precision), alpha.memory_mode(spec.memory_mode):
            loss = nn.functional.cross_entropy(run(x), alpha.tensor(labels, device=spec.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return float(loss.item())

    return step


def torch_step(spec: Spec, classes: int, dtype: str, channels_last: bool) -> Step:
    """A step of PyTorch's."""
    import torch

    tf32 = spec.precision != "float32"
    kind, layout = getattr(torch, dtype), torch.channels_last if channels_last else torch.contiguous_format
    model: Any = copy_weights(initial_model(spec, classes), twin(spec.model, classes, spec.image_size))
    without_dropout(model).to(spec.device, kind, memory_format=layout)
    run: Any = data_parallel(model) if spec.ranks > 1 else model
    optimizer = torch.optim.Adam(model.parameters(), lr=spec.lr)

    def step(pixels: np.ndarray, labels: np.ndarray) -> float:
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
        x = torch.from_numpy(pixels).permute(0, 3, 1, 2).to(spec.device, kind).contiguous(memory_format=layout)
        with torch.autocast(spec.device, torch.bfloat16, enabled=spec.precision == "bf16"):
            loss = torch.nn.functional.cross_entropy(run(x), torch.from_numpy(labels).long().to(spec.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def compare_losses(specs: list[Spec], data: Dataset, steps: int) -> list[str]:
    """Print each step's losses; the largest relative distance of each side to the first, as lines.

    Each of several ranks takes its part of a batch of all of them, and a loss is the mean over the ranks.
    """
    classes = len(classes_of(data))
    sides: dict[str, Step] = {}
    if specs[0].device == "cpu":  # in float64 rounding is out of the way
        sides["PyTorch float64"] = torch_step(specs[0], classes, "float64", False)
        sides["Alpha float64"] = alpha_step(specs[0], classes, "float64")
    for spec in specs:
        suffix = "" if spec.precision == "float32" else f" {spec.precision}"
        sides[f"PyTorch NCHW{suffix}"] = torch_step(spec, classes, "float32", False)
        sides[f"PyTorch channels_last{suffix}"] = torch_step(spec, classes, "float32", True)
        sides[f"Alpha{suffix}"] = alpha_step(spec, classes, "float32")
    first = next(iter(sides))
    worst = dict.fromkeys(sides, 0.0)
    rank, ranks, size = distributed.rank(), specs[0].ranks, specs[0].ranks * specs[0].batch_size
    order = np.random.default_rng(0).permutation(len(data))
    print("step  " + "".join(f"{name:>28}" for name in sides))
    for number in range(steps):
        rows = np.take(order, range(number * size, (number + 1) * size), mode="wrap")
        images, labels = data.batch(rows[rank::ranks])
        pixels = images.astype(np.float32) * np.float32(2 / 255) - 1
        losses = {name: step(pixels, labels) for name, step in sides.items()}
        if ranks > 1:
            means = np.mean(gather_alpha(list(losses.values())), axis=0).tolist()
            losses = dict(zip(losses, means, strict=True))
        for name, loss in losses.items():
            worst[name] = max(worst[name], abs(loss - losses[first]) / losses[first])
        print(f"{number + 1:4}  " + "".join(f"{loss:28.7f}" for loss in losses.values()), flush=True)
    return [f"{name}: at most {far:.1e} from {first}, relative" for name, far in worst.items() if name != first]
