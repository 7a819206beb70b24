"""Steps: what is known of one before it runs, `alpha.dry_run`, where its time goes, `alpha.profile`, and replays.

Steps are replayed by `alpha.capture`.
"""

from alpha.step.captured import Captured, capture
from alpha.step.dry import DryRun, compile_kernels, dry_run
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
