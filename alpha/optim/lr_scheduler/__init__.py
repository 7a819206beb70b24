"""Learning-rate schedules: call `step()` after each optimizer step, or after each epoch."""

from alpha.core.names.exports import export as _export
from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.optim.lr_scheduler.base import *
from alpha.optim.lr_scheduler.base import LRScheduler
from alpha.optim.lr_scheduler.combined import *
from alpha.optim.lr_scheduler.cosine import *
from alpha.optim.lr_scheduler.cycle import *
from alpha.optim.lr_scheduler.factors import *
from alpha.optim.lr_scheduler.plateau import *

_LRScheduler = LRScheduler  # its older name, by which schedules of PyTorch's programs know their base

_export(globals())

_tell_instead(__name__)
