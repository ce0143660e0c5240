"""Small examples for the tests of training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Nnet
from nnet3_training import DenseTargets, ExampleInput, ExampleOutput, TrainingExample


def example_of(
    inputs: Sequence[np.ndarray], targets: Sequence[np.ndarray], *, context: int = 0
) -> TrainingExample:
    """An example of dense targets.

    Args:
        inputs: Frames of each sequence, (frames + context, dim).
        targets: Targets of each sequence at the frames from 0 on, (frames, dim).
        context: The frames before frame 0.
    """
    return TrainingExample(
        inputs=[ExampleInput.from_sequences("input", inputs, t_start=-context)],
        outputs=[ExampleOutput.from_targets("output", targets)],
    )


def noise(
    seed: int, frames: int, dims: tuple[int, int], *, sequences: int = 1, context: int = 0
) -> TrainingExample:
    """An example of noise, with inputs and targets of these dimensions."""
    rng = np.random.default_rng(seed)
    inputs, targets = (
        [rng.standard_normal((length, dim), dtype=np.float32) for _ in range(sequences)]
        for length, dim in zip((frames + context, frames), dims, strict=True)
    )
    return example_of(inputs, targets, context=context)


def noise_for(nnet: Nnet, request: ComputationRequest, rng: np.random.Generator) -> TrainingExample:
    """An example of noise, with inputs and dense targets for the rows of a request."""

    def array(io: IoSpecification) -> np.ndarray:
        return rng.standard_normal((len(io.indexes), nnet.node_dim(io.name)), dtype=np.float32)

    return TrainingExample(
        inputs=[
            ExampleInput(name=io.name, indexes=io.indexes, values=array(io))
            for io in request.inputs
        ],
        outputs=[
            ExampleOutput(
                name=io.name, indexes=io.indexes, supervision=DenseTargets(values=array(io))
            )
            for io in request.outputs
        ],
    )
