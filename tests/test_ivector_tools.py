"""ivector-extract-online2, beside the i-vectors of Kaldi's tool and those of the library."""

from __future__ import annotations

import functools
import shlex
from pathlib import Path

import numpy as np
import pytest
from kaldi_tables import write_arrays
from nnet3_speech import OnlineIvectorExtractor, OnlineIvectors
from nnet3_tables import read_table
from tool_commands import EXTRACTOR as FOLDER
from tool_commands import PLACES
from tool_runs import run_tool

FEATURES = f"ark:{FOLDER}/features.ark"
NAME = "ivector-extract-online2"


pytestmark = pytest.mark.usefixtures("in_empty_folder")


extract = functools.partial(run_tool, NAME, *shlex.split(PLACES["IVECTORS"]), expected=0)
"""Runs the tool with the files of the small extractor."""


def table(name: str) -> dict[str, np.ndarray]:
    """A table by key."""
    return dict(read_table(f"ark:{name}"))


COUNTS = [
    *("--max-count=100", "--num-gselect=3", "--min-post=0.1", "--posterior-scale=0.3"),
    "--ivector-period=7",
]


@pytest.mark.parametrize(
    ("name", "speakers", "options"),
    [
        ("utt", "utt2utt", []),
        ("spk", "spk2utt", ["--num-threads=2", "--use-most-recent-ivector=true"]),
        ("greedy", "spk2utt", ["--greedy-ivector-extractor"]),
        ("counts", "spk2utt", COUNTS),
    ],
)
def test_as_kaldi(name: str, speakers: str, options: list[str]) -> None:
    """The i-vectors are those of Kaldi's tool, and its log lines have their mean lengths."""
    done = extract(*options, f"ark:{FOLDER}/{speakers}", FEATURES, "ark:out")

    found, expected = table("out"), table(f"{FOLDER}/iv.{name}.ark")
    assert list(found) == list(expected)
    frames, length, length_at_end = 0, 0.0, 0.0
    counts = {key: len(value) for key, value in read_table(FEATURES)}
    for key, ivectors in expected.items():
        lengths = np.linalg.norm(ivectors, axis=1)
        assert (np.linalg.norm(found[key] - ivectors, axis=1) <= 1e-4 * lengths).all()
        frames += counts[key]
        length += counts[key] * lengths.mean()
        length_at_end += counts[key] * lengths[-1]
    first, second, third = done.stderr.splitlines()[-3:]
    assert first == f"LOG ({NAME}) Estimated iVectors for {len(found)} files, 0 with errors."
    assert second.startswith(f"LOG ({NAME}) Average objective-function improvement was ")
    assert second.endswith(f" per frame, over {frames} frames (weighted).")
    words = third.split()
    assert float(words[words.index("was") + 1]) == pytest.approx(length / frames, rel=1e-4)
    assert float(words[words.index("utterance-end") + 2][:-1]) == pytest.approx(
        length_at_end / frames, rel=1e-4
    )
    assert third.endswith(f"over {frames} frames (weighted);  expected length is 2.82843")


def test_objective_improvement() -> None:
    """It is that of the log-likelihood for each frame, beside the mean of all i-vectors."""
    features = table(f"{FOLDER}/features.ark")
    [key, *_] = features
    Path("one").write_text(f"{key} {key}\n", encoding="utf-8")

    done = extract("ark:one", FEATURES, "ark:out")

    extractor = OnlineIvectorExtractor.of_folder(FOLDER)
    ivectors, state = extractor.compute(features[key])
    offset = np.eye(extractor.ivector_dim)[0] * extractor.extractor.prior_offset

    def objective(ivector: np.ndarray) -> float:
        return ivector @ state.linear - 0.5 * ivector @ state.quadratic @ ivector

    expected = (objective(ivectors[-1] + offset) - objective(offset)) / state.num_frames
    [line] = [line for line in done.stderr.splitlines() if "objective" in line]
    assert float(line.split(" was ")[1].split()[0]) == pytest.approx(expected, rel=1e-4)


def test_rows_for_all_frames() -> None:
    """--repeat gives a row for each frame, and the speaker's state has the last frames too."""
    features = dict(list(read_table(FEATURES))[:2])
    one, two = features
    Path("spk").write_text(f"spk {one} {two}\n", encoding="utf-8")

    extract("--repeat", "ark:spk", FEATURES, "ark:out")

    extractor, state, found = OnlineIvectorExtractor.of_folder(FOLDER), None, table("out")
    for key, frames in features.items():
        stream = OnlineIvectors(extractor, state)
        rows = stream.push(frames, last=True)
        stream.take_rest()
        state = stream.state
        assert len(found[key]) == len(frames)
        np.testing.assert_array_equal(found[key], rows[np.arange(len(frames)) // 10])
    assert state is not None
    assert state.num_frames == pytest.approx(0.1 * sum(map(len, features.values())))


def test_weights_of_frames() -> None:
    """Frames count as their weights say; utterances without fitting weights are left out."""
    features = dict(list(read_table(FEATURES))[:4])
    one, two, three, four = features
    rng = np.random.default_rng(0)
    lengths = {one: len(features[one]), two: len(features[two]) - 2, three: 3}
    weights = {key: rng.choice([0.0, 0.5, 1.0], length) for key, length in lengths.items()}
    write_arrays("ark:weights", weights)
    Path("utt").write_text("".join(f"{key} {key}\n" for key in features), encoding="utf-8")

    options = "--frame-weights-rspecifier=ark:weights", "--length-tolerance=2"
    done = extract(*options, "ark:utt", FEATURES, "ark:out")

    found, counts = table("out"), dict(read_table("ark:weights"))
    assert list(found) == [one, two]
    for key in found:
        padded = np.zeros(len(features[key]))
        padded[: len(counts[key])] = counts[key]
        stream = OnlineIvectors(OnlineIvectorExtractor.of_folder(FOLDER))
        np.testing.assert_array_equal(found[key], stream.push(features[key], padded, last=True))
    assert done.stderr.splitlines()[:3] == [
        f"WARNING ({NAME}) Utterance {three} has {len(features[three])} frames and 3 weights, "
        "which differ by more than --length-tolerance=2",
        f"WARNING ({NAME}) Did not find weights for utterance {four}",
        f"LOG ({NAME}) Estimated iVectors for 2 files, 2 with errors.",
    ]


def test_pitch_is_left_out() -> None:
    """Three columns more than the extractor's are taken for pitch, with one warning."""
    features = dict(list(read_table(FEATURES))[:2])
    pitch = {key: np.pad(each, ((0, 0), (0, 3))) for key, each in features.items()}
    write_arrays("ark:pitch", pitch)
    Path("utt").write_text("".join(f"{key} {key}\n" for key in features), encoding="utf-8")

    done = extract("ark:utt", "ark:pitch", "ark:out")

    extract("ark:utt", FEATURES, "ark:plain")
    for key, plain in table("plain").items():
        np.testing.assert_array_equal(table("out")[key], plain)
    assert [line for line in done.stderr.splitlines() if line.startswith("WARNING")] == [
        f"WARNING ({NAME}) Feature dimension is too large by 3, assuming there are pitch features "
        "and removing the last 3 dims."
    ]


def test_faults_of_utterances() -> None:
    """Utterances that are missing or empty are left out; others that do not fit end with 255."""
    [(key, frames), *_] = read_table(FEATURES)
    write_arrays("ark:feats", {key: frames, "empty": np.zeros((0, 23)), "wide": np.zeros((5, 24))})
    Path("some").write_text(f"spk none empty {key}\n", encoding="utf-8")
    Path("wide").write_text(f"spk wide {key}\n", encoding="utf-8")

    done = extract("ark:some", "ark:feats", "ark:out")
    damaged = extract("ark:wide", "ark:feats", "ark:out2", expected=255)

    assert list(table("out")) == list(table("out2")) == [key]
    assert done.stderr.splitlines()[:3] == [
        f"WARNING ({NAME}) Did not find audio for utterance none",
        f"WARNING ({NAME}) Empty feature matrix for utterance empty",
        f"LOG ({NAME}) Estimated iVectors for 1 files, 2 with errors.",
    ]
    assert damaged.stderr.splitlines()[0] == (
        f"WARNING ({NAME}) utterance 'wide': i-vectors: expected features of 23 columns, found the "
        "shape (5, 24)"
    )
