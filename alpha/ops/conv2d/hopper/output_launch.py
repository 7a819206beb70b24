"""Plans of the Hopper kernels of ConvV2 and KS-deconv (wgmma, TMA).

The math mode of the configuration says how the operands reach the tensor cores:

    FP16X3, FP16  as scaled fp16 terms (cuda/common/fp16_terms.cuh): two terms are "float32", one has 11 bits. The
                  largest magnitude of each operand is computed first, for the scale that keeps fp16 in range. If a
                  tile is `prepared`, A lies in memory as one term.
    TF32          as floats, of which the tensor cores read 11 bits
    BF16          as bfloat16
"""

from __future__ import annotations

import functools
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.core.numerics import FLOAT32
from alpha.ops.conv2d.hopper import output_tiles, ping_pong, tile_schedule
from alpha.ops.conv2d.hopper.output_tiles import Tile
from alpha.ops.conv2d.problem import Epilogue, MathMode, Target
from alpha.ops.conv2d.shape import ConvShape, as_axes_struct, ndim
from alpha.ops.conv2d.step_form import StepForm
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan, ScalarArg, State, Table, TensorMaps
from alpha.ops.kernel.rectifier import FROM_SUM
from alpha.ops.kernel.sums import MEETING_STATE

if TYPE_CHECKING:
    from alpha.ops.conv2d.problem import Configuration

ABSMAX = ArrayArg("absmax_a", optional=True), ArrayArg("absmax_b", optional=True)  # only for fp16 terms
STATISTICS_PADDING = 16


def statistics_bytes(tile: Tile) -> int:
    """Bytes of shared memory for the statistics of a tile's columns: TileStatistics of sm90/statistics.cuh."""
    return 4 * (tile.BN + 2 * tile.consumer_warps * (tile.BN + STATISTICS_PADDING))


def step_bytes(tile: Tile) -> int:
    """Bytes of shared memory for the sums of a tile's columns: FirstStep::Shared of sm90/first_step.cuh."""
    return statistics_bytes(tile) + 4 * (2 * tile.BN + tile.consumer_warps)


MOST_STEP_SUMS = 128 * 128  # of a tile whose kernel has registers left for a first step
MOST_WIDE_MAPS = 2  # of floats, that a kernel of 256 rows, or with split-K, may read


@functools.lru_cache(maxsize=8)
def _semaphores(num_sms: int) -> State:
    """Two semaphores for each tile with split-K. They are zero at first, and each kernel leaves them zero."""
    tiles = tile_schedule.MAX_WAVES * num_sms
    return State(lambda: np.zeros(2 * tiles * tile_schedule.MAX_SPLITS, np.uint32))


def reads_weight(s: ConvShape, tile: Tile, num_sms: int) -> bool:
    """KS-deconv: True if the kernel reads W as it is, without a launch that splits or transposes it first.

    Tensor cores can read bfloat16 so, in boxes of 64 input channels. A filter of floats that stays in shared memory is
    transposed on its way there.
    """
    if tile.math is not MathMode.TF32:
        return tile.math is MathMode.BF16 and tile.BN % 64 == 0 and s.IC % 8 == 0
    return s.taps == 1 and keeps_filter(s, tile, output_tiles.ks_deconv_tiles(s, tile), False, num_sms)


def keeps_filter(
    s: ConvShape, tile: Tile, output: output_tiles.OutputTiles, forward: bool, num_sms: int, reserved: int = 0
) -> bool:
    """True if the filter of a block stays in shared memory.

    If it is transposed on its way there, that saves a launch, so it may have one tile.
    """
    K, GN = (s.IC, s.OC) if forward else (s.OC, s.IC)
    transposed = not forward and tile.math is MathMode.TF32 and s.taps == 1
    return tile_schedule.keeps_filter(output, (s.N, K, GN), num_sms, reserved, least_rounds=1 if transposed else 2)


class Splits(Enum):
    """The splits of K at which a tile spills registers."""

    ANY = "any number"
    SEVERAL = "more than one"


# tiles (math, BM, BN) that spill registers with statistics beside a bias or a rectifier; see tests/gate
STATISTICS_SPILL = {
    (MathMode.FP16, 128, 256): Splits.ANY,
    (MathMode.FP16, 192, 192): Splits.SEVERAL,
    (MathMode.FP16, 256, 128): Splits.SEVERAL,
    (MathMode.TF32, 256, 128): Splits.SEVERAL,
}
# math modes whose first steps find the magnitude of dZ beside sums of channels, which "tf32" alone asks for
MAGNITUDE_BESIDE_SUMS = MathMode.TF32, MathMode.FP16


def _spills_with_splits(step: StepForm, tile: Tile) -> bool:
    """True if a thread would need more registers for a first step than it has with split-K, as tests/gate finds."""
    if (tile.math, tile.BM, tile.BN) == (MathMode.TF32, 128, 96) and step.other:
        return True
    return tile.math is not MathMode.BF16 and (len(step.maps) > MOST_WIDE_MAPS or tile.BM == 192)


def _spills_with_transposed_filter(step: StepForm, tile: Tile) -> bool:
    """True if a thread would need more registers for a first step than it has where the kernel transposes a filter."""
    largest = tile.BM * tile.BN == MOST_STEP_SUMS
    return step.other and largest and (tile.BM == 256 or step.sign == FROM_SUM)


class OutputTilesLaunch:
    """The launch of conv_v2_sm90 or ks_deconv_sm90, with its schedule, its grid and its workspace."""

    def __init__(
        self,
        entry: str,
        tile: Tile,
        output: output_tiles.OutputTiles,
        s: ConvShape,
        A: TensorMaps,
        B: TensorMaps | None,
        target: Target,
        epilogue: Epilogue,
    ) -> None:
        self.entry, self.output, self.s, self.A, self.B = entry, output, s, A, B
        self.epilogue = epilogue
        self.forward = entry == "conv_v2_sm90"
        self.GN, self.K = (s.OC, s.IC) if self.forward else (s.IC, s.OC)
        self.num_sms = target.num_sms
        self.across = -(-self.GN // tile.BN)  # tiles of output channels
        self.tiles_per_work_tile = -(-s.N * output.tile_ow // tile.BM) * self.across
        has_room = tile.ping_pong or self._has_room(statistics_bytes(tile))
        self.statistics = bool(epilogue.statistics and has_room)
        spilling = STATISTICS_SPILL.get((tile.math, tile.BM, tile.BN)) if epilogue.changes_results else None
        self.statistics = self.statistics and spilling is not Splits.ANY
        takes = epilogue.step is not None and (tile.ping_pong or self._takes(epilogue.step, tile))
        self.step = epilogue.step if takes else None
        if self.step is not None and self.step.sums and tile.math not in MAGNITUDE_BESIDE_SUMS:
            self.step = self.step._replace(magnitude=False)
        self.reserved = self._reserved(self.step, tile)
        self.keeps_filter = tile.ping_pong or keeps_filter(s, tile, output, self.forward, self.num_sms, self.reserved)
        self.schedule = tile_schedule.tile_schedule(
            output, self.K, self.tiles_per_work_tile, self.num_sms, whole=self.keeps_filter
        )
        self.workspace_slots = self.schedule.workspace_slots
        if self.workspace_slots and self.step is not None and _spills_with_splits(self.step, tile):
            self.step, self.reserved = None, self._reserved(None, tile)
        if self.workspace_slots and self.step is not None and self.step.sums:
            self.step = self.step._replace(magnitude=False)  # for which a thread has no register left
        if self.workspace_slots and self.statistics and spilling is Splits.SEVERAL:
            self.statistics, self.reserved = False, self._reserved(None, tile)
        self.tiles = len(self.schedule) * self.tiles_per_work_tile
        # a block gets all registers and shared memory of an SM if no other block needs them, or if it needs them itself
        alone = self.workspace_slots or self.tiles <= self.num_sms or not output.stages(tile.blocks, self.reserved)[0]
        if self.keeps_filter or alone or self.step is not None:  # which needs the registers of an SM
            tile = tile._replace(blocks=1)
        self.tile = tile
        self.depth = 0
        turns = ping_pong.stages(output, self.K, s.taps, self.step) if tile.ping_pong else None
        if turns is not None:
            self.a_stages, self.b_stages, self.depth = turns
        elif self.keeps_filter:
            self.a_stages, self.b_stages = output.stages_beside_filter(self.K, self.reserved)
        else:
            self.a_stages, self.b_stages = output.stages(tile.blocks, self.reserved)
        # two blocks per SM hide each other's beginning and end; with one tile per block they are better balanced
        self.grid, self.threads = min(self.tiles, self.num_sms) if tile.blocks == 1 else self.tiles, tile.threads
        self.adds_up = self.statistics or (self.step is not None and self.step.sums)  # numbers of channels
        if self.keeps_filter or (self.adds_up and not self.workspace_slots):  # a block keeps to its channels
            self.grid -= self.grid % self.across
        self.parts = 0
        if self.adds_up and self.workspace_slots:  # one part per tile
            self.parts = len(output.rows) * len(output.starts) * self.tiles_per_work_tile // self.across
        elif self.adds_up:  # one part per block
            self.parts = self.grid // self.across

    def _has_room(self, reserved: int) -> bool:
        """True if there is room for sums of channels, and few SMs are idle although a block keeps to its channels."""
        return bool(self.output.stages(1, reserved)[0]) and self.num_sms % self.across <= self.num_sms // 8

    def _takes(self, step: StepForm, tile: Tile) -> bool:
        """True if the kernel has registers and room for a first step."""
        if self.GN % 8 or tile.BM * tile.BN > MOST_STEP_SUMS or (step.sums and not self._has_room(step_bytes(tile))):
            return False
        if tile.math is not MathMode.BF16 and (
            (tile.BM == 256 and len(step.maps) > MOST_WIDE_MAPS) or (step.other and not step.sums)
        ):  # for which a thread would need more registers than it has; see tests/gate
            return False
        if self.B is not None:
            return True
        if _spills_with_transposed_filter(step, tile):
            return False
        # a filter that the kernel transposes must stay
        return keeps_filter(self.s, tile, self.output, self.forward, self.num_sms, self._reserved(step, tile))

    def _reserved(self, step: StepForm | None, tile: Tile) -> int:
        """Bytes of shared memory beside the stages."""
        if step is not None and step.sums:
            return step_bytes(tile)
        return statistics_bytes(tile) if self.statistics else 0

    def plan(
        self,
        v: Configuration,
        outputs: dict[str, Buffer],
        prepare: tuple[KernelLaunch, ...],
        workspaces: dict[str, Buffer],
    ) -> Plan:
        if self.workspace_slots:
            sums = (self.workspace_slots * self.tiles_per_work_tile, self.tile.BM, self.tile.BN)
            workspaces = {**workspaces, "workspace": Buffer(sums, FLOAT32)}
        if self.statistics:
            outputs = {
                **outputs,
                "statistics": Buffer((2, self.parts, self.GN), FLOAT32),
                "statistics_counts": Buffer((self.parts,), FLOAT32, beside="statistics"),
            }
        if self.parts and self.step is not None:
            outputs = {**outputs, "part": Buffer((2, self.parts, self.GN), FLOAT32)}
        if self.magnitude:
            outputs = {**outputs, "magnitude": Buffer((1,), np.dtype(np.uint32))}
        return Plan(
            v.name,
            (*prepare, self.launch(next(iter(outputs)))),
            outputs,
            workspaces,
            facts={"scales": self.tile.math.in_fp16, "takes step": self.step is not None},
        )

    def launch(self, result: str) -> KernelLaunch:
        tile, schedule = self.tile, self.schedule
        arguments: list[Any] = [ArrayArg(result), self.A, self.B, *ABSMAX]
        if self.step is None:
            arguments += [ArrayArg("bias", optional=True), ScalarArg("slope")]
        arguments += [
            Table(lambda: schedule.order),
            len(schedule),
            int(self.raster_order()),
            ArrayArg("workspace", optional=True),
            _semaphores(self.num_sms) if self.workspace_slots else None,
        ]
        if self.forward:
            computed = (ArrayArg(name, optional=True) for name in ("statistics", "statistics_counts"))
            arguments += [*computed, self.parts, *self._meeting()]
        else:
            arguments.append(ArrayArg("W") if self.B is None else None)
        if self.step is not None:
            arguments += _step_arguments(self.step, self.parts, self._meeting())
        return KernelLaunch(
            *self.kernel,
            self.grid,
            self.threads,
            (*arguments, as_axes_struct(self.s)),
            {
                "NDIM": ndim(self.s),
                "BM": tile.BM,
                "BN": tile.BN,
                "MATH": tile.math.name,
                "BLOCKS": tile.blocks,
                "TILE_OW": self.output.tile_ow,
                "TILE_IW": self.output.tile_iw,
                "A_STAGES": self.a_stages,
                "B_STAGES": self.b_stages,
                "B_MN": int(
                    not self.forward and tile.math is MathMode.BF16 and reads_weight(self.s, tile, self.num_sms)
                ),
                "LAST_STEPS": tile.last_instructions(self.K),
                "RAGGED": int(self.GN % 8 > 0),
                "EPILOGUE": int(self.epilogue.changes_results),
                "SPLIT_K": int(self.workspace_slots > 0),
                "KEEP_B": int(self.keeps_filter),
                "PING_PONG": int(tile.ping_pong),
                "PREPARED": tile.prepared,
                "TRANSPOSE_B": int(self.B is None),
                "STATISTICS": int(self.statistics),
                "MAGNITUDE": int(self.magnitude),
                **({} if self.step is None else _step_macros(self.step, tile)),
                **({"DEPTH": self.depth} if self.depth else {}),
            },
            1024 + self.a_stages * self.output.a_bytes + self.b_stages * tile.b_bytes + self._maps_bytes(),
        )

    @property
    def magnitude(self) -> bool:
        """True if the kernel finds the largest magnitude of its result.

        With split-K a thread of the forward kernel has no register left for it.
        """
        if self.step is not None:
            return self.step.magnitude
        return self.forward and self.epilogue.magnitude and not self.workspace_slots

    def _meeting(self) -> tuple[Any, Any]:
        """The word for the largest magnitude, and those in which the blocks meet."""
        return (ArrayArg("magnitude"), MEETING_STATE) if self.magnitude else (None, None)

    def _maps_bytes(self) -> int:
        return 0 if self.step is None else ping_pong.maps_bytes(self.step, self.depth)

    @property
    def kernel(self) -> tuple[str, str]:
        """Source and entry."""
        folder = f"conv2d/{self.entry.removesuffix('_sm90')}"
        if self.step is None:
            return f"{folder}/sm90.cu", self.entry
        return f"{folder}/sm90_first_step.cu", self.entry.replace("_sm90", "_first_step_sm90")

    def raster_order(self) -> bool:
        """True if arithmetic intensity is low: finish one group of images before the next, so that X stays in L2."""
        if self.tile.BN > 64 and self.s.sh * self.s.sw == 1:
            return False
        waves = self.tiles / self.num_sms
        if self.forward:
            return waves > 2 and not self.workspace_slots
        # persistent blocks take tiles in a fixed order, so these must be equally long; those of a stride are not
        return waves > tile_schedule.MAX_WAVES and self.tile.blocks == 2


def _step_arguments(step: StepForm, parts: int, meeting: tuple[Any, Any]) -> list[Any]:
    """The arguments for a first step, in the order of ks_deconv/sm90_first_step.cu; `meeting` of the magnitude."""
    maps = [ArrayArg(f"behind {name}") if name in step.maps else None for name in ("other", "X", "Y", "residual")]
    columns = [ArrayArg(f"behind {name}", optional=True) for name in ("mean", "var", "weight", "bias")]
    magnitude = ArrayArg("behind Y magnitude") if step.half else None
    numbers = [ScalarArg(f"behind {name}") for name in ("eps", "smallest", "slope", "bound")]
    return [ArrayArg("part") if parts else None, parts, *meeting, *maps, magnitude, *columns, *numbers]


def _step_macros(step: StepForm, tile: Tile) -> dict[str, Any]:
    return {
        "TYPE": "bfloat16" if tile.math is MathMode.BF16 else "float",
        "VECTOR": 2,
        "RECTIFIED": step.sign,
        "SLOPED": int(step.sloped),
        "SUMS": int(step.sums),
        "OTHER": int(step.other),
        "Y_HALF": int(step.half),
    }
