"""The memory of a step before it runs: its plan, the largest batch, and what helps if there is too little."""

from alpha.step.memory.planned import StepMemory, memory_plan

__all__ = ["StepMemory", "memory_plan"]
