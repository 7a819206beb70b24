"""The arena: memory of a device that is asked for once and used again, with its segments, free blocks and counts."""
