"""A network for three classes, and tables of features whose classes it can learn."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from nnet3_tables import MatrixWriter
from small_networks import stacked

LAYERS = (
    "hidden NaturalGradientAffine input-dim=8 output-dim=12 max-change=0.1",
    "relu RectifiedLinear dim=12",
    "classes NaturalGradientAffine input-dim=12 output-dim=3",
    "log-softmax LogSoftmax dim=3",
)
SPLICE = "Append(Offset(input, -1), input)"
CONFIG = stacked(4, *LAYERS, splice=SPLICE)


def write_features(path: str, keys: Iterable[str], rng: np.random.Generator) -> dict[str, str]:
    """Writes 40 frames of noise for each key to an archive.

    Returns:
        For each key its line in a text of alignments: a class is the largest of three columns.
    """
    lines = {}
    with MatrixWriter(f"ark:{path}") as writer:
        for key in keys:
            features = rng.standard_normal((40, 4), dtype=np.float32)
            writer.write(key, features)
            lines[key] = f"{key} {' '.join(map(str, features[:, :3].argmax(axis=1)))}\n"
    return lines
