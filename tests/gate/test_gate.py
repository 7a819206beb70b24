"""The compile gate: everything that Alpha launches on any architecture compiles, and fits it, without a GPU.

`make gate` compiles every configuration. The code of a kernel does not depend on the architecture, only which kernels
are launched does. So architectures that launch the same kernels share the work.
"""

from __future__ import annotations

import re

import launches
import pytest
import resources
from launches import GPUS, Launch

from alpha.core.primitive import REGISTRY
from alpha.ops.conv2d.select.grouped_table import GROUPED
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.runtime.cuda.cache import source_root
from alpha.runtime.cuda.compile import ARCHITECTURES
from alpha.runtime.cuda.emulated.driver_emulated import DEFAULT_ARCH
from alpha.runtime.cuda.emulated.emulated_compiler import entries

needs_nvcc = pytest.mark.skipif(
    resources.NVCC is None, reason="nvcc is not installed: kernels are not compiled for GPUs"
)

ANGLES = re.compile(r"\b(sin|cos|tan)\(")


def problems(arch: str, budgets: dict[Launch, int]) -> list[str]:
    """Problems of the kernels once they are compiled, one line each."""
    reports = resources.compile_all(arch, budgets)
    found = set()
    for launch, budget in budgets.items():
        report = reports[launch.unit]
        kernel = f"{launch.source}:{launch.entry} {' '.join(launch.options)}"
        found |= {f"{kernel}: {warning}" for warning in report.warnings}
        assert launch.entry in report.entries, f"{kernel}: the compiler says nothing of it"
        has = report.entries[launch.entry]
        shared, limit = launch.shared_bytes + has.shared_bytes, ARCHITECTURES[arch][1]
        blocks = resources.resident_blocks(arch, launch.threads, has.registers, shared)
        wrong = {
            f"{has.spill_bytes} bytes of spills": has.spill_bytes > 0 and not reduces_angles(launch),
            f"a stack of {has.stack_bytes} bytes": has.stack_bytes > 0 and not reduces_angles(launch),
            f"{has.registers} registers a thread, {budget} are allowed": has.registers > budget,
            f"{shared} bytes of shared memory, a block may have {limit}": shared > limit,
            f"{launch.threads} threads do not fit an SM": blocks == 0 and shared <= limit,
            f"{blocks} blocks fit an SM, {wanted_blocks(launch)} are meant to": 0 < blocks < wanted_blocks(launch),
        }
        found |= {f"{kernel}: {text}" for text, is_so in wrong.items() if is_so}
    return sorted(found)


def reduces_angles(launch: Launch) -> bool:
    """True for sin, cos and tan, which bring large angles into their range with an array on the stack."""
    return any(x.startswith(launches.EXPRESSION) and ANGLES.search(x) for x in launch.options)


def wanted_blocks(launch: Launch) -> int:
    """Number of blocks that share an SM by the macro BLOCKS of Hopper's kernels."""
    prefix = "-DALPHA_BLOCKS="
    stated = [int(x.removeprefix(prefix)) for x in launch.options if x.startswith(prefix)]
    return stated[0] if stated and launch.source.endswith("/sm90.cu") else 1


@needs_nvcc
@pytest.mark.gate
@pytest.mark.parametrize("arch", GPUS)
def test_kernels_fit(arch: str) -> None:
    found = problems(arch, launches.in_turn(arch))
    assert not found, "\n" + "\n".join(found)


@pytest.mark.gate
def test_every_launch_is_compiled_for_some_architecture() -> None:
    compiled = {launch.unit for arch in GPUS for launch in launches.in_turn(arch)}
    assert {launch.unit for arch in GPUS for launch in launches.record(arch)} == compiled


@needs_nvcc
@pytest.mark.gate
def test_kernels_of_rare_arrays_fit() -> None:
    """float64, arrays off every vector and arrays of 2^31 elements."""
    rare = launches.record_rare(DEFAULT_ARCH)
    assert {"-DALPHA_TYPE=double", "-DALPHA_INDEX=unsigned long long"} <= {
        option for launch in rare for option in launch.options
    }
    found = problems(DEFAULT_ARCH, {x: launches.budget(x, DEFAULT_ARCH) for x in rare})
    assert not found, "\n" + "\n".join(found)


@needs_nvcc
@pytest.mark.gate
def test_resources_page_is_true() -> None:
    """A kernel that is not on it yet is no fault, because whoever adds it may have no nvcc."""
    text = resources.PAGE.read_text() if resources.PAGE.is_file() else ""
    if text and f"nvcc {resources.release()} " not in text:
        pytest.skip(f"{resources.PAGE.name} was made with another nvcc than {resources.release()}")
    stale = sorted(set(text.splitlines()) - set(resources.page().splitlines()))
    assert text, f"{resources.PAGE} is missing: {resources.COMMAND}"
    assert not stale, f"{resources.PAGE} is stale: {resources.COMMAND}\n" + "\n".join(stale)


@pytest.mark.gate
def test_every_kernel_is_recorded() -> None:
    """One that is not: a primitive case of tests/ops must launch it."""
    root = source_root()
    written = {
        (path.relative_to(root).as_posix(), name)
        for path in root.rglob("*.cu")
        for name, _ in entries(path.read_text())
    }
    recorded = {(x.source, x.entry) for arch in GPUS for x in launches.record(arch)}
    assert recorded == written


@pytest.mark.slow
def test_every_variant_row_is_recorded() -> None:
    """One that is not: `cuda_shapes` of tests/support/conv2d/conv2d_cases.py must have a shape that it can compute.

    For a row for few output channels it is FEW_OUTPUTS there. For a row of the table of grouped convolutions it is
    COMPILED of tests/support/conv2d/grouped_geometry.py.
    """
    recorded = {name for arch in GPUS for name in launches.record_rows(arch)}
    assert recorded == {row.name for row in (*CONFIGURATIONS, *GROUPED) if row.device == "cuda"}


@pytest.mark.slow
def test_warpgroups_in_turns_are_compiled_for_tiles_of_every_width() -> None:
    """Kernels with the epilogue, for which a thread needs most registers, and with a first step where one is taken.

    Tiles of 32 pixels without a halo leave no registers for statistics beside the epilogue.
    """
    with_epilogue, with_step = set(), set()
    for launch in set().union(*launches.record_rows("sm_90a").values()):
        of = dict(option.removeprefix("-DALPHA_").partition("=")[::2] for option in launch.options)
        if of.get("PING_PONG") == "1":
            form = (launch.source, int(of["TILE_OW"]), int(of["TILE_IW"]) > int(of["TILE_OW"]))
            if launch.source.endswith("first_step.cu"):
                with_step.add(form)
            elif of["EPILOGUE"] == "1":
                with_epilogue.add(form)
    forms = [
        (width, has_halo)
        for width in (1, 2, 4, 8, 16, 32)
        for has_halo in (False, True)
        if (width, has_halo) != (1, True)
    ]
    sources = [f"conv2d/{operator}/sm90.cu" for operator in ("conv_v2", "ks_deconv")]
    assert with_epilogue == {(source, *form) for source in sources for form in forms}
    assert with_step == {("conv2d/ks_deconv/sm90_first_step.cu", *form) for form in forms if form[0] >= 16}


@pytest.mark.parametrize("name", launches.primitive_calls.CASES)
def test_float64_is_computed_or_refused(name: str) -> None:
    """No kernel reads float64 arrays as float32 ones."""
    for case, arguments in launches.primitive_cases():
        if case != name:
            continue
        doubles = launches.as_double(arguments)
        if repr(doubles) == repr(arguments):
            continue
        on = launches.device(DEFAULT_ARCH)
        try:
            launches.primitive_calls.run(REGISTRY[name], on, doubles)
        except TypeError:
            continue
        for launch in launches.recorded(on):
            options = " ".join(launch.options)
            of_others = "-DALPHA_WORD=" in options or "=bfloat16" in options or launch.source.startswith("sort/")
            assert "=double" in options or (of_others and "=float" not in options), launch


def test_problems_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launch("a.cu", "f", (), threads=512, shared_bytes=60 << 10)
    report = resources.Report({"f": resources.Resources(200, 8 << 10, 16, 4)}, ["a warning"])
    monkeypatch.setattr(resources, "compile_all", lambda arch, launches: {launch.unit: report})
    found = [line.removeprefix("a.cu:f : ") for line in problems("sm_75", {launch: 128})]
    assert found == [
        "200 registers a thread, 128 are allowed",
        "4 bytes of spills",
        "69632 bytes of shared memory, a block may have 65536",
        "a stack of 16 bytes",
        "a warning",
    ]


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "blocks"),
    [
        ("sm_80", 256, 32, 0, 8),  # all 64 warps
        ("sm_80", 256, 128, 0, 2),
        ("sm_80", 128, 168, 64 << 10, 2),  # shared memory: 2 x 65 KiB of 164
        ("sm_80", 32, 32, 0, 32),  # blocks
        ("sm_90a", 384, 168, 200 << 10, 1),
        ("sm_75", 1024, 64, 0, 1),
        ("sm_86", 256, 255, 0, 1),
        ("sm_90a", 512, 255, 0, 0),  # more registers than there are
    ],
)
def test_occupancy(arch: str, threads: int, registers: int, shared: int, blocks: int) -> None:
    assert resources.resident_blocks(arch, threads, registers, shared) == blocks


def test_report_of_the_assembler() -> None:
    log = (
        "ptxas info    : Compiling entry function 'f' for 'sm_80'\n"
        "ptxas info    : Function properties for f\n"
        "    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
        "ptxas info    : Used 40 registers, used 1 barriers, 4224 bytes smem, 420 bytes cmem[0]\n"
        "ptxas info    : Compiling entry function 'g' for 'sm_80'\n"
        "ptxas info    : Function properties for g\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 8 registers, used 0 barriers\n"
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async is serialized in 'g'\n"
    )
    report = resources.read_report(log)
    assert report.entries == {"f": resources.Resources(40, 4224, 8, 16), "g": resources.Resources(8, 0, 0, 0)}
    assert len(report.warnings) == 1
