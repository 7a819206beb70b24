"""A Trainer on a part of the data: trainer.py FOLDER GLOBAL_BATCH EPOCHS [option] ..

The run in FOLDER goes on if there is one. `stop` lets that rank get Ctrl-C in its 8th step.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
from ranks import DEVICE, joined, tell

import alpha
from alpha import distributed as dist
from alpha import nn
from alpha.data import ArrayDataset, DataLoader, RandomSampler
from alpha.distributed.membership.environment import place_of
from alpha.train import Callback, ConfusionMatrix, Interrupted, Run, Trainer

folder, batch, epochs, *rest = sys.argv[1:]
options = dict(word.split("=") if "=" in word else (word, "1") for word in rest)
device = joined() if place_of().world_size > 1 else os.environ[DEVICE]
size = int(batch) // dist.world_size()

rng = np.random.default_rng(0)


def dataset(count: int) -> ArrayDataset:
    images = rng.integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    return ArrayDataset(images, rng.integers(0, 4, count).astype(np.int32), tuple("abcd"))


train_set, test_set = dataset(48), dataset(19)
alpha.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(96, 4)).to(device)
if "zero" in options:
    optimizer: Any = dist.ZeroRedundancyOptimizer(model.parameters(), alpha.optim.Adam, lr=1e-2)
else:
    optimizer = alpha.optim.Adam(model.parameters(), lr=1e-2)
settings: dict[str, Any] = {"accumulate": int(options.get("accumulate", 1))}
if "clip" in options:
    settings["clip_norm"] = 0.1
if "metrics" in options:
    settings["metrics"] = {"confusion": ConfusionMatrix(4)}
trainer = Trainer(model, optimizer, device, **settings)
if "sampler" in options:
    loader = DataLoader(train_set, size, sampler=RandomSampler(train_set, seed=1))
else:
    loader = DataLoader(train_set, size, shuffle=True, seed=1)


class Stop(Callback):
    """Sends Ctrl-C to one rank, some steps after the start."""

    def on_start(self, fit: Any) -> None:
        if "stop" in options and int(options["stop"]) == dist.rank():
            count = trainer.machine.ranks.count_step

            def counted() -> None:
                count()
                if trainer.machine.ranks._group.watch.begun == 8:  # type: ignore[union-attr]
                    os.kill(os.getpid(), signal.SIGINT)

            trainer.machine.ranks.count_step = counted  # type: ignore[method-assign]


resumed = (Path(folder) / "checkpoint.safetensors").exists()
run = Run.resume(folder) if resumed else Run.start({}, folder, folder)
if resumed:
    run.restore(trainer)
found: dict[str, Any] = {}
try:
    trainer.fit(loader, DataLoader(test_set, size), int(epochs), run=run, callbacks=[Stop()])
except Interrupted:
    found["stopped"] = trainer.epoch, trainer.step
run.close()
rows = run.history.rows
found["losses"] = [number for row in rows for number in (row.train_loss, row.test_loss, row.test_accuracy)]
found["accuracies"] = [row.train_accuracy for row in rows]
found["weights"] = [parameter.numpy().reshape(-1).tolist() for parameter in model.parameters()]
found["predicted"] = trainer.predict(DataLoader(test_set, size)).shape
if "metrics" in options:
    found["confusion"] = np.asarray(trainer.evaluate(DataLoader(test_set, size)).metrics["confusion"]).tolist()
tell(found)
