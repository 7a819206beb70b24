"""Tensors made, put together, cut and given another shape."""
