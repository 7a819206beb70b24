"""A device that plans memory: the arenas of a GPU, without its memory and without its work, and a ledger of blocks."""
