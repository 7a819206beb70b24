"""Rules by which operators are written as nodes of ONNX, by subject; importing the package declares them all."""

from alpha.onnx.rules import elementwise_rules, map_rules, sequence_rules, shape_rules
from alpha.onnx.rules.rule_table import OF_ONE, RULES, rule, rule_of

__all__ = ["OF_ONE", "RULES", "elementwise_rules", "map_rules", "rule", "rule_of", "sequence_rules", "shape_rules"]
