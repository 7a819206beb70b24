"""The onnx package, which writes, reads and checks the files; it is loaded when it is first needed."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import numpy.typing as npt

from alpha.errors import CheckpointError
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


def tensor_values(tensor: Any) -> npt.NDArray[Any]:
    """The values of a tensor that a file holds.

    Raises:
        CheckpointError: the file is damaged: it names no such dtype, or has too few bytes.
    """
    try:
        found: npt.NDArray[Any] = onnx_package().numpy_helper.to_array(tensor)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"onnx.load: the tensor {tensor.name!r} of dtype {tensor.data_type} cannot be read: {error!r}"
        ) from error
    return found


def dtype_name(number: int) -> str:
    """The name of the dtype that has a number in files.

    Raises:
        CheckpointError: there is none.
    """
    try:
        return str(np.dtype(onnx_package().helper.tensor_dtype_to_np_dtype(number)).name)
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"onnx.load: ONNX has no dtype of the number {number}") from error
