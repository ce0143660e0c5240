"""Values of wrong types or sizes give a Nnet3Error that says what was expected and found."""

import numpy as np
import pytest
from nnet3_compiler import CompilationError, compile_computation, looped_requests
from nnet3_computation import (
    IoSpecification,
)
from small_networks import identity, request_for

NNET = identity(2)
OUTPUT = IoSpecification.from_range("output", 0, 2)
REQUEST = request_for(range(2), range(2))
COMPUTATION = compile_computation(NNET, REQUEST)
ARRAY = np.zeros((2, 2), np.float32)


def test_integers_of_numpy_are_integers() -> None:
    """The extra context of a looped computation may be one number."""
    requests = looped_requests(NNET, 2, extra_left_context=np.int64(1))

    assert requests == looped_requests(NNET, 2, extra_left_context=1)
    with pytest.raises(CompilationError, match="must not be negative"):
        looped_requests(NNET, 2, extra_right_context=np.int64(-1))


AFFINE = "component name=c type=AffineComponent input-dim=2 output-dim=2 learning-rate={}\n"
SPEC = "input-node name=input dim=2\noutput-node name=output input={}\n"
