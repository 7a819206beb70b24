"""The training loop of the examples: epochs, history, curves, weights on disk, runs that resume."""

from alpha.io.files import make_folder, new_folder
from alpha.io.serialization import load_metadata, load_weights, save_weights
from alpha.train.files.history import History, Result, Row, save_curves
from alpha.train.files.run import Run
from alpha.train.interrupt import Interrupted, interrupt_between_steps
from alpha.train.trainer import Trainer

__all__ = [
    "History",
    "Interrupted",
    "Result",
    "Row",
    "Run",
    "Trainer",
    "interrupt_between_steps",
    "load_metadata",
    "load_weights",
    "make_folder",
    "new_folder",
    "save_curves",
    "save_weights",
]
