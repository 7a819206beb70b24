"""ONNX: `alpha.onnx.export` writes a model as an ONNX file, `alpha.onnx.load` makes a Module of one."""

from alpha.core.names.missing_names import tell_instead as _tell_instead
from alpha.onnx.exporter import export
from alpha.onnx.importer import load

__all__ = ["export", "load"]

_tell_instead(__name__)
