"""The formulas of the component types, by family; importing the families registers them.

linear.py       affine maps, scales, offsets, products and sums of columns
nonlinear.py    nonlinear functions of a row, and normalization
masks.py        constants, dropout, masks of time
convolution.py  over time, or over the axes that columns stand for; pooling
recurrent.py    gates and cells of LSTM and GRU
sequences.py    attention, limits of derivatives, components in sequence
formula.py      the base class of formulas
"""

from nnet3_runtime_reference.formulas import convolution as convolution
from nnet3_runtime_reference.formulas import linear as linear
from nnet3_runtime_reference.formulas import masks as masks
from nnet3_runtime_reference.formulas import nonlinear as nonlinear
from nnet3_runtime_reference.formulas import recurrent as recurrent
from nnet3_runtime_reference.formulas import sequences as sequences
from nnet3_runtime_reference.formulas.formula import Call as Call
from nnet3_runtime_reference.formulas.formula import Formula as Formula
from nnet3_runtime_reference.formulas.formula import formula as formula
from nnet3_runtime_reference.formulas.formula import formula_of as formula_of
