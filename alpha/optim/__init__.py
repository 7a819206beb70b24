"""Optimizers."""

from alpha.optim.adam import Adam, AdamW
from alpha.optim.lr_scheduler import CosineAnnealing
from alpha.optim.optimizer import Optimizer
from alpha.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "CosineAnnealing", "Optimizer"]
