"""The onnx package, which writes, reads and checks the files; it is loaded when it is first needed."""

from __future__ import annotations

import importlib
from typing import Any

from alpha.installation import install

IR_VERSION = 9  # of ONNX 1.15
OPSET = 20  # operators of ONNX 1.15; onnxruntime has them from 1.17 on


def onnx_package() -> Any:
    """The module `onnx`, with its parts `checker`, `helper` and `numpy_helper`.

    Raises:
        ImportError: it is not installed; the message names the extra.
    """
    try:
        for part in ("checker", "helper", "numpy_helper", "shape_inference"):
            importlib.import_module(f"onnx.{part}")
        return importlib.import_module("onnx")
    except ImportError as error:
        raise ImportError(f"alpha.onnx needs the package onnx, which is not installed: {install('onnx')}") from error
