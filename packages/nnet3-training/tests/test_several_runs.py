"""Training in several runs compared with training in one."""

import numpy as np
import pytest
from example_cases import noise
from nnet3_descriptors import Nnet, vectorize
from nnet3_training import Trainer, TrainerOptions
from small_networks import network, stacked

MINIBATCHES = 12


def network_of(component: str) -> Nnet:
    """A network with a component of dimension 6 between two affine ones."""
    config = stacked(
        4,
        "a Affine input-dim=8 output-dim=6 l2-regularize=0.1 max-change=0.05",
        f"m {component}",
        "b Affine input-dim=6 output-dim=3",
        splice="Append(Offset(input, -1), input)",
        objective="quadratic",
    )
    return network(config, seed=3)


def trained(nnet: Nnet, *lengths: int) -> np.ndarray:
    """The parameters after runs of these numbers of minibatches; each writes the network."""
    options = TrainerOptions(learning_rate=0.05, momentum=0.0, natural_gradient=False)
    minibatches = (noise(seed, 8, (4, 3), context=1) for seed in range(sum(lengths)))
    for length in lengths:
        trainer = Trainer(nnet, options)
        for _ in range(length):
            trainer.train_minibatch(next(minibatches))
        nnet = Nnet.from_bytes(trainer.nnet.to_bytes())
    return vectorize(nnet)


@pytest.mark.parametrize(
    ("component", "first"),
    [
        ("NoOp dim=6", 5),
        ("Tanh dim=6 self-repair-scale=0", 5),
        ("BatchNorm dim=6", 5),
        ("Linear input-dim=6 output-dim=6 orthonormal-constraint=1.0", 8),
    ],
)
def test_two_runs_equal_one(component: str, first: int) -> None:
    """Results agree after whole periods, without momentum, natural gradient, masks and repair."""
    nnet = network_of(component)

    np.testing.assert_allclose(
        trained(nnet, first, MINIBATCHES - first), trained(nnet, MINIBATCHES), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    "component",
    [
        "Dropout dim=6 dropout-proportion=0.3",
        "GeneralDropout dim=6 dropout-proportion=0.3",
        "RectifiedLinear dim=6 self-repair-scale=0.1 self-repair-lower-threshold=0.4",
        "Linear input-dim=6 output-dim=6 orthonormal-constraint=1.0",
    ],
)
def test_what_a_new_run_draws_anew(component: str) -> None:
    """Masks, self-repair and the periods of orthonormal constraints start again."""
    nnet = network_of(component)

    difference = trained(nnet, 5, MINIBATCHES - 5) - trained(nnet, MINIBATCHES)

    assert np.abs(difference).max() > 1e-3
