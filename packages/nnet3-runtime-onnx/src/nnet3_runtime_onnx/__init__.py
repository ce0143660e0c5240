"""Kaldi nnet3 computations as ONNX graphs of standard operators, and their runs in ONNX Runtime."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

__version__ = "0.2.0"

if TYPE_CHECKING:
    from nnet3_runtime_onnx.any_length import to_onnx_of_any_length as to_onnx_of_any_length
    from nnet3_runtime_onnx.computer import OnnxComputer as OnnxComputer
    from nnet3_runtime_onnx.errors import ExportError as ExportError
    from nnet3_runtime_onnx.errors import RunError as RunError
    from nnet3_runtime_onnx.export import to_onnx as to_onnx
    from nnet3_runtime_onnx.quantization import quantization_error as quantization_error
    from nnet3_runtime_onnx.quantization import quantized as quantized
else:
    __getattr__, __dir__ = on_first_use(__name__)
