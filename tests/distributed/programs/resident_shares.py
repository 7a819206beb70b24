"""A data set of which each emulated GPU has room for a share alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from ranks import joined, tell

import alpha
from alpha import nn
from alpha.data import ArrayDataset, DataLoader
from alpha.distributed.process_group import current
from alpha.train import Trainer

COUNT = 13

device = joined()
group: Any = current()
rng = np.random.default_rng(0)
images = rng.integers(0, 256, (COUNT, 2, 2, 3), dtype=np.uint8)
data = ArrayDataset(images, np.arange(COUNT, dtype=np.int32), tuple(f"{n}" for n in range(COUNT)))
alpha.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(12, 1)).to(device)


def step(model: Any, batch: Any) -> Any:
    """The loss, and sums that show which images came, each with its own label."""
    pixels, labels = batch
    numbers = labels.astype("float32")
    return {"loss": model(pixels).mean(), "label": numbers.mean(), "bright": (pixels.sum((1, 2, 3)) * numbers).mean()}


def told(result: Any) -> dict[str, Any]:
    return {"images": result.images, **result.metrics}


def run(memory: int) -> dict[str, Any]:
    """An epoch of training and an evaluation of GPUs with so many bytes, and how many images lie on this one."""
    group.memory = memory
    trainer = Trainer(model, alpha.optim.SGD(model.parameters(), lr=1e-3), device, step=step)
    loader = DataLoader(data, 2, shuffle=True, seed=3)
    trained, tested = (told(result) for result in (trainer.train_epoch(loader), trainer.evaluate(loader)))
    resident = trainer.machine.residents.find(data)
    streamed = told(trainer.evaluate(DataLoader(data, 2, sampler=list(range(COUNT)))))
    return {
        "trained": trained,
        "tested": tested,
        "streamed": streamed,
        "held": 0 if resident is None else len(resident.targets),
        "about": trainer.place.loader,
    }


def goes_on() -> int:
    """Steps of a trainer that has room for the whole, with the state of one behind an epoch in shares."""
    loader, trainers = DataLoader(data, 2, shuffle=True, seed=3), []
    for memory in (3 * nbytes, 5 * nbytes):
        group.memory = memory
        trainers.append(Trainer(model, alpha.optim.SGD(model.parameters(), lr=1e-3), device, step=step))
    trainers[0].train_epoch(loader)
    trainers[1].load_state_dict(trainers[0].state_dict())
    trainers[1].train_epoch(loader)
    return trainers[1].step


nbytes = images.nbytes + data.labels.nbytes
pixels = 2 * images.astype(float) / 255 - 1
exact = {"label": (COUNT - 1) / 2, "bright": float((pixels.sum((1, 2, 3)) * np.arange(COUNT)).mean())}
tell({"whole": run(5 * nbytes), "shares": run(3 * nbytes), "none": run(nbytes), "exact": exact, "goes on": goes_on()})
