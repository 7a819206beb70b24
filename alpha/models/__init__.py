"""The model zoo: the networks of the paper."""

from alpha.models.resnet import BasicBlock, ResNet, resnet18, resnet34
from alpha.models.vgg import VGG, vgg16, vgg19

__all__ = ["VGG", "BasicBlock", "ResNet", "resnet18", "resnet34", "vgg16", "vgg19"]
