"""PyTorch's names for data parallelism; `alpha.distributed` says more."""

from alpha.distributed.data_parallel import DataParallel as DistributedDataParallel
from alpha.distributed.sync_batchnorm import SyncBatchNorm

__all__ = ["DistributedDataParallel", "SyncBatchNorm"]
