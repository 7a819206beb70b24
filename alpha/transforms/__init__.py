"""Images changed on the device, batch by batch: augmentation, with the names of `torchvision.transforms`.

    augment = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()])
    model = nn.Sequential(augment, net)

A transform is a module of floating images (N, H, W, C); one of your own is a subclass of `Transform`. Each image of a
batch is changed in its own way, drawn on the device, so a captured step draws anew at each replay. As with dropout,
only training mode has randomness: after `model.eval()` a random transform returns the images as they are, or their
centre if it has a size.
"""

from alpha.core.missing_names import tell_instead as _tell_instead
from alpha.transforms.color import ColorJitter, Grayscale, Normalize, RandomGrayscale
from alpha.transforms.compose import Compose, Lambda
from alpha.transforms.crops import CenterCrop, RandomCrop, RandomResizedCrop, Resize
from alpha.transforms.erasing import RandomErasing
from alpha.transforms.geometry import RandomAffine, RandomHorizontalFlip, RandomRotation, RandomVerticalFlip
from alpha.transforms.images import Transform

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "Grayscale",
    "Lambda",
    "Normalize",
    "RandomAffine",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomVerticalFlip",
    "Resize",
    "Transform",
]

_tell_instead(__name__)
