"""Optimizers and learning-rate schedules."""

from alpha.core.names.exports import export as _export
from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.optim import swa_utils as swa_utils
from alpha.optim.adadelta import *
from alpha.optim.adafactor import *
from alpha.optim.adagrad import *
from alpha.optim.adam import *
from alpha.optim.asgd import *
from alpha.optim.lbfgs import *
from alpha.optim.lion import *
from alpha.optim.lr_scheduler import *
from alpha.optim.muon import *
from alpha.optim.optimizer import *
from alpha.optim.rmsprop import *
from alpha.optim.rprop import *
from alpha.optim.sgd import *

_export(globals())

_tell_instead(__name__)
