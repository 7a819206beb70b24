"""The driver without a GPU: kernels compiled by the C++ compiler, memory that notices mistakes, and their launches."""
