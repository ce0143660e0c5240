"""Fine-tuning of a small chain model by what was said, without alignments.

    python benchmarks/fine_tuning.py

The digits system of the reference is trained on 60 utterances of twelve voices with alignments:
by Kaldi for one epoch, and by the recipe here for four. `nnet3-chain-fine-tune` then trains both
further on the 40 utterances of four other voices, from features, transcripts and a lexicon. One of
every three utterances is held out. It prints the objective per frame on these: before, after
each epoch, and of the result, with the denominator of the model and with one made of the text. What
came of the latter is also measured by the former.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
from nnet3_descriptors import AcousticModel, Nnet, read_nnet, write_acoustic_model
from nnet3_speech.hmm import read_transitions
from nnet3_tables import read_objects, read_table
from nnet3_tools.recipes.fine_tuning import nnet3_chain_fine_tune
from nnet3_training import (
    ChainOptions,
    ChainTraining,
    Utterance,
    compute_chain_prob,
    read_chain_examples,
)
from nnet3_training.chain import read_supervision
from nnet3_training.recipes import RecipeOptions, TrainingRun, train_recipe

os.environ.setdefault("NNET3_CACHE_DIR", "")  # compiling is timed, too

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "tests" / "reference" / "chain" / "digits"
EXAMPLE = ROOT / "examples" / "digits"
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
OPTIONS = ("--num-epochs=8", "--initial-learning-rate=0.0005", "--final-learning-rate=0.0001",
           "--minibatch-size=1:8", "--held-out-every=3")  # fmt: skip


def trained() -> Nnet:
    """The network after the recipe, with alignments."""
    known = {
        entry.key: entry.value for entry in read_objects(f"ark:{DIGITS}/sup.ark", read_supervision)
    }
    utterances = [
        Utterance(key=key, features=features, supervision=known[key])
        for key, features in read_table(f"ark:{EXAMPLE}/train60.feats.ark")
    ]
    settings = RecipeOptions(
        num_epochs=4,
        initial_learning_rate=0.002,
        final_learning_rate=0.0002,
        minibatch_size="32",
        frames_per_example=(30,),
        frame_subsampling_factor=3,
        chain=ChainOptions(leaky_hmm_coefficient=0.1, l2_regularize=0.00005, xent_regularize=0.1),
    )
    with tempfile.TemporaryDirectory() as folder:
        initial = read_nnet(DIGITS / "initial.raw")
        run = train_recipe(folder, initial, utterances, settings, den_fst=DIGITS / "den.fst")
        return run.nnet


def write_model(folder: Path, nnet: Nnet, *, with_den_fst: bool) -> None:
    """Writes the folder of a model as recipes leave it."""
    folder.mkdir()
    shutil.copy(DIGITS / "tree", folder)
    if with_den_fst:
        shutil.copy(DIGITS / "den.fst", folder)
    (folder / "frame_subsampling_factor").write_text("3\n")
    phones = ["<eps>", "SIL", *(f"{word}{place}" for word in WORDS for place in range(3))]
    lines = (f"{phone} {number}\n" for number, phone in enumerate(phones))
    (folder / "phones.txt").write_text("".join(lines))
    model = AcousticModel(
        transition_model=read_transitions(DIGITS / "0.trans_mdl").model,
        nnet=nnet,
        left_context=8,
        right_context=8,
        priors=np.full(62, 1 / 62),
    )
    write_acoustic_model(model, folder / "final.mdl")


def tuned(folder: Path, nnet: Nnet, *, with_den_fst: bool) -> TrainingRun:
    """Fine-tunes in a folder; returns the run."""
    folder.mkdir()
    write_model(folder / "model", nnet, with_den_fst=with_den_fst)
    features = f"ark:{EXAMPLE}/test.feats.ark"
    keys = [key for key, _ in read_table(features)]
    texts = {
        "lexicon.txt": (f"{word} {word}0 {word}1 {word}2" for word in WORDS),
        "text": (f"{key} {key.rpartition('-')[2]}" for key in keys),
    }
    for name, lines in texts.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    arguments = [
        f"--features={features}", f"--text={folder}/text", f"--lexicon={folder}/lexicon.txt",
        *OPTIONS, str(folder / "model"), str(folder / "run"),
    ]  # fmt: skip
    with contextlib.redirect_stderr(io.StringIO()):
        nnet3_chain_fine_tune.main(arguments, standalone_mode=False)
    return TrainingRun.read(folder / "run")


def objectives(run: TrainingRun) -> str:
    """The objectives per frame on held-out utterances: before, after each epoch, of the result."""
    assert run.final is not None
    found = [known for _, known in sorted(run.diagnostics.items())]
    values = [
        f"{known.held_out['output'].per_frame:.3f}" for known in (*found, run.final.diagnostics)
    ]
    return f"{', '.join(values[:-1])}; result {values[-1]}"


def main() -> None:
    """Prints the objectives."""
    models = {"Kaldi's, one epoch": read_nnet(DIGITS / "train.m0.9.raw"), "the recipe's": trained()}
    for name, nnet in models.items():
        with tempfile.TemporaryDirectory() as folder:
            own = tuned(Path(folder) / "own", nnet, with_den_fst=True)
            made = tuned(Path(folder) / "made", nnet, with_den_fst=False)
            print(f"{name}, den.fst of the model: {objectives(own)}")
            print(f"{name}, den.fst made of the text: {objectives(made)}")
            assert own.options.chain is not None
            found = compute_chain_prob(
                made.nnet,
                ChainTraining(made.nnet, DIGITS / "den.fst", own.options.chain),
                read_chain_examples(own.folder / "archives" / "diagnostic.held_out.ark"),
            )
            value = found["output"].per_frame
            print(f"    its result by the den.fst of the model: {value:.3f}", flush=True)


if __name__ == "__main__":
    main()
