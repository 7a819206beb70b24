"""Steps that are captured in a CUDA graph: `alpha.capture`."""

from alpha.step.captured import Captured, capture

__all__ = ["Captured", "capture"]
