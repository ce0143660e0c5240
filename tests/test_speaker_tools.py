"""ivector-mean and ivector-plda-scoring, beside the scores of Kaldi's tool and the definition."""

from __future__ import annotations

import functools
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from kaldi_tables import write_arrays
from nnet3_speech import Plda
from nnet3_tables import read_table, read_tokens, read_vector
from reference_cases import ROOT
from tool_runs import run_tool

KALDI = ROOT / "packages/nnet3-speech/tests/plda"
VECTORS = f"ark:{KALDI}/vec.txt"


pytestmark = pytest.mark.usefixtures("in_empty_folder")


def score(
    *options: str,
    vectors: tuple[str, str] = (VECTORS, VECTORS),
    trials: str = f"{KALDI}/trials",
) -> CompletedProcess[str]:
    """Runs ivector-plda-scoring, on Kaldi's vectors if no others are given."""
    given = KALDI / "plda", *vectors, trials, "scores"
    return run_tool("ivector-plda-scoring", *options, *given, expected=0)


mean_of = functools.partial(run_tool, "ivector-mean", expected=0)


def scores(path: Path | str) -> dict[tuple[str, str], float]:
    """The score of each trial."""
    lines = [line.split() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return {(first, second): float(value) for first, second, value in lines}


@pytest.mark.parametrize(
    ("name", "options"),
    [("scores", []), ("scores-no-length-normalization", ["--normalize-length=false"])],
)
def test_scores_of_kaldi(name: str, options: list[str]) -> None:
    """The file of scores has the keys and digits of Kaldi's, but for rounding of the last."""
    done = score(*options)

    found, expected = scores("scores"), scores(KALDI / name)
    assert list(found) == list(expected)
    np.testing.assert_allclose([*found.values()], [*expected.values()], rtol=3e-7)
    mean, deviation = np.mean([*expected.values()]), np.std([*expected.values()])
    assert done.stderr.splitlines()[0] == "LOG (ivector-plda-scoring) Reading train iVectors"
    assert done.stderr.splitlines()[-2:] == [
        f"LOG (ivector-plda-scoring) Mean score was {mean:.6g}, standard deviation was "
        f"{deviation:.6g}",
        f"LOG (ivector-plda-scoring) Processed {len(found)} trials, 0 had errors.",
    ]


def test_from_utterances_to_scores() -> None:
    """Means by speaker and their numbers of utterances go on to the scores."""
    done = mean_of(f"ark:{KALDI}/spk2utt", VECTORS, "ark:means", "ark,t:num_utts")
    assert "Computed mean of 30 speakers (0 with no utterances), consisting of " in done.stderr
    Path("trials").write_text("s00 s00u0\ns01 s00u0\n", encoding="utf-8")

    options = "--num-utts=ark:num_utts", "--simple-length-normalization"
    score(*options, vectors=("ark:means", VECTORS), trials="trials")

    vectors = dict(read_table(VECTORS))
    lines = [line.split() for line in (KALDI / "spk2utt").read_text().splitlines()]
    utterances = {speaker: rest for speaker, *rest in lines}
    assert read_tokens("ark:num_utts") == {
        speaker: str(len(rest)) for speaker, rest in utterances.items()
    }
    enrolled = [
        np.mean([vectors[key] for key in utterances[speaker]], axis=0) for speaker in ("s00", "s01")
    ]
    expected = Plda.read(KALDI / "plda").score(
        enrolled,
        vectors["s00u0"],
        num_utts=[len(utterances["s00"]), len(utterances["s01"])],
        simple_length_normalization=True,
    )
    np.testing.assert_allclose([*scores("scores").values()], expected, rtol=1e-5)


@pytest.mark.parametrize("form", ["ark", "ark,t"])
def test_numbers_of_utterances(form: str) -> None:
    """They are read in both forms that ivector-mean writes."""
    Path("spk2utt").write_text("s00u0 s00u0 s00u1 s00u2\ns01u0 s01u0\n", encoding="utf-8")
    mean_of("ark:spk2utt", VECTORS, "ark:means", f"{form}:num_utts")
    Path("trials").write_text("s00u0 s02u0\ns01u0 s02u0\ns02u0 s02u0\n", encoding="utf-8")

    done = score("--num-utts=ark:num_utts", trials="trials")

    plda = Plda.read(KALDI / "plda")
    vectors = dict(read_table(VECTORS))
    expected = plda.score([vectors["s00u0"], vectors["s01u0"]], vectors["s02u0"], num_utts=[3, 1])
    np.testing.assert_allclose([*scores("scores").values()], expected, rtol=1e-6)
    for line in (
        "WARNING (ivector-plda-scoring) Number of utterances not given for speaker s02u0",
        "WARNING (ivector-plda-scoring) Key s02u0 not present in training iVectors.",
        "LOG (ivector-plda-scoring) Processed 2 trials, 1 had errors.",
    ):
        assert line in done.stderr


@pytest.mark.parametrize("binary", [True, False])
def test_mean_of_all(binary: bool) -> None:
    """With two arguments the mean of all vectors is written to a file, as text if not asked."""
    mean_of(*(["--binary"] if binary else []), VECTORS, "mean.vec")

    expected = np.mean([value for _, value in read_table(VECTORS)], axis=0, dtype=np.float64)
    assert Path("mean.vec").read_bytes().startswith(b"\0BDV " if binary else b" [ ")
    np.testing.assert_allclose(read_vector("mean.vec"), expected, rtol=1e-5, atol=1e-6)


def test_vectors_without_values() -> None:
    """Vectors without values have a mean without values."""
    write_arrays("ark:vectors", {"a": np.zeros(0), "b": np.zeros(0)})
    Path("spk2utt").write_text("one a b\n", encoding="utf-8")

    mean_of("ark:spk2utt", "ark:vectors", "ark:means")

    assert [(key, value.size) for key, value in read_table("ark:means")] == [("one", 0)]


def test_missing_utterances() -> None:
    """A speaker has the mean of the utterances that are there; one without any is left out."""
    Path("spk2utt").write_text("one s00u0 none\ntwo none\n", encoding="utf-8")

    done = mean_of("ark:spk2utt", VECTORS, "ark:means", "ark,t:num_utts")

    (mean,) = read_table("ark:means")
    assert mean[0] == "one"
    assert Path("num_utts").read_text(encoding="utf-8") == "one 1 \n"
    assert done.stderr.splitlines()[:3] == [
        "WARNING (ivector-mean) No iVector present in input for utterance none",
        "WARNING (ivector-mean) No iVector present in input for utterance none",
        "WARNING (ivector-mean) Not producing output for speaker two since no utterances had "
        "iVectors",
    ]
    assert done.stderr.splitlines()[3].endswith(
        "Computed mean of 1 speakers (1 with no utterances), consisting of 1 utterances (2 absent "
        "from input)."
    )


def test_vector_that_is_not_finite() -> None:
    """It is left out with a warning, and its trials are errors."""
    write_arrays("ark:vectors", {"a": np.ones(12), "b": np.full(12, np.nan)})
    Path("trials").write_text("a a\na b\n", encoding="utf-8")

    done = score(vectors=("ark:vectors", "ark:vectors"), trials="trials")

    assert "WARNING (ivector-plda-scoring) The test iVector 'b' is not finite" in done.stderr
    assert list(scores("scores")) == [("a", "a")]
