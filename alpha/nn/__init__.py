"""Modules and layers.

A layer without parameters stands beside its function, in a room of `alpha/ops`. A type checker follows these imports;
`__all__` leaves out the functions, which are in `alpha.nn.functional`.
"""

from alpha.core.names.exports import export as _export
from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.module.module import *
from alpha.module.parameter import *
from alpha.module.state_dict import *
from alpha.nn import functional as functional
from alpha.nn import init as init
from alpha.nn import modules as modules
from alpha.nn import utils as utils
from alpha.nn.adaptive_softmax import *
from alpha.nn.batchnorm import *
from alpha.nn.containers import *
from alpha.nn.convolution import *
from alpha.nn.dragon_norms import *
from alpha.nn.joined_calls import *
from alpha.nn.layers import *
from alpha.nn.lazy import *
from alpha.nn.normalization import *
from alpha.nn.padding import *
from alpha.nn.pooling import *
from alpha.nn.recurrent import *
from alpha.nn.summary import model_summary as model_summary  # importing it gives Module its summary
from alpha.nn.transformer import *
from alpha.ops.activation.parametric import *
from alpha.ops.activation.piecewise import *
from alpha.ops.activation.relu_family import *
from alpha.ops.activation.smooth import *
from alpha.ops.activation.softmax import *
from alpha.ops.image.im2col import *
from alpha.ops.image.interpolate import *
from alpha.ops.image.shuffle import *
from alpha.ops.loss.classes import *
from alpha.ops.loss.ctc import *
from alpha.ops.loss.likelihood import *
from alpha.ops.loss.margin import *
from alpha.ops.loss.probability import *
from alpha.ops.loss.regression import *
from alpha.ops.matmul.distances import *
from alpha.ops.noise.group_dropout import *
from alpha.ops.normalization.group import *
from alpha.ops.pooling.fractional_max_pool import *

_export(globals(), "functional", "init", "modules", "utils", without=vars(functional)["__all__"])

_tell_instead(__name__, {"parallel": "alpha.nn.parallel", "SyncBatchNorm": "alpha.distributed"})
