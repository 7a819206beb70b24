"""Pooling over windows, channels last."""
