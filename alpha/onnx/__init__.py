"""ONNX: `alpha.onnx.export` writes a model as an ONNX file."""

from alpha.onnx.exporter import export

__all__ = ["export"]
