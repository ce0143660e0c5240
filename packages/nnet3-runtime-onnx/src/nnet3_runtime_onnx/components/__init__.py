"""Translations of components into standard operators; importing the families registers them."""

from nnet3_runtime_onnx.components import rowwise as rowwise
from nnet3_runtime_onnx.components import sequences as sequences
from nnet3_runtime_onnx.components.declaration import Call as Call
from nnet3_runtime_onnx.components.declaration import translate as translate
from nnet3_runtime_onnx.components.declaration import translated_types as translated_types
from nnet3_runtime_onnx.components.declaration import translates as translates
from nnet3_runtime_onnx.components.declaration import why_not as why_not
from nnet3_runtime_onnx.matrices import Matrices as Matrices
from nnet3_runtime_onnx.matrices import Region as Region
from nnet3_runtime_onnx.matrices import Strip as Strip
