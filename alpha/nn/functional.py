"""Every operator as a function on tensors, under PyTorch's names; images are NHWC.

A room of `alpha/ops` says in its `__all__` what it offers, and a type checker follows these imports. `__all__` of this
module leaves out the layers, which some rooms have beside their functions.
"""

from alpha.exports import export as _export
from alpha.missing_names import tell_instead as _tell_instead
from alpha.module import Module as _Module
from alpha.ops.activation import *
from alpha.ops.activation_derived import *
from alpha.ops.activation_inplace import *
from alpha.ops.activation_piecewise import *
from alpha.ops.activation_sloped import *
from alpha.ops.activation_smooth import *
from alpha.ops.adaptive_pool import *
from alpha.ops.arithmetic import *
from alpha.ops.attention import *
from alpha.ops.avg_pool import *
from alpha.ops.axes import *
from alpha.ops.batchnorm import *
from alpha.ops.bitwise import *
from alpha.ops.blend import *
from alpha.ops.bounds import *
from alpha.ops.checks import *
from alpha.ops.choices import *
from alpha.ops.convolution import *
from alpha.ops.counting import *
from alpha.ops.diagonals import *
from alpha.ops.distances import *
from alpha.ops.division import *
from alpha.ops.dropout import *
from alpha.ops.dropout_groups import *
from alpha.ops.embedding import *
from alpha.ops.embedding_bag import *
from alpha.ops.extremes import *
from alpha.ops.fractional_max_pool import *
from alpha.ops.gathering import *
from alpha.ops.grid_sample import *
from alpha.ops.index_writing import *
from alpha.ops.instance_norm import *
from alpha.ops.integrals import *
from alpha.ops.interpolate import *
from alpha.ops.joining import *
from alpha.ops.layout import *
from alpha.ops.local_response_norm import *
from alpha.ops.logarithms import *
from alpha.ops.loss import *
from alpha.ops.loss_ctc import *
from alpha.ops.loss_distance import *
from alpha.ops.loss_likelihood import *
from alpha.ops.loss_margin import *
from alpha.ops.loss_probability import *
from alpha.ops.loss_regression import *
from alpha.ops.loss_signs import *
from alpha.ops.loss_triplet import *
from alpha.ops.lp_pool import *
from alpha.ops.matmul import *
from alpha.ops.matrices import *
from alpha.ops.max_pool import *
from alpha.ops.max_unpool import *
from alpha.ops.moments import *
from alpha.ops.multi_head_attention import *
from alpha.ops.normalization import *
from alpha.ops.operators import *
from alpha.ops.other_names import *
from alpha.ops.padding import *
from alpha.ops.part_copies import *
from alpha.ops.products import *
from alpha.ops.quantiles import *
from alpha.ops.random_draws import *
from alpha.ops.reduce import *
from alpha.ops.rounding import *
from alpha.ops.running import *
from alpha.ops.running_extremes import *
from alpha.ops.scattering import *
from alpha.ops.searching import *
from alpha.ops.selection import *
from alpha.ops.shapes import *
from alpha.ops.shuffle import *
from alpha.ops.similarity import *
from alpha.ops.softmax import *
from alpha.ops.sorting import *
from alpha.ops.special import *
from alpha.ops.stacking import *
from alpha.ops.statistics import *
from alpha.ops.triangles import *
from alpha.ops.trigonometric import *
from alpha.ops.unfold import *
from alpha.ops.uniques import *

_LAYERS = {name for name, value in globals().items() if isinstance(value, type) and issubclass(value, _Module)}
_export(globals(), without=_LAYERS)

_tell_instead(__name__)
