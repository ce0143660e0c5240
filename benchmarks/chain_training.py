"""The objectives of a small chain model, and the sensitivity of its training.

    python benchmarks/chain_training.py

The digits system of the reference is trained from `initial.raw` on the 224 examples of Kaldi's
seven minibatches. First come the objectives per frame on the other 28 examples: of the networks
that Kaldi trained, after each of three epochs of a `Trainer` here, and after the recipe. Then comes
the sensitivity of the change of parameters in one epoch. It is the norm of a difference, relative
to the change. One difference is from a run without the
self-repair of ReLUs, the others are from runs whose initial parameters are half a unit in the last
place away.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
from nnet3_descriptors import Nnet, read_nnet, unvectorize, vectorize
from nnet3_training import (
    ChainOptions,
    ChainTraining,
    Trainer,
    TrainerOptions,
    compute_chain_prob,
    minibatches,
    read_chain_examples,
)
from nnet3_training.recipes import RecipeOptions, train_recipe

os.environ.setdefault("NNET3_CACHE_DIR", "")  # compiling is timed, too

DIGITS = Path(__file__).parents[1] / "tests" / "reference" / "chain" / "digits"
TRAINED = 224
RATES = (0.002, 0.001, 0.0005)
EPOCHS = (1, 4)
"""Of the recipe."""
PERTURBED = 3
LAST_PLACE = 6e-8


def without_self_repair(nnet: Nnet) -> Nnet:
    """The network without self-repair of nonlinearities."""
    repaired = {
        name: component.replace(self_repair_scale=0.0)
        for name, component in zip(nnet.component_names, nnet.components, strict=True)
        if any(each.name == "self_repair_scale" for each in component.FIELDS)
    }
    return nnet.with_components(repaired)


def main() -> None:
    """Prints the objectives, then the differences."""
    examples = list(read_chain_examples(DIGITS / "cegs.ark"))
    known, held_out = examples[:TRAINED], examples[TRAINED:]
    initial = read_nnet(DIGITS / "initial.raw")
    options = ChainOptions(leaky_hmm_coefficient=0.1, l2_regularize=0.00005, xent_regularize=0.1)
    training = ChainTraining(initial, DIGITS / "den.fst", options)

    def objective(nnet: Nnet) -> float:
        return compute_chain_prob(nnet, training, held_out)["output"].per_frame

    def trained(nnet: Nnet, rate: float, order: np.ndarray) -> Nnet:
        settings = TrainerOptions(learning_rate=rate, max_param_change=2.0)
        trainer = Trainer(nnet, settings, objective=training)
        for minibatch in minibatches((known[number] for number in order), 32):
            trainer.train_minibatch(minibatch)
        return trainer.nnet

    for momentum in (0.0, 0.9):
        found = objective(read_nnet(DIGITS / f"train.m{momentum}.raw"))
        print(f"Kaldi, an epoch with momentum {momentum}: {found:.3f}")
    rng, nnet = np.random.default_rng(0), initial
    for epoch, rate in enumerate(RATES):
        nnet = trained(nnet, rate, rng.permutation(TRAINED))
        print(f"here, epoch {epoch + 1} with rate {rate}: {objective(nnet):.3f}")

    for epochs in EPOCHS:
        settings = RecipeOptions(
            num_epochs=epochs,
            initial_learning_rate=RATES[0],
            final_learning_rate=RATES[0] / 10.0,
            minibatch_size="32",
            frame_subsampling_factor=3,
            chain=options,
        )
        with tempfile.TemporaryDirectory() as folder:
            run = train_recipe(folder, initial, known, settings, den_fst=DIGITS / "den.fst")
            found = objective(read_nnet(run.folder / "final.raw"))
        print(f"the recipe, {epochs} epochs from rate {RATES[0]}: {found:.3f}")

    order, before = np.arange(TRAINED), vectorize(initial)
    usual = vectorize(trained(initial, RATES[0], order))

    def difference(nnet: Nnet) -> float:
        after = vectorize(trained(nnet, RATES[0], order))
        return float(np.linalg.norm(after - usual) / np.linalg.norm(usual - before))

    print(f"without self-repair: {difference(without_self_repair(initial)):.1%}")
    for seed in range(PERTURBED):
        noise = 1.0 + LAST_PLACE * np.random.default_rng(seed).standard_normal(before.size)
        moved = unvectorize(initial, (before * noise).astype(np.float32))
        print(f"beginning half a unit in the last place away: {difference(moved):.1e}")


if __name__ == "__main__":
    main()
