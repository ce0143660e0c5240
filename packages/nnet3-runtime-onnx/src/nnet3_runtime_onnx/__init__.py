"""Kaldi nnet3 computations as ONNX graphs of standard operators, and their runs in ONNX Runtime."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_runtime_onnx.computer import OnnxComputer
    from nnet3_runtime_onnx.errors import ExportError, RunError
    from nnet3_runtime_onnx.export import to_onnx

__version__ = "0.2.0"

__all__ = ["ExportError", "OnnxComputer", "RunError", "to_onnx"]

if not TYPE_CHECKING:  # else a type checker would take any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_runtime_onnx.computer": ("OnnxComputer",),
            "nnet3_runtime_onnx.errors": (
                "ExportError",
                "RunError",
            ),
            "nnet3_runtime_onnx.export": ("to_onnx",),
        },
    )
