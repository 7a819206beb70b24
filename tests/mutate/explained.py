"""Mutants that no test can notice, by name (`make mutate` prints it), with the reason."""

EXPLAINED: dict[str, str] = {}
