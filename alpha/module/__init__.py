"""Modules: trees of layers with parameters, buffers and hooks, and their state dicts."""
