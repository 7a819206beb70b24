"""What a step depends on: all that its code reaches, and how a change of it is seen before a replay."""
