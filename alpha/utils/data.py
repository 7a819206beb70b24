"""`alpha.data` under the name that PyTorch's programs import: `from alpha.utils.data import DataLoader`."""

from alpha import data as _data
from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.data import *

__all__ = _data.__all__

_tell_instead(__name__)
