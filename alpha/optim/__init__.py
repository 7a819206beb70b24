"""Optimizers and learning-rate schedules."""

from alpha.exports import export as _export
from alpha.optim.adam import *
from alpha.optim.lr_scheduler import *
from alpha.optim.optimizer import *
from alpha.optim.sgd import *

_export(globals())
