"""Arithmetic of training on many GPUs, for simulate_scaling.py; docs/scaling.md explains it."""
