"""A training step on many GPUs: when gradients are ready, which buckets they fill, and what the step waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alpha.distributed import data_parallel
from scaling.allreduce import ALGORITHMS, Links, fastest

MB = 1 << 20  # of the limits of buckets
FLOAT32 = 4  # bytes
BESIDE_SHARE = 0.9


@dataclass(frozen=True)
class Layer:
    """A layer, in the order of the forward pass.

    Attributes:
        parameters: elements of each of its own.
        macs: multiply-adds of its forward pass for one image.
    """

    name: str
    parameters: tuple[int, ...]
    macs: int


@dataclass(frozen=True)
class Gradient:
    """A gradient; `ready` is the share of the backward pass after which it is there."""

    name: str
    elements: int
    ready: float


@dataclass(frozen=True)
class Bucket:
    """Gradients that one all-reduce averages; `ready` is that of the last of them."""

    gradients: tuple[Gradient, ...]

    @property
    def elements(self) -> int:
        return sum(gradient.elements for gradient in self.gradients)

    @property
    def ready(self) -> float:
        return self.gradients[-1].ready


@dataclass(frozen=True)
class Step:
    """A step on one GPU.

    Attributes:
        ms: its milliseconds.
        backward_share: of them that is the backward pass.
        beside_share: of the time of an all-reduce beside the backward pass, by which it makes that pass longer: both
            need multiprocessors and memory. The default is the mean of what docs/benchmarks.md has measured.
    """

    ms: float
    backward_share: float = 2 / 3
    beside_share: float = BESIDE_SHARE

    @property
    def backward_ms(self) -> float:
        return self.ms * self.backward_share


@dataclass(frozen=True)
class Outcome:
    """A step on many GPUs.

    Attributes:
        communication_ms: of all all-reduces together.
        exposed_ms: those between the end of the backward pass and that of the last all-reduce.
        slower_ms: by which the backward pass is longer, because of the all-reduces beside it.
        algorithms: of the all-reduces, each named once.
    """

    gpus: int
    alone_ms: float
    communication_ms: float
    exposed_ms: float
    slower_ms: float
    algorithms: tuple[str, ...]

    @property
    def step_ms(self) -> float:
        return self.alone_ms + self.exposed_ms + self.slower_ms

    @property
    def efficiency(self) -> float:
        """Images per second and GPU, as a share of those of one GPU alone."""
        return self.alone_ms / self.step_ms


def gradients_of(layers: Sequence[Layer]) -> list[Gradient]:
    """All gradients in the order of the backward pass, which takes a time for each layer in proportion to its macs."""
    total = sum(layer.macs for layer in layers)
    found, done = [], 0
    for layer in reversed(layers):
        done += layer.macs
        ready = done / total if total else 1.0
        found += [Gradient(layer.name, elements, ready) for elements in reversed(layer.parameters)]
    return found


def buckets_of(
    gradients: Sequence[Gradient],
    first_mb: float = 1,
    other_mb: float = 25,
    last_mb: float = data_parallel.LAST_BUCKET / MB,
) -> list[Bucket]:
    """Buckets of `alpha.DataParallel`: they take gradients, as they become ready, up to so many MB of float32."""
    sizes = [gradient.elements * FLOAT32 for gradient in reversed(gradients)]
    last = len(gradients) - 1  # the number of the parameter whose gradient is ready first
    found = data_parallel.buckets_of(sizes, other_mb * MB, first_mb * MB, last_mb * MB)
    return [Bucket(tuple(gradients[last - number] for number in bucket)) for bucket in found]


def simulate(
    buckets: Sequence[Bucket],
    gpus: int,
    step: Step,
    links: Links,
    element_bytes: int = FLOAT32,
    algorithm: str | None = None,
) -> Outcome:
    """One step: each bucket is averaged when it is ready and the one before it is done.

    Args:
        element_bytes: 4 for gradients in float32, 2 if they are compressed to bf16.
        algorithm: of all buckets; by default the fastest for each.
    """
    end = communication = 0.0
    used = []
    for bucket in buckets if gpus > 1 else []:
        size = bucket.elements * element_bytes
        name = algorithm or fastest(size, gpus, links)
        taken = ALGORITHMS[name](size, gpus, links)
        end = max(end, bucket.ready * step.backward_ms) + taken
        communication += taken
        used.append(name)
    exposed = max(0.0, end - step.backward_ms)
    slower = step.beside_share * (communication - exposed)
    return Outcome(gpus, step.ms, communication, exposed, slower, tuple(dict.fromkeys(used)))
