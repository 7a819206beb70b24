"""Checks of what optimizers keep beside weights, and programs that write the weights."""
