"""Membership in a training: the place of each process, how they find each other, and how a dead one is noticed."""
