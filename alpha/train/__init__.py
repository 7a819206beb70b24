"""Training: the loop, its callbacks and metrics, histories and curves, weights on disk, runs that resume."""

from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.io.files import make_folder, new_folder
from alpha.io.serialization import load_metadata, load_weights, save_weights
from alpha.train.callbacks import Callback, EarlyStopping, JsonLines, KeepWeights, TensorBoard
from alpha.train.files.curves import save_curves
from alpha.train.files.history import History, Result, Row
from alpha.train.files.run import Run
from alpha.train.fit import fit
from alpha.train.interrupt import Interrupted, interrupt_between_steps
from alpha.train.lr_finder import LearningRates, find_learning_rate
from alpha.train.metrics import ConfusionMatrix, F1Score, Mean, MeanIoU, Metric, Precision, Recall, TopKAccuracy
from alpha.train.schedules import change_rates
from alpha.train.trainer import Trainer

__all__ = [
    "Callback",
    "ConfusionMatrix",
    "EarlyStopping",
    "F1Score",
    "History",
    "Interrupted",
    "JsonLines",
    "KeepWeights",
    "LearningRates",
    "Mean",
    "MeanIoU",
    "Metric",
    "Precision",
    "Recall",
    "Result",
    "Row",
    "Run",
    "TensorBoard",
    "TopKAccuracy",
    "Trainer",
    "change_rates",
    "find_learning_rate",
    "fit",
    "interrupt_between_steps",
    "load_metadata",
    "load_weights",
    "make_folder",
    "new_folder",
    "save_curves",
    "save_weights",
]

_tell_instead(__name__)
