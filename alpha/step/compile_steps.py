"""`alpha.compile_kernels`: the kernels that a step needs, compiled at once before it runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

from alpha.errors import DryRunError, DryRunWarning
from alpha.runtime.cuda.compile import compile_units
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.registry import opened
from alpha.step.dry import DryRun, dry_run


def compile_kernels(function: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """Compile the kernels that a call of a step on the cuda device needs, as many at a time as there are cores.

        alpha.compile_kernels(step, images, labels)     # then step(images, labels) finds all of them

    The step is not run: a dry run says which kernels these are, see `alpha.dry_run`. A bar shows on a terminal. Kernels
    that are in the cache are not compiled again. On the cpu there is nothing to do.

    Args:
        function, args, kwargs: as for `alpha.dry_run`.

    Returns:
        How many files were compiled.

    Raises:
        CompileError: a kernel does not compile.

    If the step cannot be dry-run, a `DryRunWarning` says why, and its kernels are compiled when they are first used.
    """
    device = opened("cuda")
    if not isinstance(device, CudaDevice):
        return 0
    try:
        run = dry_run(function, *args, gpu=device, **kwargs)
    except DryRunError as error:
        warnings.warn(f"{error}; its kernels are compiled when they are first used", DryRunWarning, stacklevel=2)
        return 0
    return compile_runs(device, [run])


def compile_runs(device: CudaDevice, runs: Iterable[DryRun], check: Callable[[], object] = lambda: None) -> int:
    """Compile what these runs need on `device`, if they have tensors there; see `compile_units`."""
    units = [unit for run in runs if device in run.devices for unit in run.units]
    return compile_units(device.driver, units, check)
