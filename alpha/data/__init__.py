"""Datasets, samplers and the loader that makes batches: arrays and tensors of the host, no gradients."""

from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.data.array_datasets import ArrayDataset, TensorDataset
from alpha.data.cifar.cifar10 import Cifar10, fetch_cifar10
from alpha.data.cifar.cifar100 import Cifar100
from alpha.data.cifar.sample import Cifar10Sample
from alpha.data.cifar.source import Source, resolve
from alpha.data.collate import default_collate
from alpha.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    get_worker_info,
)
from alpha.data.images.image_folder import ImageFolder
from alpha.data.images.packed import PackedImages
from alpha.data.loader import DataLoader
from alpha.data.mnist import Mnist
from alpha.data.random_split import random_split
from alpha.data.samplers import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "ArrayDataset",
    "BatchSampler",
    "ChainDataset",
    "Cifar10",
    "Cifar10Sample",
    "Cifar100",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "ImageFolder",
    "IterableDataset",
    "Mnist",
    "PackedImages",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "Source",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "default_collate",
    "fetch_cifar10",
    "get_worker_info",
    "random_split",
    "resolve",
]

_tell_instead(__name__)
