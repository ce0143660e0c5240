"""compute-mfcc-feats and the tools after it, beside the values of Kaldi's tools."""

from __future__ import annotations

import struct
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from kaldi_tables import write_arrays
from nnet3_speech import FbankOptions, FeatureExtractor, MfccOptions, read_wav
from nnet3_tables import read_table
from reference_cases import ROOT
from tool_runs import run_tool
from wav_files import wav

DATA = ROOT / "packages/nnet3-speech/tests/data"
KALDI = np.load(DATA / "kaldi.npz")
WAV = DATA / "k2.wav"


pytestmark = pytest.mark.usefixtures("in_empty_folder")


def run(line: str, *arguments: str, expected: int = 0) -> CompletedProcess[str]:
    """Runs a tool, which ends with a status: the words of a line, and further arguments."""
    return run_tool(*line.split(), *arguments, expected=expected)


def said(done: CompletedProcess[str]) -> list[str]:
    """The lines that a tool wrote, without its name."""
    tool = done.args[0]
    return [
        line.replace(f" ({tool})", "").removeprefix(f"{tool}: ")
        for line in done.stderr.splitlines()
    ]


def write_wav(path: str, samples: np.ndarray, rate: int = 16000) -> None:
    """Writes samples, (n,) or (n, channels), as 16-bit integers."""
    data = samples.astype("<i2").tobytes()
    Path(path).write_bytes(wav(data, channels=samples[0].size, rate=rate))


def noise(*shape: int) -> np.ndarray:
    """Samples of a recording."""
    return 1000 * np.random.default_rng(0).standard_normal(shape)


def test_features_of_kaldi() -> None:
    """The MFCC of a WAV file with a model's mfcc.conf are those of Kaldi's tool."""
    Path("wav.scp").write_text(f"k2 {WAV}\n", encoding="utf-8")

    done = run(
        f"compute-mfcc-feats --config={DATA}/mfcc.conf scp:wav.scp ark,scp:feats.ark,feats.scp"
    )

    [(key, features)] = read_table("scp:feats.scp")
    expected = np.load(DATA / "mfcc.npz")["k2"]
    assert key == "k2"
    assert said(done) == ["LOG  Done 1 out of 1 utterances."]
    np.testing.assert_allclose(features, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def test_options() -> None:
    """Options reach the features; channels, short recordings and durations are as in Kaldi."""
    write_wav("two.wav", noise(8000, 2), 8000)
    write_wav("short.wav", noise(1000), 8000)
    Path("wav.scp").write_text("two two.wav\nshort short.wav\n", encoding="utf-8")

    done = run(
        "compute-fbank-feats --sample_frequency=8000 --num-mel-bins=15 --snip-edges=false "
        "--use-energy --dither=1 --channel=1 --min-duration=0.2 --subtract-mean=true "
        "--write-utt2dur=ark,t:utt2dur --vtln-low=60 --max-feature-vectors=10 scp:wav.scp ark:out"
    )

    [(_, features)] = read_table("ark:out")
    options = FbankOptions(
        sample_frequency=8000.0, num_mel_bins=15, snip_edges=False, use_energy=True, dither=1.0
    )
    expected = FeatureExtractor(options).compute(read_wav("two.wav").samples[1], 8000)
    np.testing.assert_allclose(features, expected - expected.mean(axis=0), atol=1e-4)
    assert Path("utt2dur").read_text(encoding="utf-8") == "two 1 \n"
    assert said(done) == [
        "WARNING File: short is too short (0.125 sec): producing no output.",
        "LOG  Done 1 out of 2 utterances.",
    ]


def test_channels_and_rates() -> None:
    """Recordings with another rate, or without the channel, are left out with Kaldi's words."""
    write_wav("two.wav", noise(8000, 2))
    write_wav("fast.wav", noise(8000), 44100)
    Path("wav.scp").write_text("two two.wav\nfast fast.wav\n", encoding="utf-8")

    done = run("compute-mfcc-feats --write-utt2dur=ark:utt2dur scp:wav.scp ark:out")
    assert said(done) == [
        "WARNING Channel not specified but you have data with 2 channels; defaulting to zero",
        "WARNING Failed to compute features for utterance fast: the recording has 44100 samples in "
        "a second, the model wants 16000 (--sample-frequency); --allow-downsample=true would "
        "resample it",
        "LOG  Done 1 out of 2 utterances.",
    ]
    assert Path("utt2dur").read_bytes() == b"two \0B\10" + struct.pack("<d", 0.5)
    [(_, features)] = read_table("ark:out")
    expected = FeatureExtractor(MfccOptions()).compute(read_wav("two.wav").samples[0], 16000)
    np.testing.assert_array_equal(features, expected)

    done = run("compute-mfcc-feats --channel=2 scp:wav.scp ark:out", expected=1)
    assert said(done)[0] == (
        "WARNING File with id two has 2 channels but you specified channel 2, producing no output."
    )


def test_archive_and_progress() -> None:
    """Recordings come from an archive, too, and each tenth is a line."""
    write_wav("a.wav", noise(1000))
    data = Path("a.wav").read_bytes()
    Path("wav.ark").write_bytes(b"".join(b"utt%d " % n + data for n in range(11)))

    done = run("compute-mfcc-feats ark:wav.ark ark:out")
    piped = run("compute-mfcc-feats", "ark:cat wav.ark |", "ark:piped")

    lines = ["LOG Processed 10 utterances", "LOG  Done 11 out of 11 utterances."]
    assert said(done) == said(piped) == lines
    assert [key for key, _ in read_table("ark:out")] == [f"utt{n}" for n in range(11)]
    assert Path("out").read_bytes() == Path("piped").read_bytes()


DAMAGED = {
    "a none.wav\n": "utterance 'a': wav.scp, line 2: 'a' at none.wav: No such file or directory",
    "a alaw.wav\n": "utterance 'a': alaw.wav: the coding is A-law (format 6); RIFF/WAVE with PCM "
    "of 8, 16, 24 or 32 bits, or with floating point of 32 bits, is read",
    "a touch ran |\n": "utterance 'a': wav.scp, line 2: 'a' is to come from a command "
    "('touch ran |'), and data does not run commands; write it in the table's own name instead "
    "(ark:command |)",
    "b\n": "wav.scp, line 2: expected a key and a file, found 'b'",
}
"""Lines of a script file, and what is said of them."""


@pytest.mark.parametrize(("line", "message"), DAMAGED.items())
def test_recordings_that_cannot_be_read(line: str, message: str) -> None:
    """They are named and left out, and the status is 255; with the option p they are left out."""
    write_wav("good.wav", noise(1000))
    data = bytearray(Path("good.wav").read_bytes())
    data[20] = 6
    Path("alaw.wav").write_bytes(data)
    Path("wav.scp").write_text(f"good good.wav\n{line}", encoding="utf-8")

    done = run("compute-mfcc-feats scp:wav.scp ark:out", expected=255)

    assert [each.removeprefix("WARNING ") for each in said(done)][:-1] == [message]
    assert [key for key, _ in read_table("ark:out")] == ["good"]
    assert not Path("ran").exists()
    if line.startswith("a "):
        done = run("compute-mfcc-feats scp,p:wav.scp ark:out")
        assert "left out because of the option p" in said(done)[0]


def test_sliding_cmvn_vad_and_selection() -> None:
    """From features to normalised voiced frames, the values and lines are Kaldi's."""
    write_arrays("ark:feats", {"a": KALDI["input"], "empty": np.zeros((0, 4))})

    done = run("apply-cmvn-sliding --cmn-window=60 --min_cmn_window=20 ark:feats ark:cmvn")
    assert said(done) == [
        "WARNING Empty feature matrix for utterance empty",
        "LOG Applied sliding-window cepstral mean normalization to 1 utterances, 1 had errors.",
    ]
    [(_, normalized)] = read_table("ark:cmvn")
    np.testing.assert_allclose(normalized, KALDI["sliding"], atol=2e-5)

    done = run("compute-vad --vad-energy-threshold=2 --vad-frames-context=2 ark:feats ark:vad")
    proportion = KALDI["vad"].mean()
    assert said(done)[1:] == [
        "LOG Applied energy based voice activity detection; processed 1 utterances successfully; 1 "
        "had empty features, and 0 were completely unvoiced.",
        f"LOG Proportion of voiced frames was {proportion:.6g} over 130 frames.",
    ]
    [(_, voiced)] = read_table("ark:vad")
    np.testing.assert_array_equal(voiced, KALDI["vad"])

    done = run("select-voiced-frames ark:cmvn ark:vad ark:selected")
    assert said(done) == ["LOG Done selecting voiced frames; processed 1 utterances, 0 had errors."]
    [(_, selected)] = read_table("ark:selected")
    np.testing.assert_array_equal(selected, normalized[voiced == 1])


def test_small_variances_are_warnings() -> None:
    """They are lines of the tool, as many as --max-warnings."""
    write_arrays("ark:feats", {"a": np.ones((20, 2))})

    done = run("apply-cmvn-sliding --norm-vars --max-warnings=1 ark:feats ark:cmvn")

    assert said(done) == [
        "WARNING Flooring when normalizing variance, floored 2 elements; num-frames was 20",
        "WARNING Suppressing the remaining variance flooring warnings. Use --max-warnings=-1 to "
        "see all warnings.",
        "LOG Applied sliding-window cepstral mean and variance normalization to 1 utterances, 0 "
        "had errors.",
    ]


@pytest.mark.parametrize("omit", [False, True])
def test_unvoiced_utterances(omit: bool) -> None:
    """They are written unless --omit-unvoiced-utts, and are no success."""
    write_arrays("ark:feats", {"a": np.zeros((20, 2))})

    given = "ark:feats", "ark:vad"
    done = run(f"compute-vad --omit-unvoiced-utts={str(omit).lower()}", *given, expected=1)

    assert said(done)[0] == "WARNING No frames were judged voiced for utterance a"
    assert Path("vad").exists() is not omit  # a table of nothing is not written
    assert omit or [key for key, _ in read_table("ark:vad")] == ["a"]


def test_decisions_that_do_not_fit() -> None:
    """Utterances without decisions, with too few, or with no voiced frame are left out."""
    names = "none", "short", "unvoiced", "half", "fine"
    write_arrays("ark:feats", dict.fromkeys(names, np.ones((3, 2))))
    write_arrays("ark:nan", {"nan": np.full((3, 2), np.nan)})
    decisions = {"short": [1, 1], "unvoiced": [0, 0, 0], "half": [0, 1, 0.5], "fine": [0, 1, 0]}
    write_arrays("ark:vad", {key: np.array(each) for key, each in decisions.items()})

    done = run("select-voiced-frames ark:feats ark:vad ark:out", expected=255)
    damaged = run("apply-cmvn-sliding ark:nan ark:out2", expected=255)

    assert said(done) == [
        "WARNING No VAD input found for utterance none",
        "WARNING Mismatch in number for frames 3 for features and VAD 2, for utterance short",
        "WARNING No features were judged as voiced for utterance unvoiced",
        "WARNING utterance 'half': expected 0 or 1 for each frame, found 0.5",
        "LOG Done selecting voiced frames; processed 1 utterances, 4 had errors.",
    ]
    assert [(key, len(value)) for key, value in read_table("ark:out")] == [("fine", 1)]
    assert said(damaged)[0] == "WARNING utterance 'nan': features: row 0 is not finite"
