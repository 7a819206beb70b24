"""Convolutions with groups: depthwise, some channels a group, and any number."""
