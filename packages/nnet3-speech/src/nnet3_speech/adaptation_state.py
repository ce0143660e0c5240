"""What earlier utterances tell of a speaker's i-vector and features, kept between utterances."""

from __future__ import annotations

import os

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import (
    PathOrFile,
    leave_behind,
    new_writer,
    open_reader,
)

from nnet3_speech.errors import SpeechError
from nnet3_speech.online_cmvn import OnlineCmvnState

Array = npt.NDArray[np.float64]


@attrs.frozen(kw_only=True, eq=False)
class AdaptationState:
    """What earlier utterances tell of a speaker (Kaldi's OnlineIvectorExtractorAdaptationState).

    Attributes:
        cmvn: For the normalisation of features.
        prior_offset: The first element of the mean of i-vectors.
        max_count: See `IvectorExtractionConfig`.
        num_frames: The sum of the posteriors.
        quadratic: (ivector_dim, ivector_dim) float64, the inverse covariance of the i-vector.
        linear: (ivector_dim,) float64, that times its mean.

    Raises:
        SpeechError: the shapes do not fit each other, a number is out of range, or values are not
            finite.
    """

    cmvn: OnlineCmvnState
    prior_offset: float
    max_count: float
    num_frames: float
    quadratic: Array = attrs.field(repr=False)
    linear: Array = attrs.field(repr=False)

    def __attrs_post_init__(self) -> None:
        size = self.linear.size
        shapes = self.linear.shape, self.quadratic.shape
        if not size or shapes != ((size,), (size, size)):
            raise SpeechError(
                "the state of a speaker: expected a linear term of at least one value and a square "
                f"quadratic term of its size, found the shapes {shapes[0]} and {shapes[1]}"
            )
        numbers = self.prior_offset, self.max_count, self.num_frames
        if not all(np.isfinite(each).all() for each in (self.linear, self.quadratic, numbers)):
            raise SpeechError("the state of a speaker has values that are not finite")
        if self.max_count < 0.0:
            raise SpeechError(
                f"the state of a speaker: expected max_count >= 0, found {self.max_count:g}"
            )

    @classmethod
    def read(cls, source: PathOrFile) -> AdaptationState:
        """Reads a file, binary or text.

        Raises:
            ModelFileError: the file cannot be read, or has something else; it says where.
        """
        reader = open_reader(source)
        start = reader.position
        reader.expect("<OnlineIvectorExtractorAdaptationState>")
        reader.expect("<CmvnState>")
        cmvn = OnlineCmvnState.read(reader)
        reader.expect("<IvectorStats>")
        reader.expect("<OnlineIvectorEstimationStats>")
        reader.expect("<PriorOffset>")
        prior_offset, max_count = reader.real(), 0.0
        at = reader.position
        if (token := reader.token()) == "<MaxCount>":  # old files have none
            max_count = reader.real()
            reader.expect("<NumFrames>")
        elif token != "<NumFrames>":
            reader.fail("unexpected token", at=at, expected="'<MaxCount>'", found=f"'{token}'")
        num_frames = reader.real()
        reader.expect("<QuadraticTerm>")
        quadratic = reader.symmetric_matrix()
        reader.expect("<LinearTerm>")
        linear = reader.double_vector()
        reader.expect("</OnlineIvectorEstimationStats>")
        reader.expect("</OnlineIvectorExtractorAdaptationState>")
        leave_behind(source, reader)
        try:
            return cls(
                cmvn=cmvn,
                prior_offset=prior_offset,
                max_count=max_count,
                num_frames=num_frames,
                quadratic=quadratic,
                linear=linear,
            )
        except SpeechError as error:
            reader.fail(str(error), at=start)

    def write(self, target: str | os.PathLike[str], *, binary: bool = True) -> None:
        """Writes it in Kaldi's form.

        Raises:
            FileError: it cannot be written; an old file stays.
        """
        writer = new_writer(binary=binary)
        writer.token("<OnlineIvectorExtractorAdaptationState>")
        writer.token("<CmvnState>")
        self.cmvn.write(writer)
        writer.token("<IvectorStats>")
        writer.token("<OnlineIvectorEstimationStats>")
        for token, value in (
            ("<PriorOffset>", self.prior_offset),
            ("<MaxCount>", self.max_count),
            ("<NumFrames>", self.num_frames),
        ):
            writer.token(token)
            writer.double(value)
        writer.token("<QuadraticTerm>")
        writer.double_symmetric_matrix(self.quadratic)
        writer.token("<LinearTerm>")
        writer.double_vector(self.linear)
        writer.token("</OnlineIvectorEstimationStats>")
        writer.token("</OnlineIvectorExtractorAdaptationState>")
        writer.store(target)

    def limited(self, max_frames: float, posterior_scale: float) -> AdaptationState:
        """The state with the weight of at most some frames; the prior keeps its weight."""
        speaker, cmvn = self.cmvn.speaker, self.cmvn
        if speaker.size and speaker[0, -1] > max_frames:
            cmvn = attrs.evolve(cmvn, speaker=speaker * (max_frames / speaker[0, -1]))
        most = max_frames * posterior_scale
        if self.num_frames <= most:
            return attrs.evolve(self, cmvn=cmvn)
        scale = most / self.num_frames
        before, after = (prior_scale(count, self.max_count) for count in (self.num_frames, most))
        added = after - scale * before
        linear, quadratic = self.linear * scale, self.quadratic * scale
        linear[0] += self.prior_offset * added
        quadratic[np.diag_indices(len(linear))] += added
        return attrs.evolve(self, cmvn=cmvn, num_frames=most, linear=linear, quadratic=quadratic)


def prior_scale(count: float, max_count: float) -> float:
    """The weight of the prior: more than 1 where there are more frames than `max_count`."""
    return max(count, max_count) / max_count if max_count > 0.0 else 1.0
