"""Trainers with what makes ranks differ: draws of one rank, frozen layers, several passes, means of weights, a stop."""

from __future__ import annotations

from typing import Any

import numpy as np
from ranks import joined, tell

import alpha
from alpha import distributed as dist
from alpha import nn
from alpha.data import ArrayDataset, DataLoader
from alpha.errors import DistributedError
from alpha.nn import functional as F
from alpha.train import Callback, Trainer

early = Trainer(nn.Linear(2, 2), alpha.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1), "cpu")
device = joined()
rank = dist.rank()
seen: list[int] = []


class Seen(ArrayDataset):
    """Notes which images are asked for, by their first pixel."""

    def batch(self, indices: Any) -> Any:
        seen.extend(int(index) for index in indices)
        return super().batch(indices)


def data(count: int) -> Seen:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, 2, 2, 3), dtype=np.uint8)
    return Seen(images, rng.integers(0, 3, count).astype(np.int32), tuple("abc"))


def model_of() -> Any:
    alpha.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3)).to(device)


def trainer_of(model: Any, **settings: Any) -> Trainer:
    return Trainer(model, alpha.optim.SGD(model.parameters(), lr=0.1), device, **settings)


def weights(model: Any) -> list[float]:
    return [float(np.abs(value.numpy()).sum()) for value in model.parameters()]


def orders() -> list[list[int]]:
    """The images of two epochs; rank 0 draws by itself before each."""
    trainer, loader = trainer_of(model_of()), DataLoader(data(12), 2, shuffle=True)
    found = []
    for _ in range(2):
        if rank == 0:
            alpha.rand(3)
        seen.clear()
        trainer.train_epoch(loader)
        found.append(list(seen))
    return found


def unfrozen() -> list[float]:
    model = model_of()
    model[0].requires_grad_(False)
    trainer, loader = trainer_of(model), DataLoader(data(12), 2, shuffle=True, seed=0)
    trainer.train_epoch(loader)
    model[0].requires_grad_(True)
    trainer.train_epoch(loader)
    model[3].requires_grad_(False)
    trainer.train_epoch(loader)
    return weights(model)


class Two(nn.Module):
    def __init__(self) -> None:
        self.maker, self.judge = nn.Linear(3, 12), nn.Linear(12, 1)


def adversaries() -> list[float]:
    alpha.manual_seed(0)
    model = Two().to(device)
    sides = [alpha.optim.SGD(part.parameters(), lr=0.1) for part in (model.maker, model.judge)]

    def step(model: Any, batch: Any) -> Any:
        images, labels = batch
        made = model.maker(F.one_hot(labels, 3).astype("float32"))
        judged = (model.judge(images.flatten(1)) - model.judge(made.detach())).mean()
        sides[1].zero_grad()
        judged.backward()
        sides[1].step()
        sides[0].zero_grad()
        (-model.judge(made).mean()).backward()
        sides[0].step()
        return judged.detach()

    trainer = Trainer(model, sides, device, step=step)
    trainer.train_epoch(DataLoader(data(12), 2, shuffle=True, seed=0))
    return weights(model)


def averaged() -> list[float]:
    """Loss by the mean of the weights, of an evaluation of all ranks and of one on the whole set; and the outputs."""
    trainer = trainer_of(model_of(), ema=0.5)
    trainer.train_epoch(DataLoader(data(12), 2, shuffle=True, seed=0))
    test = DataLoader(data(7), 2)
    loss, outputs = trainer.evaluate(test).loss, trainer.predict(test)
    whole, labels = alpha.tensor(outputs, device=device), alpha.tensor(data(7).labels, device=device)
    return [loss, F.cross_entropy(whole, labels).item(), float(np.abs(outputs).sum())]


def named() -> dict[str, float]:
    """Numbers of an evaluation of which only rank 0 has an image."""

    def step(model: Any, batch: Any) -> Any:
        loss = F.cross_entropy(model(batch[0]), batch[1])
        return {"loss": loss, "double": 2 * loss}

    trainer = trainer_of(model_of(), step=step)
    result = trainer.evaluate(DataLoader(data(1), 2))
    return {"loss": result.loss, **result.metrics}


class Enough(Callback):
    def on_epoch(self, fit: Any) -> None:
        if rank == 1:
            fit.stopping = "enough"


def stopped() -> int:
    return len(trainer_of(model_of()).fit(DataLoader(data(12), 2), None, 5, callbacks=[Enough()], show=None))


def refused(call: Any) -> str:
    try:
        call()
    except DistributedError as error:
        return str(error)
    return ""


found: dict[str, Any] = {
    "early": refused(lambda: early.train_epoch(DataLoader(data(12), 2))),
    "orders": orders(),
    "unfrozen": unfrozen(),
    "adversaries": adversaries(),
    "averaged": averaged(),
    "named": named(),
    "stopped": stopped(),
    "steps": [trainer_of(model_of()).steps_of(DataLoader(data(11), 2, drop_last=last)) for last in (False, True)],
}
tell(found)
