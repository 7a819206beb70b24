"""Statistics of channels that a convolution computes for the batch normalisation of its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from alpha.core.primitive import Array

if TYPE_CHECKING:
    from alpha.core.tensor import Tensor


@dataclass
class ChannelStatistics:
    """Statistics of the channels of one tensor, given to the `conv2d` that makes it and to its `batch_norm`.

        statistics = ChannelStatistics()
        y = F.conv2d(x, weight, statistics=statistics)
        z = F.batch_norm(y, running_mean, running_var, training=True, statistics=statistics)

    If the kernel of the convolution cannot compute them, they stay empty, and `batch_norm` reads y itself.

    Attributes:
        part: (2, parts, C), the mean and the sum of squared deviations of each channel over some rows; None if empty.
        counts: (parts,), the number of these rows.
    """

    part: Any = None
    counts: Any = None
    _described: tuple[tuple[int, ...], Any, int] | None = None  # shape, version and its value of the tensor

    def take(self, found: Mapping[str, Any]) -> None:
        """Take what a plan has made; without statistics there, they are empty."""
        self.part, self.counts = found.get("statistics"), found.get("statistics_counts")

    def describe(self, y: Tensor) -> None:
        """Note that these are the statistics of `y`."""
        self._described = y.shape, y._version, y._version.value

    def describes(self, y: Tensor) -> bool:
        """True if these are the statistics of `y` and nothing was written to it since."""
        if self.part is None or self._described is None:
            return False
        shape, version, value = self._described
        return y.shape == shape and y._version is version and version.value == value


class StatisticsArguments(NamedTuple):
    """The arguments of the primitive `channel_statistics` after X.

    Attributes:
        running_mean, running_var: (C,), the running statistics, which are moved; None: there are none.
        momentum: the share of the batch in the new running statistics.
        statistics: of parts of X, if the convolution that made X found them.
    """

    running_mean: Array | None
    running_var: Array | None
    momentum: float
    statistics: ChannelStatistics | None = None
