"""Every operator as a function on tensors, under PyTorch's names; images are NHWC.

A room of `alpha/ops` says in its `__all__` what it offers, and a type checker follows these imports. `__all__` of this
module leaves out the layers, which some rooms have beside their functions.
"""

from alpha.core.names.exports import export as _export
from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.module.module import Module as _Module
from alpha.ops.activation.activation_inplace import *
from alpha.ops.activation.parametric import *
from alpha.ops.activation.piecewise import *
from alpha.ops.activation.relu_family import *
from alpha.ops.activation.smooth import *
from alpha.ops.activation.softmax import *
from alpha.ops.api.names import *
from alpha.ops.api.operators import *
from alpha.ops.api.other_names import *
from alpha.ops.array.axes import *
from alpha.ops.array.diagonals import *
from alpha.ops.array.joining import *
from alpha.ops.array.layout import *
from alpha.ops.array.pad import *
from alpha.ops.array.shapes import *
from alpha.ops.array.stacks import *
from alpha.ops.array.triangles import *
from alpha.ops.convolution import *
from alpha.ops.image.grid_sample import *
from alpha.ops.image.im2col import *
from alpha.ops.image.interpolate import *
from alpha.ops.image.shuffle import *
from alpha.ops.indexing.gather_scatter import *
from alpha.ops.indexing.index_functions import *
from alpha.ops.indexing.where import *
from alpha.ops.indexing.written_parts import *
from alpha.ops.kernel.sums import *
from alpha.ops.loss.classes import *
from alpha.ops.loss.ctc import *
from alpha.ops.loss.likelihood import *
from alpha.ops.loss.margin import *
from alpha.ops.loss.probability import *
from alpha.ops.loss.regression import *
from alpha.ops.math.binary import *
from alpha.ops.math.bitwise import *
from alpha.ops.math.clamp import *
from alpha.ops.math.comparison import *
from alpha.ops.math.division import *
from alpha.ops.math.integers import *
from alpha.ops.math.lerp import *
from alpha.ops.math.maximum_minimum import *
from alpha.ops.math.nan_to_num import *
from alpha.ops.math.signs import *
from alpha.ops.math.special import *
from alpha.ops.math.unary import *
from alpha.ops.matmul.covariance import *
from alpha.ops.matmul.distances import *
from alpha.ops.matmul.embedding import *
from alpha.ops.matmul.embedding_bag import *
from alpha.ops.matmul.matmul import *
from alpha.ops.matmul.matrix_powers import *
from alpha.ops.matmul.products import *
from alpha.ops.noise.dropout import *
from alpha.ops.noise.group_dropout import *
from alpha.ops.noise.random import *
from alpha.ops.normalization.batch_norm import *
from alpha.ops.normalization.group import *
from alpha.ops.pooling.adaptive_pool import *
from alpha.ops.pooling.avg_pool import *
from alpha.ops.pooling.fractional_max_pool import *
from alpha.ops.pooling.lp_pool import *
from alpha.ops.pooling.max_pool import *
from alpha.ops.pooling.max_unpool import *
from alpha.ops.reduction.counting import *
from alpha.ops.reduction.extremes import *
from alpha.ops.reduction.integrals import *
from alpha.ops.reduction.norm import *
from alpha.ops.reduction.prod import *
from alpha.ops.reduction.quantiles import *
from alpha.ops.reduction.running_extremes import *
from alpha.ops.reduction.scan import *
from alpha.ops.reduction.scatter_reduce import *
from alpha.ops.reduction.sort import *
from alpha.ops.reduction.spread_rows import *
from alpha.ops.reduction.sums_without_nan import *
from alpha.ops.reduction.variance import *
from alpha.ops.sequence.attention import *
from alpha.ops.sequence.multi_head_attention import *

_LAYERS = {name for name, value in globals().items() if isinstance(value, type) and issubclass(value, _Module)}
_export(globals(), without=_LAYERS)

_tell_instead(__name__)
