"""Batch, layer, group, instance and local response normalisation, channels last."""
