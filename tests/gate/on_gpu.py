"""Every operator, every kernel configuration and every network once, on small shapes: for compute-sanitizer.

    python tests/gate/on_gpu.py --jobs 8      # first: compile the kernels, so many at a time
    compute-sanitizer --tool memcheck --error-exitcode 1 python tests/gate/on_gpu.py

and likewise with the tools synccheck, initcheck and racecheck.

Results are not looked at here (the tests do that). With ALPHA_ISOLATE=1, which is set here, each array is an allocation
of its own, so that a byte beyond it is seen.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import launches

import alpha
from alpha.core.primitive import REGISTRY
from alpha.ops.conv2d import cuda_target
from alpha.ops.conv2d.prepare import shape_for
from alpha.ops.conv2d.select.grouped_table import GROUPED
from alpha.ops.conv2d.select.table import CONFIGURATIONS

Work = tuple[str, Callable[[], object]]


def works(on: alpha.runtime.Device) -> Iterator[Work]:
    """(name, what launches it) of all that is run."""
    yield "runtime", lambda: launches.run_runtime(on)
    for name, arguments in launches.primitive_cases():
        yield name, lambda n=name, a=arguments: launches.primitive_calls.run(REGISTRY[n], on, a)
    target = cuda_target(on)
    for row in (v for v in (*CONFIGURATIONS, *GROUPED) if v.device == "cuda"):
        shapes = launches.grouped_geometry.of(row) if row in GROUPED else launches.conv2d_cases.cuda_shapes()
        if "BLOCKS" in row.tile:  # several tiles per block, or two blocks per SM
            shapes = [*shapes, launches.conv2d_cases.MANY]
        for s in shapes:
            if shape_for(row, s, target):
                yield row.name, lambda r=row, s=s: launches.run_row(r, s, on)
    for precision in alpha.core.numerics.PRECISIONS:
        for network in launches.networks():
            yield f"a network in {precision}", lambda n=network, p=precision: step(n, p, on)


def step(network: alpha.nn.Module, precision: str, on: alpha.runtime.Device) -> None:
    with alpha.precision(precision):
        launches.train(network, on)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the work")
    parser.add_argument("--share", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--of", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help="names that contain this")
    args = parser.parse_args()
    if args.jobs > 1:
        command = [sys.executable, __file__, "--only", args.only, "--of", str(args.jobs)]
        shares = [subprocess.Popen([*command, "--share", str(i)]) for i in range(args.jobs)]
        return max(share.wait() for share in shares)
    on = alpha.get_device("cuda")
    done = 0
    for index, (name, work) in enumerate(works(on)):
        if args.only in name and index % args.of == args.share:
            work()
            on.synchronize()
            done += 1
    print(f"{done} of {index + 1} pieces of work on {on.properties.name}, driver {on.driver.name}")
    return 0


if __name__ == "__main__":
    os.environ["ALPHA_ISOLATE"] = "1"
    sys.exit(main())
