"""Table of a model's layers before it is trained: shapes, parameters, work and memory."""
