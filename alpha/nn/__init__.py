"""Modules and layers.

A layer without parameters stands beside its function, in a room of `alpha/ops`. A type checker follows these imports;
`__all__` leaves out the functions, which are in `alpha.nn.functional`.
"""

from alpha.exports import export as _export
from alpha.missing_names import tell_instead as _tell_instead
from alpha.module import *
from alpha.nn import functional as functional
from alpha.nn import init as init
from alpha.nn import modules as modules
from alpha.nn import utils as utils
from alpha.nn.adaptive_pooling import *
from alpha.nn.adaptive_softmax import *
from alpha.nn.attention import *
from alpha.nn.batchnorm import *
from alpha.nn.batchnorm_variants import *
from alpha.nn.containers import *
from alpha.nn.convolution import *
from alpha.nn.embedding_bag import *
from alpha.nn.instance_norm import *
from alpha.nn.layers import *
from alpha.nn.lazy import *
from alpha.nn.lazy_convolution import *
from alpha.nn.normalization import *
from alpha.nn.padding import *
from alpha.nn.parameter_containers import *
from alpha.nn.pooling import *
from alpha.nn.recurrent import *
from alpha.nn.recurrent_cells import *
from alpha.nn.transformer import *
from alpha.ops.activation import *
from alpha.ops.activation_derived import *
from alpha.ops.activation_piecewise import *
from alpha.ops.activation_sloped import *
from alpha.ops.activation_smooth import *
from alpha.ops.dropout_groups import *
from alpha.ops.fractional_max_pool import *
from alpha.ops.interpolate import *
from alpha.ops.local_response_norm import *
from alpha.ops.loss import *
from alpha.ops.loss_ctc import *
from alpha.ops.loss_distance import *
from alpha.ops.loss_likelihood import *
from alpha.ops.loss_margin import *
from alpha.ops.loss_probability import *
from alpha.ops.loss_regression import *
from alpha.ops.loss_signs import *
from alpha.ops.loss_triplet import *
from alpha.ops.shuffle import *
from alpha.ops.similarity import *
from alpha.ops.softmax import *
from alpha.ops.unfold import *
from alpha.state_dict import *
from alpha.uninitialized import *

_export(globals(), "functional", "init", "modules", "utils", without=vars(functional)["__all__"])

_tell_instead(__name__)
