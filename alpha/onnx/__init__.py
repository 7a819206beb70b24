"""ONNX: `alpha.onnx.export` writes a model as an ONNX file, `alpha.onnx.load` makes a Module of one."""

from alpha.onnx.exporter import export
from alpha.onnx.importer import load

__all__ = ["export", "load"]
