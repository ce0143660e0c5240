"""Training in several runs compared with training in one."""

import numpy as np
import pytest
from nnet3_descriptors import Nnet, parse_config, vectorize
from nnet3_training import (
    DenseTargets,
    ExampleInput,
    ExampleOutput,
    Trainer,
    TrainerOptions,
    TrainingExample,
)

MINIBATCHES = 12


def network(component):
    """A network with a component of dimension 6 between two affine ones."""
    return parse_config(
        "input-node name=input dim=4\n"
        "component name=a type=AffineComponent input-dim=8 output-dim=6 l2-regularize=0.1 "
        "max-change=0.05\n"
        f"component name=m type={component}\n"
        "component name=b type=AffineComponent input-dim=6 output-dim=3\n"
        "component-node name=a component=a input=Append(Offset(input, -1), input)\n"
        "component-node name=m component=m input=a\ncomponent-node name=b component=b input=m\n"
        "output-node name=output input=b objective=quadratic\n",
        rng=np.random.default_rng(3),
    )


def minibatch(seed):
    """Eight frames of noise."""
    rng = np.random.default_rng(seed)

    def rows(first, end):
        return np.array([(0, t, 0) for t in range(first, end)], dtype=np.int32)

    return TrainingExample(
        inputs=[
            ExampleInput(
                name="input",
                indexes=rows(-1, 8),
                values=rng.standard_normal((9, 4), dtype=np.float32),
            )
        ],
        outputs=[
            ExampleOutput(
                name="output",
                indexes=rows(0, 8),
                supervision=DenseTargets(values=rng.standard_normal((8, 3), dtype=np.float32)),
            )
        ],
    )


def trained(nnet, *lengths):
    """The parameters after runs of these numbers of minibatches; each writes the network."""
    options = TrainerOptions(learning_rate=0.05, momentum=0.0, natural_gradient=False)
    minibatches = map(minibatch, range(sum(lengths)))
    for length in lengths:
        trainer = Trainer(nnet, options)
        for _ in range(length):
            trainer.train_minibatch(next(minibatches))
        nnet = Nnet.from_bytes(trainer.nnet.to_bytes())
    return vectorize(nnet)


@pytest.mark.parametrize(
    ("component", "first"),
    [
        ("NoOpComponent dim=6", 5),
        ("TanhComponent dim=6 self-repair-scale=0", 5),
        ("BatchNormComponent dim=6", 5),
        ("LinearComponent input-dim=6 output-dim=6 orthonormal-constraint=1.0", 8),
    ],
)
def test_two_runs_equal_one(component, first):
    """Results agree after whole periods, without momentum, natural gradient, masks and repair."""
    nnet = network(component)

    np.testing.assert_allclose(
        trained(nnet, first, MINIBATCHES - first), trained(nnet, MINIBATCHES), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    "component",
    [
        "DropoutComponent dim=6 dropout-proportion=0.3",
        "GeneralDropoutComponent dim=6 dropout-proportion=0.3",
        "RectifiedLinearComponent dim=6 self-repair-scale=0.1 self-repair-lower-threshold=0.4",
        "LinearComponent input-dim=6 output-dim=6 orthonormal-constraint=1.0",
    ],
)
def test_what_a_new_run_draws_anew(component):
    """Masks, self-repair and the periods of orthonormal constraints start again."""
    nnet = network(component)

    difference = trained(nnet, 5, MINIBATCHES - 5) - trained(nnet, MINIBATCHES)

    assert np.abs(difference).max() > 1e-3
