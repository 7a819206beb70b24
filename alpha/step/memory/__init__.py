"""The memory of a step before it runs: its plan, the largest batch, and what helps if there is too little."""

from alpha.step.memory import shortage as shortage  # tells errors for want of memory what a step holds
from alpha.step.memory.planned import StepMemory, memory_plan

__all__ = ["StepMemory", "memory_plan"]
