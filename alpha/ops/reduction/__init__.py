"""Reductions, scans and sorts along axes."""
