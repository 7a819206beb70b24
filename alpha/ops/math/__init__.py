"""Arithmetic and mathematical functions of each element."""
