"""The options of online i-vectors."""

from __future__ import annotations

import os

import attrs

from nnet3_speech.options import option, read_options


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
    ivector_period: int = option(10, least=1)
    num_gselect: int = option(5, least=1)
    min_post: float = option(0.025, least=0.0, below=0.5)
    posterior_scale: float = option(0.1, above=0.0, most=1.0)
    max_count: float = option(0.0, least=0.0)
    use_most_recent_ivector: bool = True
    greedy_ivector_extractor: bool = False
    max_remembered_frames: float = option(1000.0, least=0.0)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> IvectorExtractionConfig:
        """Reads `ivector_extractor.conf`.

        Raises:
            SpeechError: it cannot be read, or an option is unknown or out of range.
        """
        return read_options(cls, path)
