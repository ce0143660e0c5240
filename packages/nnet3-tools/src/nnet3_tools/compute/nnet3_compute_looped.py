"""nnet3-compute-looped: runs a network over features chunk by chunk, as Kaldi's looped decoders.

Kaldi has no tool of this name. The outputs are those that `nnet3-latgen-faster-looped` decodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nnet3
import nnet3_runtime_cuda
import nnet3_tables

from nnet3_tools.compute.compute_options import (
    IVECTOR_OPTIONS,
    SCORE_OPTIONS,
    SUBSAMPLING,
    check_ivector_options,
    check_model,
    frames_option,
)
from nnet3_tools.compute.ivector_source import IvectorSource
from nnet3_tools.compute.utterance_tool import UtteranceRun, utterance_tool
from nnet3_tools.kaldi_command import run_tool

if TYPE_CHECKING:
    from nnet3 import Model, Work
    from nnet3_tables import FloatArray

NAME = "nnet3-compute-looped"

EXAMPLES = """\
  nnet3-compute-looped final.raw scp:feats.scp ark:output.ark
  nnet3-compute-looped --frames-per-chunk=21 --frame-subsampling-factor=3 \\
      --online-ivectors=scp:ivectors.scp --online-ivector-period=10 \\
      final.mdl scp:feats.scp ark,t:-"""

OPTIONS = (
    *IVECTOR_OPTIONS,
    frames_option("--frames-per-chunk", 20, "Frames to compute at a time."),
    SUBSAMPLING,
    frames_option(
        "--extra-left-context-initial",
        0,
        "Further repetitions of the first frame, for recurrent networks.",
    ),
    *SCORE_OPTIONS,
)


@utterance_tool(NAME, output="MATRIX-WSPECIFIER", examples=EXAMPLES, options=OPTIONS)
def command(
    run: UtteranceRun,
    *,
    ivectors: str,
    utt2spk: str,
    online_ivectors: str,
    online_ivector_period: int,
    **options: Any,
) -> int:
    """Run a trained nnet3 network over features, chunk by chunk, as while the frames come.

    A chunk uses the rows that earlier chunks have computed. So nothing is computed twice, and
    recurrences have no limit to the left. The outputs are those that Kaldi's looped decoders
    (nnet3-latgen-faster-looped) decode. NNET-IN is a Kaldi model, .raw or .mdl, or the folder of a
    speech model, for tables of WAV files, too.
    """
    check_ivector_options(ivectors, online_ivectors, online_ivector_period)
    model = run.load_model()
    options = run.of_folder(options)
    has_ivectors = bool(ivectors or online_ivectors)
    if (recordings := run.recordings(model)) is not None:
        has_ivectors = recordings.takes_ivectors(has_ivectors)
        online_ivector_period = recordings.ivector_period
    check_model(run, model, has_ivectors=has_ivectors, use_priors=options["use_priors"])
    model.stream(**options)  # raises errors of the network before a table is opened
    with IvectorSource.open(ivectors, online_ivectors, utt2spk) as source:

        def prepare(utterance: str, frames: FloatArray) -> Work:
            ivector, online = (recordings or source).of(utterance)
            return _work(model, frames, ivector, online, online_ivector_period, options)

        tables = filter(None, (ivectors, utt2spk, online_ivectors))
        return run.write(
            model, nnet3_tables.MatrixWriter, prepare, tables=tables, recordings=recordings
        )


def _work(
    model: Model,
    frames: FloatArray,
    ivector: FloatArray | None,
    online: FloatArray | None,
    period: int,
    options: dict[str, Any],
) -> Work:
    """The work of an utterance: one task, since each chunk needs the one before."""
    import numpy as np

    outputs: list[FloatArray] = []

    def compute() -> None:
        stream = model.stream(**options)
        if online is None:
            outputs.extend([stream.push(frames, ivector), stream.finish()])
            return
        if not len(online):
            raise nnet3_runtime_cuda.RunError("expected at least 1 online i-vector, found 0")
        missing = -(-len(frames) // options["frame_subsampling_factor"])
        begin = 0
        while missing:
            # As in Kaldi, a chunk has the i-vector of the frame after its last one.
            end = begin + stream.frames_to_outputs()
            times = np.arange(begin, end).clip(0, len(frames) - 1)
            row = min(end // period, len(online) - 1)
            outputs.append(stream.push(frames[times], online[row])[:missing])
            missing -= len(outputs[-1])
            begin = end

    return nnet3.Work(tasks=[compute], finish=lambda: np.concatenate(outputs))


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
