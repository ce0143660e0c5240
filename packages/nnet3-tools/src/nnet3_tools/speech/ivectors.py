"""ivector-extract-online2: the i-vectors of utterances, as online decoding estimates them."""

from __future__ import annotations

import contextlib
from typing import Any

import attrs
import nnet3_speech
import nnet3_tables
from nnet3_descriptors import Nnet3Error

from nnet3_tools import cli, streams
from nnet3_tools.speech.tables import Tally, class_options, read_speakers

_PITCH_DIM = 3


_HELPS = {
    "lda_matrix": "File of the transform of spliced features (final.mat).",
    "global_cmvn_stats": "File of the statistics of many speakers.",
    "cmvn_config": "Config file of the normalisation of features (online_cmvn.conf).",
    "online_cmvn_iextractor": "The statistics, too, come from normalised features.",
    "splice_config": "Config file of splicing (splice.conf).",
    "diag_ubm": "File of the Gaussians that give posteriors (final.dubm).",
    "ivector_extractor": "File of the extractor (final.ie).",
    "ivector_period": "Frames from an i-vector to the next.",
    "num_gselect": "The most Gaussians that count for a frame.",
    "min_post": "Smaller posteriors are left out.",
    "posterior_scale": "Multiplies posteriors.",
    "max_count": "If above 0: the sum of posteriors above which the prior counts more.",
    "greedy_ivector_extractor": "Each i-vector takes all frames of the utterance.",
    "max_remembered_frames": "The most frames that count for a speaker's next utterance.",
}


@cli.tool(
    "ivector-extract-online2",
    "SPK2UTT-RSPECIFIER FEATURES-RSPECIFIER IVECTORS-WSPECIFIER",
    class_options("IvectorExtractionConfig", _HELPS),
    cli.boolean_option("--repeat", "Write a row for each frame, and not for each period."),
    cli.option(
        "--frame-weights-rspecifier",
        "",
        "Vectors of how much each frame counts; by default 1.",
        "RSPECIFIER",
    ),
    cli.option(
        "--length-tolerance",
        0,
        "By how many an utterance may have more or fewer frames than weights.",
        shown=True,
    ),
    ignored={
        "--num-threads": "threads",
        "--use-most-recent-ivector": "not used by Kaldi's tool, either",
    },
)
def ivector_extract_online2(
    spk2utt_in: str,
    features_in: str,
    ivectors_out: str,
    repeat: bool,
    frame_weights_rspecifier: str,
    length_tolerance: int,
    **given: Any,
) -> int:
    """Estimate an i-vector every few frames, from the frames so far and the speaker's utterances.

    A line of SPK2UTT-RSPECIFIER has a speaker and the speaker's utterances in their order. Features
    are those before normalisation. An utterance becomes a matrix with a row for each period.
    """
    if given["greedy_ivector_extractor"]:
        cli.warn("--greedy-ivector-extractor=true implies --use-most-recent-ivector=true")
    extractor = nnet3_speech.OnlineIvectorExtractor.read(
        nnet3_speech.IvectorExtractionConfig(**given)
    )
    tables = [features_in, *filter(None, [frame_weights_rspecifier])]
    streams.check_tables([spk2utt_in, *tables], ivectors_out)
    with contextlib.ExitStack() as stack:
        features = stack.enter_context(nnet3_tables.MatrixLookup(features_in))
        weights = (
            stack.enter_context(nnet3_tables.VectorLookup(frame_weights_rspecifier))
            if frame_weights_rspecifier
            else None
        )
        work = _Extraction(extractor, features, weights, length_tolerance, repeat)
        speakers = read_speakers(spk2utt_in)
        first = next(speakers, None)  # a missing table is an error before anything is written
        output = stack.enter_context(streams.results(nnet3_tables.MatrixWriter(ivectors_out)))
        if first is not None:
            work.write_speaker(output, first[1])
        for _, utterances in speakers:
            work.write_speaker(output, utterances)
    work.log_results()
    return work.tally.status


@attrs.define
class _Extraction:
    """The i-vectors of the utterances of tables, and counts of them.

    Attributes:
        extractor: The extractor.
        features: The features of the utterances.
        weights: The weights of their frames, or None.
        tolerance: The largest difference of the numbers of both.
        repeat: Whether to write a row for each frame.
    """

    extractor: nnet3_speech.OnlineIvectorExtractor
    features: nnet3_tables.MatrixLookup
    weights: nnet3_tables.VectorLookup | None
    tolerance: int
    repeat: bool
    tally: Tally = attrs.field(factory=Tally)
    _frames: int = 0
    _objective_change: float = 0.0
    _length: float = 0.0
    _length_at_end: float = 0.0
    _has_warned: bool = False

    def write_speaker(self, output: nnet3_tables.MatrixWriter, utterances: list[str]) -> None:
        """Writes the i-vectors of a speaker's utterances, in their order."""
        state: nnet3_speech.AdaptationState | None = None
        for utterance in utterances:
            try:
                found = self._ivectors(utterance, state)
            except Nnet3Error as error:
                self.tally.break_off(utterance, error)
                continue
            if found is not None:
                ivectors, state = found
                output.write(utterance, ivectors)
                self.tally.done += 1

    def _ivectors(
        self, utterance: str, state: nnet3_speech.AdaptationState | None
    ) -> tuple[nnet3_tables.FloatArray, nnet3_speech.AdaptationState] | None:
        """The i-vectors of an utterance, (rows, dim), and the state after it; or None.

        Raises:
            Nnet3Error: the features or weights cannot be read, or do not fit the extractor.
        """
        import numpy as np

        frames = self.features.get(utterance)
        if frames is None:
            self.tally.fail(f"Did not find audio for utterance {utterance}")
            return None
        count = len(frames)
        if not count:
            self.tally.fail(f"Empty feature matrix for utterance {utterance}")
            return None
        if frames.shape[1] == self.extractor.dim + _PITCH_DIM:
            frames = frames[:, :-_PITCH_DIM]
            if not self._has_warned:
                cli.warn(
                    f"Feature dimension is too large by {_PITCH_DIM}, assuming there are pitch "
                    f"features and removing the last {_PITCH_DIM} dims."
                )
                self._has_warned = True
        weights = None
        if self.weights is not None:
            given = self.weights.get(utterance)
            if given is None:
                self.tally.fail(f"Did not find weights for utterance {utterance}")
                return None
            if abs(len(given) - count) > self.tolerance:
                self.tally.fail(
                    f"Utterance {utterance} has {count} frames and {len(given)} weights, which "
                    f"differ by more than --length-tolerance={self.tolerance}"
                )
                return None
            weights = np.zeros(count)
            weights[: len(given)] = given[:count]
        stream = nnet3_speech.OnlineIvectors(self.extractor, state)
        ivectors = stream.push(frames, weights, last=True)
        if self.repeat:
            ivectors = ivectors.repeat(self.extractor.period, axis=0)[:count]
            stream.take_rest()  # as Kaldi's tool does then, and only then
        lengths = np.linalg.norm(ivectors.astype(np.float64), axis=1)
        self._frames += count
        self._objective_change += count * stream.objective_change
        self._length += count * float(lengths.mean())
        self._length_at_end += count * float(lengths[-1])
        return ivectors, stream.state

    def log_results(self) -> None:
        """Says how many utterances there were, and how their i-vectors are."""
        cli.log(f"Estimated iVectors for {self.tally.done} files, {self.tally.failed} with errors.")
        if not self._frames:
            return
        sums = self._objective_change, self._length, self._length_at_end
        change, length, length_at_end = (each / self._frames for each in sums)
        cli.log(
            f"Average objective-function improvement was {change:.6g} per frame, over "
            f"{self._frames:g} frames (weighted)."
        )
        cli.log(
            f"Average iVector length was {length:.6g} and at utterance-end was "
            f"{length_at_end:.6g}, over {self._frames:g} frames (weighted);  "
            f"expected length is {self.extractor.ivector_dim**0.5:.6g}"
        )
