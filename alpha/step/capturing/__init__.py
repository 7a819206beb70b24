"""`alpha.capture`: how a step is recorded, checked and replayed."""
