"""Train a network to recognise spoken digits, from 60 utterances.

Each frame of 10 ms has a class: 0 for silence, 1 to 10 for the words zero to nine. The folder `run`
stores the run; started again after an interruption, it continues. The same from the command line:

    nnet3-train-recipe --nnet-config=nnet.config --features=ark:train60.feats.ark \
        --posteriors=ark:train60.post --num-epochs=15 --minibatch-size=16 run
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from nnet3 import Model
from nnet3_descriptors import parse_config
from nnet3_tables import read_objects, read_table
from nnet3_training.egs import Utterance, posteriors, read_posterior
from nnet3_training.recipes import IterationRecord, RecipeOptions, train_recipe
from nnet3_training.workers import Processes

FOLDER = Path(__file__).parent
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
CLASSES = 1 + len(WORDS)
EPOCHS = {1: 15, 4: 28}
"""By number of jobs: the average of several has made fewer steps than each of them."""


def utterances() -> Iterator[Utterance]:
    """Features and classes of the training utterances."""
    features = dict(read_table(f"ark:{FOLDER / 'train60.feats.ark'}"))
    for entry in read_objects(f"ark:{FOLDER / 'train60.post'}", read_posterior):
        known = posteriors(entry.value, CLASSES)
        yield Utterance(key=entry.key, features=features[entry.key], supervision=known)


def num_recognised(model: Model) -> tuple[int, int]:
    """The number of test utterances that are recognised, and the number of all.

    The word with the largest sum over all frames is the recognised word.
    """
    right = total = 0
    for key, features in read_table(f"ark:{FOLDER / 'test.feats.ark'}"):
        word = WORDS[model.compute(features)[:, 1:].sum(axis=0).argmax()]
        right += word == key.rpartition("-")[2]
        total += 1
    return right, total


def say(event: object) -> None:
    """Print the objective of an iteration."""
    if isinstance(event, IterationRecord):
        figures = [job.figures["output"].per_frame for job in event.jobs]
        print(f"iteration {event.number + 1}: {np.mean(figures):.3f} per frame", flush=True)


def main() -> None:
    """Print the objective of each iteration, and how many test utterances are recognised."""
    parser = argparse.ArgumentParser(description=f"{__doc__.splitlines()[0]} {main.__doc__}")
    parser.add_argument(
        "--folder",
        default="run",
        help="stores the run, which continues there after an interruption; the result is "
        "final.raw in it (default: %(default)s)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        choices=sorted(EPOCHS),
        default=1,
        help="copies of the network that train on their own part of the data in the last "
        "iterations, and are averaged; 4 train for more epochs (default: %(default)s)",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=2,
        help="worker processes, which share the jobs; the result does not depend on their number "
        "(default: %(default)s)",
    )
    arguments = parser.parse_args()
    nnet = parse_config(
        (FOLDER / "nnet.config").read_text(encoding="utf-8"), rng=np.random.default_rng(0)
    )
    options = RecipeOptions(
        num_epochs=EPOCHS[arguments.jobs],
        num_jobs_initial=1,
        num_jobs_final=arguments.jobs,
        initial_learning_rate=0.001,
        final_learning_rate=0.0001,
        minibatch_size="16",
    )
    with Processes(arguments.processes) as workers:
        run = train_recipe(
            arguments.folder, nnet, utterances(), options, workers=workers, on_event=say
        )
    right, total = num_recognised(Model(run.nnet))
    print(f"{right} of {total} right")


if __name__ == "__main__":
    main()
