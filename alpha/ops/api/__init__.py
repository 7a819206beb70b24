"""The names under which operators are offered: methods of Tensor, operator signs, PyTorch's further names."""
