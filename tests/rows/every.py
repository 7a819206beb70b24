"""All functions and layers, those of activations and losses among them."""

from __future__ import annotations

from rows import functions, layers
from rows.activations import ACTIVATIONS
from rows.families import (
    attention,
    compositions,
    dropouts,
    elementwise,
    images,
    in_place,
    lazy,
    neighbours,
    reductions,
    structure,
)
from rows.losses import LOSSES

FUNCTIONS = [
    *(
        row
        for room in (
            functions,
            elementwise,
            reductions,
            images,
            dropouts,
            neighbours,
            structure,
            compositions,
            in_place,
            attention,
        )
        for row in room.FUNCTIONS
    ),
    *(row.of_function() for row in (*ACTIVATIONS, *LOSSES)),
]
LAYERS = [
    *(row for room in (layers, lazy, images, dropouts, neighbours, structure) for row in room.LAYERS),
    *(row.of_layer() for row in (*ACTIVATIONS, *LOSSES)),
]
