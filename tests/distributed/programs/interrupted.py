"""A plain program that a signal stops, and that does not catch it: interrupted.py RANK SIGNAL WHEN FOLDER.

The signal comes to one rank before a step, within the last epoch's callbacks, or outside of `fit`. Rank 0 takes longer
to write than the others wait for a rank that is gone.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from ranks import joined

import alpha
from alpha import distributed as dist
from alpha import nn
from alpha.data import ArrayDataset, DataLoader
from alpha.train import Callback, Run, Trainer
from alpha.train.files import run as files

faulty, name, when, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
EPOCHS = 3
joined()
save_state = files.save_state


def slow(*arguments: Any) -> None:
    if (Path(folder) / "checkpoint.safetensors").exists():  # the first one is there at once
        time.sleep(6)
    save_state(*arguments)


files.save_state = slow
rng = np.random.default_rng(0)
images = rng.integers(0, 256, (24, 2, 2, 3), dtype=np.uint8)
data = ArrayDataset(images, rng.integers(0, 4, 24).astype(np.int32), tuple("abcd"))
model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4))
trainer = Trainer(model, alpha.optim.Adam(model.parameters()), "cpu")
run = Run.start({}, folder, folder)


def stop() -> None:
    if dist.rank() == faulty:
        os.kill(os.getpid(), getattr(signal, name))


class Stop(Callback):
    def on_epoch(self, fit: Any) -> None:
        if len(fit.rows) == {"steps": 2, "last": EPOCHS}.get(when):
            stop()


trainer.fit(DataLoader(data, 4, shuffle=True, seed=1), None, EPOCHS, run=run, callbacks=[Stop()])
if when == "outside":
    stop()
    dist.barrier()
