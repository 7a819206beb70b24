"""Rows of families of functions and layers; `rows.every` joins them with those of the other files of rows/."""
