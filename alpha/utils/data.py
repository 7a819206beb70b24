"""`alpha.data` under the name that PyTorch's programs import: `from alpha.utils.data import DataLoader`."""

from alpha import data as _data
from alpha.data import *

__all__ = _data.__all__
