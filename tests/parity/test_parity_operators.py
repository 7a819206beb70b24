"""Every operator that Alpha offers, on the sample inputs of PyTorch's op_db."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import parity_names as names
import pytest

OPERATORS = names.operators()
EVERYWHERE = (
    *("cpu, float64", "cpu, float32", "cpu, int64", "cpu, int32", "cpu, uint8", "cpu, bool"),
    *("cuda, float32", "cuda, int64"),
)
DIM_OF_SORTED = {"sort": 0, "argsort": 0, "topk": 1, "kthvalue": 1}  # the place of `dim` after the input
LARGEST = 20_000  # elements of a reference input
# Samples of an operator on the emulated driver, which compiles a kernel for nearly each that is computed.
TRIED, COMPUTED, COMPUTED_CONVOLUTIONS = 200, 24, 12


@pytest.mark.parametrize("on", EVERYWHERE, indirect=True)
@pytest.mark.parametrize("key", OPERATORS)
def test_operator(key: str, on: tuple[str, str], record_property: Callable[[str, str], None]) -> None:
    import parity_compare as compare
    import torch

    device, dtype = on
    tally = compare.Tally()
    entries = [entry for entry in names.entries(key) if getattr(torch, dtype) in entry.dtypes]
    if not entries:
        pytest.skip(f"PyTorch has no samples of it in {dtype}")
    ways = OPERATORS[key]
    most = COMPUTED_CONVOLUTIONS if key.startswith("conv") else COMPUTED
    for entry in entries:
        for label, sample in chosen(samples(entry, dtype, torch), device, dtype):
            if device == "cuda" and tally.right + len(tally.wrong) >= most * len(ways):
                break
            for way in ways:
                outcome = one(entry, sample, way, key, device)
                if outcome is not None:
                    tally.add(outcome[0], f"{way.name} {label}: {outcome[1]}" if outcome[0] == "wrong" else outcome[1])
        if device == "cpu" and dtype == "float32":
            tally.wrong += bad_inputs(entry, ways, key, device)
    report("operator", key, on, tally, record_property)


def report(kind: str, key: str, on: tuple[str, str], tally: Any, record_property: Callable[[str, str], None]) -> None:
    """Keep the tally for the table; fail if anything is wrong."""
    row = {
        "kind": kind,
        "key": key,
        "on": ", ".join(on),
        "right": tally.right,
        "wrong": len(tally.wrong),
        "refused": dict(tally.refused),
    }
    record_property("parity", json.dumps(row))
    if tally.wrong:
        shown = "\n".join(tally.wrong[:12])
        pytest.fail(f"{key}: {len(tally.wrong)} samples are wrong, {tally.right} right\n{shown}", pytrace=False)


def samples(entry: Any, dtype: str, torch: Any) -> Iterator[tuple[str, Any]]:
    """(description, sample), the same in each run; with the larger reference inputs in float32."""
    kind = getattr(torch, dtype)
    gradients = kind.is_floating_point and entry.supports_autograd
    sources = [entry.sample_inputs("cpu", kind, requires_grad=gradients)]
    if dtype == "float32" and entry.reference_inputs_func is not None:
        sources.append(entry.reference_inputs("cpu", kind, requires_grad=gradients))
    for source in map(whole, sources):
        torch.manual_seed(0)
        for sample in source:
            tensors = [t for t in (sample.input, *sample.args) if isinstance(t, torch.Tensor)]
            if all(t.numel() <= LARGEST and not t.is_complex() for t in tensors):
                yield described(sample, torch), sample


def whole(source: Iterator[Any]) -> Iterator[Any]:
    """The samples up to one that PyTorch cannot make."""
    with contextlib.suppress(ValueError):
        yield from source


def chosen(all_samples: Iterator[tuple[str, Any]], device: str, dtype: str) -> list[tuple[str, Any]]:
    """All samples of floating numbers on the cpu; on cuda a part that mixes their kinds; of integers the first."""
    if not dtype.startswith("float"):
        return list(itertools.islice(all_samples, TRIED))
    listed = list(all_samples)
    if device == "cpu":
        return listed
    random.Random(0).shuffle(listed)
    return listed[:TRIED]


def described(sample: Any, torch: Any) -> str:
    def one(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype)[6:]}{tuple(value.shape)}"
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(map(one, value)) + "]"
        return repr(value)

    parts = [one(value) for value in (sample.input, *sample.args)]
    return "(" + ", ".join([*parts, *(f"{name}={one(value)}" for name, value in sample.kwargs.items())]) + ")"


def one(entry: Any, sample: Any, way: names.Way, key: str, device: str) -> tuple[str, str] | None:
    """("right" | "wrong" | "refused", message) of one sample, or None if it is not for this way to call."""
    import parity_compare as compare
    import torch

    if way.method and not isinstance(sample.input, torch.Tensor):
        return None
    if way.sign and (sample.kwargs or len(sample.args) > 1):
        return None
    if way.in_place and entry.inplace_variant is None:
        return None
    if sample.kwargs.get("dropout_p") or (key == "multi_head_attention_forward" and sample.args[9]):
        return None  # other random numbers than PyTorch's
    layout = compare.Layout(key)
    try:
        arguments = compare.Arguments((sample.input, *sample.args), sample.kwargs, layout, device)
        if way.in_place:
            return in_place(entry.inplace_variant, way, arguments)
        args, kwargs = arguments.ours
        ours = compare.call_alpha(way.call, *args, **kwargs)
        theirs = compare.run_torch(entry.op, arguments)
        if key in DIM_OF_SORTED:
            ours, theirs = by_elements(key, sample, ours, theirs, torch)
        if key.startswith("dropout"):
            dropped(arguments, ours, sample.kwargs)
        else:
            order = layout.of_image(sample.input.ndim) if isinstance(sample.input, torch.Tensor) else None
            compare.check_result(arguments, ours, theirs, order)
    except compare.Refused as refusal:
        return "refused", str(refusal)
    except compare.Wrong as wrong:
        return "wrong", str(wrong)
    except compare.Unanswered:
        return None
    return "right", ""


def by_elements(key: str, sample: Any, ours: Any, theirs: Any, torch: Any) -> tuple[list[Any], list[Any]]:
    """The results with elements in place of indices: PyTorch does not say in which order equal elements are."""
    import parity_compare as compare

    at = DIM_OF_SORTED[key]
    dim = sample.args[at] if len(sample.args) > at else sample.kwargs.get("dim")
    x = sample.input.detach()

    def elements(index: Any) -> Any:
        axis = -1 if dim is None else dim
        whole = index if index.ndim == x.ndim else index.unsqueeze(axis)  # without keepdim
        return torch.take_along_dim(x, whole, axis).reshape(index.shape) if x.ndim else x

    *values, index = compare.leaves(ours)
    named = compare.tensor(elements(torch.as_tensor(index.numpy())), None, index.device.name)
    *others, indices = compare.leaves(theirs)
    if index.dtype != "int64" or index.shape != tuple(indices.shape):
        raise compare.Wrong(f"indices {index.dtype} {index.shape}, PyTorch's {tuple(indices.shape)}")
    return [*values, named], [*others, elements(indices)]


def in_place(variant: Callable[..., Any], way: names.Way, arguments: Any) -> tuple[str, str]:
    """The first argument is written: on both sides a result of an operator, not a leaf."""
    import parity_compare as compare

    args, kwargs = arguments.theirs
    target = args[0] * 1 if args[0].requires_grad else args[0].clone()
    if arguments.layout.key in compare.SCALAR_LOOPS:
        target = compare.apart(target)
    own, keywords = arguments.ours
    mine = own[0] * 1.0 if own[0].requires_grad else compare.alpha.tensor(own[0])
    try:
        theirs = variant(target, *args[1:], **kwargs)
    except RuntimeError as error:  # as when the other operand is larger
        try:
            compare.call_alpha(way.call, mine, *own[1:], **keywords)
        except compare.Refused:
            return "right", ""
        return "wrong", f"PyTorch refuses it: {error}"
    result = compare.call_alpha(way.call, mine, *own[1:], **keywords)
    if result is not mine:
        raise compare.Wrong("the result is not the tensor itself")
    if arguments.layout.key.startswith("dropout"):
        dropped(arguments, result, keywords)
    else:
        compare.check_result(arguments, result, theirs, None)
    return "right", ""


def dropped(arguments: Any, ours: Any, options: dict[str, Any]) -> None:
    """Dropout draws other numbers than PyTorch: each element is 0 or scaled, and so is its gradient."""
    import parity_compare as compare

    pair = arguments.pairs[0]
    x, leaf = compare.forth(pair.theirs.detach().numpy(), pair.order), pair.ours
    p = options.get("p", 0.5) if options.get("training", True) else 0.0
    y = ours.numpy()
    if y.shape != x.shape or y.dtype != x.dtype:
        raise compare.Wrong(f"{y.dtype} {y.shape}, the input {x.dtype} {x.shape}")
    kept = y != 0 if p else np.ones_like(x, bool)
    scale = 1 / (1 - p) if p < 1 else 0.0
    if not np.allclose(y, np.where(kept, x * scale, 0), rtol=1e-6):
        raise compare.Wrong(f"dropout: an element is neither 0 nor the scaled input, p={p}")
    compare.call_alpha(ours.backward, compare.alpha.tensor(np.ones_like(x), device=arguments.device))
    if leaf.grad is None or not np.allclose(leaf.grad.numpy(), kept * scale, rtol=1e-6):
        raise compare.Wrong("dropout: the gradient has another mask than the result")


CAST = "Expected self.dtype to be equal to src.dtype"  # which Alpha takes: scatter casts src to the dtype of x


def bad_inputs(entry: Any, ways: list[names.Way], key: str, device: str) -> Iterator[str]:
    """Inputs that PyTorch refuses, and Alpha computes or breaks on."""
    import parity_compare as compare
    import torch

    for error in entry.error_inputs("cpu") if entry.error_inputs_func is not None else ():
        sample = error.sample_input
        if error.error_regex == CAST:
            continue
        for way in ways:
            if way.in_place or (way.sign and (sample.kwargs or len(sample.args) > 1)):
                continue
            if way.method and not isinstance(sample.input, torch.Tensor):
                continue
            label = f"bad input of {way.name} {described(sample, torch)}"
            try:
                arguments = compare.Arguments((sample.input, *sample.args), sample.kwargs, compare.Layout(key), device)
                args, kwargs = arguments.ours
                compare.call_alpha(way.call, *args, **kwargs)
            except compare.Refused:
                continue
            except compare.Wrong as wrong:
                yield f"{label}: {wrong}"
            else:
                if not computed_by_pytorch(entry, arguments):
                    yield f"{label}: computed; PyTorch says {error.error_regex}"


def computed_by_pytorch(entry: Any, arguments: Any) -> bool:
    """True if PyTorch takes what its list calls a bad input, as a number for the bound of clamp_min."""
    import parity_compare as compare

    try:
        compare.run_torch(entry.op, arguments)
    except compare.Unanswered:
        return False
    return True
