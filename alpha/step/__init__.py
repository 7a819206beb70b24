"""Steps: what is known of one before it runs, `alpha.dry_run`, and steps that are replayed, `alpha.capture`."""

from alpha.step.captured import Captured, capture
from alpha.step.dry import DryRun, compile_kernels, dry_run
from alpha.step.memory import StepMemory, memory_plan

__all__ = ["Captured", "DryRun", "StepMemory", "capture", "compile_kernels", "dry_run", "memory_plan"]
