"""Mistakes that people make, and the messages that they get.

mistakes.txt has mistakes in Python, each with its error, and mistakes at the command line, each
with a line that the tool prints.
"""

from __future__ import annotations

import contextlib
import gzip
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_errors
from nnet3 import CachingCompiler, load
from nnet3_computation import (
    ComputationRequest,
    IoSpecification,
)
from nnet3_descriptors import (
    parse_config,
    read_nnet,
)
from nnet3_descriptors.editing import apply_edits
from nnet3_graph import build_computation_graph
from nnet3_runtime_cuda import NnetComputer
from nnet3_tables import read_table
from nnet3_tools import entry_points
from nnet3_training import ExampleInput, TrainingExample, write_examples
from reference_cases import ROOT

MODEL = "final.raw"

FILES = {
    "pointer.raw": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    "empty.raw": b"",
    "page.raw": b"<!DOCTYPE html>\n<html>404</html>",
    "gmm.mdl": b"\0B<DIMENSION> \x04\x27\0\0\0<NUMPDFS> \x04\x01\0\0\0<DiagGMM> ",
    "gmm.txt": b"""<TransitionModel>
<Topology>
<TopologyEntry>
<ForPhones>
1
</ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.5 <Transition> 1 0.5 </State>
<State> 1 </State>
</TopologyEntry>
</Topology>
<Triples> 1
1 0 0
</Triples>
<LogProbs>
 [ 0 -0.69 -0.69 ]
</LogProbs>
</TransitionModel>\x20
<DIMENSION> 39 <NUMPDFS> 1 <DiagGMM>
""",
    "lattices": b"utterance1 \0B\xd6\xfd\xb2\x7e\x06\0\0\0vector",
    "HCLG.fst": b"\xd6\xfd\xb2\x7e\x06\0\0\0vector",
    "model.pt": b"PK\x03\x04\x14\0\0\0",
    "tree": b"\0BContextDependency \x04\x03\0\0\0",
    "nnet1": b"\0B<Nnet> <AffineTransform> ",
    "mean.vec": b"\0BFV \x04\x03\0\0\0" + bytes(12),
    "model.onnx": b"\x08\x0a\x12\x07pytorch:",
    "model.h5": b"\x89HDF\r\n\x1a\n",
    "model.pkl": b"\x80\x02}q\0.",
    "speech.wav": b"RIFF\x24\0\0\0WAVEfmt ",
    "final.config": b"# config lines\ninput-node name=input dim=40\n",
    "numbers.txt": b"utt1 1.5 2.5 3.5\n4.5 5.5 6.5\n",
    "ragged.txt": b"utt1 [\n  1 2 3\n  4 5 ]\n",
    "vectors.ark": b"utt1 \0BFV \4\3\0\0\0" + bytes(12),
    "network.xconfig": b"input dim=40 name=input\noutput-layer name=output dim=10\n",
    "misspelt.config": b"input-node name=input dim=40\noutput-node name=output input=inptu\n",
    "feats.scp": b"utt1 test.feats.ark:34\n",
    "nowhere.scp": b"utt1 nowhere.ark:5\n",
    "inside.scp": b"utt1 test.feats.ark:7\n",
    "keys.scp": b"utt1\n",
    "command.scp": b"utt1 sox speech.flac -t wav - |\n",
    "range.scp": b"utt1 test.feats.ark:34[0:999]\n",
    "options.conf": b"--frames-per-chunk=50\nuse-gpu=no\n",
    "chain.egs": b"utt1 \0B<Nnet3ChainEg> ",
}

INPUT = "input-node name=input dim=40\n"


def config(line: str) -> object:
    """Reads a config line after that of an input node."""
    return parse_config(INPUT + line)


def edit(line: str) -> object:
    """Edits the digits model."""
    return apply_edits(read_nnet(MODEL), line)


def request(inputs: str, outputs: str, end: int = 13) -> ComputationRequest:
    """Asks for frame 0 of an output."""
    return ComputationRequest(
        inputs=[IoSpecification.from_range(inputs, -12, end)],
        outputs=[IoSpecification.from_range(outputs, 0, 1)],
    )


def graph(inputs: str, outputs: str, end: int = 13) -> object:
    """Builds a graph."""
    return build_computation_graph(read_nnet(MODEL), request(inputs, outputs, end))


def compute(features: object, **options: object) -> object:
    """Computes outputs of the digits model."""
    return load(MODEL).compute(features, **options)  # type: ignore[arg-type]


def loading(**options: object) -> object:
    """Loads the digits model."""
    return load(MODEL, **options)  # type: ignore[arg-type]


def forward(**arrays: np.ndarray) -> object:
    """Runs a computation."""
    nnet = read_nnet(ROOT / "examples" / "digits" / MODEL)
    computation = CachingCompiler(nnet).compile(request("input", "output"))
    return NnetComputer(nnet, computation).forward(arrays)


def table(specifier: str) -> object:
    """Reads a table."""
    return dict(read_table(specifier))


def with_ivector(**options: object) -> object:
    """Computes outputs of a network that needs an i-vector."""
    return load(SPEAKER).compute(FRAMES, **options)  # type: ignore[arg-type]


FRAMES = np.zeros((30, 23), np.float32)
RECURRENT = parse_config(
    "input-node name=input dim=3\n"
    "component name=a type=NoOpComponent dim=3\n"
    "component-node name=a component=a input=Sum(input, Offset(a, -1))\n"
    "output-node name=output input=a\n"
)
SPEAKER = parse_config(
    "input-node name=input dim=23\n"
    "input-node name=ivector dim=100\n"
    "output-node name=output input=Append(input, ReplaceIndex(ivector, t, 0))\n"
)
BOTH = ComputationRequest(
    inputs=[IoSpecification.from_range(name, 0, 1) for name in ("input", "ivector")],
    outputs=[IoSpecification.from_range("output", 0, 1)],
)
AFFINE = "component name=a type=AffineComponent input-dim=40 output-dim=3"


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Makes files in the current folder that people take for others."""
    with contextlib.chdir(tmp_path_factory.mktemp("folder")):
        _make_files()
        yield


def _make_files() -> None:
    for name in (MODEL, "test.feats.ark"):
        shutil.copy(ROOT / "examples" / "digits" / name, name)
    for name, content in FILES.items():
        Path(name).write_bytes(content)
    key, features = next(iter(read_table("ark:test.feats.ark")))
    Path("post.txt").write_text(f"{key} {'[ 7 1 ] ' * len(features)}\n", encoding="utf-8")
    Path("ali.txt").write_text(f"{key} {'12 ' * len(features)}\n", encoding="utf-8")
    frames = ExampleInput.from_sequences("input", [features[:1]])
    write_examples([TrainingExample(key=key, inputs=[frames], outputs=[])], "some.egs")
    model = Path(MODEL).read_bytes()
    Path("final.raw.gz").write_bytes(gzip.compress(model))
    Path("cut.raw").write_bytes(model[:50000])
    read_nnet(MODEL).save("final.nnet")


def parts(start: str) -> list[Any]:
    """The parts of mistakes.txt whose first line begins so, with their titles."""
    text = Path(__file__).with_name("mistakes.txt").read_text(encoding="utf-8")
    found = (part.partition("\n") for part in re.split("^# ", text, flags=re.MULTILINE))
    return [pytest.param(rest, id=title) for title, _, rest in found if rest.startswith(start)]


@pytest.mark.parametrize("part", parts(">>> "))
def test_messages(part: str) -> None:
    """A mistake in Python raises the error that stands below it."""
    assert not test_errors.differences(part, {**globals()})


@pytest.mark.parametrize("part", parts("$ "))
def test_messages_of_tools(
    part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tool prints the line below its command, and ends with a status of Kaldi's for failures."""
    command_line, message = part.strip().removeprefix("$ ").split("\n")
    words = shlex.split(command_line)
    monkeypatch.setattr(sys, "argv", words)

    with pytest.raises(SystemExit) as ended:
        entry_points.command_of(words[0]).run()

    printed = capsys.readouterr().err
    assert ended.value.code in (1, 255)  # test_exit_status.py has which
    assert message in printed.splitlines()
    assert "Traceback" not in printed
