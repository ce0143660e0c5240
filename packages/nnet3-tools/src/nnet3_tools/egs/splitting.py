"""Utterances split into examples, as the tools that make examples and the recipes do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import nnet3_tables
import nnet3_training
from nnet3_training import egs

from nnet3_tools import cli
from nnet3_tools.egs import forms

if TYPE_CHECKING:
    import numpy as np
    from nnet3_descriptors.files import CompressedMatrix

    Features = np.ndarray[Any, np.dtype[np.float32]] | CompressedMatrix
    Known = nnet3_training.SparsePosteriors | nnet3_training.DenseTargets

_SPLIT = (
    "left_context",
    "right_context",
    "left_context_initial",
    "right_context_final",
    "num_frames_overlap",
    "frame_subsampling_factor",
)


def posteriors_of(
    key: str, frames: Sequence[Sequence[tuple[int, float]]], dim: int, rspecifier: str
) -> nnet3_training.SparsePosteriors:
    """The supervision of an utterance.

    Args:
        key: The key of the utterance.
        frames: For each frame, classes with weights.
        dim: Number of classes.
        rspecifier: The table that the classes come from.

    Raises:
        ExampleError: a class is out of range; the error names the table and the utterance.
    """
    try:
        return egs.posteriors(frames, dim)
    except nnet3_training.ExampleError as error:
        raise nnet3_training.ExampleError(f"'{rspecifier}', '{key}': {error}") from error


def known_of(matrix: Any) -> Known:
    """The supervision of an utterance from a matrix that was read, (frames, dim)."""
    if isinstance(matrix, nnet3_training.SparsePosteriors):
        return matrix
    return nnet3_training.DenseTargets(values=matrix)


LABELS_OPTION = cli.option(
    "--targets-length-tolerance", 2, "Frames by which labels may be shorter than features."
)


SPLIT_OPTIONS = (
    cli.option(
        "--num-frames",
        "1",
        "Frames of an example: one number, or several, of which the first may repeat; -1 "
        "for whole utterances.",
    ),
    cli.option("--left-context", 0, "Frames of the input before the output of an example."),
    cli.option("--right-context", 0, "Frames of the input after the output of an example."),
    cli.option(
        "--left-context-initial",
        -1,
        "--left-context for the first example of an utterance; -1 for the same.",
    ),
    cli.option(
        "--right-context-final",
        -1,
        "--right-context for the last example of an utterance; -1 for the same.",
    ),
    cli.option("--num-frames-overlap", 0, "Frames that neighbouring examples share."),
    cli.option(
        "--frame-subsampling-factor", 1, "Frames of the input for each frame of the output."
    ),
    cli.option("--online-ivectors --ivectors", "", "Table of i-vectors."),
    cli.option("--online-ivector-period", 1, "Frames for each i-vector."),
    cli.option(
        "--length-tolerance", 100, "Frames by which i-vectors may be shorter than features."
    ),
    cli.boolean_option(
        "--compress", "Compress features that are not compressed yet.", default=True
    ),
    cli.option("--srand", 0, "Seed of the random places at which utterances are cut."),
)
"""How utterances are split, and options of i-vectors."""


def parse_split_options(options: Mapping[str, Any]) -> egs.SplitOptions:
    """The split options from the options of a command.

    Raises:
        click.ClickException: the lengths of chunks are not numbers.
        ExampleError: a number is out of range.
    """
    text = options["num_frames"]
    try:
        lengths = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.ClickException(
            f"--num-frames: expected numbers with commas between, found '{text}'"
        ) from None
    return egs.SplitOptions(
        num_frames=() if lengths == (-1,) else lengths, **{name: options[name] for name in _SPLIT}
    )


def rounded_split_options(options: Mapping[str, Any]) -> egs.SplitOptions:
    """The split options with lengths rounded up for subsampling; logs the change.

    Raises:
        click.ClickException, ExampleError: see `parse_split_options`.
    """
    given = parse_split_options(options)
    rounded = given.rounded()
    if rounded != given:
        cli.log(
            f"Rounding up --num-frames={','.join(map(str, given.num_frames))} to multiples of "
            f"--frame-subsampling-factor={given.frame_subsampling_factor}, to: "
            f"{','.join(map(str, rounded.num_frames))}"
        )
    return rounded


class ExampleMaker(NamedTuple):
    """Makes examples of the utterances of a table of features.

    Attributes:
        what: Name of the labels in messages.
        supervision: Returns the supervision of an utterance; None if it has none.
        options: The options of the tool.
        takes_input_rows: Whether posteriors may also have a row for each input frame. Kaldi's tools
            want one for each output frame.
    """

    what: str
    supervision: Callable[[str], Known | None]
    options: dict[str, Any]
    takes_input_rows: bool = False

    def run(self, features_in: str, egs_out: str, labels_in: str) -> None:
        """Writes the examples.

        Raises:
            NothingDoneError: no example was made.
            TableError, ModelFileError: a table cannot be read or written.
            ExampleError: an option is not valid.
        """
        forms.check_files(features_in, egs_out)
        forms.check_files(labels_in, egs_out)
        rng = egs.CRandom(self.options["srand"])
        splitter = egs.UtteranceSplitter(parse_split_options(self.options), rng)
        with nnet3_tables.ObjectWriter(egs_out) as writer:
            for utterance in self.utterances(features_in):
                made = egs.make_examples(
                    utterance, splitter, rng, compress=self.options["compress"]
                )
                if not made:
                    cli.warn(
                        f"Not producing egs for utterance {utterance.key} because it is too short: "
                        f"{utterance.features.shape[0]} frames."
                    )
                for example in made:
                    forms.NNET3.write(writer, example)
            for line in splitter.lines():
                cli.log(line)
            if not splitter.num_chunks:
                raise cli.NothingDoneError(
                    f"no example was made of the utterances of '{features_in}'"
                )

    def utterances(self, features_in: str) -> Iterator[egs.Utterance]:
        """The utterances of a table of features; warns of utterances with missing data.

        Raises:
            TableError, ModelFileError: a table cannot be read.
        """
        ivectors = None
        if self.options["online_ivectors"]:
            ivectors = nnet3_tables.ObjectLookup(
                self.options["online_ivectors"], egs.read_stored_matrix
            )
        num_failed = 0
        for entry in nnet3_tables.read_objects(features_in, egs.read_stored_matrix):
            assert not isinstance(entry.value, nnet3_training.SparsePosteriors)
            utterance = self._utterance(entry.key, entry.value, ivectors)
            if utterance is None:
                num_failed += 1
            else:
                yield utterance
        if num_failed:
            cli.warn(f"{num_failed} utterances had errors and could not be processed.")

    def _utterance(
        self, key: str, features: Features, ivectors: nnet3_tables.ObjectLookup[Any] | None
    ) -> egs.Utterance | None:
        """An utterance with its data; None, and a warning, if something is missing."""
        from nnet3_descriptors.files import CompressedMatrix

        frames = features.shape[0]
        known = self.supervision(key)
        if known is None:
            cli.warn(f"No {self.what} for key {key}")
            return None
        vectors = None
        if ivectors is not None:
            found = ivectors.take(key)
            if found is None:
                cli.warn(f"No iVectors for utterance {key}")
                return None
            vectors = found.decompressed() if isinstance(found, CompressedMatrix) else found
            covered = len(vectors) * self.options["online_ivector_period"]
            tolerance = self.options["length_tolerance"]
            if not len(vectors) or abs(frames - covered) > tolerance:
                cli.warn(
                    f"Length difference between feats {frames} and iVectors {len(vectors)} "
                    f"exceeds tolerance {tolerance}"
                )
                return None
        step = self.options["frame_subsampling_factor"]
        expected = -(-frames // step)
        if (
            self.takes_input_rows
            and isinstance(known, nnet3_training.SparsePosteriors)
            and egs.has_input_rows(known, frames, step)
        ):
            expected = frames
        if abs(known.shape[0] - expected) > self.options["targets_length_tolerance"]:
            given = f", {frames} / --frame-subsampling-factor={step}" if step > 1 else ""
            cli.warn(
                f"Supervision does not have expected length for utterance {key}: expected length = "
                f"{expected}{given}, got {known.shape[0]}"
            )
            return None
        return egs.Utterance(
            key=key,
            features=features,
            supervision=known,
            ivectors=vectors,
            ivector_period=self.options["online_ivector_period"],
        )
