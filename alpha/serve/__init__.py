"""Predictions for many callers at once: `Predictor`, for any thread, and what it is made of."""

from alpha.serve.batcher import Batcher, Statistics
from alpha.serve.folding import fold_batch_norms
from alpha.serve.predictor import Predictor

__all__ = ["Batcher", "Predictor", "Statistics", "fold_batch_norms"]
