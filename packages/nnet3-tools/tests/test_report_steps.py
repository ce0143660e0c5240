"""The steps on the page about a model, and the request that the page shows if nobody names one.

`tests/test_report_steps.py` compares them with the programs of the reference's networks.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner
from nnet3_descriptors import Nnet, parse_config, write_nnet
from nnet3_graph import build_computation_graph
from nnet3_report import layers_of
from nnet3_report.pages import pooled_frames, usual_request
from nnet3_report.pages.steps_picture import StepFacts, described_frames, step_facts, steps_picture
from nnet3_tools.models.describing import nnet3_report
from small_networks import network, stacked

SVG = "{http://www.w3.org/2000/svg}"

RECURRENT = "dim-range-node name=part input-node=rnn dim-offset=1 dim=4\n" + stacked(
    4,
    "a.affine Affine input-dim=8 output-dim=4",
    "a.relu RectifiedLinear dim=4",
    "rnn Affine input-dim=4 output-dim=6 input=Sum(a.relu, IfDefined(Offset(part, -2)))",
    "b Affine input-dim=6 output-dim=2",
    splice="Append(Offset(input, -1), input)",
)


def facts_of(nnet: Nnet, frames: int, every: int = 1) -> StepFacts:
    """The steps of a request for two sequences."""
    request = usual_request(nnet, frames, 2, every, train=False)
    return step_facts(nnet, request, build_computation_graph(nnet, request))


def pooling(context: str) -> Nnet:
    """A network that pools over a window."""
    extract = "extract StatisticsExtraction input-dim=4"
    pool = f"pool StatisticsPooling input-dim=9 {context}"
    config = stacked(4, extract, pool, splice="Append(Offset(input, -2))")
    return network(config.replace("output input=pool", "output input=Round(pool, 1)"))


def test_what_steps_read() -> None:
    """A step reads the steps that hold the rows which its descriptor names."""
    steps = facts_of(parse_config(RECURRENT), 6).steps
    where = {(step.node, t): n for n, step in enumerate(steps) for t in step.frames}

    for step in steps:
        expected: set[int] = set()
        for t in step.frames:
            wanted: set[tuple[str, int]]
            match step.node:
                case "input":
                    wanted = set()
                case "a.affine_input":
                    wanted = {("input", t - 1), ("input", t)}
                case "rnn_input":
                    wanted = {("a.relu", t)} | ({("part", t - 2)} if t > 1 else set())
                case "part":
                    wanted = {("rnn", t)}
                case "b_input":
                    wanted = {("rnn", t)}
                case "a.relu_input":
                    wanted = {("a.affine", t)}
                case "output":
                    wanted = {("b", t)}
                case component:
                    wanted = {(f"{component}_input", t)}
            expected |= {where[row] for row in wanted}
        assert step.reads == tuple(sorted(expected))


def test_rounds_of_a_recurrence() -> None:
    """Two rounds and the last are drawn, a dashed box stands for the others, no step is lost."""
    nnet = parse_config(RECURRENT)
    facts = facts_of(nnet, 20)
    picture = steps_picture(nnet, facts, layers_of(nnet))
    drawing = ElementTree.fromstring(picture.svg)
    boxes = drawing.findall(f"{SVG}g")
    texts = [[text.text or "" for text in box.findall(f"{SVG}text")] for box in boxes]
    names = [text[0] for text in texts]
    shown = [
        int(number)
        for box in boxes
        for number in re.findall(r"(\d+): ", box.findtext(f"{SVG}title") or "")
    ]
    [more] = [text for text in texts if text[0] == "7 more rounds"]

    assert picture.has_rounds
    assert picture.missing == 0
    assert [name for name in names if name.startswith("rnn, ")] == [
        "rnn, t = 0 to 1", "rnn, t = 2 to 3", "rnn, t = 18 to 19"
    ]  # fmt: skip
    assert more[1] == "21 steps"
    assert len(shown) == len(set(shown)) == len(facts.steps) - 21
    assert "recurrent" not in [path.get("class") for path in drawing.iter(f"{SVG}path")]


def test_rows_that_are_read() -> None:
    """An arrow says how many rows are read, if they are not all, each row counted once."""
    splice = "Append(Offset(input, -1), Offset(input, 1))"
    config = stacked(4, "a Affine input-dim=8 output-dim=4", splice=splice)
    nnet = network(config.replace("input=a", "input=Append(a, input)"))
    picture = steps_picture(nnet, facts_of(nnet, 5, 4), layers_of(nnet))

    # Two sequences; outputs at 0 and 4 read inputs at -1, 1, 3, 5 by way of a, and at 0 and 4.
    assert re.findall(r'class="label">([^<]*)<', picture.svg) == ["8 of 14", "4 of 14"]
    assert picture.has_parts


def test_many_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """If there are too many boxes, the first are drawn, and the picture says how many are not."""
    monkeypatch.setattr("nnet3_report.pages.steps_picture.MOST_BOXES", 2)
    nnet = parse_config(RECURRENT)
    picture = steps_picture(nnet, facts_of(nnet, 4), layers_of(nnet))

    assert picture.svg.count('<g class="box') == 2
    assert picture.missing == 5  # rnn twice, part once, b, output


@pytest.mark.parametrize(
    ("frames", "expected"),
    [((), "no frame"), ((3,), "frame 3"), ((0, 1, 2), "frames 0 to 2"),
     ((0, 3, 6), "frames 0 to 6, every 3 frames"), ((0, 1, 3), "frames 0 to 3, not all of them")],
)  # fmt: skip
def test_frames_in_words(frames: tuple[int, ...], expected: str) -> None:
    """Frames are described by the first, the last, and their distance."""
    assert described_frames(frames) == expected


def test_request_of_an_utterance() -> None:
    """A network that pools over utterances is asked for one row at t = 0, and others for frames."""
    wide = pooling("left-context=0 right-context=10000")
    narrow = pooling("left-context=99 right-context=99")

    [given] = usual_request(wide, 30, 2, 1, train=False).inputs
    [wanted] = usual_request(wide, 30, 2, 1, train=True).outputs
    [frames] = usual_request(narrow, 30, 2, 1, train=False).outputs

    assert (pooled_frames(wide), pooled_frames(narrow)) == (10001, 0)
    assert sorted(set(given.indexes[:, 1].tolist())) == list(range(30))
    assert wanted.indexes.tolist() == [[0, 0, 0], [1, 0, 0]]
    assert len(frames.indexes) == 60


def test_page_of_an_utterance(tmp_path: Path) -> None:
    """The page of such a network has the request that nnet3-xvector-compute makes, and says so."""
    write_nnet(pooling("left-context=0 right-context=10000"), tmp_path / "x.raw")

    done = CliRunner().invoke(nnet3_report, [str(tmp_path / "x.raw"), str(tmp_path / "page.html")])

    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.html").read_text()
    assert "<b>input</b>, 200 rows (frames 0 to 199)" in page
    assert "Wanted: <b>output</b>, 1 row (frame 0)" in page
    assert "one output row stands for the utterance" in page
    assert "the output pools over up to 10,001 frames" in page
