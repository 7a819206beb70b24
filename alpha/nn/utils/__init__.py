"""Functions on the parameters of a module, under PyTorch's names."""

from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.module.find_flattened import find_flattened as find_flattened
from alpha.nn.utils import parametrizations as parametrizations
from alpha.nn.utils import parametrize as parametrize
from alpha.nn.utils import rnn as rnn
from alpha.nn.utils.clip_grad import clip_grad_norm_ as clip_grad_norm_
from alpha.nn.utils.clip_grad import clip_grad_value_ as clip_grad_value_
from alpha.nn.utils.clip_grad import clip_grads_with_norm_ as clip_grads_with_norm_
from alpha.nn.utils.clip_grad import get_total_norm as get_total_norm
from alpha.nn.utils.fusion import fuse_conv_bn_eval as fuse_conv_bn_eval
from alpha.nn.utils.fusion import fuse_linear_bn_eval as fuse_linear_bn_eval
from alpha.nn.utils.norms import remove_spectral_norm as remove_spectral_norm
from alpha.nn.utils.norms import remove_weight_norm as remove_weight_norm
from alpha.nn.utils.norms import spectral_norm as spectral_norm
from alpha.nn.utils.norms import weight_norm as weight_norm
from alpha.nn.utils.vectors import parameters_to_vector as parameters_to_vector
from alpha.nn.utils.vectors import vector_to_parameters as vector_to_parameters

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "fuse_conv_bn_eval",
    "fuse_linear_bn_eval",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "spectral_norm",
    "vector_to_parameters",
    "weight_norm",
]

_tell_instead(__name__)
