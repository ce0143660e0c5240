"""Tools for one vector of each utterance or speaker: their means, and scores by PLDA."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from operator import methodcaller
from typing import TYPE_CHECKING, NamedTuple

import click
import nnet3_tables

from nnet3_tools import cli, streams
from nnet3_tools.speech.tables import read_speakers, read_vectors

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from nnet3_descriptors.files import Reader
    from nnet3_speech import Plda


@cli.tool(
    "ivector-mean",
    "[SPK2UTT-RSPECIFIER] VECTOR-RSPECIFIER",
    click.argument("third", metavar="VECTOR-WSPECIFIER|MEAN-OUT", required=False),
    click.argument("num_utts_out", metavar="[NUM-UTTS-WSPECIFIER]", required=False),
    cli.boolean_option("--binary", "Write the mean of all vectors in binary form."),
)
def ivector_mean(
    first: str, second: str, third: str | None, num_utts_out: str | None, binary: bool
) -> None:
    """Average the vectors of each speaker, or all vectors.

    A line of SPK2UTT-RSPECIFIER has a speaker and the speaker's utterances. The numbers of
    utterances go to NUM-UTTS-WSPECIFIER, for ivector-plda-scoring --num-utts. With two arguments,
    VECTOR-RSPECIFIER and MEAN-OUT, the mean of all vectors is written to a file.
    """
    if third is None:
        _write_mean_of_all(first, second, binary=binary)
    else:
        _write_means(first, second, third, num_utts_out)


def _write_mean_of_all(vectors_in: str, mean_out: str, *, binary: bool) -> None:
    import numpy as np

    total, count = np.zeros(0), 0
    for key, vector in read_vectors(vectors_in):
        if count:
            _check_size(key, vector, len(total))
        total = total + vector if count else vector.astype(np.float64)
        count += 1
    if not count:
        raise click.ClickException(f"'{vectors_in}' has no vectors")
    streams.write_elements(mean_out, methodcaller("double_vector", total / count), binary=binary)


def _write_means(
    spk2utt_in: str, vectors_in: str, means_out: str, num_utts_out: str | None
) -> None:
    import numpy as np

    speakers_done = speakers_failed = utterances_done = utterances_failed = 0
    total, squares = np.zeros(0), 0.0
    with contextlib.ExitStack() as stack:
        table = stack.enter_context(nnet3_tables.VectorLookup(vectors_in))
        means = stack.enter_context(streams.results(nnet3_tables.VectorWriter(means_out)))
        counts = num_utts_out and stack.enter_context(
            streams.results(nnet3_tables.ObjectWriter(num_utts_out))
        )
        for speaker, utterances in read_speakers(spk2utt_in):
            # In single precision and in this order, so that the means are those of Kaldi's tool.
            mean, count = np.zeros(0, dtype=np.float32), 0
            for utterance in utterances:
                vector = table.get(utterance)
                if vector is None:
                    cli.warn(f"No iVector present in input for utterance {utterance}")
                    utterances_failed += 1
                    continue
                if count or len(total):
                    _check_size(utterance, vector, len(mean) or len(total))
                mean = mean + vector if count else vector
                count += 1
            utterances_done += count
            if not count:
                cli.warn(
                    f"Not producing output for speaker {speaker} since no utterances had iVectors"
                )
                speakers_failed += 1
                continue
            mean = mean * np.float32(1.0 / count)
            means.write(speaker, mean)
            if counts:
                counts.write(speaker, _encoded(count, binary=not counts.is_text))
            speakers_done += 1
            total = total + mean if len(total) else mean.astype(np.float64)
            squares += float(mean @ mean)
        cli.log(
            f"Computed mean of {speakers_done} speakers ({speakers_failed} with no utterances), "
            f"consisting of {utterances_done} utterances ({utterances_failed} absent from input)."
        )
        if not speakers_done:
            raise cli.NothingDoneError("no speaker has an utterance with a vector")
    length = (np.float64(squares) / speakers_done / len(total)) ** 0.5
    cli.log(
        f"Norm of mean of speakers is {np.linalg.norm(total / speakers_done):.6g}, "
        f"root-mean-square speaker-iVector length divided by sqrt(dim) is {length:.6g}"
    )


def _check_size(key: str, vector: nnet3_tables.FloatArray, size: int) -> None:
    if len(vector) != size:
        raise click.ClickException(
            f"'{key}': expected a vector of {size} values, as before, found {len(vector)}"
        )


def _encoded(count: int, *, binary: bool) -> bytes:
    """An integer as it stands in a table."""
    return b"\0B\4" + count.to_bytes(4, "little") if binary else f"{count} \n".encode()


_AT_A_TIME = 1000
"""Trials that are scored together."""


class _Vectors(NamedTuple):
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


@cli.tool(
    "ivector-plda-scoring",
    "PLDA-IN TRAIN-VECTOR-RSPECIFIER TEST-VECTOR-RSPECIFIER TRIALS-IN SCORES-OUT",
    cli.boolean_option(
        "--normalize-length",
        "Scale vectors so that their squares, each divided by its variance by the model, sum "
        "to the number of dims.",
        default=True,
        shown=True,
    ),
    cli.boolean_option(
        "--simple-length-normalization",
        "Scale them to a length of the square root of the number of dims instead.",
    ),
    cli.option(
        "--num-utts",
        "",
        "The number of utterances of each training vector; by default 1.",
        "RSPECIFIER",
    ),
)
def ivector_plda_scoring(
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

    plda = streams.read(Plda.read, plda_in)
    read = functools.partial(
        _read, plda, normalize_length=normalize_length, is_simple=simple_length_normalization
    )
    with contextlib.ExitStack() as stack:
        lookup = (
            stack.enter_context(nnet3_tables.ObjectLookup(num_utts, _integer)) if num_utts else None
        )
        cli.log("Reading train iVectors")
        train = read("training", train_in, lookup.get if lookup else lambda _: 1)
    cli.log(f"Read {len(train.rows)} training iVectors, errors on {train.failed}")
    _log_scale("training", train)
    cli.log("Reading test iVectors")
    test = read("test", test_in, lambda _: 1)
    cli.log(f"Read {len(test.rows)} test iVectors.")
    _log_scale("test", test)
    _write_scores(plda, train, test, trials_in, scores_out)


def _log_scale(what: str, vectors: _Vectors) -> None:
    cli.log(f"Average renormalization scale on {what} iVectors was {vectors.scale:.6g}")


def _read(
    plda: Plda,
    what: str,
    rspecifier: str,
    num_utts_of: Callable[[str], int | None],
    *,
    normalize_length: bool,
    is_simple: bool,
) -> _Vectors:
    """Reads and transforms the vectors of a table.

    Args:
        plda: The model.
        what: Their name in messages.
        rspecifier: The table.
        num_utts_of: Gives the number of utterances that a vector is the mean of, by its key.
        normalize_length: Whether to scale them.
        is_simple: Whether to scale them by --simple-length-normalization.

    Raises:
        click.ClickException: there are none, a key comes twice, or one has another size.
    """
    import numpy as np

    rows: dict[str, int] = {}
    found, counts, failed = [], [], 0
    for key, vector in read_vectors(rspecifier):
        if key in rows:
            raise click.ClickException(f"'{rspecifier}': the key '{key}' comes twice")
        if len(vector) != plda.dim:
            raise click.ClickException(
                f"'{rspecifier}', '{key}': expected a vector of {plda.dim} values, as in "
                f"the PLDA model, found {len(vector)}"
            )
        count = num_utts_of(key)
        if count is None:
            cli.warn(f"Number of utterances not given for speaker {key}")
        elif not np.isfinite(vector).all():
            cli.warn(f"The {what} iVector '{key}' is not finite")
        else:
            rows[key] = len(rows)
            found.append(vector)
            counts.append(count)
            continue
        failed += 1
    if not rows:
        raise click.ClickException(f"No {what} iVectors present in '{rspecifier}'.")
    num_utts = np.array(counts, dtype=np.int64)
    values = plda.transform(np.array(found), normalize_length=False)
    factors = plda.normalization_factor(
        values, num_utts=num_utts, simple_length_normalization=is_simple
    )
    if normalize_length:
        values *= factors[:, None]
    single = values.astype(np.float32)  # scores of what overflows are refused
    return _Vectors(rows, single, num_utts, float(factors.mean()), failed)


def _write_scores(
    plda: Plda, train: _Vectors, test: _Vectors, trials_in: str, scores_out: str
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
        all_trials = _trials(trials_in)
        for trials in iter(lambda: list(itertools.islice(all_trials, _AT_A_TIME)), []):
            known = [each for each in trials if _is_known(*each, train.rows, test.rows)]
            failed += len(trials) - len(known)
            one = [train.rows[first] for first, _ in known]
            other = [test.rows[second] for _, second in known]
            scores = plda.log_likelihood_ratio(
                train.values[one].astype(np.float64),
                test.values[other].astype(np.float64),
                num_utts=train.num_utts[one],
            )
            done += len(known)
            total += float(scores.sum())
            squares += float(scores @ scores)
            lines = zip(known, scores.astype(np.float32).tolist(), strict=True)
            file.writelines(f"{a} {b} {score:.7g}\n".encode() for (a, b), score in lines)
        if done:
            mean = total / done
            deviation = max(squares / done - mean * mean, 0.0) ** 0.5
            cli.log(f"Mean score was {mean:.6g}, standard deviation was {deviation:.6g}")
        cli.log(f"Processed {done} trials, {failed} had errors.")
        if not done:
            raise cli.NothingDoneError("no trial has both its vectors")


def _trials(name: str) -> Iterator[tuple[str, str]]:
    """The keys of each line of a file.

    Raises:
        TableError: it cannot be read, or is not UTF-8.
        click.ClickException: a line has not two keys.
    """
    for place, words in nnet3_tables.lines(name):
        if len(words) != 2:
            found = " ".join(words)[:60]
            raise click.ClickException(f"{place}: expected two keys, found {found!r}")
        yield words[0], words[1]


def _is_known(first: str, second: str, train: Mapping[str, int], test: Mapping[str, int]) -> bool:
    for key, what, rows in ((first, "training", train), (second, "test", test)):
        if key not in rows:
            cli.warn(f"Key {key} not present in {what} iVectors.")
            return False
    return True


def _integer(reader: Reader) -> int:
    """Reads a number of utterances."""
    start = reader.position
    value = reader.integer()
    if value < 1:
        reader.fail(
            "impossible number of utterances", at=start, expected="1 or more", found=str(value)
        )
    return value
