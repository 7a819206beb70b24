"""Optimizers and learning-rate schedules."""

from alpha.optim.adam import Adam, AdamW
from alpha.optim.lr_scheduler import CosineAnnealingLR, LRScheduler
from alpha.optim.optimizer import Optimizer
from alpha.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "CosineAnnealingLR", "LRScheduler", "Optimizer"]
