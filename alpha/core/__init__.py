"""Tensors and what they need: dtypes, random numbers, primitives, values of the host."""
