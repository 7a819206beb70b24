"""What is known of a step before it runs, `alpha.dry_run`, and steps that are replayed, `alpha.capture`."""

from alpha.step.captured import Captured, capture
from alpha.step.dry import DryRun, dry_run
from alpha.step.precompile import compile_kernels

__all__ = ["Captured", "DryRun", "capture", "compile_kernels", "dry_run"]
