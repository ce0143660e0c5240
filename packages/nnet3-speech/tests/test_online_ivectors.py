"""i-vectors equal Kaldi's, and those of a plain definition, in whatever pieces frames come."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_descriptors import ModelFileError
from nnet3_descriptors.files import read_entries
from nnet3_speech import (
    AdaptationState,
    DiagGmm,
    IvectorExtractionConfig,
    IvectorExtractor,
    OnlineIvectorExtractor,
    OnlineIvectors,
    SpeechError,
)
from nnet3_speech.online_ivectors import conjugate_gradient

FOLDER = Path(__file__).parent / "extractor"


def archive(name: str) -> dict[str, np.ndarray]:
    """The matrices of an archive beside the tests, by key."""
    with open(FOLDER / name, "rb") as file:
        return {
            entry.key: entry.value
            for entry in read_entries(file, name, lambda reader: reader.matrix())
        }


@pytest.fixture(scope="module")
def features() -> dict[str, np.ndarray]:
    """The features of the digits, by utterance."""
    return archive("features.ark")


CASES = {
    "utt": ("utt2utt", {}),
    "spk": ("spk2utt", {}),
    "greedy": ("spk2utt", {"greedy_ivector_extractor": True}),
    "counts": (
        "spk2utt",
        {
            "max_count": 100.0,
            "num_gselect": 3,
            "min_post": 0.1,
            "posterior_scale": 0.3,
            "ivector_period": 7,
        },
    ),
}


def speakers(name: str) -> Iterator[list[str]]:
    """The utterances of each speaker."""
    for line in (FOLDER / name).read_text().splitlines():
        yield line.split()[1:]


@pytest.mark.parametrize("name", CASES)
def test_as_kaldi(name: str, features: dict[str, np.ndarray]) -> None:
    """The i-vectors are Kaldi's, and a speaker's state goes from an utterance to the next."""
    table, options = CASES[name]
    extractor = OnlineIvectorExtractor.of_folder(FOLDER, **options)
    expected = archive(f"iv.{name}.ark")

    for utterances in speakers(table):
        state = None
        for utterance in utterances:
            found, state = extractor.compute(features[utterance], state)
            assert found.shape == expected[utterance].shape
            lengths = np.linalg.norm(expected[utterance], axis=1)
            assert (np.linalg.norm(found - expected[utterance], axis=1) <= 1e-4 * lengths).all()


def defined(
    extractor: OnlineIvectorExtractor, features: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """The definition, frame by frame with dense matrices, of a speaker who has not been heard."""
    config, ubm, model = extractor.config, extractor.diag_ubm, extractor.extractor
    left, right = attrs.astuple(extractor.transform.options)
    statistics = extractor.global_cmvn_stats
    matrix = extractor.transform.matrix.astype(np.float64)
    frames = features.astype(np.float64)
    count, dim = frames.shape
    normalised = np.empty_like(frames)
    for t in range(count):
        window = frames[max(0, t - extractor.cmvn_options.cmn_window + 1) : t + 1]
        added = min(
            extractor.cmvn_options.cmn_window - len(window), extractor.cmvn_options.global_frames
        )
        total = window.sum(axis=0) + added * statistics[0, :dim] / statistics[0, dim]
        normalised[t] = frames[t] - total / (len(window) + added)

    def transformed(source: np.ndarray, t: int) -> np.ndarray:
        near = [source[min(max(s, 0), count - 1)] for s in range(t - left, t + right + 1)]
        spliced = np.concatenate(near)
        return matrix[:, : len(spliced)] @ spliced + (
            matrix[:, -1] if matrix.shape[1] > len(spliced) else 0.0
        )

    precision, linear = np.eye(model.ivector_dim), np.zeros(model.ivector_dim)
    linear[0] = model.prior_offset
    means = ubm.means_invvars.astype(np.float64) / ubm.inv_vars
    rows = []
    for t in range(count):
        y, x = transformed(normalised, t), transformed(frames, t)
        logs = np.log(ubm.weights) + 0.5 * (
            np.log(ubm.inv_vars / (2 * np.pi)) - ubm.inv_vars * (y - means) ** 2
        ).sum(axis=1)
        posterior = np.exp(logs - logs.max())
        threshold = min(config.min_post / (abs(weights[t]) or 1.0), 0.99)
        best = [g for g in np.argsort(-posterior)[: config.num_gselect] if posterior[g] > threshold]
        best = best or [int(posterior.argmax())]
        while len(best) > 1 and posterior[best[-1]] < threshold * posterior[best].sum():
            best = best[:-1]
        for g in best:
            value = weights[t] * config.posterior_scale * posterior[g] / posterior[best].sum()
            m, inverse = model.projections[g], model.inverse_covariances[g]
            precision += value * m.T @ inverse @ m
            linear += value * m.T @ inverse @ x
        if t % config.ivector_period == 0:
            rows.append(np.linalg.solve(precision, linear))
    result = np.array(rows).reshape(-1, model.ivector_dim)
    result[:, 0] -= model.prior_offset
    return result


@settings(max_examples=20)
@given(data=st.data())
def test_as_defined(data: st.DataObject, features: dict[str, np.ndarray]) -> None:
    """The i-vectors are those of the definition, with weights of frames, for all options."""
    extractor = OnlineIvectorExtractor.of_folder(
        FOLDER,
        num_gselect=data.draw(st.integers(1, 20)),
        min_post=data.draw(st.sampled_from([0.0, 0.025, 0.3])),
        posterior_scale=data.draw(st.sampled_from([0.1, 1.0])),
        ivector_period=data.draw(st.integers(1, 12)),
    )
    utterance = data.draw(st.sampled_from(sorted(features)))
    frames = features[utterance][: data.draw(st.integers(1, 40))]
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    weights = rng.choice([0.0, 0.3, 1.0], size=len(frames))
    weights[0] = 1.0

    found = OnlineIvectors(extractor).push(frames, weights, last=True)

    np.testing.assert_allclose(found, defined(extractor, frames, weights), atol=2e-3)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), period=st.integers(1, 12))
def test_pushes(seed: int, period: int, features: dict[str, np.ndarray]) -> None:
    """Frames that come in pieces of any size give the same i-vectors, rows as soon as can be."""
    rng = np.random.default_rng(seed)
    extractor = OnlineIvectorExtractor.of_folder(FOLDER, ivector_period=period)
    frames = features[rng.choice(sorted(features))]
    whole, state = extractor.compute(frames)
    stream = OnlineIvectors(extractor)
    right, rows, done = extractor.transform.options.right_context, [], 0

    while done < len(frames):
        size = int(rng.integers(0, 30))
        rows.append(stream.push(frames[done : done + size]))
        done = min(done + size, len(frames))
        assert sum(map(len, rows)) == -(-max(done - right, 0) // period)
    rows.append(stream.finish())

    np.testing.assert_allclose(np.concatenate(rows), whole, atol=2e-3)
    np.testing.assert_allclose(stream.state.linear, state.linear, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(stream.state.cmvn.speaker, state.cmvn.speaker, rtol=1e-9)


def test_memory_of_the_speaker(features: dict[str, np.ndarray]) -> None:
    """The state counts at most `max_remembered_frames` frames, and the prior as before."""
    extractor = OnlineIvectorExtractor.of_folder(FOLDER, max_remembered_frames=50.0)
    frames = np.concatenate(list(features.values()))[:500]

    _, state = extractor.compute(frames)

    assert state.num_frames == pytest.approx(50.0 * 0.1)
    assert state.cmvn.speaker[0, -1] == pytest.approx(50.0)
    free = OnlineIvectorExtractor.of_folder(FOLDER, max_remembered_frames=1e6)
    _, unlimited = free.compute(frames)
    scale = state.num_frames / unlimited.num_frames
    prior = np.eye(extractor.ivector_dim)
    np.testing.assert_allclose(
        state.quadratic - prior, scale * (unlimited.quadratic - prior), rtol=1e-9
    )


@pytest.mark.parametrize("binary", [True, False])
def test_files_of_states(binary: bool, tmp_path: Path, features: dict[str, np.ndarray]) -> None:
    """The state of a speaker is written and read, and goes on as before."""
    extractor = OnlineIvectorExtractor.of_folder(FOLDER, max_count=3.0)
    first, second = list(features.values())[:2]
    _, state = extractor.compute(first)
    state.write(tmp_path / "state", binary=binary)

    read = AdaptationState.read(tmp_path / "state")

    if binary:
        read.write(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "state").read_bytes()
    expected, found = (extractor.compute(second, each)[0] for each in (state, read))
    np.testing.assert_allclose(found, expected, atol=1e-6 if binary else 1e-3)


@pytest.mark.parametrize(("file", "cls"), [("final.ie", IvectorExtractor), ("final.dubm", DiagGmm)])
def test_files_of_models(file: str, cls: type, tmp_path: Path) -> None:
    """Models are read from text and binary files, and written in both with equal bytes."""
    model = cls.read(FOLDER / file)
    for binary in (True, False):
        model.write(tmp_path / "first", binary=binary)
        cls.read(tmp_path / "first").write(tmp_path / "second", binary=binary)
        assert (tmp_path / "second").read_bytes() == (tmp_path / "first").read_bytes()


def test_a_file_that_breaks_off(tmp_path: Path) -> None:
    """An error names the file and the byte."""
    data = (FOLDER / "final.ie").read_bytes()
    (tmp_path / "part.ie").write_bytes(data[:3000])

    with pytest.raises(ModelFileError, match=r"part\.ie, byte \d+: "):
        IvectorExtractor.read(tmp_path / "part.ie")


def test_models_that_do_not_fit(tmp_path: Path) -> None:
    """Files of other dimensions are named, with what was expected."""
    (tmp_path / "splice.conf").write_text("--left-context=1\n--right-context=1\n")
    options = {"splice_config": os.fspath(tmp_path / "splice.conf")}

    with pytest.raises(SpeechError) as caught:
        OnlineIvectorExtractor.of_folder(FOLDER, **options)

    assert str(caught.value) == (
        f"{FOLDER}/final.mat: the transform has 116 columns; for 3 spliced frames expected a "
        "multiple of 3, or one more"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ivector_period": 0}, "--ivector-period: expected at least 1, found 0"),
        ({"min_post": 0.5}, "--min-post: expected from 0 to below 0.5, found 0.5"),
        ({"posterior_scale": 2.0}, "--posterior-scale: expected above 0, at most 1, found 2"),
    ],
)
def test_options_out_of_range(options: dict[str, float], message: str) -> None:
    """Numbers out of range are refused by the names of their options."""
    with pytest.raises(SpeechError) as caught:
        IvectorExtractionConfig(**options)

    assert str(caught.value) == message


def test_refused_features() -> None:
    """Features of other columns, or not finite, are refused; nothing comes after the end."""
    extractor = OnlineIvectorExtractor.of_folder(FOLDER)
    stream = OnlineIvectors(extractor)

    with pytest.raises(SpeechError, match=r"expected features of 23 columns, found .*\(3, 22\)"):
        stream.push(np.zeros((3, 22)))
    with pytest.raises(SpeechError, match="values that are not finite"):
        stream.push(np.full((3, 23), np.nan))
    stream.finish()
    with pytest.raises(SpeechError, match="the last frames of the utterance have come before"):
        stream.push(np.zeros((3, 23)))


def test_missing_option() -> None:
    """A file that no option names is asked for by the option."""
    with pytest.raises(SpeechError, match="i-vectors: option --splice-config is missing"):
        OnlineIvectorExtractor.read(IvectorExtractionConfig())


def test_conjugate_gradient() -> None:
    """With steps enough, the solution is the exact one."""
    rng = np.random.default_rng(0)
    root = rng.standard_normal((8, 8))
    matrix, target = root @ root.T + np.eye(8), rng.standard_normal(8)

    found = conjugate_gradient(matrix, target, np.zeros(8), rounds=30)

    np.testing.assert_allclose(found, np.linalg.solve(matrix, target), rtol=1e-9)
