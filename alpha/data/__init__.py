"""Datasets and the loader that batches them: numpy arrays only, no device and no gradients."""

from alpha.data.cifar import Cifar10, fetch_cifar10
from alpha.data.dataset import ArrayDataset, Dataset
from alpha.data.loader import DataLoader
from alpha.data.sample import Cifar10Sample
from alpha.data.source import Source, resolve

__all__ = ["ArrayDataset", "Cifar10", "Cifar10Sample", "DataLoader", "Dataset", "Source", "fetch_cifar10", "resolve"]
