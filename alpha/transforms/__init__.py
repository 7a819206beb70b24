"""Images changed on the device, batch by batch: augmentation, with the names of `torchvision.transforms`.

    augment = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()])
    model = nn.Sequential(augment, net)

A transform is a module of floating images (N, H, W, C); one of your own is a subclass of `Transform`. Each image of a
batch is changed in its own way, drawn on the device, so a captured step draws anew at each replay. As with dropout,
only training mode has randomness: after `model.eval()` a random transform returns the images as they are, or their
centre if it has a size. Images have the same size in both modes.

MixUp and CutMix change labels, too, and are called with (images, labels), as is a Compose that holds one:

    augment = transforms.Compose([transforms.RandAugment(), transforms.MixUp(alpha=0.2, num_classes=10)])
    images, targets = augment(images, labels)  # targets (N, 10), for F.cross_entropy
"""

from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.transforms.auto_augment import RandAugment, TrivialAugmentWide
from alpha.transforms.blur import GaussianBlur
from alpha.transforms.color import ColorJitter, Grayscale, Normalize, RandomGrayscale
from alpha.transforms.compose import Compose, Lambda, RandomChoice, takes_targets
from alpha.transforms.crops import CenterCrop, RandomCrop, RandomResizedCrop, Resize
from alpha.transforms.erasing import RandomErasing
from alpha.transforms.geometry import RandomAffine, RandomHorizontalFlip, RandomRotation, RandomVerticalFlip
from alpha.transforms.images import Transform
from alpha.transforms.mixing import CutMix, MixUp

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "CutMix",
    "GaussianBlur",
    "Grayscale",
    "Lambda",
    "MixUp",
    "Normalize",
    "RandAugment",
    "RandomAffine",
    "RandomChoice",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomVerticalFlip",
    "Resize",
    "Transform",
    "TrivialAugmentWide",
    "takes_targets",
]

_tell_instead(__name__)
