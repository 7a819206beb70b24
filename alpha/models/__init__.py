"""The model zoo: the networks of the paper, others without a form in torchvision, and `alpha.models.torchvision`."""

from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.models import torchvision
from alpha.models.lenet import LeNet, lenet
from alpha.models.resnet import BasicBlock, ResNet, resnet18, resnet34
from alpha.models.saved import Classifier, Description, Prediction, load
from alpha.models.senet import SqueezeExcitation, se_resnet
from alpha.models.unet import UNet, unet
from alpha.models.vgg import VGG, vgg16, vgg19
from alpha.models.vit import vit_tiny

__all__ = [
    "VGG",
    "BasicBlock",
    "Classifier",
    "Description",
    "LeNet",
    "Prediction",
    "ResNet",
    "SqueezeExcitation",
    "UNet",
    "lenet",
    "load",
    "resnet18",
    "resnet34",
    "se_resnet",
    "torchvision",
    "unet",
    "vgg16",
    "vgg19",
    "vit_tiny",
]

_tell_instead(__name__)
