"""The phones of outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nnet3 import load
from nnet3_descriptors import AcousticModel, write_acoustic_model, write_nnet
from nnet3_descriptors.model_files import HmmState, TransitionModel
from nnet3_speech.hmm import PhoneState
from small_networks import network, stacked

NETWORK = stacked(
    4, "affine NaturalGradientAffine input-dim=4 output-dim=4", "softmax LogSoftmax dim=4"
).replace("name=output ", "name=output-xent ")
NETWORK += "output-node name=output input=affine\n"
STATES = (
    HmmState(forward_pdf_class=0, self_loop_pdf_class=1, transitions=((0, 0.5), (1, 0.5))),
    HmmState(forward_pdf_class=-1, self_loop_pdf_class=-1, transitions=()),
)
MODEL = AcousticModel(
    transition_model=TransitionModel(
        phones=(1, 2),
        phone_entries=(-1, 0, 0),
        entries=(STATES,),
        tuples=((1, 0, 0, 1), (2, 0, 2, 3)),
        log_probs=np.log([1.0, 0.5, 0.5, 0.5, 0.5]).astype(np.float32),
        chain=True,
    ),
    nnet=network(NETWORK),
    left_context=0,
    right_context=0,
    priors=(),
)
FRAMES = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)
PHONES = "<eps> 0\nSIL 1\na 2\n#0 3\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with final.mdl and phones.txt."""
    write_acoustic_model(MODEL, tmp_path / "final.mdl")
    (tmp_path / "phones.txt").write_text(PHONES, encoding="utf-8")
    return tmp_path


def test_labels(folder: Path) -> None:
    """A folder has names of phones; a file alone has numbers, unless names are given."""
    file = folder / "final.mdl"

    for model in (
        load(folder),
        load(file, phones=folder / "phones.txt"),
        load(MODEL, phones={1: "SIL", 2: "a"}),
    ):
        assert model.labels.phones == ("SIL", "a")
        assert model.labels[1] == (PhoneState("SIL", 0, is_self_loop=True),)
    assert load(file).labels.phones == ("1", "2")
    assert load(file.read_bytes()).labels[2] == (PhoneState("2", 0),)


def test_posteriors_of_phones() -> None:
    """Scores and log-posteriors of the same pdfs have the same phones, whose rows sum to 1."""
    model = load(MODEL)
    log_posteriors = model.compute(FRAMES, output="output-xent").astype(np.float64)
    expected = np.exp(log_posteriors) @ np.repeat(np.eye(2), 2, axis=0)

    for output in ("output", "output-xent"):
        found = model.phone_posteriors(model.compute(FRAMES, output=output))
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        assert found.dtype == np.float32
    batch = model.compute(np.stack([FRAMES, FRAMES]))
    assert model.phone_posteriors(batch).shape == (2, 9, 2)
    assert model.phone_posteriors([[0, 0, 0, 0]]).tolist() == [[0.5, 0.5]]


def test_labels_of_the_file_beside(folder: Path) -> None:
    """If a folder has the network alone, too, its .mdl file has the transition model."""
    write_nnet(MODEL.nnet, folder / "final.raw")

    assert load(folder).labels.phones == ("SIL", "a")


def test_names_of_another_model(folder: Path) -> None:
    """Labels warn if a phone has the name of a symbol that is none: phones.txt is another's."""
    (folder / "phones.txt").write_text("<eps> 0\nSIL 1\n#0 2\n", encoding="utf-8")
    model = load(folder)

    with pytest.warns(UserWarning, match="calls a phone of the model #0") as warned:
        labels = model.labels

    assert labels.phones == ("SIL", "#0")
    assert Path(warned[0].filename) == Path(__file__)
