"""Batches on their way to the device, and what is counted of them there."""
