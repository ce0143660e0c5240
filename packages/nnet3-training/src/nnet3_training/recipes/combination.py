"""Combination: the average of as many of the last models as is best on some examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import attrs
from nnet3_descriptors import Nnet
from nnet3_descriptors.components import BatchNormComponent
from nnet3_descriptors.editing import weighted_sum

from nnet3_training.chain.training import ChainTraining, compute_chain_prob, with_component_stats
from nnet3_training.errors import ExampleError
from nnet3_training.examples import TrainingExample


@attrs.frozen(kw_only=True)
class Combination:
    """How models are combined; names and defaults are those of nnet3-chain-combine.

    Attributes:
        max_objective_evaluations: About so often the objective is computed, for averages of more
            and more models.
        batchnorm_test_mode: See `compute_chain_prob`.
        dropout_test_mode: See `compute_chain_prob`.

    Raises:
        ExampleError: the number is below 1.
    """

    max_objective_evaluations: int = 30
    batchnorm_test_mode: bool = False
    dropout_test_mode: bool = True

    def __attrs_post_init__(self) -> None:
        if self.max_objective_evaluations < 1:
            raise ExampleError(
                "max_objective_evaluations must be at least 1 (got "
                f"{self.max_objective_evaluations})"
            )


@attrs.frozen(kw_only=True, eq=False)
class Combined:
    """What came of it.

    Attributes:
        nnet: The average; if it has batch-norm, with statistics of the examples.
        num_models: Of how many models, the first ones given.
        objectives: For each number of models that was tried, the objective per frame.
    """

    nnet: Nnet
    num_models: int
    objectives: dict[int, float]


def combine(
    nnets: Iterable[Nnet],
    training: ChainTraining,
    examples: Sequence[TrainingExample],
    options: Combination | None = None,
    *,
    num_nnets: int,
    device: str = "cpu",
    after_evaluation: Callable[[int, float], object] | None = None,
) -> Combined:
    """Averages the first models, as many as is best.

    Args:
        nnets: Models of the same structure, the last of a training run first; one is held at a
            time.
        training: The objective, which counts at all outputs that are not of cross-entropy.
        examples: What it is computed on.
        options: How.
        num_nnets: How many models there are.
        device: Where to compute.
        after_evaluation: Is given the number of models of an average, and its objective.

    Raises:
        ExampleError: there are no models or no examples, or they do not fit each other.
        NetworkError: the models have not the same structure.
    """
    options = options or Combination()
    if not examples:
        raise ExampleError("there are no examples to choose a combination by")
    step = -(-num_nnets // options.max_objective_evaluations)
    objectives: dict[int, float] = {}
    average = best = None
    for number, nnet in enumerate(nnets):
        if average is None:
            average = nnet
        else:
            share = 1.0 / (number + 1)
            average = weighted_sum([average, nnet], [1.0 - share, share])
        if number % step and number != num_nnets - 1:
            continue
        value = _objective(average, training, examples, options, device)
        objectives[number + 1] = value
        if after_evaluation is not None:
            after_evaluation(number + 1, value)
        if best is None or value > objectives[best[0]]:
            best = number + 1, average
    if best is None:
        raise ExampleError("there are no models to combine")
    count, nnet = best
    if any(isinstance(component, BatchNormComponent) for component in nnet.components):
        nnet = with_component_stats(nnet, training, examples, device)
    return Combined(nnet=nnet, num_models=count, objectives=objectives)


def _objective(
    nnet: Nnet,
    training: ChainTraining,
    examples: Sequence[TrainingExample],
    options: Combination,
    device: str,
) -> float:
    """The objective per frame, of all outputs but those of cross-entropy."""
    sums = compute_chain_prob(
        nnet,
        training,
        examples,
        device,
        batchnorm_test_mode=options.batchnorm_test_mode,
        dropout_test_mode=options.dropout_test_mode,
    )
    trained = {io.name for example in examples for io in example.outputs}
    total = sum(sums[name].total for name in trained)
    value = total / sum(sums[name].weight for name in trained)
    return value if math.isfinite(value) else -math.inf
