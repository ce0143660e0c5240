"""Tools for features: of recordings, normalised, and of frames with speech."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import nnet3_speech
import nnet3_tables
from nnet3_descriptors import Nnet3Error

from nnet3_tools import cli, streams
from nnet3_tools.recordings import recordings
from nnet3_tools.speech.tables import Tally, class_options, each_value, write_each

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


_HELPS = {
    "sample_frequency": "Samples in a second: those of recordings, unless they may be resampled.",
    "frame_length": "Length of a frame in milliseconds.",
    "frame_shift": "From a frame to the next, in milliseconds.",
    "preemphasis_coefficient": "Part of a sample that is subtracted from the next.",
    "remove_dc_offset": "Subtract the mean of a frame.",
    "dither": "Standard deviation of the noise that is added to samples, the same in each run. "
    "(Kaldi's default is 1, and it adds other noise to each frame.)",
    "window_type": "hamming, hanning, povey, rectangular, sine or blackman.",
    "blackman_coeff": "The constant of a generalised Blackman window.",
    "round_to_power_of_two": "Pad a frame with zeros to a power of two.",
    "snip_edges": "Only frames that lie within the recording; else the recording is reflected at "
    "its ends.",
    "allow_downsample": "Resample recordings of a higher rate than --sample-frequency.",
    "allow_upsample": "Resample recordings of a lower rate than --sample-frequency.",
    "num_mel_bins": "Number of triangular filters.",
    "low_freq": "The lowest frequency of the filters, in hertz.",
    "high_freq": "The highest one; 0 or less: counted from half the sample frequency.",
    "debug_mel": "Refused: nothing is printed here.",
    "energy_floor": "The least energy of a frame, with --use-energy.",
    "raw_energy": "Compute the energy before preemphasis and window.",
    "htk_compat": "Energy or C0 come last, C0 times the square root of 2.",
    "num_ceps": "Number of cepstra, with C0.",
    "use_energy": "The log energy: in place of C0 of MFCC, beside filter banks.",
    "cepstral_lifter": "Scales higher cepstra up; 0: not.",
    "use_log_fbank": "The logarithms of the filters' outputs.",
    "use_power": "Filter the power; else the magnitude.",
}


_IGNORED = {
    "--max-feature-vectors": "memory",
    "--vtln-low": "warping, which is refused",
    "--vtln-high": "warping, which is refused",
}


_OPTIONS = (
    cli.boolean_option("--subtract-mean", "Subtract the mean of each recording's features."),
    cli.option(
        "--channel",
        -1,
        "The channel to use, from 0; -1: the recordings have one.",
        least=-1,
        shown=True,
    ),
    cli.option("--min-duration", 0.0, "Leave out recordings that are shorter.", "SECONDS"),
    cli.option(
        "--write-utt2dur",
        "",
        "Where to write the seconds of each recording, such as ark,t:utt2dur.",
        "WSPECIFIER",
    ),
    cli.option(
        "--output-format",
        "kaldi",
        "Features of HTK are not written.",
        shown=True,
        type=click.Choice(["kaldi"]),
    ),
    cli.option(
        "--vtln-warp", 1.0, "Must be 1: kaldi-native-fbank does not warp frequencies.", shown=True
    ),
    cli.option("--vtln-map", "", "Refused, as --vtln-warp."),
    cli.option("--utt2spk", "", "Refused, as --vtln-warp."),
)


_EPILOG = """\b
Examples:
  {tool} --config=conf/{kind}.conf scp:wav.scp ark,scp:feats.ark,feats.scp
  {tool} scp:wav.scp ark:- | nnet3-compute final.raw ark:- ark:output.ark
  {tool} 'ark:wav-copy scp:wav.scp ark:- |' ark:feats.ark

A line of wav.scp has a key and a WAV file. Commands there are not run: write them in the name of
the table (ark:COMMAND |), as in the last example. Recordings that cannot be read are reported and
left out; the exit status is 255 then. It is 1 if no recording has features."""


def _encoded(seconds: float, *, binary: bool) -> bytes:
    """A number as it stands in a table: in double precision, or as text."""
    import struct

    return b"\0B\10" + struct.pack("<d", seconds) if binary else f"{seconds:.7g} \n".encode()


def _declared(tool: str, kind: str, cls: str) -> Callable[[Callable[..., int]], cli.KaldiCommand]:
    return cli.tool(
        tool,
        "WAV-RSPECIFIER FEATURES-WSPECIFIER",
        class_options(cls, _HELPS),
        *_OPTIONS,
        ignored=_IGNORED,
        epilog=_EPILOG.format(tool=tool, kind=kind),
    )


@_declared("compute-mfcc-feats", "mfcc", "MfccOptions")
def compute_mfcc_feats(wav: str, features: str, **given: Any) -> int:
    """Compute the MFCC of recordings: mel-frequency cepstral coefficients."""
    return _compute(nnet3_speech.MfccOptions, wav, features, given)


@_declared("compute-fbank-feats", "fbank", "FbankOptions")
def compute_fbank_feats(wav: str, features: str, **given: Any) -> int:
    """Compute the mel filter banks of recordings."""
    return _compute(nnet3_speech.FbankOptions, wav, features, given)


def _compute(
    cls: type[nnet3_speech.MfccOptions | nnet3_speech.FbankOptions],
    wav: str,
    features_out: str,
    given: dict[str, Any],
) -> int:
    for name, value in (("vtln-warp", 1.0), ("vtln-map", ""), ("utt2spk", "")):
        if given.pop(name.replace("-", "_")) != value:
            raise click.UsageError(
                f"--{name} is not supported: kaldi-native-fbank does not warp frequencies"
            )
    del given["output_format"]
    own = {name: given.pop(name) for name in ("channel", "min_duration")}
    subtract_mean, durations_out = given.pop("subtract_mean"), given.pop("write_utt2dur")
    extractor, tally = nnet3_speech.FeatureExtractor(cls(**given)), Tally()
    for output in filter(None, (features_out, durations_out)):
        streams.check_tables([wav], output)
    table = each_value(recordings(wav), wav, tally)
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(streams.results(nnet3_tables.MatrixWriter(features_out)))
        durations = durations_out and stack.enter_context(
            streams.results(nnet3_tables.ObjectWriter(durations_out))
        )
        for key, recording in table:
            samples = _samples(key, recording, tally, **own)
            if samples is None:
                continue
            try:
                features = extractor.compute(samples, recording.rate)
            except Nnet3Error as error:
                tally.fail(f"Failed to compute features for utterance {key}: {cli.one_line(error)}")
                continue
            if subtract_mean and len(features):
                features -= features.mean(axis=0)
            writer.write(key, features)
            if durations:
                seconds = len(samples) / recording.rate
                durations.write(key, _encoded(seconds, binary=not durations.is_text))
            tally.done += 1
            utterances = tally.done + tally.failed
            if utterances % 10 == 0:
                cli.log(f"Processed {utterances} utterances")
    cli.log(f" Done {tally.done} out of {tally.done + tally.failed} utterances.")
    return tally.status


def _samples(
    key: str, recording: nnet3_speech.Recording, tally: Tally, *, channel: int, min_duration: float
) -> npt.NDArray[np.float32] | None:
    """The samples of the channel to use, (n,); None if a recording is left out, after a warning."""
    channels, size = recording.samples.shape
    seconds = size / recording.rate
    if seconds < min_duration:
        tally.fail(f"File: {key} is too short ({seconds:.6g} sec): producing no output.")
        return None
    if channel == -1 and channels != 1:
        cli.warn(
            f"Channel not specified but you have data with {channels} channels; defaulting to zero"
        )
    if channel >= channels:
        tally.fail(
            f"File with id {key} has {channels} channels but you specified channel {channel}, "
            "producing no output."
        )
        return None
    samples: npt.NDArray[np.float32] = recording.samples[max(channel, 0)]
    return samples


_CMVN_HELPS = {
    "cmn_window": "Frames of the window.",
    "min_cmn_window": "Frames of the window at the beginning, without --center.",
    "max_warnings": "Warnings of an utterance about small variances; -1: all.",
    "norm_vars": "Normalise the variance too.",
    "center": "The window lies around the frame; else before it.",
}


@cli.tool(
    "apply-cmvn-sliding",
    "FEATURES-RSPECIFIER FEATURES-WSPECIFIER",
    class_options("SlidingCmvnOptions", _CMVN_HELPS),
)
def apply_cmvn_sliding(features_in: str, features_out: str, **given: Any) -> int:
    """Normalise the mean, and if asked for the variance, of features in a sliding window."""
    options = nnet3_speech.SlidingCmvnOptions(**given)
    tally = Tally()

    def normalized(_: str, frames: nnet3_tables.FloatArray) -> nnet3_tables.FloatArray:
        result = nnet3_speech.apply_sliding_cmvn(frames, options)
        tally.done += 1
        return result

    with cli.logged("nnet3_speech.cmvn"):
        write_each(features_in, features_out, nnet3_tables.MatrixWriter, normalized, tally)
    what = "mean and variance" if options.norm_vars else "mean"
    cli.log(
        f"Applied sliding-window cepstral {what} normalization to {tally.done} utterances, "
        f"{tally.failed} had errors."
    )
    return tally.status


_VAD_HELPS = {
    "vad_energy_threshold": "The constant part of the threshold.",
    "vad_energy_mean_scale": "The mean energy of the utterance, times this, is added to it.",
    "vad_frames_context": "Frames on each side of a frame that count for it.",
    "vad_proportion_threshold": "The part of these frames that has to be above the threshold.",
}


@cli.tool(
    "compute-vad",
    "FEATURES-RSPECIFIER VAD-WSPECIFIER",
    class_options("VadOptions", _VAD_HELPS),
    cli.boolean_option(
        "--omit-unvoiced-utts", "Write nothing for utterances without a voiced frame."
    ),
)
def compute_vad(features_in: str, vad_out: str, *, omit_unvoiced_utts: bool, **given: Any) -> int:
    """Write for each utterance a vector with 1 for voiced frames and 0 for others.

    The first column of the features is the log energy, or C0.
    """
    import numpy as np  # not for --help

    options = nnet3_speech.VadOptions(**given)
    tally = Tally()
    unvoiced = frames_voiced = frames_read = 0

    def decisions(key: str, frames: nnet3_tables.FloatArray) -> nnet3_tables.FloatArray | None:
        nonlocal unvoiced, frames_voiced, frames_read
        voiced = nnet3_speech.compute_vad(frames, options)
        count = int(voiced.sum())
        frames_voiced += count
        frames_read += len(voiced)
        if count:
            tally.done += 1
        else:
            unvoiced += 1
            cli.warn(f"No frames were judged voiced for utterance {key}")
            if omit_unvoiced_utts:
                return None
        return voiced.astype(np.float32)

    write_each(features_in, vad_out, nnet3_tables.VectorWriter, decisions, tally)
    cli.log(
        f"Applied energy based voice activity detection; processed {tally.done} utterances "
        f"successfully; {tally.failed} had empty features, and {unvoiced} were completely "
        "unvoiced."
    )
    proportion = frames_voiced / frames_read if frames_read else float("nan")
    cli.log(f"Proportion of voiced frames was {proportion:.6g} over {frames_read} frames.")
    return tally.status


@cli.tool("select-voiced-frames", "FEATURES-RSPECIFIER VAD-RSPECIFIER FEATURES-WSPECIFIER")
def select_voiced_frames(features_in: str, vad_in: str, features_out: str) -> int:
    """Write the voiced frames of each utterance: those with 1 in its vector of VAD-RSPECIFIER."""
    tally = Tally()
    with nnet3_tables.VectorLookup(vad_in) as decisions:

        def selected(key: str, frames: nnet3_tables.FloatArray) -> nnet3_tables.FloatArray | None:
            voiced = decisions.get(key)
            fault = _fault(key, frames, voiced)
            if voiced is None or fault:
                tally.fail(fault)
                return None
            tally.done += 1
            chosen: nnet3_tables.FloatArray = frames[voiced == 1]
            return chosen

        write_each(features_in, features_out, nnet3_tables.MatrixWriter, selected, tally, vad_in)
    cli.log(
        f"Done selecting voiced frames; processed {tally.done} utterances, {tally.failed} had "
        "errors."
    )
    return tally.status


def _fault(
    key: str, frames: nnet3_tables.FloatArray, voiced: nnet3_tables.FloatArray | None
) -> str:
    """Why an utterance has no voiced frames; "" if it has.

    Raises:
        TableError: a decision is neither 0 nor 1.
    """
    if voiced is None:
        return f"No VAD input found for utterance {key}"
    if len(voiced) != len(frames):
        return (
            f"Mismatch in number for frames {len(frames)} for features and VAD {len(voiced)}, for "
            f"utterance {key}"
        )
    others = voiced[(voiced != 0) & (voiced != 1)]
    if len(others):
        raise nnet3_tables.TableError(f"expected 0 or 1 for each frame, found {others[0]:g}")
    if not voiced.any():
        return f"No features were judged as voiced for utterance {key}"
    return ""
