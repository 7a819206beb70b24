"""Training by several processes, each with a GPU of its own, or on CPUs; see docs/distributed.md."""

from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.distributed.collectives import all_gather as all_gather
from alpha.distributed.collectives import all_reduce as all_reduce
from alpha.distributed.collectives import barrier as barrier
from alpha.distributed.collectives import broadcast as broadcast
from alpha.distributed.collectives import gather_numbers as gather_numbers
from alpha.distributed.collectives import reduce_scatter as reduce_scatter
from alpha.distributed.data_parallel import DataParallel as DataParallel
from alpha.distributed.optim import ZeroRedundancyOptimizer as ZeroRedundancyOptimizer
from alpha.distributed.process_group import init as init
from alpha.distributed.process_group import is_initialized as is_initialized
from alpha.distributed.process_group import local_rank as local_rank
from alpha.distributed.process_group import shutdown as shutdown
from alpha.distributed.sync_batchnorm import SyncBatchNorm as SyncBatchNorm
from alpha.distributed.sync_batchnorm import convert_sync_batchnorm as convert_sync_batchnorm
from alpha.runtime.ranks import rank as rank
from alpha.runtime.ranks import world_size as world_size

__all__ = [
    "DataParallel",
    "SyncBatchNorm",
    "ZeroRedundancyOptimizer",
    "all_gather",
    "all_reduce",
    "barrier",
    "broadcast",
    "convert_sync_batchnorm",
    "gather_numbers",
    "init",
    "is_initialized",
    "local_rank",
    "optim",
    "rank",
    "reduce_scatter",
    "shutdown",
    "world_size",
]

_tell_instead(__name__)
