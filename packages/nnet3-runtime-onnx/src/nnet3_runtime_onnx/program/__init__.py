"""The commands of a computation: those of one model, and the nodes for each command."""

from nnet3_runtime_onnx.program.commands import Exchange as Exchange
from nnet3_runtime_onnx.program.commands import Translator as Translator
from nnet3_runtime_onnx.program.commands import refusals as refusals
from nnet3_runtime_onnx.program.parts import Part as Part
from nnet3_runtime_onnx.program.parts import Parts as Parts
from nnet3_runtime_onnx.program.parts import RowUse as RowUse
from nnet3_runtime_onnx.program.parts import State as State
from nnet3_runtime_onnx.program.parts import with_rows_that_matter as with_rows_that_matter
