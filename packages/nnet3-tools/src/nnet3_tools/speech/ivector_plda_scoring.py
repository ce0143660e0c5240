"""ivector-plda-scoring: log-likelihood ratios of trials, by a PLDA model."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import attrs
import click
import nnet3_tables

from nnet3_tools.kaldi_command import (
    KaldiCommand,
    NothingDoneError,
    boolean_option,
    log,
    run_tool,
    warn,
)
from nnet3_tools.speech.vectors import read_vectors
from nnet3_tools.streams import readable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from nnet3_descriptors.files import Reader
    from nnet3_speech import Plda

NAME = "ivector-plda-scoring"

_AT_A_TIME = 1000
"""Trials that are scored together."""


@attrs.frozen(eq=False)
class _Vectors:
    """Transformed vectors with what belongs to them.

    Attributes:
        rows: The row of each key.
        values: (n, dim) float32, as in Kaldi's tool.
        num_utts: (n,) int64, the number of utterances that each is the mean of.
        scale: The mean of the factors that normalise their lengths.
        failed: Number of vectors that were left out.
    """

    rows: Mapping[str, int]
    values: npt.NDArray[np.float32]
    num_utts: npt.NDArray[np.int64]
    scale: float
    failed: int


@click.command(cls=KaldiCommand)
@click.argument("plda_in", metavar="PLDA-IN")
@click.argument("train_in", metavar="TRAIN-VECTOR-RSPECIFIER")
@click.argument("test_in", metavar="TEST-VECTOR-RSPECIFIER")
@click.argument("trials_in", metavar="TRIALS-IN")
@click.argument("scores_out", metavar="SCORES-OUT")
@boolean_option(
    "--normalize-length",
    default=True,
    show_default=True,
    help="Scale vectors so that their squares, each divided by its variance by the model, sum to "
    "the number of dims.",
)
@boolean_option(
    "--simple-length-normalization",
    help="Scale them to a length of the square root of the number of dims instead.",
)
@click.option(
    "--num-utts",
    default="",
    metavar="RSPECIFIER",
    help="The number of utterances of each training vector; by default 1.",
)
def command(
    plda_in: str,
    train_in: str,
    test_in: str,
    trials_in: str,
    scores_out: str,
    normalize_length: bool,
    simple_length_normalization: bool,
    num_utts: str,
) -> None:
    """Write the log-likelihood ratio of each trial: how likely two vectors are of one speaker.

    A line of TRIALS-IN has the keys of a training vector, which is the mean of a speaker's vectors,
    and of a test vector; one of SCORES-OUT has a score behind them.
    """
    from nnet3_speech import Plda

    with readable(plda_in) as source:
        plda = Plda.read(source)
    scoring = _Scoring(plda, normalize_length, simple_length_normalization)
    with contextlib.ExitStack() as stack:
        lookup = (
            stack.enter_context(nnet3_tables.ObjectLookup(num_utts, _integer)) if num_utts else None
        )
        log(NAME, "Reading train iVectors")
        train = scoring.read("training", train_in, lookup.get if lookup else lambda _: 1)
    log(NAME, f"Read {len(train.rows)} training iVectors, errors on {train.failed}")
    _log_scale("training", train)
    log(NAME, "Reading test iVectors")
    test = scoring.read("test", test_in, lambda _: 1)
    log(NAME, f"Read {len(test.rows)} test iVectors.")
    _log_scale("test", test)
    scoring.write_scores(train, test, trials_in, scores_out)


def _log_scale(what: str, vectors: _Vectors) -> None:
    log(NAME, f"Average renormalization scale on {what} iVectors was {vectors.scale:.6g}")


@attrs.frozen
class _Scoring:
    """A PLDA model with Kaldi's options."""

    plda: Plda
    normalize_length: bool
    simple_length_normalization: bool

    def read(
        self, what: str, rspecifier: str, num_utts_of: Callable[[str], int | None]
    ) -> _Vectors:
        """Reads and transforms the vectors of a table.

        Raises:
            click.ClickException: there are none, a key comes twice, or one has another size.
        """
        import numpy as np

        rows: dict[str, int] = {}
        found, counts, failed = [], [], 0
        for key, vector in read_vectors(rspecifier):
            if key in rows:
                raise click.ClickException(f"'{rspecifier}': the key '{key}' comes twice")
            if len(vector) != self.plda.dim:
                raise click.ClickException(
                    f"'{rspecifier}', '{key}': expected a vector of {self.plda.dim} values, as in "
                    f"the PLDA model, found {len(vector)}"
                )
            count = num_utts_of(key)
            if count is None:
                warn(NAME, f"Number of utterances not given for speaker {key}")
            elif not np.isfinite(vector).all():
                warn(NAME, f"The {what} iVector '{key}' is not finite")
            else:
                rows[key] = len(rows)
                found.append(vector)
                counts.append(count)
                continue
            failed += 1
        if not rows:
            raise click.ClickException(f"No {what} iVectors present in '{rspecifier}'.")
        num_utts = np.array(counts, dtype=np.int64)
        values = self.plda.transform(np.array(found), normalize_length=False)
        factors = self.plda.normalization_factor(
            values,
            num_utts=num_utts,
            simple_length_normalization=self.simple_length_normalization,
        )
        if self.normalize_length:
            values *= factors[:, None]
        with np.errstate(over="ignore"):  # scores of what overflows are refused
            single = values.astype(np.float32)
        return _Vectors(rows, single, num_utts, float(factors.mean()), failed)

    def write_scores(
        self, train: _Vectors, test: _Vectors, trials_in: str, scores_out: str
    ) -> None:
        """Scores the trials of a file.

        Raises:
            click.ClickException: a line has not two keys.
            NothingDoneError: no trial has both vectors.
        """
        import numpy as np

        done = failed = 0
        total = squares = 0.0
        with nnet3_tables.opened_to_write(scores_out) as file:
            for trials in _batches(_trials(trials_in)):
                known = [each for each in trials if _is_known(*each, train.rows, test.rows)]
                failed += len(trials) - len(known)
                one = [train.rows[first] for first, _ in known]
                other = [test.rows[second] for _, second in known]
                scores = self.plda.log_likelihood_ratio(
                    train.values[one].astype(np.float64),
                    test.values[other].astype(np.float64),
                    num_utts=train.num_utts[one],
                )
                done += len(known)
                total += float(scores.sum())
                squares += float(scores @ scores)
                with np.errstate(over="ignore"):
                    lines = zip(known, scores.astype(np.float32).tolist(), strict=True)
                file.writelines(f"{a} {b} {score:.7g}\n".encode() for (a, b), score in lines)
            if done:
                mean = total / done
                deviation = max(squares / done - mean * mean, 0.0) ** 0.5
                log(NAME, f"Mean score was {mean:.6g}, standard deviation was {deviation:.6g}")
            log(NAME, f"Processed {done} trials, {failed} had errors.")
            if not done:
                raise NothingDoneError("no trial has both its vectors")


def _trials(name: str) -> Iterator[tuple[str, str]]:
    """The keys of each line of a file.

    Raises:
        click.ClickException: a line has not two keys.
    """
    with nnet3_tables.opened(name) as stream:
        for number, line in enumerate(stream, 1):
            try:
                first, second = line.decode().split()
            except ValueError:  # another number of words, or no UTF-8
                raise click.ClickException(
                    f"{name}, line {number}: expected two keys, found {line[:60]!r}"
                ) from None
            yield first, second


def _batches(trials: Iterator[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    while batch := list(itertools.islice(trials, _AT_A_TIME)):
        yield batch


def _is_known(first: str, second: str, train: Mapping[str, int], test: Mapping[str, int]) -> bool:
    for key, what, rows in ((first, "training", train), (second, "test", test)):
        if key not in rows:
            warn(NAME, f"Key {key} not present in {what} iVectors.")
            return False
    return True


def _integer(reader: Reader) -> int:
    """Reads a number of utterances."""
    start = reader.position
    value = reader.integer()
    if value < 1:
        reader.fail("impossible number of utterances", at=start, expected="1 or more",
                    found=str(value))  # fmt: skip
    return value


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
