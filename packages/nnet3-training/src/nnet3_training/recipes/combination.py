"""Combination: averages the last models of a run; their number is the best on some examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import attrs
from nnet3_descriptors import Nnet, components, editing

from nnet3_training import errors, fields
from nnet3_training.egs.examples import TrainingExample
from nnet3_training.evaluation import Evaluator, in_test_mode, zero_component_stats
from nnet3_training.objectives import ObjectiveFunction


@attrs.frozen(kw_only=True)
class Combination:
    """The options of combining models; names and defaults are those of nnet3-combine.

    Attributes:
        max_objective_evaluations: Approximate number of averages, of more and more models, whose
            objective is computed.
        batchnorm_test_mode: Whether batch-norm uses the statistics of the network; else those of
            each example, unless the network is in test mode already.
        dropout_test_mode: Whether dropout lets everything pass; else as the network says.

    Raises:
        ExampleError: the number is below 1.
    """

    max_objective_evaluations: int = fields.integer(errors.ExampleError, 30, least=1)
    batchnorm_test_mode: bool = False
    dropout_test_mode: bool = True


@attrs.frozen(kw_only=True, eq=False)
class Combined:
    """The result of a combination.

    Attributes:
        nnet: The average; if it has batch-norm, with statistics of the examples.
        num_models: Number of averaged models, from the first one given.
        objectives: For each number of models that was tried, the objective per frame.
        recomputed: The evaluation during which the statistics of batch-norm were gathered; None
            without batch-norm.
    """

    nnet: Nnet
    num_models: int
    objectives: dict[int, float]
    recomputed: Evaluator | None


def combine(
    nnets: Iterable[Nnet],
    examples: Sequence[TrainingExample],
    options: Combination | None = None,
    *,
    num_nnets: int,
    objective: ObjectiveFunction | None = None,
    stats_objective: ObjectiveFunction | None = None,
    device: str = "cpu",
    after_evaluation: Callable[[int, float], object] | None = None,
) -> Combined:
    """Averages the first models; chooses the best number of them.

    Args:
        nnets: Models of the same structure, the last one of a training run first; one is in memory
            at a time.
        examples: The examples to evaluate on; the objective is that of their outputs.
        options: The options.
        num_nnets: Number of models.
        objective: The objective function, such as a `ChainTraining`; by default the objectives of
            the output nodes.
        device: The device, as for an `Evaluator`.
        stats_objective: The objective function while statistics are gathered afterwards; by default
            the same. It may use outputs that the choice ignores.
        after_evaluation: Called with the number of models of an average, and its objective.

    Raises:
        ExampleError: there are no models, no examples or none with weight, or they do not fit each
            other; or no average has an objective that is finite.
        NetworkError: the models differ in structure.
    """
    options = options or Combination()
    if not examples:
        raise errors.ExampleError("there are no examples to choose a combination by")
    step = -(-num_nnets // options.max_objective_evaluations)
    objectives: dict[int, float] = {}
    average = best = None
    for number, nnet in enumerate(nnets):
        if average is None:
            average = nnet
        else:
            share = 1.0 / (number + 1)
            average = editing.weighted_sum([average, nnet], [1.0 - share, share])
        if number % step and number != num_nnets - 1:
            continue
        tested = in_test_mode(
            average, batchnorm=options.batchnorm_test_mode, dropout=options.dropout_test_mode
        )
        value = _objective(Evaluator(tested, device=device, objective=objective), examples)
        objectives[number + 1] = value
        if after_evaluation is not None:
            after_evaluation(number + 1, value)
        if best is None or value > objectives[best[0]]:
            best = number + 1, average
    if best is None:
        raise errors.ExampleError("there are no models to combine")
    count, nnet = best
    if objectives[count] == -math.inf:
        raise errors.ExampleError(
            f"the objective of no average of {num_nnets} models is finite: models, or examples to "
            "choose a combination by, have numbers that are too large"
        )
    recomputed = None
    if any(isinstance(component, components.BatchNormComponent) for component in nnet.components):
        tested = in_test_mode(zero_component_stats(nnet), batchnorm=False, dropout=True)
        recomputed = Evaluator(
            tested, device=device, objective=stats_objective or objective, component_stats=True
        )
        for example in examples:
            recomputed.add(example)
        nnet = _with_test_modes_of(nnet, recomputed.nnet)
    return Combined(nnet=nnet, num_models=count, objectives=objectives, recomputed=recomputed)


def _objective(evaluator: Evaluator, examples: Sequence[TrainingExample]) -> float:
    """The objective per frame of all outputs, with auxiliary terms.

    A chain model has the cross-entropy output, if that counts, and l2 regularization as such terms.
    The result is -inf if the sum is not finite.
    """
    for example in examples:
        evaluator.add(example)
    totals = evaluator.objectives.values()
    weight = sum(each.weight for each in totals)
    if not weight:
        raise errors.ExampleError("the examples to choose a combination by have no weight")
    value = sum(each.total + each.auxiliary for each in totals) / weight
    return value if math.isfinite(value) else -math.inf


def _with_test_modes_of(original: Nnet, nnet: Nnet) -> Nnet:
    """The network with the test modes of the original one."""
    return nnet.with_components(
        {
            name: component.replace(test_mode=other.test_mode)
            for name, component, other in zip(
                nnet.component_names, nnet.components, original.components, strict=True
            )
            if hasattr(other, "test_mode")
        }
    )
