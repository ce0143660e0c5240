"""i-vectors equal Kaldi's, and those of a plain definition, in whatever pieces frames come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ivector_definition as definition
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from nnet3_descriptors.files import read_entries
from nnet3_speech import (
    AdaptationState,
    DiagGmm,
    IvectorExtractionConfig,
    IvectorExtractor,
    OnlineCmvnOptions,
    OnlineIvectorExtractor,
    OnlineIvectors,
    SplicedTransform,
    SpliceOptions,
)
from nnet3_speech.conjugate_gradient import conjugate_gradient

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


def drawn(rng: np.random.Generator) -> tuple[OnlineIvectorExtractor, definition.Extractor]:
    """A random extractor with random options, and the same for the definition."""
    gaussians, dim, size, columns = (int(rng.integers(1, most)) for most in (9, 5, 6, 5))
    left, right = (int(rng.integers(0, 4)) for _ in range(2))
    width = left + 1 + right
    lda = rng.standard_normal((dim, columns * width + rng.integers(2))).astype(np.float32) / 2
    weights = (rng.dirichlet(np.ones(gaussians)) + 1e-3).astype(np.float32)
    means = rng.standard_normal((gaussians, dim))
    inverses = rng.uniform(0.5, 2.0, (gaussians, dim)).astype(np.float32)
    ubm = DiagGmm(
        weights=weights, means_invvars=(means * inverses).astype(np.float32), inv_vars=inverses
    )
    roots = rng.standard_normal((gaussians, dim, dim))
    offset = float(np.float32(rng.uniform(1, 30)))
    model = IvectorExtractor(
        weight_projections=np.zeros((0, 0)),
        weights=weights.astype(np.float64),
        projections=rng.standard_normal((gaussians, dim, size)),
        inverse_covariances=roots @ roots.swapaxes(1, 2) + np.eye(dim),
        prior_offset=offset,
    )
    many = rng.standard_normal((50, columns)) + 1.0
    statistics = np.zeros((2, columns + 1))
    statistics[:, :-1] = many.sum(axis=0), (many**2).sum(axis=0)
    statistics[0, -1] = len(many)
    most = np.cumsum(rng.integers([1, 0, 0], 20)).tolist()
    variances, skipped = (
        bool(rng.integers(2)),
        sorted(set(rng.integers(0, columns, rng.integers(2)))),
    )
    options = {
        "ivector_period": int(rng.integers(1, 12)),
        "num_gselect": int(rng.integers(1, 7)),
        "min_post": float(rng.choice([0.0, 0.025, 0.2, 0.4])),
        "posterior_scale": float(rng.choice([0.1, 0.5, 1.0])),
        "max_count": float(rng.choice([0.0, 1.0, 5.0])),
        "greedy_ivector_extractor": bool(rng.integers(4) == 0),
        "max_remembered_frames": float(rng.choice([0.0, 3.0, 20.0, 1000.0])),
        "online_cmvn_iextractor": bool(rng.integers(2)),
    }
    extractor = OnlineIvectorExtractor(
        config=IvectorExtractionConfig(**options),
        cmvn_options=OnlineCmvnOptions(
            cmn_window=most[2],
            speaker_frames=most[1],
            global_frames=most[0],
            norm_vars=variances,
            skip_dims=":".join(map(str, skipped)),
        ),
        transform=SplicedTransform(SpliceOptions(left_context=left, right_context=right), lda),
        global_cmvn_stats=statistics,
        diag_ubm=ubm,
        extractor=model,
    )
    covariances = np.array([np.diag(1.0 / row.astype(np.float64)) for row in inverses])
    return extractor, definition.Extractor(
        definition.Normalisation(statistics, *most[::-1], variances, skipped),
        left,
        right,
        lda.astype(np.float64),
        weights.astype(np.float64),
        ubm.means_invvars.astype(np.float64) / inverses,
        covariances,
        model.projections,
        model.inverse_covariances,
        offset,
        *options.values(),
    )


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1))
def test_as_defined(seed: int) -> None:
    """The i-vectors of a speaker's utterances, in any pieces, are those of the definition."""
    rng = np.random.default_rng(seed)
    extractor, model = drawn(rng)
    speaker, state = definition.Speaker(extractor.ivector_dim), None

    for _ in range(3):
        frames = (2.0 * rng.standard_normal((rng.integers(1, 50), extractor.dim))).astype(
            np.float32
        )
        counts = rng.choice([0.0, 0.3, 1.0, 2.0], len(frames)) if rng.integers(3) == 0 else None
        expected = speaker.ivectors(model, frames, counts)
        assume(speaker.margin > 1e-4)
        cuts = np.sort(rng.integers(0, len(frames) + 1, rng.integers(4)))
        stream = OnlineIvectors(extractor, state)
        if extractor.config.greedy_ivector_extractor:
            found = stream.push(frames, counts, last=True)
        else:
            parts = [
                np.split(each, cuts)
                for each in (frames, np.ones(len(frames)) if counts is None else counts)
            ]
            found = np.concatenate([*map(stream.push, *parts), stream.finish()])
        state = stream.state
        assert found.shape == expected.shape
        lengths = np.maximum(np.linalg.norm(expected, axis=1), 0.1)
        assert (np.linalg.norm(found - expected, axis=1) <= 1e-4 * lengths).all()


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


def test_conjugate_gradient() -> None:
    """With steps enough, the solution is the exact one."""
    rng = np.random.default_rng(0)
    root = rng.standard_normal((8, 8))
    matrix, target = root @ root.T + np.eye(8), rng.standard_normal(8)

    found = conjugate_gradient(matrix, target, np.zeros(8), rounds=30)

    np.testing.assert_allclose(found, np.linalg.solve(matrix, target), rtol=1e-9)
