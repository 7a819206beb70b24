"""`torch.nn.modules.batchnorm`"""

from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.nn.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _BatchNorm

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "_BatchNorm"]

_tell_instead(__name__)
