"""Words by a graph: the best path, its times, and graphs that cannot be used."""

import struct
from pathlib import Path

import numpy as np
import pytest
from nnet3_speech import SpeechError, WordDecoder
from nnet3_speech.decoding_graph import read_graph
from nnet3_speech.hmm import Transitions
from small_graph import BOUNDARIES, MODEL, WORDS, small_graph

kaldifst = pytest.importorskip("kaldifst")
pytest.importorskip("kaldi_decoder")


def _scores(pdfs: list[int]) -> np.ndarray:
    """Scores of 0 for one pdf of each row, and -5 for the others."""
    scores = np.full((len(pdfs), 6), -5.0, np.float32)
    scores[range(len(pdfs)), pdfs] = 0.0
    return scores


def _decoder(**options: object) -> WordDecoder:
    return WordDecoder(small_graph(), WORDS, Transitions.of(MODEL), **options)  # type: ignore[arg-type]


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


def test_several_hypotheses_of_long_recordings() -> None:
    """However many times a path has, the n best have different words."""
    scores = np.repeat(_scores([0, 2, 4] * 6), 4, axis=0) / 4
    scores[:, [1, 3, 5]] = scores[:, [0, 2, 4]]

    found = _decoder(boundaries=BOUNDARIES).decode(scores, 1.0, nbest=20)

    assert found[0].text == " ".join(["ab c"] * 6)
    assert len({each.text for each in found}) == 20
    costs = [each.graph_cost + each.acoustic_cost for each in found]
    assert costs == sorted(costs)
    assert costs[-1] <= costs[0] + 10.0


def test_several_unfinished_hypotheses() -> None:
    """The n best of a recording that ends inside a word are not final."""
    scores = 40 * _scores([4, 5, 0, 1])

    [found, *_] = _decoder(boundaries=BOUNDARIES).decode(scores, 1.0, nbest=3)

    assert found.text == "c"
    assert not found.is_final


def test_unfinished_words() -> None:
    """A recording that ends inside a word has the words before it, and is not final."""
    [found] = _decoder(min_active=0).decode(10 * _scores([0, 1]), 1.0)

    assert found.words == ()
    assert not found.is_final
    assert _decoder().decode(np.empty((0, 6), np.float32), 1.0) == []


@pytest.mark.parametrize("most", [2, 200, 2**40])
def test_numbers_of_states(most: int) -> None:
    """The least number of states may be the most, and both beyond what the decoder counts."""
    found = _decoder(min_active=most, max_active=most).decode(_scores([4, 5]), 1.0)

    assert [each.text for each in found] == ["c"]


@pytest.mark.parametrize("kind", ["StdVectorFst", "StdConstFst"])
def test_graphs_in_files(kind: str, tmp_path: Path) -> None:
    """Graphs of both types of one file are read."""
    path = str(tmp_path / "HCLG.fst")
    getattr(kaldifst, kind)(small_graph()).write(path)

    for graph in (path, read_graph(path)):
        decoder = WordDecoder(graph, WORDS, Transitions.of(MODEL))

        assert decoder.decode(_scores([4, 5]), 1.0)[0].text == "c"


def _header(kind: str) -> bytes:
    """The first bytes of a file of OpenFst."""
    magic = (2125659606).to_bytes(4, "little")
    return magic + len(kind).to_bytes(4, "little") + kind.encode() + bytes(60)


def _changed(kind: str, what: str, state: int, value: float) -> Path:
    """A file of the graph with the final cost of a state changed, or with one more arc."""
    graph, path = small_graph(), Path("HCLG.fst")
    good = {"input": 1, "output": 0, "cost": 0.625, "next": 2}
    if what == "final":
        graph.set_final(state, value)
    else:
        graph.add_arc(state, kaldifst.StdArc(*good.values()))
    getattr(kaldifst, kind)(graph).write(str(path))
    if what != "final":  # OpenFst itself would not survive some of them
        data, changed = path.read_bytes(), good | {what: value}
        arc = struct.pack("<iifi", *changed.values())
        path.write_bytes(data.replace(struct.pack("<iifi", *good.values()), arc))
    return path


@pytest.mark.parametrize("kind", ["StdVectorFst", "StdConstFst"])
def test_graphs_that_end_early(kind: str, tmp_path: Path) -> None:
    """A graph that lacks its last bytes, however many, is refused by its size."""
    path = tmp_path / "HCLG.fst"
    getattr(kaldifst, kind)(small_graph()).write(str(path))
    data = path.read_bytes()
    for size in range(20, len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(SpeechError, match=r"HCLG\.fst: .*(ends in|not in|type 'standard')"):
            read_graph(path)
