"""The folders of small models: one to transcribe with, and one of x-vectors."""

from pathlib import Path

import numpy as np
from nnet3_descriptors import AcousticModel, parse_config, write_acoustic_model, write_nnet
from nnet3_speech import Plda, apply_transform, estimate_lda, normalize_length
from nnet3_tables import write_matrix, write_vector
from small_graph import MODEL, small_graph
from small_networks import network, stacked

NETWORK = stacked(
    13,
    "affine NaturalGradientAffine input-dim=39 output-dim=6",
    splice="Append(Offset(input, -1), input, Offset(input, 1))",
)
XVECTOR_NETWORK = stacked(
    8,
    "e StatisticsExtraction input-dim=8",
    "p StatisticsPooling input-dim=17 left-context=0 right-context=10000",
    "embedding NaturalGradientAffine input-dim=16 output-dim=6",
    "speakers NaturalGradientAffine input-dim=6 output-dim=9",
)
PHONES = {"<eps>": 0, "a_B": 1, "a_E": 2, "o_S": 3, "#0": 4}


def make_transcriber(root: Path, rate: int = 16000) -> Path:
    """A folder with a network of random parameters, and a graph of the words "aa" and "o".

    Args:
        root: Where to make it.
        rate: Samples in a second of its recordings.
    """
    (root / "graph" / "phones").mkdir(parents=True)
    model = AcousticModel(
        transition_model=MODEL,
        nnet=network(NETWORK),
        left_context=1,
        right_context=1,
        priors=np.empty(0, np.float32),
    )
    write_acoustic_model(model, root / "final.mdl")
    (root / "mfcc.conf").write_text(f"--sample-frequency={rate}\n")
    (root / "phones.txt").write_text("".join(f"{name} {n}\n" for name, n in PHONES.items()))
    (root / "graph" / "words.txt").write_text("<eps> 0\naa 1\no 2\n")
    (root / "graph" / "phones" / "word_boundary.int").write_text("1 begin\n2 end\n3 singleton\n")
    small_graph().write(str(root / "graph" / "HCLG.fst"))
    return root


def make_xvector_folder(root: Path, rate: int = 16000) -> tuple[np.ndarray, list[str]]:
    """A folder with a network of random parameters, and the back end of made-up x-vectors.

    Args:
        root: Where to make it.
        rate: Samples in a second of its recordings.

    Returns:
        (120, 6), the x-vectors; and the speaker of each.
    """
    rng = np.random.default_rng(0)
    (root / "conf").mkdir(parents=True)
    write_nnet(parse_config(XVECTOR_NETWORK, rng=rng), root / "final.raw")
    (root / "extract.config").write_text("output-node name=output input=embedding\n")
    (root / "conf" / "mfcc.conf").write_text(
        f"--sample-frequency={rate}\n--num-ceps=8\n--num-mel-bins=20\n"
    )
    (root / "conf" / "vad.conf").write_text("--vad-energy-threshold=5.5\n")
    speakers = [f"speaker{n}" for n in range(30) for _ in range(4)]
    vectors = 2 * rng.standard_normal((30, 6)).repeat(4, axis=0) + rng.standard_normal((120, 6))
    mean = vectors.mean(axis=0)
    transform = estimate_lda(vectors - mean, speakers, 5)
    write_vector(f"{root}/mean.vec", mean)
    write_matrix(f"{root}/transform.mat", transform)
    prepared = normalize_length(apply_transform(vectors - mean, transform))
    Plda.estimate(prepared, speakers).write(root / "plda")
    return vectors, speakers
