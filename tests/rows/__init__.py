"""Facts that the tests must be told about each activation, loss, function, layer and optimizer: one row each.

All tests that hold for every one of them take their cases from these rows. What has no row fails a test that says so.
"""
