"""The choice of a kernel: the table of configurations, the model of their time, measurements, and what is taken."""
