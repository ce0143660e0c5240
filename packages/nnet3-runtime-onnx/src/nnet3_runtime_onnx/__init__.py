"""Kaldi nnet3 computations as ONNX graphs of standard operators, and their runs in ONNX Runtime."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_runtime_onnx.any_length import to_onnx_of_any_length
    from nnet3_runtime_onnx.computer import OnnxComputer
    from nnet3_runtime_onnx.errors import ExportError, RunError
    from nnet3_runtime_onnx.export import to_onnx
    from nnet3_runtime_onnx.quantization import (
        QuantizationError,
        quantization_error,
        quantized,
    )

__version__ = "0.2.0"

__all__ = [
    "ExportError",
    "OnnxComputer",
    "QuantizationError",
    "RunError",
    "quantization_error",
    "quantized",
    "to_onnx",
    "to_onnx_of_any_length",
]

if not TYPE_CHECKING:  # else a type checker would take any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_runtime_onnx.any_length": ("to_onnx_of_any_length",),
            "nnet3_runtime_onnx.computer": ("OnnxComputer",),
            "nnet3_runtime_onnx.errors": (
                "ExportError",
                "RunError",
            ),
            "nnet3_runtime_onnx.export": ("to_onnx",),
            "nnet3_runtime_onnx.quantization": (
                "QuantizationError",
                "quantization_error",
                "quantized",
            ),
        },
    )
