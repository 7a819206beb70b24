"""Networks that predict from a file alone: what a weights file says of its network, and the network of such a file."""

from __future__ import annotations

import io
import json
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.autograd.grad_mode import no_grad
from alpha.config import user_path
from alpha.core import numerics
from alpha.core.tensor import Tensor, tensor
from alpha.errors import CheckpointError, DataError, ShapeError, type_name
from alpha.io.serialization import load_metadata, load_weights
from alpha.models import torchvision
from alpha.models.resnet import resnet18, resnet34
from alpha.models.senet import se_resnet
from alpha.models.vgg import vgg16, vgg19
from alpha.models.vit import vit_tiny
from alpha.module.module import Module, device_of, evaluation_of
from alpha.nn import functional as F
from alpha.ops.kernel.options import positive_integer
from alpha.runtime import Device, get_device

WEIGHTS = "weights.safetensors"  # of a run's folder
KEY = "network"  # of the metadata of a weights file
TORCHVISION = "torchvision."
GOOGLENET = "googlenet"  # which has three outputs in training
NETWORKS: dict[str, Callable[..., Module]] = {  # which classify images in colour
    **{network.__name__: network for network in (resnet18, resnet34, se_resnet, vgg16, vgg19, vit_tiny)},
    **{
        TORCHVISION + name: getattr(torchvision, name)
        for name in torchvision.__all__
        if name.islower() and name != GOOGLENET
    },
}


@dataclass(frozen=True)
class Description:
    """Facts that predicting needs besides the weights.

    Attributes:
        model: a name of `alpha.models`, or "torchvision." and a name of `alpha.models.torchvision`.
        arguments: with which it was made.
        classes: the names of its outputs, in order.
        image_size: height and width of the images that it was evaluated on.
        pixels: the numbers to which the bytes 0 and 255 become.
        precision: in which it was trained.

    Raises:
        ValueError: `arguments` has another number of classes. Two equal names are a warning.
    """

    model: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    classes: Sequence[str] = ()
    image_size: int = 32
    pixels: Sequence[float] = (-1.0, 1.0)
    precision: str = "float32"

    def __post_init__(self) -> None:
        names = list(self.classes)
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            warnings.warn(
                f"Description: {len(names)} classes, of which two have the name {twice[0]!r}; a prediction has one "
                "probability for both",
                UserWarning,
                stacklevel=3,
            )
        wanted = self.arguments.get("num_classes", len(names)) if isinstance(self.arguments, Mapping) else len(names)
        if names and wanted != len(names):
            raise ValueError(f"Description: {len(names)} classes, but num_classes={wanted} in arguments")

    def as_option(self) -> dict[str, Any]:
        """The description as the entry "network" of a `Run`'s options."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]


def build(model: str, arguments: Mapping[str, Any]) -> Module:
    """The network of a name of `NETWORKS`.

    Raises:
        ValueError: there is no such network, or it does not take the arguments.
    """
    if model not in NETWORKS:
        raise ValueError(f"models: there is no network {model!r}; there are {', '.join(NETWORKS)}")
    try:
        return NETWORKS[model](**arguments)
    except TypeError as error:
        raise ValueError(f"models: {model} does not take these arguments: {error}") from error


@dataclass(frozen=True)
class Prediction:
    """Class for which a network takes an image.

    Attributes:
        name: of the class with the largest probability.
        probability: of that class, 0 to 1.
        probabilities: of all classes by name, the largest first.
    """

    name: str
    probability: float
    probabilities: Mapping[str, float]


class Classifier(Module):
    """A network with all that it needs to classify a photo; `alpha.models.load` makes it.

    Called with images (N, H, W, 3) of uint8, or with pixels in the range of `description.pixels`, it gives the
    outputs of the network, (N, number of classes).

    Attributes:
        network: the model.
        description: its classes, the size of its images, and how it was made.
    """

    def __init__(self, network: Module, description: Description) -> None:
        self.network = network
        self.description = description

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return tuple(self.description.classes)

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(x, Tensor) and x.dtype == np.uint8:
            low, high = self.description.pixels
            x = F.normalize_pixels(x)
            if (low, high) != (-1.0, 1.0):
                x = (x + 1) * ((high - low) / 2) + low
        return self.network(x)  # type: ignore[no-any-return]

    def predict(self, photos: Any, batch_size: int = 64) -> list[Prediction]:
        """Say what the network takes photos for.

        Args:
            photos: one or several of: a path, an image of Pillow, an array (H, W, 3) of uint8. A photo is turned
                upright as its EXIF data says; `ImageOps.exif_transpose` does so, and takes that out of the data.
            batch_size: how many are computed at once.

        Returns:
            A prediction for each photo, in their order.

        Raises:
            DataError: a photo cannot be read; the message names it.
            ShapeError: the network has not as many outputs as the description has classes.
        """
        batch_size = positive_integer("predict", "batch_size", batch_size)
        several = photos if isinstance(photos, (list, tuple)) else [photos]
        found: list[Prediction] = []
        with evaluation_of(self), no_grad():
            for begin in range(0, len(several), batch_size):
                images = np.stack([self.pixels(photo) for photo in several[begin : begin + batch_size]])
                found += self.named(self(tensor(images, device=device_of(self.network))))
        return found

    def pixels(self, photo: Any) -> NDArray[np.uint8]:
        """The middle of a photo (image_size, image_size, 3), as `ImageFolder` and `PackedImages` make it.

        Args:
            photo: as in `predict`, or the content of a file in bytes.

        Raises:
            DataError: the photo cannot be read.
        """
        from PIL import Image

        from alpha.data.images.decoding import Decoder, covering, in_colour  # `import alpha` loads no datasets
        from alpha.data.images.image_files import shown
        from alpha.data.images.listing import NO_FILE

        size = self.description.image_size, self.description.image_size
        if isinstance(photo, (str, Path)):
            path = user_path(photo)
            if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
                what = "is a folder: give the photos in it" if path.is_dir() else f"is {NO_FILE}: save the photo first"
                raise DataError(f"{shown(path)}: {what}")
            return np.asarray(Decoder("predict")(str(path), size))
        if isinstance(photo, bytes):
            return np.asarray(Decoder("predict")(io.BytesIO(photo), size, "the photo"))
        if isinstance(photo, np.ndarray):
            if photo.ndim != 3 or photo.shape[2] != 3 or photo.dtype != np.uint8 or not photo.size:
                raise ShapeError(f"predict: an image (H, W, 3) of uint8 is needed  ({photo.dtype} {photo.shape})")
            photo = Image.fromarray(photo)
        if not isinstance(photo, Image.Image):
            found = type_name(photo)
            raise DataError(f"predict: a {found} is no photo: a path, an image of Pillow or an array is needed")
        if 0 in photo.size:
            raise DataError(f"predict: the photo has no pixels  (width and height {photo.size})")
        try:
            return np.asarray(covering(in_colour(photo), size))
        except (OSError, SyntaxError, ValueError) as error:
            raise DataError(f"predict: the photo cannot be read: {error}") from error

    def named(self, outputs: Tensor) -> list[Prediction]:
        """The predictions of the network's outputs (N, number of classes), one for each row."""
        with no_grad():
            rows = F.softmax(outputs.float(), -1).numpy()
        names = self.classes or tuple(str(number) for number in range(rows.shape[1]))
        if len(names) != rows.shape[1]:
            raise ShapeError(f"predict: the network has {rows.shape[1]} outputs, the description {len(names)} classes")
        found = []
        for row in rows:
            order = np.argsort(-row, kind="stable")
            probabilities = {names[place]: float(row[place]) for place in order}
            found.append(Prediction(names[order[0]], float(row[order[0]]), probabilities))
        return found


def load(path: str | Path, device: str | Device = "auto") -> Classifier:
    """The network of a run, ready to predict: in evaluation mode, with its weights, classes and image size.

    Args:
        path: the folder of a run, or a weights file of one.
        device: where the network is to be.

    Raises:
        CheckpointError: there is no such file, it does not say which network it has, or its weights do not fit it.
    """
    file = user_path(path)
    file = file / WEIGHTS if file.is_dir() else file
    description = described(file)
    try:
        network = build(description.model, description.arguments)
    except ValueError as error:
        raise CheckpointError(f"{file}: {error}") from error
    network.load_state_dict(load_weights(file))
    network.to(get_device(device)).eval()
    return Classifier(network, description).eval()


def described(path: str | Path) -> Description:
    """Read what a weights file says of its network.

    Raises:
        CheckpointError: there is no such file, or it says nothing of its network.
    """
    text = load_metadata(path).get(KEY)
    if text is None:
        raise CheckpointError(
            f"{path}: does not say which network it has; build the model yourself, load the weights by "
            "model.load_state_dict(alpha.train.load_weights(path)), and predict by alpha.models.Classifier(model, "
            "alpha.models.Description(..))"
        )
    try:
        known = json.loads(text)
        found = Description(**known)
        size, pixels = found.image_size, found.pixels
        if not (isinstance(found.model, str) and isinstance(found.arguments, dict) and isinstance(size, int)):
            raise TypeError("model, arguments and image_size")
        if len(pixels) != 2 or not all(isinstance(name, str) for name in found.classes):
            raise TypeError("pixels and classes")
        numerics.precision(found.precision)
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: what it says of its network cannot be read ({error!r:.200})") from error
    return found
