"""Every layer that Alpha offers, on the module inputs of PyTorch's module_db, in training and in evaluation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import parity_names as names
import pytest
from test_parity_operators import report

import alpha

OPERATORS = {  # whose layout a layer has
    "CrossEntropyLoss": "cross_entropy",
    "NLLLoss": "nll_loss",
    "GroupNorm": "group_norm",
    "LocalResponseNorm": "local_response_norm",
    "Upsample": "interpolate",
    "PixelShuffle": "pixel_shuffle",
    "PixelUnshuffle": "pixel_unshuffle",
    "ChannelShuffle": "channel_shuffle",
}


@pytest.mark.parametrize("on", ["cpu, float64", "cpu, float32", "cuda, float32"], indirect=True)
@pytest.mark.parametrize("layer", names.layers())
def test_layer(layer: str, on: tuple[str, str], record_property: Callable[[str, str], None]) -> None:
    import parity_compare as compare
    import torch
    from torch.testing._internal.common_modules import module_db

    device, dtype = on
    tally = compare.Tally()
    for info in (info for info in module_db if info.module_cls.__name__ == layer):
        for training in (True, False):
            torch.manual_seed(0)
            inputs = info.module_inputs_func(
                info, device="cpu", dtype=getattr(torch, dtype), requires_grad=True, training=training
            )
            for given in inputs:
                label = f"{'training' if training else 'evaluation'} {given.desc!r} {_written(given.constructor_input)}"
                try:
                    one(layer, info.module_cls, given, training, device, dtype)
                except compare.Refused as refusal:
                    tally.add("refused", str(refusal))
                except compare.Wrong as wrong:
                    tally.add("wrong", f"{label}: {wrong}")
                else:
                    tally.add("right", "")
    report("layer", layer, on, tally, record_property)


def _written(given: Any) -> str:
    return ", ".join([*map(str, given.args), *(f"{name}={value}" for name, value in given.kwargs.items())])[:120]


def one(layer: str, cls: Any, given: Any, training: bool, device: str, dtype: str) -> None:
    """Construct, copy the state, run forward and backward on both sides, compare everything."""
    import parity_compare as compare
    import torch

    kind = getattr(torch, dtype)
    plain = layer.removeprefix("Lazy")
    layout = compare.Layout(OPERATORS.get(plain, plain.lower().replace("transpose", "_transpose")))
    made = compare.Arguments(given.constructor_input.args, given.constructor_input.kwargs, compare.Layout(""), device)
    theirs = cls(*made.theirs[0], **made.theirs[1]).to(kind).train(training)
    ours = compare.call_alpha(getattr(alpha.nn, layer), *made.ours[0], **made.ours[1])
    keywords = dict(given.forward_input.kwargs)
    first = (keywords.pop("input"),) if "input" in keywords else ()  # Alpha's forward calls it x
    arguments = compare.Arguments((*first, *given.forward_input.args), keywords, layout, device)
    if plain != layer:  # both have their parameters after a first forward
        with torch.no_grad(), alpha.no_grad():
            theirs(*arguments.theirs[0], **arguments.theirs[1])
            ours.to(device, dtype)(*arguments.ours[0], **arguments.ours[1])
        if not type(theirs).__name__ == type(ours).__name__ == plain:
            raise compare.Wrong(f"the first forward leaves a {type(ours).__name__}")
    state = carry_over(theirs, ours, layout, device)
    ours.train(training)
    result = theirs(*arguments.theirs[0], **arguments.theirs[1])
    value = compare.call_alpha(ours, *arguments.ours[0], **arguments.ours[1])
    compare.check_result(arguments, value, result, layout.of_image(arguments.theirs[0][0].ndim))
    length = layout.depth * compare.length_of(arguments.pairs, result)
    compare.check_gradients(list(state.values()), length, list(state))


def carry_over(theirs: Any, ours: Any, layout: Any, device: str) -> dict[str, Any]:
    """Parameters and buffers of the PyTorch module into Alpha's; the pairs by name."""
    import parity_compare as compare

    state = {}
    own = dict(ours.named_tensors())
    for name, value in (*theirs.named_parameters(), *theirs.named_buffers()):
        if name == "num_batches_tracked":
            continue
        if name not in own:
            raise compare.Wrong(f"there is no {name}, which PyTorch's module has")
        order = layout.of_argument(name, value, None)
        shape = tuple(own[name].shape)
        moved = compare.tensor(value, order, "cpu")
        if moved.shape != shape:
            raise compare.Wrong(f"{name} has shape {shape}, PyTorch's {tuple(moved.shape)}")
        *path, last = name.split(".")
        setattr(functools.reduce(getattr, path, ours), last, type(own[name])(moved.numpy()))
    extra = sorted(set(own) - {name for name, _ in (*theirs.named_parameters(), *theirs.named_buffers())})
    if extra:
        raise compare.Wrong(f"{', '.join(extra)}: PyTorch's module has none")
    ours.to(device)
    own = dict(ours.named_tensors())
    for name, value in (*theirs.named_parameters(), *theirs.named_buffers()):
        if name in own:
            state[name] = compare.Pair(value, own[name], layout.of_argument(name, value, None))
    return state
