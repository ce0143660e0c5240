"""ivector-mean: averages vectors, such as x-vectors, by speaker, or all of them."""

from __future__ import annotations

import contextlib
from operator import methodcaller
from typing import TYPE_CHECKING

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
from nnet3_tools.speech.vectors import read_speakers, read_vectors
from nnet3_tools.streams import write_elements

if TYPE_CHECKING:
    from nnet3_tables import FloatArray

NAME = "ivector-mean"


@click.command(cls=KaldiCommand)
@click.argument("first", metavar="[SPK2UTT-RSPECIFIER]")
@click.argument("second", metavar="VECTOR-RSPECIFIER")
@click.argument("third", metavar="VECTOR-WSPECIFIER|MEAN-OUT", required=False)
@click.argument("num_utts_out", metavar="[NUM-UTTS-WSPECIFIER]", required=False)
@boolean_option("--binary", help="Write the mean of all vectors in binary form.")
def command(
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
    write_elements(mean_out, methodcaller("double_vector", total / count), binary=binary)


def _write_means(
    spk2utt_in: str, vectors_in: str, means_out: str, num_utts_out: str | None
) -> None:
    import numpy as np

    speakers_done = speakers_failed = utterances_done = utterances_failed = 0
    total, squares = np.zeros(0), 0.0
    with contextlib.ExitStack() as stack:
        table = stack.enter_context(nnet3_tables.VectorLookup(vectors_in))
        means = stack.enter_context(nnet3_tables.VectorWriter(means_out))
        counts = num_utts_out and stack.enter_context(nnet3_tables.ObjectWriter(num_utts_out))
        for speaker, utterances in read_speakers(spk2utt_in):
            # In single precision and in this order, so that the means are those of Kaldi's tool.
            mean, count = np.zeros(0, dtype=np.float32), 0
            for utterance in utterances:
                vector = table.get(utterance)
                if vector is None:
                    warn(NAME, f"No iVector present in input for utterance {utterance}")
                    utterances_failed += 1
                    continue
                if count or len(total):
                    _check_size(utterance, vector, len(mean) or len(total))
                mean = mean + vector if count else vector
                count += 1
            utterances_done += count
            if not count:
                warn(
                    NAME,
                    f"Not producing output for speaker {speaker} since no utterances had iVectors",
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
        log(
            NAME,
            f"Computed mean of {speakers_done} speakers ({speakers_failed} with no utterances), "
            f"consisting of {utterances_done} utterances ({utterances_failed} absent from input).",
        )
        if not speakers_done:
            raise NothingDoneError("no speaker has an utterance with a vector")
    length = (squares / speakers_done / len(total)) ** 0.5
    log(
        NAME,
        f"Norm of mean of speakers is {np.linalg.norm(total / speakers_done):.6g}, "
        f"root-mean-square speaker-iVector length divided by sqrt(dim) is {length:.6g}",
    )


def _check_size(key: str, vector: FloatArray, size: int) -> None:
    if len(vector) != size:
        raise click.ClickException(
            f"'{key}': expected a vector of {size} values, as before, found {len(vector)}"
        )


def _encoded(count: int, *, binary: bool) -> bytes:
    """An integer as it stands in a table."""
    return b"\0B\4" + count.to_bytes(4, "little") if binary else f"{count} \n".encode()


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
