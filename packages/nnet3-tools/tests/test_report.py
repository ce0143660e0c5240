"""The page about a model, and the request that it shows if nobody names one."""

from __future__ import annotations

import os
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_computation.text import command_lines
from nnet3_descriptors import Nnet, parse_config, write_nnet
from nnet3_graph import build_computation_graph
from nnet3_report import layers_of, with_unit
from nnet3_report.pages import pooled_frames, report_page, usual_request
from nnet3_report.pages.facts import component_facts, node_times, program_facts, rank_of
from nnet3_report.pages.frames_picture import frames_svg
from nnet3_report.pages.page import described_rows
from nnet3_report.pages.steps_picture import StepFacts, described_frames, step_facts, steps_picture
from nnet3_runtime_cuda import NnetComputer
from nnet3_tools.models.describing import nnet3_report
from page_elements import Elements
from small_networks import network, request_for, stacked
from threadpoolctl import threadpool_info

SVG = "{http://www.w3.org/2000/svg}"

CONFIG = "input-node name=ivector dim=3\n" + stacked(
    8,
    "tdnn1.affine Affine input-dim=19 output-dim=16",
    "tdnn1.relu RectifiedLinear dim=16",
    "rnn Affine input-dim=16 output-dim=16 "
    "input=Sum(Scale(0.5, tdnn1.relu), IfDefined(Offset(rnn, -3)))",
    "final Affine input-dim=32 output-dim=2 input=Append(rnn, tdnn1.relu)",
    splice="Append(Offset(input, -1), input, ReplaceIndex(ivector, t, 0))",
)


@pytest.fixture(scope="module")
def nnet() -> Nnet:
    """A network with a splice, a recurrence, a bypass and an i-vector."""
    return parse_config(CONFIG)


def request(last: int = 4, step: int = 1) -> ComputationRequest:
    """Asks for frames before the last one."""
    wanted = request_for(range(-1, last), range(0, last, step))
    ivector = IoSpecification.from_range("ivector", 0, 1)
    return attrs.evolve(wanted, inputs=[*wanted.inputs, ivector])


def report(*arguments: object, status: int = 0) -> Result:
    """Runs nnet3-report."""
    done = CliRunner().invoke(nnet3_report, [str(each) for each in arguments])
    assert done.exit_code == status, done.output
    return done


def test_page_in_place_of_a_page(nnet: Nnet, tmp_path: Path) -> None:
    """A page takes the place of another one; "-" is standard output."""
    path, page = tmp_path / "final.raw", tmp_path / "page.html"
    write_nnet(nnet, path)
    for _ in range(2):
        report("--frames=0", path, page)

    assert report("--frames=0", path, "-").stdout == page.read_text()


def test_many_components() -> None:
    """The table of many components is folded by layer; nothing is lost."""
    parts = ("affine Affine input-dim=4 output-dim=4", "relu RectifiedLinear dim=4")
    nnet = network(stacked(4, *(f"layer{n}.{part}" for n in range(21) for part in parts)))

    page = report_page("many", nnet)

    summaries = re.findall(r"<details><summary>(.*?)</summary>", page)
    assert len(summaries) == 21
    assert summaries[3] == "<b>layer3</b>: Affine → RectifiedLinear; 4 → 4; 20 parameters"
    names = re.findall(r"<tr><td>(layer[^<]+)</td>", page)
    assert names == list(nnet.component_names)


@given(st.integers(1, 6), st.integers(8, 20), st.integers(8, 20), st.integers(0, 99))
def test_rank(rank: int, rows: int, cols: int, seed: int) -> None:
    """The rank is that of the singular values."""
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, cols))
    squares = np.linalg.svd(matrix, compute_uv=False) ** 2
    expected = 1 + int((np.cumsum(squares) < 0.9 * squares.sum()).sum())

    assert rank_of(matrix.astype(np.float32)) == expected


def test_rank_of_zeros() -> None:
    """A matrix of zeros has none."""
    assert rank_of(np.zeros((9, 8), np.float32)) == 0


def test_dead_units(nnet: Nnet) -> None:
    """Rectifiers that are hardly ever positive are counted."""
    relu = nnet.component("tdnn1.relu")
    share = np.array([0.0, 0.0005, *[0.5] * 14], np.float32)
    counted = attrs.evolve(relu, count=100.0, value_avg=share, deriv_avg=share)
    facts = list(component_facts(nnet.with_components({"tdnn1.relu": counted})))

    assert facts[1].warning == "2 of 16 units dead"
    assert facts[1].activity == "positive in 44 % of frames"


def test_composite_component() -> None:
    """The largest matrix of a composite component is that of its components."""
    affine = "type=AffineComponent input-dim=9 output-dim=8 param-stddev=2 bias-stddev=0"
    parts = f"num-components=2 component1='{affine}' component2='type=TanhComponent dim=8'"
    nnet = network(stacked(9, f"c Composite {parts}"))
    matrix = nnet.state_dict()["c.0.linear_params"]
    (facts,) = component_facts(nnet)

    assert facts.rms == pytest.approx(np.sqrt(np.mean(matrix**2)))
    assert facts.full_rank == 8
    assert "Composite" in report_page("composite", nnet)


def test_frames_computed(nnet: Nnet) -> None:
    """The picture has a block for each frame of each layer that the graph has, and no other."""
    graph = build_computation_graph(nnet, request())
    layers = layers_of(nnet)
    picture = ElementTree.fromstring(frames_svg(nnet, graph, layers))
    drawn = {
        title.text: len(group.findall(f"{SVG}rect"))
        for group in picture.findall(f"{SVG}g")
        if (title := group.find(f"{SVG}title")) is not None
    }

    assert drawn == {
        "ivector: 1 frame, 0 to 0": 1,
        "input: 5 frames, -1 to 3": 5,
        "tdnn1: 4 frames, 0 to 3": 4,
        "rnn: 4 frames, 0 to 3": 4,
        "final: 4 frames, 0 to 3": 4,
        "output: 4 frames, 0 to 3": 4,
    }


def test_frames_of_a_long_request(nnet: Nnet) -> None:
    """Of many frames, neighbours share a block, so that the page stays small."""
    graph = build_computation_graph(nnet, request(last=30_000, step=3))
    picture = frames_svg(nnet, graph, layers_of(nnet))

    assert picture.count("<rect") == len(layers_of(nnet))


def test_names_beside_the_frames() -> None:
    """A name has up to 32 letters, and the picture as much room as the longest name needs."""
    nnet = network(stacked(4, "prefinal-chain.2.batchnorm Tanh dim=4", f"{'long' * 9} Tanh dim=4"))
    request = usual_request(nnet, 3, 1, 1, train=False)
    picture = frames_svg(nnet, build_computation_graph(nnet, request), layers_of(nnet))

    assert ">prefinal-chain.2.batchnorm</text>" in picture
    assert f">{('long' * 8)[:31]}…</text>" in picture
    assert 'class="name" x="234.0"' in picture  # 32 letters of 7 pixels, and 10


def test_nodes_of_components() -> None:
    """The table names the nodes of a component that has other ones than its own name."""
    nnet = parse_config(
        "input-node name=input dim=4\n"
        "component name=a type=TanhComponent dim=4\n"
        "component name=b type=TanhComponent dim=4\n"
        "component name=c type=TanhComponent dim=4\n"
        "component-node name=a component=a input=input\n"
        + "".join(f"component-node name=b{n} component=b input=a\n" for n in range(5))
        + "output-node name=output input=b4\n"
    )
    facts = {each.name: each.nodes for each in component_facts(nnet)}

    assert facts == {"a": "", "b": "b0, b1, b2 and 2 more", "c": "none"}
    assert "<th>nodes</th>" in report_page("shared", nnet)


def test_frames_read() -> None:
    """The table says which frames a component chooses itself."""
    nnet = network(stacked(4, "tdnn Tdnn input-dim=4 output-dim=3 time-offsets=-3,0"))
    assert [each.frames for each in component_facts(nnet)] == ["-3, 0"]
    assert "<th>frames read</th>" in report_page("spliced", nnet)


@pytest.mark.parametrize(
    ("indexes", "expected"),
    [
        ([(0, 7, 0)], "1 row (frame 7)"),
        ([(0, t, 0) for t in range(-2, 4)], "6 rows (frames -2 to 3)"),
        (
            [(n, t, 0) for t in (0, 3, 6) for n in (0, 1)],
            "6 rows (frames 0 to 6, every 3 frames, of 2 sequences)",
        ),
        ([(0, t, 0) for t in (0, 1, 5)], "3 rows (frames 0 to 5, not all of them)"),
    ],
)
def test_rows_of_a_request(indexes: list[tuple[int, int, int]], expected: str) -> None:
    """The page says of which frames and sequences the rows of a request are."""
    assert described_rows(IoSpecification(name="input", indexes=indexes)) == expected


def test_program(nnet: Nnet) -> None:
    """The stages begin with the compiled program and end with the optimized one."""
    facts = program_facts(nnet, request())

    assert facts.stages[0].name == "compiled"
    assert facts.stages[0].commands == len(facts.bytes_held["compiled"])
    assert facts.stages[-1].commands == len(facts.bytes_held["optimized"])
    assert facts.stages[-1].commands < facts.stages[0].commands
    assert facts.stages[-1].peak_bytes == facts.bytes_held["optimized"].max()


def test_listing(nnet: Nnet) -> None:
    """The listing begins with the commands and the bytes after them; no line is only for files."""
    training = usual_request(nnet, 4, 1, 1, train=True)
    facts = program_facts(nnet, training)
    count = len(facts.bytes_held["optimized"])
    commands, others = facts.listing[:count], facts.listing[count:]

    assert [line[11:] for line in commands] == command_lines(facts.optimized, nnet, range(count))
    assert [line[:9].strip() for line in commands] == [
        with_unit(size) for size in facts.bytes_held["optimized"].tolist()
    ]
    assert all(re.match(r"$|[mijrp]\d+ = ", line) for line in others)
    assert sum(line.startswith("m") for line in others) == len(facts.optimized.matrices) - 1


def test_times(nnet: Nnet) -> None:
    """Each node that computes has a time, the slowest first."""
    training = usual_request(nnet, 4, 1, 1, train=True)
    program = program_facts(nnet, training)

    times = node_times(nnet, training, program.optimized)

    seconds = [each.seconds for each in times]
    assert seconds == sorted(seconds, reverse=True)
    assert {"tdnn1.affine", "rnn", "final"} <= {each.node for each in times}
    assert 0 < sum(seconds) < np.inf
    assert all(each.commands > 0 for each in times)


def test_times_of_one_thread(nnet: Nnet, monkeypatch: pytest.MonkeyPatch) -> None:
    """While commands are timed, products run on one thread, too."""
    wanted = usual_request(nnet, 4, 1, 1, train=False)
    program = program_facts(nnet, wanted)
    threads: set[int] = set()

    class Watched(NnetComputer):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            blas = [each for each in threadpool_info() if each["user_api"] == "blas"]
            threads.update(each["num_threads"] for each in blas)
            return super().forward(*args, **kwargs)

    monkeypatch.setattr("nnet3_report.pages.facts.NnetComputer", Watched)

    node_times(nnet, wanted, program.optimized)

    assert threads == {1}


def test_page_stands_alone(nnet: Nnet) -> None:
    """The page is well formed, refers to nothing, and no name becomes markup."""
    page = report_page("<script>alert(1)</script>", nnet, request())
    elements = Elements()
    elements.feed(page)
    elements.close()

    assert elements.open == []
    assert elements.addresses == []
    assert "<script>alert" not in page
    assert all(name in page for name in nnet.component_names)


def test_legend(nnet: Nnet) -> None:
    """The page explains the labels and arrows that the drawing has, and no others."""
    page = report_page("page", nnet)
    plain = report_page("plain", network(stacked(2, splice="Append(input, Round(input, 3))")))

    for text in (
        "the one before, the one after",
        "at t = 0</b> that",
        "times 0.5</b>",
        "a recurrence",
        "also works without",
    ):
        assert text in page.replace("\n", " ")
        assert text not in plain.replace("\n", " ")
    assert "a descriptor of Kaldi" in plain
    assert "a descriptor of Kaldi" not in page


def test_tool(nnet: Nnet, tmp_path: Path) -> None:
    """The tool writes the page, with the request that its options describe."""
    write_nnet(nnet, tmp_path / "final.raw")

    done = report("--frames=6", "--train", tmp_path / "final.raw", tmp_path / "page.html")

    lines = [line.removeprefix("LOG (nnet3-report) ") for line in done.stderr.splitlines()]
    assert lines[0].startswith(f"Read {tmp_path / 'final.raw'}: ")
    assert lines[1:] == [
        "Compiling the request",
        "Running the program, to measure the time of its commands",
        "Drawing the network",
        f"Wrote the page to {tmp_path / 'page.html'}",
    ]
    page = (tmp_path / "page.html").read_text()
    assert "and the gradient" in page
    assert "Where the time goes" in page
    assert "<title>final.raw</title>" in page


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_names_that_are_no_utf8(nnet: Nnet, tmp_path: Path) -> None:
    """A page names a network whose file's name is no UTF-8 as far as UTF-8 goes."""
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xe9.raw")
    write_nnet(nnet, path)

    report("--time=false", path, tmp_path / "page.html")

    assert "<title>?.raw</title>" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_tool_without_request(tmp_path: Path) -> None:
    """If the usual frames cannot be computed, the page has no request."""
    nnet = network(stacked(2, splice="ReplaceIndex(input, t, 1000)"))
    write_nnet(nnet, tmp_path / "final.raw")
    arguments = tmp_path / "final.raw", tmp_path / "page.html"

    done = report(*arguments)
    report("--frames=50", *arguments, status=1)

    assert "the page is without a request, as 50 frames fail" in done.output
    assert "<h2>A request</h2>" not in (tmp_path / "page.html").read_text()


# ---- steps, which tests/test_report_steps.py compares with programs of Kaldi's networks ----

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

    report(tmp_path / "x.raw", tmp_path / "page.html")

    page = (tmp_path / "page.html").read_text()
    assert "<b>input</b>, 200 rows (frames 0 to 199)" in page
    assert "Wanted: <b>output</b>, 1 row (frame 0)" in page
    assert "one output row stands for the utterance" in page
    assert "the output pools over up to 10,001 frames" in page
