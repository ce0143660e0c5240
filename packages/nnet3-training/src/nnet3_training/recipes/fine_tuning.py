"""Fine-tuning: further training of a trained chain model with small steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from nnet3_descriptors import Nnet, set_test_mode, unvectorize, vectorize
from nnet3_descriptors.editing import set_learning_rate_factor

from nnet3_training.chain.training import ChainTraining
from nnet3_training.errors import ExampleError
from nnet3_training.examples import TrainingExample
from nnet3_training.merging import minibatches
from nnet3_training.objectives import ObjectiveSum
from nnet3_training.options import TrainerOptions
from nnet3_training.recipes.tuning_options import FineTuning
from nnet3_training.trainer import Trainer


def fine_tune(
    nnet: Nnet,
    training: ChainTraining,
    examples: Iterable[TrainingExample],
    options: FineTuning | None = None,
    *,
    device: str = "cpu",
    after_epoch: Callable[[int, Nnet, dict[str, ObjectiveSum]], object] | None = None,
    after_minibatch: Callable[[int], object] | None = None,
) -> Nnet:
    """Trains a model further, and changes only its parameters.

    Batch-norm is in test mode and keeps its statistics, and dropout is off. So the model begins
    with the outputs that it has in use.

    Args:
        nnet: The trained network.
        training: The objective.
        examples: Examples of one sequence each, held in memory.
        options: The options.
        device: As for `Trainer`.
        after_epoch: Called after each epoch with its number, from 1, the network, and the
            objectives.
        after_minibatch: Called after each minibatch with the number of its examples.

    Returns:
        The network with new parameters; statistics, rates and everything else are unchanged.

    Raises:
        ExampleError: there are no examples, they do not fit the network, or a pattern in `frozen`
            matches no component with parameters.
        TrainingError: a number of the options is out of range.
    """
    options = options or FineTuning()
    examples = list(examples)
    if not examples:
        raise ExampleError("there are no examples to train on")
    trained = set_test_mode(nnet)
    for pattern in options.frozen:
        trained = _with_frozen(trained, pattern)
    rng = np.random.default_rng(options.seed)
    rates = _learning_rates(options)
    for epoch in range(options.epochs):
        # A trainer has one rate, so each epoch has its own trainer, like the jobs of Kaldi's
        # recipes.
        trainer = Trainer(
            trained,
            TrainerOptions(
                learning_rate=rates[epoch],
                momentum=options.momentum,
                max_param_change=options.max_param_change,
                seed=options.seed + epoch,
                # Batch-norm computes with its statistics: they must be neither zeroed nor scaled.
                zero_component_stats=False,
                batchnorm_stats_scale=1.0,
            ),
            device,
            objective=training,
        )
        for minibatch in _minibatches(examples, options.minibatch_size, rng):
            trainer.train_minibatch(minibatch)
            if after_minibatch is not None:
                after_minibatch(minibatch.num_sequences)
        trained = unvectorize(trained, vectorize(trainer.nnet))
        if after_epoch is not None:
            after_epoch(epoch + 1, unvectorize(nnet, vectorize(trained)), trainer.objectives)
    return unvectorize(nnet, vectorize(trained))


def _with_frozen(nnet: Nnet, pattern: str) -> Nnet:
    """The network with frozen components."""
    frozen = set_learning_rate_factor(nnet, 0.0, pattern)
    if all(one is other for one, other in zip(nnet.components, frozen.components, strict=True)):
        raise ExampleError(f"no component with parameters has a name like '{pattern}'")
    return frozen


def _learning_rates(options: FineTuning) -> list[float]:
    """The rate of each epoch, from the first to the last by equal factors."""
    first = options.learning_rate
    last = first if options.final_learning_rate is None else options.final_learning_rate
    steps = max(options.epochs - 1, 1)
    return [first * (last / first) ** (n / steps) if first else 0.0 for n in range(options.epochs)]


def _minibatches(
    examples: Sequence[TrainingExample], size: int, rng: np.random.Generator
) -> Iterator[TrainingExample]:
    """Minibatches of the examples in random order."""
    yield from minibatches((examples[number] for number in rng.permutation(len(examples))), size)
