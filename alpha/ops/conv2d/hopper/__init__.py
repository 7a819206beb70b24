"""Kernels on Hopper (wgmma, TMA): tiles of output pixels and of filters, their order, and how they are launched."""
