"""`torch.nn.modules.conv`"""

from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.nn.convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from alpha.nn.convolution import _Layer as _ConvNd

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "_ConvNd"]

_tell_instead(__name__)
