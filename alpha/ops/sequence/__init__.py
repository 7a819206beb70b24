"""Attention, recurrent layers and packed sequences."""
