"""All functions and layers, those of activations and losses among them."""

from __future__ import annotations

from rows import functions, images, layers
from rows.activations import ACTIVATIONS
from rows.losses import LOSSES

FUNCTIONS = [*functions.FUNCTIONS, *images.FUNCTIONS, *(row.of_function() for row in (*ACTIVATIONS, *LOSSES))]
LAYERS = [*layers.LAYERS, *images.LAYERS, *(row.of_layer() for row in (*ACTIVATIONS, *LOSSES))]
