"""Random tensors and dropout."""
