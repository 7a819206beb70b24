"""Averages of a model's weights during training, under PyTorch's names: EMA and SWA (Izmailov et al., UAI 2018)."""

from alpha.optim.lr_scheduler.swa import SWALR
from alpha.optim.swa_utils.averaged_model import AveragedModel
from alpha.optim.swa_utils.averages import get_ema_avg_fn, get_ema_multi_avg_fn, get_swa_avg_fn, get_swa_multi_avg_fn
from alpha.optim.swa_utils.batch_statistics import update_bn

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]
