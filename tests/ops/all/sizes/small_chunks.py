"""The cpu device with chunks of a few elements and memory full of garbage, so that every border of a chunk is met."""

from __future__ import annotations

import ast
import functools
import importlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import alpha
from alpha.ops.conv2d import cpu as conv_cpu
from alpha.runtime import workers
from alpha.runtime.cpu import CpuDevice

WORKERS = 3
# what cuts the work of the cpu device, and the value that makes a chunk a few elements or rows
CHUNKS: dict[str, dict[str, int]] = {
    "alpha.runtime.workers": {"CHUNK_BYTES": 20},  # no multiple of 8: what is cut by bytes has a rest
    "alpha.ops.matmul.cpu": {"ONE_THREAD": 0, "LEAST_PRODUCTS": 4, "LEAST_ROWS": 2, "MOST_PIECES": 5},
    "alpha.ops.kernel.tables.multi_tensor": {"PART": 4, "PIECES": 2},
    "alpha.ops.normalization.batch_norm_cpu": {"ORIGIN_ROWS": 2},
    "alpha.ops.pooling.pool_shape": {"PARTS": 2},
    "alpha.ops.conv2d.cpu": {"PATCH_BYTES": 200, "LEAST_ROWS": 5, "TASKS": 3},
}
# the numbers of the same modules that cut nothing on the cpu
OTHERS: dict[str, tuple[str, ...]] = {
    "alpha.ops.kernel.sums": ("WARP", "LINE_BYTES", "LAST_BLOCKS", "COLUMN_THREADS", "LEAST_ROW_BYTES", "_ACROSS"),
    "alpha.ops.kernel.rows.sort_order": ("CHUNK", "CHUNK_THREADS", "LARGEST_ROW"),  # of cuda
    "alpha.ops.kernel.casts": ("BLOCK",),
    "alpha.ops.kernel.views": ("LEAST_TILE", "MAX_AXES"),  # of cuda
    "alpha.ops.kernel.rows.reductions": ("LONG_ROWS",),
    "alpha.ops.pooling.pool_shape": ("LARGEST_CELL",),  # of cuda
}
CUTTING = ("parallel_for", "sum_in_order", "over_images", "in_chunks")  # the functions that run chunks on the workers
Site = tuple[str, int]  # a module and a line


def poisoned(array: np.ndarray) -> np.ndarray:
    """The array, full of NaN, or of a number that is neither an index nor a count."""
    array.reshape(-1).view(np.uint8)[...] = 1 if array.dtype == bool else 0xFF if array.dtype.kind in "fV" else 0x5A
    return array


@contextmanager
def small_chunks() -> Iterator[dict[Site, list[list[int]]]]:
    """The cpu device cuts everything into chunks of a few elements for three workers, and new memory is garbage.

    The result has the lengths of the chunks of each run, by the line that asked for them.
    """
    met: dict[Site, list[list[int]]] = defaultdict(list)
    run, empty, scratch, parts = workers.parallel_for, CpuDevice.empty, conv_cpu.scratch, workers.sum_in_order

    def note(lengths: list[int]) -> None:
        frame = sys._getframe(2)
        while frame.f_code.co_name in CUTTING:
            met[frame.f_globals["__name__"], frame.f_lineno].append(lengths)
            frame = frame.f_back  # type: ignore[assignment]
        met[frame.f_globals["__name__"], frame.f_lineno].append(lengths)

    def parallel_for(length: int, grain: int, body: Callable[[int, int], object], **options: Any) -> None:
        grain = max(1, grain)
        note([min(grain, length - start) for start in range(0, length, grain)])
        run(length, grain, body, **options)

    def sum_in_order(length: int, part: Callable[[int], Any], add: Callable[[int, Any], object]) -> None:
        note([1] * length)
        parts(length, part, add)

    with ExitStack() as stack:
        for module, values in CHUNKS.items():
            for name, value in values.items():
                stack.enter_context(patch.object(importlib.import_module(module), name, value))
        stack.enter_context(patch.object(workers, "parallel_for", parallel_for))
        stack.enter_context(patch.object(workers, "sum_in_order", sum_in_order))
        stack.enter_context(patch.object(CpuDevice, "empty", lambda *args: poisoned(empty(*args))))
        stack.enter_context(patch.object(conv_cpu, "scratch", lambda *args: poisoned(scratch(*args))))
        for name in ("empty", "empty_like"):
            usual = getattr(np, name)
            stack.enter_context(patch.object(np, name, lambda *a, usual=usual, **k: poisoned(usual(*a, **k))))
        stack.enter_context(patch.dict("os.environ", ALPHA_CPU_THREADS=str(WORKERS)))
        yield met


@functools.cache
def modules() -> dict[str, ast.Module]:
    """The modules of alpha/ that cut work, by the calls in their text."""
    root = Path(alpha.__file__).parent
    texts = {path: path.read_text() for path in sorted(root.rglob("*.py"))}
    return {
        ".".join(("alpha", *path.relative_to(root).with_suffix("").parts)): ast.parse(text)
        for path, text in texts.items()
        if "workers.CHUNK_BYTES" in text or any(f"{name}(" in text for name in ("parallel_for", "sum_in_order"))
    }


def numbers(tree: ast.Module) -> set[str]:
    """The names in capitals of a module that are integers."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                parts = target.elts if isinstance(target, ast.Tuple) else [target]
                found |= {part.id for part in parts if isinstance(part, ast.Name) and part.id.isupper()}
    return found


def calls(tree: ast.Module) -> list[ast.Call]:
    """The calls of `parallel_for` and `sum_in_order`."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in found if called(call) in ("parallel_for", "sum_in_order")]


def called(call: ast.Call) -> str:
    """The last name of what a call names."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
