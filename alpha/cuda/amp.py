"""`autocast` and `GradScaler` under the names of `torch.cuda.amp`."""

from __future__ import annotations

from typing import Any

from alpha import amp
from alpha.core.names.missing_names import tell_instead

__all__ = ["GradScaler", "autocast"]


class GradScaler(amp.GradScaler):
    """`alpha.amp.GradScaler`; see there. Arguments as PyTorch's, without a device."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


class autocast(amp.autocast):
    """`alpha.autocast("cuda")`; see there. Arguments as PyTorch's, with bfloat16 as the dtype."""

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


tell_instead(__name__)
