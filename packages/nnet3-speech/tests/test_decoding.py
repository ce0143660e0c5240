"""Words by a graph: the best path, its times, and graphs that cannot be used."""

from pathlib import Path

import numpy as np
import pytest
from nnet3_descriptors.model_files import HmmState, TransitionModel
from nnet3_speech import ModelFolder, SpeechError, WordDecoder
from nnet3_speech.decoding import _read_boundaries, read_graph
from nnet3_speech.hmm import Transitions

kaldifst = pytest.importorskip("kaldifst")
pytest.importorskip("kaldi_decoder")

WORDS = {0: "<eps>", 1: "ab", 2: "c"}
BOUNDARIES = {1: "begin", 2: "end", 3: "singleton"}
CHAIN = (
    HmmState(forward_pdf_class=0, self_loop_pdf_class=1, transitions=((0, 0.5), (1, 0.5))),
    HmmState(forward_pdf_class=-1, self_loop_pdf_class=-1, transitions=()),
)
MODEL = TransitionModel(
    phones=(1, 2, 3),
    phone_entries=(-1, 0, 0, 0),
    entries=(CHAIN,),
    tuples=((1, 0, 0, 1), (2, 0, 2, 3), (3, 0, 4, 5)),
    log_probs=np.log(np.array([1.0, *[0.5] * 6], np.float32)),
    chain=True,
)
"""Phones of one state; transition-ids 2, 4 and 6 enter them, with pdfs 0, 2 and 4."""


def _graph() -> "kaldifst.StdVectorFst":
    """Any sequence of "ab" (phones 1 and 2, the word label on the second) and "c" (phone 3)."""
    graph = kaldifst.StdVectorFst()
    for _ in range(4):
        graph.add_state()
    graph.start = 0
    for state, ids, word, next_state in (
        (0, 2, 0, 1),
        (1, 1, 0, 1),
        (1, 4, 1, 2),
        (2, 3, 0, 2),
        (0, 6, 2, 3),
        (3, 5, 0, 3),
    ):
        graph.add_arc(state, kaldifst.StdArc(ids, word, 0.25, next_state))
    for state in (2, 3):
        graph.add_arc(state, kaldifst.StdArc(0, 0, 0.0, 0))
        graph.set_final(state, 0.5)
    return graph


def _scores(pdfs: list[int]) -> np.ndarray:
    """Scores of 0 for one pdf of each row, and -5 for the others."""
    scores = np.full((len(pdfs), 6), -5.0, np.float32)
    scores[range(len(pdfs)), pdfs] = 0.0
    return scores


def _decoder(**options: object) -> WordDecoder:
    return WordDecoder(_graph(), WORDS, Transitions.of(MODEL), **options)  # type: ignore[arg-type]


def test_words_with_times() -> None:
    """Words begin and end with their phones, and costs are those of the graph and of the scores."""
    [found] = _decoder(boundaries=BOUNDARIES).decode(_scores([0, 1, 2, 3, 3, 4, 5]), 0.03)

    assert found.text == "ab c"
    times = [(word.start, word.end) for word in found.words]
    np.testing.assert_allclose(times, [(0.0, 0.15), (0.15, 0.21)])
    assert found.graph_cost == pytest.approx(7 * 0.25 + 0.5)
    assert found.acoustic_cost == pytest.approx(0.0)
    assert found.is_final


def test_times_without_places_of_phones() -> None:
    """Without them, a word begins where its label is in the graph."""
    [found] = _decoder().decode(_scores([0, 1, 2, 3, 4]), 1.0)

    assert [(word.start, word.end) for word in found.words] == [(2.0, 4.0), (4.0, 5.0)]


def test_long_recordings() -> None:
    """A recording of more frames than are laid out at a time has the words of its parts."""
    pdfs = [0, 2, 3, 4] * 600

    [found] = _decoder(boundaries=BOUNDARIES).decode(_scores(pdfs), 0.5)

    assert found.text == " ".join(["ab c"] * 600)
    assert found.words[-1].end == 1200.0


def test_several_hypotheses() -> None:
    """The n best have different words, the best first."""
    scores = _scores([0, 1, 2, 3])
    scores[0, 4], scores[1:, 5] = -0.5, -0.5

    best, second = _decoder(boundaries=BOUNDARIES).decode(scores, 1.0, nbest=2)

    assert (best.text, second.text) == ("ab", "c")
    assert second.acoustic_cost - best.acoustic_cost == pytest.approx(2.0)


def test_unfinished_words() -> None:
    """A recording that ends inside a word has the words before it, and is not final."""
    [found] = _decoder(min_active=0).decode(10 * _scores([0, 1]), 1.0)

    assert found.words == ()
    assert not found.is_final
    assert _decoder().decode(np.empty((0, 6), np.float32), 1.0) == []


def test_other_columns() -> None:
    """Scores of another network are refused."""
    message = "expected scores with a column for each of 6 pdfs, found 3 x 7"
    with pytest.raises(SpeechError, match=message):
        _decoder().decode(np.zeros((3, 7), np.float32), 1.0)


@pytest.mark.parametrize("kind", ["StdVectorFst", "StdConstFst"])
def test_graphs_in_files(kind: str, tmp_path: Path) -> None:
    """Graphs of both types of one file are read."""
    path = str(tmp_path / "HCLG.fst")
    getattr(kaldifst, kind)(_graph()).write(path)

    decoder = WordDecoder(read_graph(path), WORDS, Transitions.of(MODEL))

    assert decoder.decode(_scores([4, 5]), 1.0)[0].text == "c"


def _header(kind: str) -> bytes:
    """The first bytes of a file of OpenFst."""
    magic = (2125659606).to_bytes(4, "little")
    return magic + len(kind).to_bytes(4, "little") + kind.encode() + bytes(60)


def test_graphs_in_two_parts(tmp_path: Path) -> None:
    """Vosk's graphs in two parts are named as what they are."""
    (tmp_path / "HCLr.fst").write_bytes(_header("olabel_lookahead"))
    (tmp_path / "Gr.fst").write_bytes(_header("ngram"))

    with pytest.raises(SpeechError) as caught:
        WordDecoder.of(ModelFolder.read(tmp_path))

    assert str(caught.value) == (
        f"{tmp_path} has its graph in two parts, HCLr.fst (olabel_lookahead) and Gr.fst (ngram), "
        "which kaldi-decoder cannot compose while it decodes; expected graph/HCLG.fst. Phones need "
        "no graph"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ": expected a binary file of OpenFst, found b''"),
        (_header("ngram"), ": expected a graph of OpenFst's type vector or const, found ngram"),
        (_header("vector"), ": OpenFst cannot read the graph; it is damaged"),
    ],
)
def test_faulty_graphs(content: bytes, message: str, tmp_path: Path) -> None:
    """What is no graph, or is damaged, is refused."""
    path = tmp_path / "HCLG.fst"
    path.write_bytes(content)

    with pytest.raises(SpeechError) as caught:
        read_graph(path)

    assert str(caught.value) == f"{path}{message}"


def test_absurd_number_of_states(tmp_path: Path) -> None:
    """A graph whose header asks for more states than memory holds is refused."""
    path = tmp_path / "HCLG.fst"
    kaldifst.StdVectorFst(_graph()).write(str(path))
    data = bytearray(path.read_bytes())
    at = 4 + (4 + len("vector")) + (4 + len("standard")) + 4 + 4 + 8 + 8
    data[at : at + 8] = (1 << 62).to_bytes(8, "little")
    path.write_bytes(data)

    with pytest.raises(SpeechError, match=r"HCLG\.fst: OpenFst cannot read the graph \("):
        read_graph(path)


def test_folder(tmp_path: Path) -> None:
    """A folder without a table of words says so."""
    kaldifst.StdVectorFst(_graph()).write(str(tmp_path / "HCLG.fst"))

    with pytest.raises(SpeechError, match=r" has no graph/words\.txt \(nor words\.txt or "):
        WordDecoder.of(ModelFolder.read(tmp_path))


def test_faulty_places_of_phones(tmp_path: Path) -> None:
    """A line with another digit than those of ASCII is refused, with its number."""
    path = tmp_path / "word_boundary.int"
    path.write_text("1 begin\n² end\n", encoding="utf-8")

    with pytest.raises(SpeechError, match=r"word_boundary\.int, line 2: expected a phone and its"):
        _read_boundaries(path)
