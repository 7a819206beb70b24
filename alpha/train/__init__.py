"""The training loop of the examples: epochs, history, curves, weights on disk."""

from alpha.train.checkpoint import load_metadata, load_weights, save_weights
from alpha.train.curves import save_curves
from alpha.train.files import make_folder
from alpha.train.history import History, Result, Row
from alpha.train.trainer import Trainer

__all__ = [
    "History",
    "Result",
    "Row",
    "Trainer",
    "load_metadata",
    "load_weights",
    "make_folder",
    "save_curves",
    "save_weights",
]
