"""Train a network to recognise spoken digits, on 60 utterances.

Each frame of 10 ms has a class: 0 for silence, 1 to 10 for the words zero to nine. Utterances are
cut into chunks of 20 frames, with the frames around them that the network needs; 32 chunks make a
minibatch. What is trained is the log-probability of the right class.
"""

from collections.abc import Iterator
from pathlib import Path

import kaldi_native_io
import numpy as np
from nnet3_descriptors import parse_config, write_nnet
from nnet3_graph import compute_context
from nnet3_runtime_cuda import Model
from nnet3_tables import read_table
from nnet3_training import (
    ExampleInput,
    ExampleOutput,
    Trainer,
    TrainerOptions,
    TrainingExample,
    minibatches,
)

FOLDER = Path(__file__).parent
CHUNK, MINIBATCH, EPOCHS, CLASSES = 20, 32, 4, 11
TRAINED_ON = 50
"""Utterances that are trained on; the others are for testing."""


def chunks(
    features: np.ndarray, labels: np.ndarray, left: int, right: int
) -> Iterator[TrainingExample]:
    """The chunks of an utterance; beyond its ends, the first and the last frame are repeated."""
    padded = np.pad(features, ((left, right), (0, 0)), mode="edge")
    for start in range(0, len(labels) - CHUNK + 1, CHUNK):
        frames = padded[start : start + left + CHUNK + right]
        yield TrainingExample(
            inputs=[ExampleInput.from_sequences("input", [frames], t_start=-left)],
            outputs=[ExampleOutput.from_labels("output", [labels[start : start + CHUNK]], CLASSES)],
        )


def accuracy(model: Model, utterances: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Per cent of the frames whose most probable class is right."""
    right = [model.compute(frames).argmax(axis=1) == labels for frames, labels in utterances]
    return 100.0 * float(np.concatenate(right).mean())


def main() -> None:
    """Print the objective after each epoch and the accuracy on utterances not trained on."""
    features = dict(read_table(f"ark:{FOLDER / 'train60.feats.ark'}"))
    posteriors = kaldi_native_io.SequentialPosteriorReader(f"ark:{FOLDER / 'train60.post'}")
    utterances = [
        (features[key], np.array([frame[0][0] for frame in frames])) for key, frames in posteriors
    ]
    nnet = parse_config((FOLDER / "nnet.config").read_text(), rng=np.random.default_rng(0))
    left, right = compute_context(nnet)
    examples = [chunk for pair in utterances[:TRAINED_ON] for chunk in chunks(*pair, left, right)]
    trainer = Trainer(nnet, TrainerOptions(learning_rate=0.002, momentum=0.5))
    rng = np.random.default_rng(1)
    for epoch in range(EPOCHS):
        trainer.objectives.clear()
        rng.shuffle(examples)
        for minibatch in minibatches(examples, MINIBATCH):
            trainer.train_minibatch(minibatch)
        print(f"epoch {epoch + 1}: {trainer.objectives['output'].per_frame:.3f} per frame")
    print(trainer.summary())
    for name, network in (("untrained", nnet), ("trained", trainer.nnet)):
        print(f"{name}: {accuracy(Model(network), utterances[TRAINED_ON:]):.1f} % of frames right")
    write_nnet(trainer.nnet, "trained.raw")


if __name__ == "__main__":
    main()
