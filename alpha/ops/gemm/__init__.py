"""Tiles of matrix products."""
