"""Mistakes that people make, and the messages that they get.

mistakes.txt has mistakes in Python, each with its error, and mistakes at the command line, each
with a line that the tool prints, its exit status if that is not 255, and what it leaves.
"""

from __future__ import annotations

import contextlib
import gzip
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_errors
from catalogues import parts_of
from kaldi_tables import write_arrays
from nnet3 import CachingCompiler, load
from nnet3_computation import (
    ComputationRequest,
    IoSpecification,
)
from nnet3_descriptors import (
    parse_config,
    read_nnet,
    write_nnet,
)
from nnet3_descriptors.editing import apply_edits
from nnet3_graph import build_computation_graph
from nnet3_runtime_cuda import NnetComputer
from nnet3_tables import read_table
from nnet3_training import ExampleInput, TrainingExample, write_examples
from reference_cases import CHAIN_REFERENCE, DIGITS_EXAMPLE, ROOT, TOOLS_REFERENCE
from speech_folders import make_transcriber
from test_fine_tuning import write_system
from tool_commands import run_line
from wav_files import wav

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
    "fixed.raw": b"""<Nnet3>
input-node name=input dim=2
output-node name=output input=Sum(input, ReplaceIndex(input, t, 0))

<NumComponents> 0
</Nnet3>
""",
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
    "wide.mat": b" [ 1 0 ]\n",
    "a.wav": wav(bytes(2000)),
    "wav.scp": b"a a.wav\n",
    "few.lexicon": b"zero zero0\n",
    "other.lexicon": b"zero Z\n",
    "one.vectors": b"a [ 1 1 1 1 1 1 1 1 1 1 1 1 ]\n",
    "short.vectors": b"a [ 1 2 ]\n",
    "twice.vectors": b"a [ 1 1 1 1 1 1 1 1 1 1 1 1 ]\n" * 2,
    "uneven.vectors": b"a [ 1 2 ]\nb [ 1 2 3 ]\n",
    "zero.counts": b"a 0\n",
    "speakers": b"x a b\n",
    "alone": b"x\n",
    "fixed.feats": b"long  [\n 1 2\n 1 2\n 1 2\n ]\nshort  [ 3 4 ]\n",
    "short.text": b"test-en-gb-x-rp_m1-s145-p45-eight eight\n",
    "trials": b"a s00u0\n",
    "one.trials": b"s00u0\n",
    "three.trials": b"s00u0 s00u1\ns00u0 s00u1 target\n",
    "bytes.trials": b"\xff\n",
    "graphs.txt": b"test-en-gb-x-rp_m1-s145-p45-eight \n0 1 2 0\n1 1 1 0\n1\n\n",
    "splice.conf": b"--left-context=1\n--right-context=1\n",
    "ivectors.conf": b"""--splice-config=extractor/splice.conf
--cmvn-config=extractor/online_cmvn.conf
--lda-matrix=extractor/final.mat
--global-cmvn-stats=extractor/global_cmvn.stats
--diag-ubm=extractor/final.dubm
--ivector-extractor=extractor/final.ie
""",
}

CHAIN_FILES = (
    *("tree", "0.trans_mdl", "phones.txt", "phone_seqs.txt", "normalization.fst", "den.fst"),
    *("sup.ark", "cegs8.ark", "initial.raw", "train.m0.9.raw"),
)

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
    nnet = read_nnet(DIGITS_EXAMPLE / MODEL)
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
        shutil.copy(DIGITS_EXAMPLE / name, name)
    for name in ("lstmp.raw", "xvector-stats.raw"):
        shutil.copy(TOOLS_REFERENCE / name, name)
    for name in ("extractor", "plda"):
        shutil.copytree(ROOT / "packages" / "nnet3-speech" / "tests" / name, name)
    _make_chain_systems()
    _make_transcribers()
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


def _make_chain_systems() -> None:
    """Makes the files of a chain model in one folder, and a system to be tuned in another."""
    digits = CHAIN_REFERENCE / "digits"
    for name in ("chain", "tune", "tune/bare", "tune/alone"):
        Path(name).mkdir()
    for name in CHAIN_FILES:
        shutil.copy(digits / name, "chain")
    shutil.copy(DIGITS_EXAMPLE / "train60.feats.ark", "chain/feats.ark")
    shutil.copy(CHAIN_REFERENCE / "random" / "17" / "transition.mdl", "chain/other.mdl")
    write_system(Path("tune"))
    narrow = {key: features[:, 1:] for key, features in read_table("ark:tune/feats.ark")}
    write_arrays("ark:tune/narrow.ark", narrow)
    shutil.copy(digits / "initial.raw", "tune/bare/a.raw")
    shutil.copy(digits / "tree", "tune/bare/tree")
    shutil.copy("tune/model/final.mdl", "tune/alone/a.mdl")
    run_line("nnet3-chain-merge-egs --minibatch-size=4 ark:chain/cegs8.ark ark:chain/merged.egs")
    for columns in (50, 70):
        text = re.sub(r"(?<=dim=)62", f"{columns}", (digits / "nnet.config").read_text())
        write_nnet(parse_config(text), f"chain/{columns}.raw")


def _make_transcribers() -> None:
    """Makes the folder of a small model, and another one with the phones of another model."""
    for name in ("speech", "strange"):
        make_transcriber(Path(name))
    Path("strange/phones.txt").write_text("<eps> 0\na_B 1\na_E 2\n#0 3\n", encoding="utf-8")
    Path("strange/graph/words.txt").unlink()


def parts(start: str) -> list[Any]:
    """The parts of mistakes.txt whose first line begins so, with their titles."""
    found = parts_of("mistakes.txt").items()
    return [pytest.param(text, id=title) for title, text in found if text.startswith(start)]


@pytest.mark.parametrize("part", parts(">>> "))
def test_messages(part: str) -> None:
    """A mistake in Python raises the error that stands below it."""
    assert not test_errors.differences(part, {**globals()})


def files() -> set[tuple[Path, int]]:
    """The files of the current folder, and when each was written."""
    found = (path for path in Path().rglob("*") if path.is_file())
    return {(path, path.stat().st_mtime_ns) for path in found}


def taken_away(names: set[str]) -> set[str]:
    """Removes files and folders; returns their names, without what is random in them."""
    for name in names:
        shutil.rmtree(name) if Path(name).is_dir() else Path(name).unlink()
    return {re.sub(r"\.\w+(?=\.incomplete$)", "", name) for name in names}


@pytest.mark.parametrize("part", parts("$ "))
def test_messages_of_tools(part: str) -> None:
    """A tool prints the line below its command, ends with Kaldi's status, and leaves no file."""
    command_line, message, *more = part.removeprefix("$ ").split("\n")
    before = files()

    status, said = run_line(command_line)
    left = taken_away({path.parts[0] for path, _ in files() - before})

    assert message in said.splitlines()
    statuses = [] if status == 255 else [f"exit status {status}"]
    assert [*statuses, *(f"leaves {name}" for name in left)] == more
    assert {path for path, _ in before - files() if path.suffix != ".incomplete"} == set()
