"""The options of online i-vectors."""

from __future__ import annotations

import math
import os

import attrs

from nnet3_speech.errors import SpeechError


@attrs.frozen(kw_only=True)
class IvectorExtractionConfig:
    """The options of ivector-extract-online2, or of `ivector_extractor.conf`.

    Attributes:
        lda_matrix: Path of the transform of spliced features, as for the other paths.
        global_cmvn_stats: Path of the statistics of many speakers.
        cmvn_config: Path of the options of normalisation, `online_cmvn.conf`.
        online_cmvn_iextractor: Whether the statistics, too, come from normalised features.
        splice_config: Path of the options of splicing, `splice.conf`.
        diag_ubm: Path of the Gaussians.
        ivector_extractor: Path of the extractor.
        ivector_period: Frames from an estimate to the next.
        num_gselect: The most Gaussians that count for a frame.
        min_post: Posteriors below this are left out.
        posterior_scale: Multiplies the posteriors.
        max_count: If it is above 0, and the sum of the posteriors is larger, the prior counts more.
        use_most_recent_ivector: Read and without effect, as in ivector-extract-online2.
        greedy_ivector_extractor: Whether an estimate takes all frames that have come.
        max_remembered_frames: The most frames of an utterance that count for the speaker's next.

    Raises:
        SpeechError: a number is out of range.
    """

    lda_matrix: str = ""
    global_cmvn_stats: str = ""
    cmvn_config: str = ""
    online_cmvn_iextractor: bool = False
    splice_config: str = ""
    diag_ubm: str = ""
    ivector_extractor: str = ""
    ivector_period: int = 10
    num_gselect: int = 5
    min_post: float = 0.025
    posterior_scale: float = 0.1
    max_count: float = 0.0
    use_most_recent_ivector: bool = True
    greedy_ivector_extractor: bool = False
    max_remembered_frames: float = 1000.0

    def __attrs_post_init__(self) -> None:
        ranges: dict[str, tuple[bool, str]] = {
            "ivector_period": (self.ivector_period > 0, "at least 1"),
            "num_gselect": (self.num_gselect > 0, "at least 1"),
            "min_post": (0.0 <= self.min_post < 0.5, "from 0 to below 0.5"),
            "posterior_scale": (0.0 < self.posterior_scale <= 1.0, "above 0, at most 1"),
            "max_count": (0.0 <= self.max_count < math.inf, "at least 0"),
            "max_remembered_frames": (0.0 <= self.max_remembered_frames < math.inf, "at least 0"),
        }
        for name, (is_good, expected) in ranges.items():
            if not is_good:
                option = name.replace("_", "-")
                raise SpeechError(f"--{option}: expected {expected}, found {getattr(self, name):g}")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> IvectorExtractionConfig:
        """Reads `ivector_extractor.conf`.

        Raises:
            SpeechError: it cannot be read, or an option is unknown or out of range.
        """
        from nnet3_speech.options import read_options  # not for the help of tools

        return read_options(cls, path)
