"""Online i-vectors by their definition: frame by frame, in float64, with exact solutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

Array = np.ndarray


def spliced(frames: Array, t: int, left: int, right: int) -> Array:
    """A frame with its neighbours; the first and the last frame stand for those that are not."""
    last = len(frames) - 1
    return np.concatenate([frames[min(max(u, 0), last)] for u in range(t - left, t + right + 1)])


def transformed(vector: Array, matrix: Array) -> Array:
    """A matrix times a vector, with a 1 behind it if the matrix has a column more."""
    if matrix.shape[1] == len(vector) + 1:
        vector = np.append(vector, 1.0)
    return matrix @ vector


class Normalisation(NamedTuple):
    """Options and statistics of the normalisation of features."""

    of_all: Array
    window: int = 600
    speaker_frames: int = 600
    global_frames: int = 200
    variances: bool = False
    skipped: Sequence[int] = ()

    def of(self, frames: Array, t: int, speaker: Array | None = None) -> Array:
        """A frame, normalised by those before it and by what is known of the speaker and of all."""
        near = frames[max(0, t + 1 - self.window) : t + 1]
        count = float(len(near))
        sums, squares = near.sum(axis=0), (near**2).sum(axis=0)
        for statistics, most in ((speaker, self.speaker_frames), (self.of_all, self.global_frames)):
            if statistics is None:
                continue
            added = min(self.window - count, most)
            if statistics is speaker:
                added = min(added, statistics[0, -1])
            if added > 0:
                sums = sums + added * statistics[0, :-1] / statistics[0, -1]
                squares = squares + added * statistics[1, :-1] / statistics[0, -1]
                count += added
        return self.by(frames[t], np.stack((sums, squares)) / count)

    def by(self, frame: Array, moments: Array) -> Array:
        """A frame, normalised by first and second moments, (2, dim)."""
        mean, scale = moments[0].copy(), np.ones_like(frame)
        if self.variances:
            scale = 1.0 / np.sqrt(np.maximum(moments[1] - mean**2, 1e-20))
        for column in self.skipped:
            mean[column], scale[column] = 0.0, 1.0
        return (frame - mean) * scale


def log_densities(frame: Array, weights: Array, means: Array, covariances: Array) -> Array:
    """log w N(frame; mean, covariance) of each Gaussian; covariances are (n, dim, dim)."""
    logs = []
    for weight, mean, covariance in zip(weights, means, covariances, strict=True):
        square = (frame - mean) @ np.linalg.inv(covariance) @ (frame - mean)
        logs.append(np.log(weight) - 0.5 * (square + np.linalg.slogdet(2 * np.pi * covariance)[1]))
    return np.array(logs)


def posteriors(logs: Array, num_gselect: int, min_post: float) -> list[tuple[int, float]]:
    """The most probable Gaussians and their posteriors, in falling order."""
    likely = {g: np.exp(value - max(logs)) for g, value in enumerate(logs)}
    if min_post:
        likely = {g: value for g, value in likely.items() if value > min_post}
    best = sorted(likely.items(), key=lambda item: -item[1])[:num_gselect]
    total = sum(value for _, value in best)
    best = best[:1] + [(g, value) for g, value in best[1:] if value >= min_post * total]
    total = sum(value for _, value in best)
    return [(g, value / total) for g, value in best]


def margin(logs: Array, num_gselect: int, min_post: float) -> float:
    """How far the choice of Gaussians is from another one, relative to their probabilities."""
    values = np.sort(np.exp(logs - max(logs)))[::-1]
    kept = values[:num_gselect][values[:num_gselect] > min_post]
    limits = [limit for limit in (min_post, min_post * kept.sum()) if limit > 0.0]
    distances = [abs(value / limit - 1.0) for value in values[1:] for limit in limits]
    if num_gselect < len(values) and values[num_gselect] > min_post:
        distances.append(1.0 - values[num_gselect] / values[num_gselect - 1])
    return min(distances, default=1.0)


class Extractor(NamedTuple):
    """Everything that i-vectors are estimated by."""

    normalisation: Normalisation
    left: int
    right: int
    lda: Array
    weights: Array
    means: Array
    covariances: Array
    projections: Array
    inverse_covariances: Array
    offset: float
    period: int = 10
    num_gselect: int = 5
    min_post: float = 0.025
    posterior_scale: float = 0.1
    max_count: float = 0.0
    is_greedy: bool = False
    max_remembered: float = 1000.0
    of_normalised: bool = False


class Speaker:
    """The sums over a speaker's frames, from one utterance to the next; they hold no prior.

    `margin` is the smallest of all frames so far; rounding decides where it is close to 0.
    """

    def __init__(self, dim: int) -> None:
        self.margin = 1.0
        self.features: Array | None = None
        self.linear, self.quadratic, self.count = np.zeros(dim), np.zeros((dim, dim)), 0.0

    def ivector(self, model: Extractor) -> Array:
        """The estimate from all sums, without the prior's offset."""
        prior = max(self.count, model.max_count) / model.max_count if model.max_count else 1.0
        first = np.eye(len(self.linear))[0] * model.offset
        precision = self.quadratic + prior * np.eye(len(first))
        return np.linalg.solve(precision, self.linear + prior * first) - first

    def ivectors(self, model: Extractor, features: Array, counts: Array | None = None) -> Array:
        """The i-vectors of the next utterance, (rows, dim); `counts` are weights of the frames."""
        frames = features.astype(np.float64)
        rows = list(self._rows(model, frames, np.ones(len(frames)) if counts is None else counts))
        if model.is_greedy:
            rows = rows[-1:] * -(-len(frames) // model.period)
        sums = np.zeros((2, frames.shape[1] + 1))
        sums[:, :-1] = frames.sum(axis=0), (frames**2).sum(axis=0)
        sums[0, -1] = len(frames)
        self.features = sums if self.features is None else self.features + sums
        self.features = self.features * min(1.0, model.max_remembered / self.features[0, -1])
        most = model.max_remembered * model.posterior_scale
        if self.count > most:
            part = most / self.count
            self.linear, self.quadratic = self.linear * part, self.quadratic * part
            self.count = most
        return np.array(rows)

    def _rows(self, model: Extractor, frames: Array, counts: Array) -> Iterator[Array]:
        count = len(frames)
        normalised = np.array(
            [model.normalisation.of(frames, t, self.features) for t in range(count)]
        )
        source = normalised if model.of_normalised else frames
        for t in range(
            count if model.is_greedy else (count - 1) // model.period * model.period + 1
        ):
            if counts[t]:
                context = t, model.left, model.right
                selecting = transformed(spliced(normalised, *context), model.lda)
                logs = log_densities(selecting, model.weights, model.means, model.covariances)
                min_post = min(model.min_post / abs(counts[t]), 0.99)
                self.margin = min(self.margin, margin(logs, model.num_gselect, min_post))
                feature = transformed(spliced(source, *context), model.lda)
                for g, value in posteriors(logs, model.num_gselect, min_post):
                    share = value * model.posterior_scale * counts[t]
                    to_features = model.projections[g].T @ model.inverse_covariances[g]
                    self.linear += share * to_features @ feature
                    self.quadratic += share * to_features @ model.projections[g]
                    self.count += share
            if model.is_greedy or t % model.period == 0:
                yield self.ivector(model)
