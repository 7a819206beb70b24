"""PyTorch's switches of its backends, which change nothing here, or are refused if they would change results.

alpha.backends.cudnn.benchmark = True                   # Alpha chooses kernels by itself
alpha.backends.cudnn.deterministic = True               # it always is
alpha.backends.cuda.matmul.allow_tf32 = True            # ValueError: use alpha.set_precision("tf32")
"""

from alpha.backends import cuda, cudnn, mps
from alpha.core.names.missing_names import tell_instead as _tell_instead

__all__ = ["cuda", "cudnn", "mps"]

_tell_instead(__name__)
