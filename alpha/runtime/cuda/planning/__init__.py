"""Devices that only plan: a GPU without memory and work, and one that has a GPU's arenas and a ledger of blocks."""
