"""nnet3-transcribe: the phones or words of recordings, with times."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click
import nnet3
import nnet3_tables
from nnet3_descriptors import Nnet3Error

from nnet3_tools import cli, flags, streams
from nnet3_tools.compute.inputs import ACOUSTIC_SCALE, SUBSAMPLING
from nnet3_tools.recordings import recordings
from nnet3_tools.speech.tables import Tally, each_value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from nnet3_speech import Recording, WordDecoder

    Samples = npt.NDArray[np.float32]
    Lines = Callable[[str, str, Samples, int], str]
    """Gives the lines of a channel: of its key, its number, its samples and their rate."""

PHONES, WORDS = "phones", "words"

EPILOG = """\b
Examples:
  nnet3-transcribe vosk-model-small-ko-0.22 speech.wav
  nnet3-transcribe --nbest=3 exp/chain/tdnn1a_sp_online scp:wav.scp
  nnet3-transcribe --posteriors=ark:posteriors.ark exp/chain/tdnn1a_sp_online a.wav b.wav

The lines are those of a CTM file: recording, channel, start and length in seconds, phone or word,
and for phones the mean posterior. A recording is called after its file, without the ending, or by
its key in a table. With --nbest, -1, -2 and so on follow.

A recording that cannot be read or computed is reported and left out, and the exit status is 255."""


@cli.tool(
    "nnet3-transcribe",
    "FOLDER WAV...",
    cli.option(
        "--units",
        None,
        "What to find.  [default: words if the folder has a graph of one file, HCLG.fst; else "
        "phones]",
        type=click.Choice([PHONES, WORDS]),
    ),
    cli.option(
        "--nbest",
        1,
        "The most hypotheses of words for a recording. More than one takes more time and memory.",
        "COUNT",
        shown=True,
        type=click.IntRange(min=1, max=50),
    ),
    cli.option(
        "--posteriors",
        "",
        "A table to write with the posteriors of phones, a matrix for each recording; the "
        "columns "
        "are named in the log.",
        "WSPECIFIER",
    ),
    cli.boolean_option(
        "--positions",
        "Tell phones apart by their place in a word, as the names of phones do (a_B, a_I, ...).",
    ),
    ACOUSTIC_SCALE,
    SUBSAMPLING,
    flags.CACHE_DIR,
    flags.GPU,
    flags.PRINT_ARGS,
    epilog=EPILOG,
    context_settings={"max_content_width": 100},
)
def nnet3_transcribe(
    folder: str,
    wav: tuple[str, ...],
    *,
    units: str | None,
    nbest: int,
    posteriors: str,
    positions: bool,
    acoustic_scale: float | None,
    frame_subsampling_factor: int | None,
    use_gpu: str,
    print_args: bool,
) -> int:
    """Print the phones or words of recordings, with their times.

    FOLDER is a speech model of Vosk or Kaldi, WAV a file or a table such as scp:wav.scp. Phones are
    the most probable ones of each frame, by the transition model and phones.txt of the folder; for
    words, kaldi-decoder searches the graph of the folder (HCLG.fst and words.txt).
    """
    import numpy as np  # not for --help
    from nnet3_speech import without_positions

    if print_args:
        cli.print_arguments()
    model = nnet3.load(folder, flags.device(use_gpu))
    if model.folder is None:
        raise click.UsageError(f"{folder}: expected the folder of a speech model, found a file")
    pipeline = model.feature_pipeline()
    options: dict[str, Any] = {"frame_subsampling_factor": frame_subsampling_factor}
    factor = frame_subsampling_factor or model.folder.options.frame_subsampling_factor
    seconds = pipeline.frame_seconds * factor
    decoder = _decoder(model, units, nbest)
    phones = model.labels.phones if posteriors or decoder is None else ()

    def phones_of(samples: Samples, rate: int) -> tuple[Samples, tuple[str, ...]]:
        outputs = model.compute((samples, rate), acoustic_scale=1.0, **options)
        found = model.phone_posteriors(outputs)
        return (found, phones) if positions else without_positions(found, phones)

    if posteriors:
        columns = (
            phones
            if positions
            else without_positions(np.empty((0, len(phones)), np.float32), phones)[1]
        )
        cli.log(f"Columns of posteriors: {' '.join(columns)}")
    tally = Tally()
    with contextlib.ExitStack() as files:
        table = (
            files.enter_context(streams.results(nnet3_tables.MatrixWriter(posteriors)))
            if posteriors
            else None
        )

        def lines(key: str, channel: str, samples: Samples, rate: int) -> str:
            found = ""
            if decoder is not None:
                scores = model.compute(
                    (samples, rate),
                    use_priors=model.priors is not None,
                    acoustic_scale=acoustic_scale,
                    **options,
                )
                found = _words(decoder, scores, key, channel, seconds, nbest)
            if decoder is None or table is not None:
                probabilities, names = phones_of(samples, rate)
                if decoder is None:
                    found = _phones(probabilities, names, key, channel, seconds)
                if table is not None:
                    table.write(key if channel == "1" else f"{key}-{channel}", probabilities)
            return found

        _each_channel(wav, tally, lines)
    return tally.status


def _decoder(model: nnet3.Model, units: str | None, nbest: int) -> WordDecoder | None:
    """What finds words, or None for phones.

    Raises:
        click.UsageError: several hypotheses of phones are asked for.
        SpeechError: words are asked for, and cannot be found.
    """
    from nnet3_speech import WordDecoder

    assert model.folder is not None
    if units is None:
        units = WORDS if {"HCLG.fst", "words.txt"} <= set(model.folder.files) else PHONES
        if units == PHONES and "HCLr.fst" in model.folder.files:
            cli.log("The graph of the folder is in two parts, which are not searched: phones.")
    if units == WORDS:
        return WordDecoder.of(model.folder)
    if nbest > 1:
        raise click.UsageError("--nbest is for words; of phones there is one sequence")
    return None


def _words(
    decoder: WordDecoder, scores: Samples, key: str, channel: str, seconds: float, nbest: int
) -> str:
    hypotheses = decoder.decode(scores, seconds, nbest=nbest)
    if not hypotheses or not hypotheses[0].is_final:
        cli.log(f"{key}: no path through the graph ends with the recording")
    return "".join(
        f"{key}{f'-{number}' if nbest > 1 else ''} {channel} {word.start:.2f} "
        f"{word.end - word.start:.2f} {word.text}\n"
        for number, hypothesis in enumerate(hypotheses, 1)
        for word in hypothesis.words
    )


def _phones(
    posteriors: Samples, names: tuple[str, ...], key: str, channel: str, seconds: float
) -> str:
    from nnet3_speech import best_phones

    return "".join(
        f"{key} {channel} {phone.start:.2f} {phone.end - phone.start:.2f} {phone.name} "
        f"{phone.probability:.2f}\n"
        for phone in best_phones(posteriors, names, seconds)
    )


def _each_channel(names: tuple[str, ...], tally: Tally, lines: Lines) -> None:
    """Prints the lines of each channel; what cannot be read or computed is counted."""
    for key, recording in _readable(names, tally):
        try:
            for number, samples in enumerate(recording.samples, 1):
                streams.print_text(lines(key, str(number), samples, recording.rate))
        except Nnet3Error as error:
            tally.break_off(key, error)
        else:
            tally.done += 1


def _readable(names: tuple[str, ...], tally: Tally) -> Iterator[tuple[str, Recording]]:
    """The recordings with their keys."""
    from nnet3_speech import read_wav

    stems = Counter(PurePath(name).stem for name in names)
    for name in names:
        if name.partition(":")[0].partition(",")[0] in ("ark", "scp"):
            yield from each_value(recordings(name), name, tally)
            continue
        stem = PurePath(name).stem
        key = stem if stems[stem] == 1 else name
        one = "_".join(key.split()), partial(read_wav, name)
        yield from each_value(iter([one]), "scp:-", tally)
