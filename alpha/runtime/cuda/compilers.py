"""Compiling many kernels at once, before any of them is launched."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import TypeAlias

from alpha.runtime import workers
from alpha.runtime.cuda.cache import source_root
from alpha.runtime.cuda.driver import Driver
from alpha.runtime.cuda.processes import Group

Unit: TypeAlias = tuple[str, tuple[str, ...]]  # a file below cuda/ and the options of the compiler

POLL_S = 0.1  # between two looks at an interrupt that is held back


def compile_units(driver: Driver, units: Iterable[Unit], check: Callable[[], object] = lambda: None) -> int:
    """Compile the units that the disk cache does not have, as many at a time as this process may use cores.

    A bar on a terminal shows how many are done.

    Args:
        check: is called again and again meanwhile; what it raises stops the compilers.

    Returns:
        How many units were compiled.

    Raises:
        CompileError: a unit does not compile; the compilers of the others are stopped.
    """
    from tqdm import tqdm

    asked = dict.fromkeys(units)
    if not asked:
        return 0
    root = source_root()
    wanted = [(root / source, options) for source, options in asked]
    missing = [unit for unit in wanted if not driver.is_compiled(*unit)]
    if not missing:
        return 0
    group = Group()
    pool = ThreadPoolExecutor(min(workers.cores(), len(missing)), "alpha-compile", initializer=group.join)
    with tqdm(desc="compiling kernels", total=len(missing), unit="kernel", leave=False, disable=None) as bar:
        try:
            left = {pool.submit(driver.compile, *unit) for unit in missing}
            while left:
                done, left = wait(left, POLL_S, FIRST_COMPLETED)
                for future in done:
                    future.result()
                bar.update(len(done))
                check()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            group.stop()
            raise
        finally:
            pool.shutdown()
    return len(missing)
