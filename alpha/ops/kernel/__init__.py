"""Building blocks of operators: plans and launches, dtypes, elementwise expressions, views, sums, in-place forms."""
