"""Steps: what is known of one before it runs, `alpha.dry_run`, and steps that are replayed, `alpha.capture`."""

from alpha.step.captured import Captured, capture
from alpha.step.dry import DryRun, compile_kernels, dry_run

__all__ = ["Captured", "DryRun", "capture", "compile_kernels", "dry_run"]
