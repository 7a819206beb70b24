"""The parts of compare_pytorch.py: data, PyTorch's twins of the networks, training, ranks, tables and curves."""
