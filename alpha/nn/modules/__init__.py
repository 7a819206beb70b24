"""The base classes of layers under the names by which PyTorch's programs ask what a layer is.

if isinstance(layer, nn.modules.batchnorm._BatchNorm): ..
"""

from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.nn.modules import batchnorm, conv

__all__ = ["batchnorm", "conv"]

_tell_instead(__name__)
