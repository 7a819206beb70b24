"""The rooms of bench_conv.py: what is timed, who computes it, how it is timed, what is written."""
