"""What all operators are made of: plans and launches, dtypes, elementwise expressions, views, sums, in-place forms."""
