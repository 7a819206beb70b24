"""Writes training_losses.json: PyTorch's losses of ten steps of the small networks.

python tests/golden/make_training_losses.py        (needs torch)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent / "models"))

import small_nets  # noqa: E402
import torch  # noqa: E402
import torch_twins  # noqa: E402

if __name__ == "__main__":
    losses = {name: torch_twins.train(torch_twins.twin(name)) for name in small_nets.MAKE}
    facts = {"torch": torch.__version__, "losses": losses}
    (FOLDER / "training_losses.json").write_text(json.dumps(facts, indent=1) + "\n")
