"""The two sides of bench_scaling.py, Alpha and PyTorch's DDP: their processes, and the steps that are measured."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from compare.ranks import data_parallel, gather_torch, join_torch

import alpha
from alpha import distributed, models
from alpha.distributed.membership.environment import place_of
from alpha.errors import DeviceError, DistributedError
from alpha.nn import functional as F
from alpha.train.commands.command_line import join_ranks

NETWORKS = {
    "resnet18/32": ("resnet18", 32),
    "vgg16/32": ("vgg16", 32),
    "resnet18/128": ("resnet18", 128),
    "vgg16/128": ("vgg16", 128),
    "resnet50/224": ("torchvision.resnet50", 224),
}
COMPARED = 50  # steps, after which the weights of all ranks must be equal
WARM, WINDOWS, WINDOW_S = 8, 5, 0.3
ALONE, TOGETHER, EXCHANGED = "alone", "together", "exchanged"  # a step that exchanges nothing, a number, its gradients
Step = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """A step that is measured.

    Attributes:
        batch: images of this GPU.
        kind: ALONE, TOGETHER or EXCHANGED.
        bucket_cap_mb: MiB of gradients that are sent together; None is the default of a side.
    """

    network: str
    precision: str
    batch: int
    kind: str
    device: str
    bucket_cap_mb: float | None = None

    @property
    def buckets(self) -> dict[str, float]:
        """Options of a side's DataParallel."""
        return {} if self.bucket_cap_mb is None else {"bucket_cap_mb": self.bucket_cap_mb}


class Side(Protocol):
    """A framework, in a process that a launcher has started.

    Attributes:
        rank: the number of this process, of `count`.
    """

    rank: int
    count: int

    def forget(self) -> None:
        """Forget what was compiled for earlier steps."""

    def step(self, case: Case) -> tuple[Step, Callable[[], bytes], int]:
        """A step, a function that gives the bytes of the weights, and the bytes of all gradients."""

    def wait(self) -> None:
        """Wait for the device."""

    def gather(self, number: float) -> list[float]:
        """A number of each rank."""

    def all_reduce(self, nbytes: int) -> Step:
        """Function that reduces an array of so many bytes over all ranks."""


def network(name: str) -> Any:
    """Alpha's network of one of NETWORKS, on the cpu."""
    kind, size = NETWORKS[name]
    alpha.manual_seed(0)
    if kind.startswith("torchvision."):
        return getattr(models.torchvision, kind.partition(".")[2])(num_classes=1000)
    return getattr(models, kind)(1000 if size > 32 else 10, size)


def images_of(name: str, batch: int, rank: int) -> tuple[Any, Any]:
    """Pixels (N, H, W, 3) in [-1, 1] and labels (N,) of a rank."""
    size, rng = NETWORKS[name][1], np.random.default_rng(rank)
    pixels = rng.random((batch, size, size, 3), dtype=np.float32) * 2 - 1
    return pixels, rng.integers(0, 10, batch).astype(np.int32)


class AlphaSide:
    """Captured steps with `alpha.DataParallel`."""

    def __init__(self, device: str) -> None:
        join_ranks(device)
        self.rank, self.count = distributed.rank(), distributed.world_size()
        self._device = alpha.get_device(device)

    def forget(self) -> None:
        """Do nothing: a captured step goes with its function."""

    def step(self, case: Case) -> tuple[Step, Callable[[], bytes], int]:
        model = network(case.network).to(case.device)
        parameters = list(model.parameters())
        many = distributed.is_initialized()
        run = alpha.DataParallel(model, **case.buckets) if case.kind == EXCHANGED and many else model
        optimizer = alpha.optim.Adam(parameters, lr=1e-3)
        x, y = (alpha.tensor(values, device=case.device) for values in images_of(case.network, case.batch, self.rank))
        number = alpha.zeros(1, device=case.device)
        together = case.kind == TOGETHER and many

        @alpha.capture
        def step() -> Any:
            loss = F.cross_entropy(run(x), y)
            optimizer.zero_grad()
            loss.backward()
            if together:
                distributed.all_reduce(number)
            optimizer.step()
            return loss.detach()

        def in_precision() -> Any:
            with alpha.precision(case.precision):
                return step()

        if case.device == "cuda":
            with alpha.precision(case.precision):
                alpha.compile_kernels(step)
        weights = [parameter.array.nbytes for parameter in parameters]
        return in_precision, lambda: b"".join(p.numpy().tobytes() for p in parameters), sum(weights)

    def wait(self) -> None:
        self._device.synchronize()

    def gather(self, number: float) -> list[float]:
        return distributed.gather_numbers(number)

    def all_reduce(self, nbytes: int) -> Step:
        numbers = alpha.zeros(nbytes // 4, device=self._device)
        return lambda: distributed.all_reduce(numbers, "mean")


class DdpSide:
    """Compiled steps, channels_last, with a fused Adam and DistributedDataParallel.

    Args:
        mode: of torch.compile.
    """

    def __init__(self, device: str, mode: str = "default") -> None:
        if device == "cpu":
            raise DeviceError(
                "--sides DDP: its processes talk through NCCL, which needs GPUs; --sides Alpha runs on CPUs"
            )
        import torch

        self._torch, self._mode = torch, mode
        join_torch(device)
        place = place_of()
        self.rank, self.count = place.rank, place.world_size

    def forget(self) -> None:
        self._torch._dynamo.reset()

    def step(self, case: Case) -> tuple[Step, Callable[[], bytes], int]:
        torch = self._torch
        torch.backends.cudnn.benchmark = True
        strict = case.precision == "float32"
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = not strict
        model = self._network(case.network).to(case.device, memory_format=torch.channels_last)
        parameters = list(model.parameters())
        if case.kind == EXCHANGED and self.count > 1:
            model = data_parallel(model, best=True, **case.buckets)
        run = torch.compile(model, mode=self._mode)
        optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)
        pixels, labels = images_of(case.network, case.batch, self.rank)
        x = torch.from_numpy(pixels).to(case.device).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
        y = torch.from_numpy(labels).to(case.device).long()
        number = torch.zeros(1, device=case.device)

        def step() -> Any:
            with torch.autocast(case.device, torch.bfloat16, enabled=case.precision == "bf16"):
                loss = torch.nn.functional.cross_entropy(run(x), y)
            optimizer.zero_grad()
            loss.backward()
            if case.kind == TOGETHER and self.count > 1:
                torch.distributed.all_reduce(number)
            optimizer.step()
            return loss.detach()

        nbytes = sum(parameter.nbytes for parameter in parameters)
        return step, lambda: b"".join(p.detach().cpu().numpy().tobytes() for p in parameters), nbytes

    def _network(self, name: str) -> Any:
        """PyTorch's network, with the weights of Alpha's where it has the same names."""
        from compare.networks import twin
        from compare.twins import copy_weights

        kind, size = NETWORKS[name]
        if not kind.startswith("torchvision."):
            return copy_weights(network(name), twin(kind, 1000 if size > 32 else 10, size))
        from torchvision import models as torchvision_models

        self._torch.manual_seed(0)
        return getattr(torchvision_models, kind.partition(".")[2])(num_classes=1000)

    def wait(self) -> None:
        self._torch.cuda.synchronize()

    def gather(self, number: float) -> list[float]:
        return [values[0] for values in gather_torch([number])]

    def all_reduce(self, nbytes: int) -> Step:
        numbers, torch = self._torch.zeros(nbytes // 4, device="cuda"), self._torch
        return lambda: torch.distributed.all_reduce(numbers, torch.distributed.ReduceOp.AVG)


SIDES: dict[str, Callable[[str], Side]] = {
    "Alpha": AlphaSide,
    "DDP": DdpSide,
    "DDP graphs": lambda device: DdpSide(device, "reduce-overhead"),
}


def measured_ms(side: Side, steps: Sequence[Step], most: int) -> list[float]:
    """Median milliseconds of each step over windows, of the slowest rank.

    The steps have their windows in turns, since a GPU becomes slower as it becomes warm, and its clock moves. All ranks
    begin a window at once; it has at most `most` calls of a step.
    """

    def window(step: Step, calls: int) -> float:
        side.gather(0.0)
        start = time.perf_counter()
        for _ in range(calls):
            step()
        side.wait()
        return 1e3 * (time.perf_counter() - start) / calls

    calls = []
    for step in steps:
        window(step, min(most, WARM))  # a captured step is one from its third call on
        first = max(side.gather(window(step, min(most, WARM))))
        calls.append(max(1, min(most, round(1e3 * WINDOW_S / first))))
    windows = [[window(step, count) for step, count in zip(steps, calls, strict=True)] for _ in range(WINDOWS)]
    return [max(side.gather(statistics.median(times))) for times in zip(*windows, strict=True)]


def weights_after(side: Side, step: Step, weights: Callable[[], bytes], steps: int) -> str:
    """Run so many steps; a digest of the weights, which must be the same on all ranks.

    Raises:
        DistributedError: it is not.
    """
    for _ in range(steps):
        step()
    digest = hashlib.blake2b(weights(), digest_size=6).hexdigest()
    found = side.gather(float(int(digest, 16)))
    if len(set(found)) > 1:
        raise DistributedError(f"the weights of the ranks differ after {steps} steps")
    return digest
