"""Folders of tests of several processes, which share the programs that these run and `ranks`, which starts them."""
