"""Values of wrong types or sizes give a Nnet3Error that says what was expected and found."""

import numpy as np
from nnet3_compiler import compile_computation
from nnet3_computation import (
    IoSpecification,
)
from small_networks import identity, request_for

NNET = identity(2)
OUTPUT = IoSpecification.from_range("output", 0, 2)
REQUEST = request_for(range(2), range(2))
COMPUTATION = compile_computation(NNET, REQUEST)
ARRAY = np.zeros((2, 2), np.float32)


AFFINE = "component name=c type=AffineComponent input-dim=2 output-dim=2 learning-rate={}\n"
SPEC = "input-node name=input dim=2\noutput-node name=output input={}\n"
