"""States of optimizers outside of a step: in checkpoints, and in the form of PyTorch."""
