"""Number of Python calls of an eager step: a step without `alpha.capture` is as fast as its Python code.

    python tests/step/test_eager_step.py [PRECISION]

prints the time of the fastest step of ResNet18, with a GPU that computes nothing, and the functions that it calls
most often, with the number of their calls.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from helpers import python_calls

import alpha
from alpha import nn
from alpha.core.numerics import FLOAT32
from alpha.core.primitive import shares_memory
from alpha.models import resnet18
from alpha.nn import functional as F
from alpha.ops.kernel.plan import Buffer, Plan
from alpha.ops.kernel.sums import sum_launches
from alpha.runtime.arena.arena import Arena, Growth
from alpha.runtime.cuda.array import DeviceArray
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.driver import RawMemory
from alpha.runtime.cuda.planning.driver_dry import DryDevice, DryDriver, dry_properties
from alpha.runtime.cuda.scratch import WORKSPACE_BYTES
from alpha.runtime.registry import standing_in

# of Python functions in a step of about 230 launches; ten for each first step that is taken. In tf32 fp16 copies of
# activations and gradients are made, too, and what there is of an operand is asked for
MOST_CALLS = {"float32": 7_550, "tf32": 8_080, "bf16": 7_550}
# of memory that the step asks for; in tf32 with the copies
MOST_BLOCKS = {"float32": 251, "tf32": 271, "bf16": 193}
ALLOCATE = Arena.allocate.__code__
WARM_STEPS = 12  # after which a step asks for the same memory as the one before
MOST_SECONDS = 0.1  # many times what a step takes on a computer that has nothing else to do


class Counting(DryDriver):
    """A GPU that computes nothing, with one range of addresses that grows, as the memory of a real one does.

    Attributes:
        launched: how many kernels were launched.
        frames: of the last launch, from that of the driver outwards.
    """

    launched = 0
    frames: tuple[str, ...] = ()
    noting_frames = False

    def raw_memory(self, scratch: bool) -> RawMemory:
        end = (1 << 44) if scratch else (1 << 40)

        def allocate(nbytes: int) -> int:
            nonlocal end
            end += nbytes
            return end - nbytes

        def free(address: int) -> None:
            nonlocal end
            end = address

        return RawMemory(allocate, free, Growth.RANGE)

    def launch(self, *_: Any) -> None:
        self.launched += 1
        if self.noting_frames:
            frame, names = sys._getframe(), []
            while frame is not None:
                names.append(frame.f_code.co_name)
                frame = frame.f_back  # type: ignore[assignment]
            self.frames = tuple(names)


@contextmanager
def counting(precision: str) -> Iterator[Counting]:
    """The driver of the cuda device inside.

    What earlier tests left is collected once and put aside, so that each collection of `calls_of` is short.
    """
    driver = Counting(dry_properties("sm_90a"))
    gc.collect()
    gc.freeze()
    with standing_in(DryDevice(driver)), alpha.precision(precision):
        yield driver


def resnet_step() -> Callable[[], None]:
    """A step of the paper's ResNet18 with Adam, which has run until it repeats itself."""
    model = resnet18(num_classes=10, image_size=32).to("cuda")
    optimizer = alpha.optim.Adam(model.parameters(), lr=1e-3)
    x = alpha.tensor(np.zeros((512, 32, 32, 3), np.float32), device="cuda")
    y = alpha.tensor(np.zeros(512, np.int32), device="cuda")

    def step() -> None:
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(WARM_STEPS):
        step()
    return step


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_a_warm_step_makes_few_python_calls(precision: str) -> None:
    with counting(precision) as driver:
        step = resnet_step()
        # the least of some steps: one whose arrays lie elsewhere makes new tensor maps
        steps = [python_calls(step) for _ in range(16)]
        total, blocks = (min(map(count, steps)) for count in (Counter.total, lambda calls: calls[ALLOCATE]))
        driver.launched = 0
        step()
        assert 180 < driver.launched < 280
        assert total <= MOST_CALLS[precision], f"{total} Python calls for {driver.launched} launches"
        assert blocks <= MOST_BLOCKS[precision], f"{blocks} blocks for {driver.launched} launches"
        assert least_seconds(step, 5) < MOST_SECONDS


@pytest.mark.parametrize(
    ("layer", "most"),
    [
        (lambda: nn.Conv2d(64, 64, 3, padding=1), 8),
        (lambda: nn.BatchNorm2d(64), 9),
        (lambda: nn.MaxPool2d(2), 9),
        (lambda: nn.LeakyReLU(), 11),
        (lambda: nn.Sequential(nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64), nn.ReLU()), 10),
    ],
    ids=["Conv2d", "BatchNorm2d", "MaxPool2d", "LeakyReLU", "Conv2d and BatchNorm2d"],
)
def test_few_frames_lie_between_a_layer_and_its_kernel(layer: Callable[[], nn.Module], most: int) -> None:
    """Frames are counted between the call of the layer and `Driver.launch`."""
    with counting("tf32") as driver:
        module = layer().to("cuda")
        x = alpha.tensor(np.zeros((512, 16, 16, 64), np.float32), device="cuda", requires_grad=True)
        module(x)
        driver.noting_frames = True
        module(x)
        between = driver.frames[1 : driver.frames.index("test_few_frames_lie_between_a_layer_and_its_kernel")]
        assert between[-1] == "__call__"
        assert len(between) <= most, between


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_memory_is_used_again_by_the_next_step(precision: str) -> None:
    """The arena settles within `WARM_STEPS`, at most a tenth above the peak. Otherwise it would grow in each step."""
    with counting(precision):
        step = resnet_step()
        device = alpha.get_device("cuda")
        settled = device.memory_stats()
        for _ in range(60):
            step()
        assert device.memory_stats().reserved == settled.reserved <= 1.1 * settled.peak


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_a_step_searches_no_memory_once_it_repeats(precision: str) -> None:
    """The end of backward marks the step; tensor maps and the loss of the step before change nothing."""
    with counting(precision):
        step = resnet_step()
        assert python_calls(step)[Arena._search.__code__] == 0


def small_net() -> tuple[nn.Module, Any]:
    layers = nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to("cuda")
    return net, alpha.optim.Adam(net.parameters(), lr=1e-3)


def batch(height: int = 32) -> tuple[alpha.Tensor, alpha.Tensor]:
    images, labels = np.zeros((64, height, 32, 3), np.float32), np.zeros(64, np.int32)
    return alpha.tensor(images, device="cuda"), alpha.tensor(labels, device="cuda")


def batches_from_the_host() -> Iterator[None]:
    """A batch lives until the next one is there, as do its output and its loss."""
    net, optimizer = small_net()
    while True:
        x, y = batch()
        output = net(x)
        loss = F.cross_entropy(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        yield


def four_batches_for_an_update() -> Iterator[None]:
    net, optimizer = small_net()
    x, y = batch()
    while True:
        for _ in range(4):
            (F.cross_entropy(net(x), y) / 4).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def an_evaluation_now_and_then() -> Iterator[None]:
    net, optimizer = small_net()
    for number in count(1):
        x, y = batch()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % 5 == 0:
            net.eval()
            with alpha.no_grad():
                for _ in range(3):
                    net(x)
            net.train()
        yield


def three_sizes_of_images() -> Iterator[None]:
    net, optimizer = small_net()
    for number in count():
        x, y = batch(24 + 8 * (number % 3))
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def losses_that_are_kept() -> Iterator[None]:
    net, optimizer = small_net()
    x, y = batch()
    losses = []
    while True:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        yield


def two_networks() -> Iterator[None]:
    """Two networks in turn, as a generator and a discriminator."""
    (first, first_optimizer), (second, second_optimizer) = small_net(), small_net()
    while True:
        x, y = batch()
        target = first(x)
        (second(x) - target.detach()).square().mean().backward()
        second_optimizer.step()
        second_optimizer.zero_grad()
        F.cross_entropy(target, y).backward()
        first_optimizer.step()
        first_optimizer.zero_grad()
        yield


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        batches_from_the_host,
        four_batches_for_an_update,
        an_evaluation_now_and_then,
        three_sizes_of_images,
        losses_that_are_kept,
        two_networks,
    ],
    ids=lambda program: program.__name__,
)
def test_other_programs_repeat_themselves(program: Callable[[], Iterator[None]]) -> None:
    """All but one step in 20 search no memory: the losses that are kept need a new slab at times."""
    with counting("tf32"):
        run = program()
        for _ in range(40):
            next(run)
        searching = [bool(python_calls(lambda: next(run))[Arena._search.__code__]) for _ in range(40)]
        run.close()  # type: ignore[attr-defined]
    assert sum(searching) <= 2 + 4 * (program is losses_that_are_kept), searching


def test_dw_behind_batch_normalisation_needs_no_pass_for_its_scale() -> None:
    """The magnitudes that its kernels find reach the choice for dW: one fp16 term, and not two bfloat16 terms."""
    driver = DryDriver(dry_properties("sm_90a"))
    with standing_in(DryDevice(driver)), alpha.precision("tf32"), driver.noting() as launched:
        resnet_step()
    maths = [x.macros["MATH"] for x in launched if "sk_dilated/sm90" in x.source]
    steps = maths.count("BF16X3")  # in each the first: dW of the last layer, a matrix product of unknown magnitudes
    first = maths[:: len(maths) // steps]
    assert (len(first), {*first}) == (steps, {"BF16X3"})
    assert set(maths) == {"BF16X3", "FP16"}


def test_outputs_that_are_dropped_together_share_a_block() -> None:
    """The two gradients of a batch normalisation lie side by side, and neither is copied on its way to `.grad`."""
    with counting("tf32") as driver:
        norm = nn.BatchNorm2d(64).to("cuda")
        x = alpha.tensor(np.zeros((8, 16, 16, 64), np.float32), device="cuda", requires_grad=True)
        y = norm(x)
        driver.launched = 0
        y.backward(alpha.tensor(np.zeros(y.shape, np.float32), device="cuda"))
        assert driver.launched == 2  # the sums, and the gradient of x
        dw, db = (parameter.grad.array for parameter in norm.parameters() if parameter.grad is not None)
        assert dw.block is db.block
        assert abs(dw.address - db.address) >= dw.nbytes
        assert not shares_memory(dw, (db,))
        assert shares_memory(dw, (dw.reshape(8, 8),))
        assert shares_memory(dw, (dw.slice_rows(1, 2),))
        assert not shares_memory(dw.slice_rows(0, 1), (dw.slice_rows(1, 2),))
        device = alpha.get_device("cuda")
        del y
        x.grad = None  # whose magnitude lies in the same block
        live = device.memory_stats().live
        norm.weight.grad = None
        del dw
        assert device.memory_stats().live == live  # the gradient of the bias still lies there
        norm.bias.grad = None
        del db
        assert device.memory_stats().live < live


def test_small_workspaces_of_all_plans_lie_in_one_place() -> None:
    """Large ones, and those of a driver that isolates arrays, are made for each launch."""

    def kept(device: CudaDevice, elements: int) -> Mapping[str, DeviceArray]:
        """The workspace that the device keeps for a sum, which is said to have so many elements."""
        launches, workspaces = sum_launches("X", "Y", (1, 100_000, 64), FLOAT32, 4, device.properties.num_sms)
        ((name, _),) = workspaces.items()
        plan = Plan("sum", tuple(launches), {"Y": Buffer((1, 64), FLOAT32)}, {name: Buffer((elements,), FLOAT32)})
        plan.launch(device, {"X": device.empty((1, 100_000, 64), FLOAT32)})
        found: Mapping[str, DeviceArray] = device.prepared[plan].kept
        return found

    with counting("tf32"):
        device = cast(CudaDevice, alpha.get_device("cuda"))
        one, other = (kept(device, elements)["Y in parts"] for elements in (1000, WORKSPACE_BYTES // 4))
        assert one.address == other.address
        assert one.block is other.block
        live = device.memory_stats().live
        assert not kept(device, WORKSPACE_BYTES // 4 + 1)
        assert device.memory_stats().live == live
    isolated = DryDevice.of("sm_90a")
    with standing_in(isolated):
        assert not kept(isolated, 1000)


def least_seconds(step: Callable[[], None], steps: int = 50) -> float:
    """The time of the fastest of some steps."""
    found = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        found.append(time.perf_counter() - start)
    return min(found)


def main() -> None:
    with counting(sys.argv[1] if len(sys.argv) > 1 else "tf32") as driver:
        step = resnet_step()
        driver.launched = 0
        counts = python_calls(step)
        print(f"{sum(counts.values())} Python calls, {driver.launched} launches, {least_seconds(step) * 1e3:.2f} ms")
        for code, count in counts.most_common(40):
            print(f"{count:6} {Path(code.co_filename).name}:{code.co_firstlineno} {code.co_name}")


if __name__ == "__main__":
    main()
