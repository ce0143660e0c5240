"""The tables of utterances of chain models: supervisions, i-vectors and weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from nnet3_descriptors.files import CompressedMatrix
from nnet3_tables import ObjectLookup, VectorLookup
from nnet3_training import ChainSupervision, ExampleError
from nnet3_training.chain import ChainUtterance, read_supervision
from nnet3_training.egs import read_stored_matrix


@attrs.frozen(kw_only=True, eq=False)
class ChainTables:
    """The data of utterances besides their features.

    Attributes:
        supervision: The supervision of an utterance, by its key and its frames of features; None if
            it has none.
        ivectors: I-vectors, if there are any.
        weights: Weights of derivatives, if there are any.
        period: Frames for each i-vector.
        tolerance: Number of frames by which features and i-vectors may differ.
    """

    supervision: Callable[[str, int], ChainSupervision | None]
    ivectors: ObjectLookup[Any] | None
    weights: VectorLookup | None
    period: int
    tolerance: int

    @classmethod
    def opened(
        cls,
        supervisions: str | Callable[[str, int], ChainSupervision | None],
        weights: str,
        options: dict[str, Any],
    ) -> ChainTables:
        """The tables that the options name; supervisions are of a table or a function."""
        ivectors = options["online_ivectors"]
        if isinstance(supervisions, str):
            table = ObjectLookup(supervisions, read_supervision)
            supervisions = lambda key, _: table.take(key)  # noqa: E731
        return cls(
            supervision=supervisions,
            ivectors=ObjectLookup(ivectors, read_stored_matrix) if ivectors else None,
            weights=VectorLookup(weights) if weights else None,
            period=options["online_ivector_period"],
            tolerance=options["length_tolerance"],
        )

    def utterance(self, key: str, features: Any) -> ChainUtterance:
        """An utterance with its data.

        Raises:
            ExampleError: something is missing, or there are too few or too many i-vectors.
        """
        supervision = self.supervision(key, features.shape[0])
        if supervision is None:
            raise ExampleError(f"No supervision for utterance {key}")
        ivectors = weights = None
        if self.ivectors is not None:
            found = self.ivectors.take(key)
            if found is None:
                raise ExampleError(f"No iVectors for utterance {key}")
            ivectors = found.decompressed() if isinstance(found, CompressedMatrix) else found
            if abs(features.shape[0] - len(ivectors) * self.period) > self.tolerance:
                raise ExampleError(
                    f"utterance '{key}': {len(ivectors)} i-vectors, each for {self.period} frames, "
                    f"do not fit {features.shape[0]} frames of features"
                )
        if self.weights is not None:
            weights = self.weights.get(key)
            if weights is None:
                raise ExampleError(f"No deriv weights for utterance {key}")
        return ChainUtterance(
            key=key,
            features=features,
            supervision=supervision,
            ivectors=ivectors,
            ivector_period=self.period,
            deriv_weights=weights,
        )
