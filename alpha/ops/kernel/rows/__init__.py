"""Rows of arrays: taken, put, sorted and reduced, and how the threads of a kernel share them."""
