"""Sources of a step: all that its code reaches, and how a change of it is seen before a replay."""
