"""Datasets and the loader that batches them: numpy arrays only, no device and no gradients."""

from alpha.data.cifar import Cifar10, fetch_cifar10
from alpha.data.cifar100 import Cifar100
from alpha.data.dataset import ArrayDataset, Dataset
from alpha.data.image_folder import ImageFolder
from alpha.data.loader import DataLoader
from alpha.data.mnist import Mnist
from alpha.data.sample import Cifar10Sample
from alpha.data.source import Source, resolve

__all__ = [
    "ArrayDataset",
    "Cifar10",
    "Cifar10Sample",
    "Cifar100",
    "DataLoader",
    "Dataset",
    "ImageFolder",
    "Mnist",
    "Source",
    "fetch_cifar10",
    "resolve",
]
