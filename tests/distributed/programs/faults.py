"""One rank with a fault: faults.py FAULT RANK FOLDER. Two epochs are saved before it."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from ranks import joined, tell

import alpha
from alpha import distributed as dist
from alpha import nn
from alpha.data import ArrayDataset, DataLoader
from alpha.train import Callback, Run, Trainer

fault, faulty, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
device = joined(timeout=3.0)
mine = dist.rank() == faulty
rng = np.random.default_rng(0)
count = 1 if fault == "no data" else 24
images = rng.integers(0, 256, (count, 2, 2, 3), dtype=np.uint8)
data = ArrayDataset(images, rng.integers(0, 4, count).astype(np.int32), tuple("abcd"))


class Fault(Callback):
    """Does its harm after two epochs."""

    def on_epoch(self, fit: Any) -> None:
        if len(fit.rows) != 3 or not mine:
            return
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "raise":
            raise ValueError("a bad batch")
        if fault == "hang":
            time.sleep(10_000)
        if fault == "spin":
            while True:
                pass
        if fault == "exit":
            sys.exit(0)


if fault == "full disk" and mine:
    replace = os.replace

    def full(source: Any, target: Any, **options: Any) -> None:
        if "checkpoint" in str(target) and Path(target).exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target, **options)

    os.replace = full
alpha.manual_seed(1 if fault == "seed" and mine else 0)
wide = 5 if fault == "shape" and mine else 4
model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Linear(8, wide))
if fault == "names" and mine:
    model.extra = nn.Linear(2, 2)
if fault == "frozen" and mine:
    model[1].requires_grad_(False)
size, seed = 2 if fault == "batch" and mine else 4, 2 if fault == "order" and mine else 1
loader = DataLoader(data, size, shuffle=True, seed=seed)
model.to(device)
trainer = Trainer(model, alpha.optim.Adam(model.parameters()), device)
run = Run.start({}, folder, folder)
trainer.fit(loader, None, 6, run=run, callbacks=[Fault()])
run.close()
tell("the end")
