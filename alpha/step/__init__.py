"""Steps: dry runs (`alpha.dry_run`), memory plans, profiles (`alpha.profile`), and captured steps (`alpha.capture`)."""

from alpha.step.capturing.captured import Captured, capture
from alpha.step.compile_steps import compile_kernels
from alpha.step.dry import DryRun, dry_run
from alpha.step.memory import StepMemory, memory_plan
from alpha.step.profiling.profile import Profile, profile

__all__ = [
    "Captured",
    "DryRun",
    "Profile",
    "StepMemory",
    "capture",
    "compile_kernels",
    "dry_run",
    "memory_plan",
    "profile",
]
