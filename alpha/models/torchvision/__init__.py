"""Networks in torchvision's form: its names, arguments, parameters and attributes, for images of 224x224.

`alpha.models` has ResNets and VGGs of its own, those of the paper; the functions here have other layers under the same
names. Images are (N, H, W, C). Weights of torchvision fit: `resnet18(weights="resnet18-f37072fd.pth")` reads a file,
`load_state_dict(torch_model.state_dict(), layout="NCHW")` takes those of a network, and `state_dict(layout="NCHW")`
gives them back. Without a file the weights are those of Alpha's layers.
"""

from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.models.torchvision.alexnet import AlexNet, alexnet
from alpha.models.torchvision.convnext import ConvNeXt, convnext_tiny
from alpha.models.torchvision.densenet import DenseNet, densenet121, densenet161, densenet169, densenet201
from alpha.models.torchvision.googlenet import GoogLeNet, GoogLeNetOutputs, googlenet
from alpha.models.torchvision.mobilenet import MobileNetV2, mobilenet_v2
from alpha.models.torchvision.resnet import (
    BasicBlock,
    Bottleneck,
    ResNet,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    resnet152,
    resnext50_32x4d,
)
from alpha.models.torchvision.vgg import VGG, vgg11, vgg11_bn, vgg13, vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn
from alpha.models.torchvision.vision_transformer import VisionTransformer, vit_b_16

__all__ = [
    "VGG",
    "AlexNet",
    "BasicBlock",
    "Bottleneck",
    "ConvNeXt",
    "DenseNet",
    "GoogLeNet",
    "GoogLeNetOutputs",
    "MobileNetV2",
    "ResNet",
    "VisionTransformer",
    "alexnet",
    "convnext_tiny",
    "densenet121",
    "densenet161",
    "densenet169",
    "densenet201",
    "googlenet",
    "mobilenet_v2",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50_32x4d",
    "vgg11",
    "vgg11_bn",
    "vgg13",
    "vgg13_bn",
    "vgg16",
    "vgg16_bn",
    "vgg19",
    "vgg19_bn",
    "vit_b_16",
]

_tell_instead(__name__)
